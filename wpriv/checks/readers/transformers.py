"""Folders of trainers of transformers, by their trainer_state.json, and what a DPTrainer keeps there."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from pathlib import Path

from wpriv.checks.premises import Fact, Found, StepSpec
from wpriv.checks.readers import _documents
from wpriv.checks.readers._documents import count, mapping, real
from wpriv.checks.readers._gaussian_steps import counted, gauss, of_history, refutes, total

STATE = "trainer_state.json"


def recognises(x: object) -> bool:
    """Tell whether x is a folder of a trainer, one of its checkpoints, or a trainer's state; those of opake are not."""
    file = state_file(x)
    return file is not None and not _documents.is_json_object(file, "privacy_resolved_delta")


def state_file(x: object) -> Path | None:
    """The state of a trainer: the file itself, that of a checkpoint, or that of the last checkpoint of a folder."""
    if not isinstance(x, Path):
        return None
    try:
        if x.is_dir():
            checkpoints = [(int(each.name[11:]), each) for each in x.glob("checkpoint-*") if each.name[11:].isdecimal()]
            folders = [x, *(each for _, each in sorted(checkpoints, reverse=True))]
            return next((each / STATE for each in folders if (each / STATE).is_file()), None)
        return x if re.fullmatch(r"trainer_state.*\.json", x.name) and x.is_file() else None
    except (OSError, ValueError):
        return None


def read(x: object, further: Mapping[str, object]) -> Found:
    """Read what a trainer planned and counted; of a DPTrainer also its account, compared with the counter."""
    file = state_file(x)
    assert file is not None
    data = mapping(_documents.document(file), str(file))
    callbacks = mapping(data.get("stateful_callbacks") or {}, f"stateful_callbacks of {file}")
    updates = count(data, "global_step", str(file))
    notes = tuning_notes(data)
    if "DPCallback" in callbacks:
        return _private(mapping(callbacks["DPCallback"], "DPCallback"), data, updates, notes)
    return Found("transformers", counted(updates), notes=notes, read=(f"global_step {updates}",))


def tuning_notes(data: Mapping[str, object]) -> tuple[str, ...]:
    """A remark where a trainer says that it is one of a search of hyperparameters."""
    if not data.get("is_hyper_param_search"):
        return ()
    return ("the training is one of a search of hyperparameters: give composition.runs, or composition.selected",)


def last_logged(data: Mapping[str, object], *keys: str) -> tuple[str, float] | None:
    """The last finite number that a trainer logged under one of the keys, with its key."""
    history = data.get("log_history")
    for entry in reversed(history if isinstance(history, list) else []):
        for key in keys:
            value = entry.get(key) if isinstance(entry, dict) else None
            if isinstance(value, (int, float)) and not isinstance(value, bool) and math.isfinite(value):
                return key, float(value)
    return None


def _private(callback: Mapping[str, object], data: Mapping[str, object], updates: int, notes: tuple[str, ...]) -> Found:
    """The account of a DPTrainer."""
    args = mapping(callback.get("args"), "DPCallback.args")
    state = mapping(callback.get("attributes"), "DPCallback.attributes").get("_accountant_state_dict")
    state = mapping(state, "_accountant_state_dict")
    accounted = of_history(state.get("history"), "the history of DPCallback")
    steps, mechanism = total(accounted), str(state.get("mechanism", args.get("accountant", "")))
    logged = last_logged(data, "privacy_epsilon", "eval_privacy_epsilon")
    facts = [
        Fact("claim.by", f"DPTrainer, opacus {mechanism}"),
        Fact("steps_accounted", steps, where="the history of DPCallback"),
        Fact("clip.per", "record", where="DPTrainer clips by an optimizer of Opacus"),
    ]
    if args.get("target_delta") is not None:
        facts.append(Fact("claim.delta", real(args, "target_delta", "DPCallback.args"), where="target_delta"))
    if logged is not None:
        facts.append(Fact("claim.eps", logged[1], where=f"the last {logged[0]} of log_history"))
    if mechanism == "gdp":
        facts.append(Fact("claim.kind", "estimate", where="the accountant gdp is a central limit"))
    if len(accounted) == 1 and accounted[0].get("rate") is not None:
        facts.append(Fact("sampling.rate_accounted", accounted[0]["rate"], where="the history of DPCallback"))  # type: ignore[arg-type]
        facts.append(Fact("noise.multiplier", accounted[0]["noise_multiplier"], where="the history of DPCallback"))  # type: ignore[arg-type]
    read = (f"history of {steps} steps", f"mechanism {mechanism}", f"global_step {updates}")
    if updates <= steps or not accounted:
        facts += [Fact("steps", steps, where="the history of DPCallback"), Fact("steps_source", "history")]
        return Found("DPTrainer", tuple(facts), accounted, (), notes, read)
    facts.append(Fact("sampling.kind", "poisson", where="updates without a release of their own: batches were split"))
    line = (
        f"global_step is {updates}, and the history has {steps} steps: an epoch ends in the midst of a Poisson batch, "
        f"and the rest of its sum joins the next batch in one release"
    )
    twice = _held_twice(data, args, accounted, steps)
    eps = None if logged is None else logged[1]
    if twice is None or not refutes(twice, 2, eps, args.get("target_delta"), accounted[0]):
        return Found("DPTrainer", tuple(facts), accounted, (), notes, read, (line,))
    # two batches, each drawn from the whole data, are in one release
    where = f"{twice['n']} of {steps} releases hold parts of two batches"
    facts.append(Fact("sampling.workers", 2, where=where))
    change = (("sampling.workers", "train with as many records in memory as a batch may have"),)
    left_out = f"the other {steps - int(twice['n'])} releases"  # type: ignore[call-overload]
    notes = (*notes, line, f"the bracket is of these releases alone, and leaves out {left_out}")
    return Found("DPTrainer", tuple(facts), accounted, (twice,), notes, read, changes=change, left_out=left_out)


def _held_twice(
    data: Mapping[str, object], args: Mapping[str, object], accounted: tuple[StepSpec, ...], steps: int
) -> StepSpec | None:
    """The releases that hold parts of two batches, one for each epoch but the last; None where this is not shown.

    Opacus draws at a rate of one over the batches of a pass. With fewer releases than batches in every epoch, the last
    batch of an epoch is not complete, and what was drawn of it is in the first release of the next.
    """
    epochs, parts = data.get("num_train_epochs"), args.get("gradient_accumulation_steps")
    rate, sigma = accounted[0].get("rate"), accounted[0]["noise_multiplier"]
    if not isinstance(epochs, int) or not isinstance(parts, int) or parts < 2 or epochs < 2 or len(accounted) > 1:
        return None
    if not isinstance(rate, float) or not isinstance(sigma, float) or not 0 < rate < 1:
        return None
    batches = math.ceil(1 / rate - 1e-9)
    return gauss(sigma, 1 / batches, epochs - 1) if steps <= epochs * (batches - 1) else None
