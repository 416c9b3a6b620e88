"""Lightning: a Trainer with the optimizer and the loader that it used, its checkpoints, and its log of metrics."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping
from pathlib import Path

from wpriv.checks.premises import Fact, Found
from wpriv.checks.readers import _checkpoints, _documents, opacus
from wpriv.checks.readers._documents import count, mapping
from wpriv.checks.readers._gaussian_steps import counted, of_history, total
from wpriv.errors import UsageError
from wpriv.files import csv_tables

NAME, VERSION = "lightning", "pytorch-lightning_version"
LOG = "metrics.csv"
PACKAGES = ("lightning", "pytorch_lightning")
# columns of a log that hold an eps
COLUMNS = ("epsilon", "eps", "privacy_epsilon", "train_epsilon", "train_eps", "dp_epsilon")

# keywords of ``check`` that this reader takes besides the objects of all
FURTHER = ("engine",)


def recognises(x: object) -> bool:
    """Tell whether x is a Trainer, one of its checkpoints, or a log with a column of eps, or its folder."""
    if isinstance(x, Path):
        return _log(x) is not None or (x.suffix in (".ckpt", ".pt") and _checkpoints.is_checkpoint(x, VERSION))
    named = any(cls.__name__ == "Trainer" and cls.__module__.partition(".")[0] in PACKAGES for cls in type(x).__mro__)
    return named and hasattr(x, "optimizers")


def _log(x: Path) -> Path | None:
    """The log of metrics, if it has a column of eps."""
    file = x / LOG if x.is_dir() else x
    if file.name != LOG:
        return None
    names = _documents.head(file).partition("\n")[0].strip().split(",")
    return file if any(name in COLUMNS for name in names) else None


def read(x: object, further: Mapping[str, object]) -> Found:
    """Read what a Trainer stepped; of a checkpoint the account that a callback kept; of a log the last eps."""
    if not isinstance(x, Path):
        return _trainer(x, further)
    file = _log(x)
    return _metrics(file) if file is not None else _checkpoint(x)


def _trainer(trainer: object, further: Mapping[str, object]) -> Found:
    """The optimizers and the loader of a Trainer; its engine is an attribute of the module, or ``engine``."""
    optimizers = getattr(trainer, "optimizers", None) or []
    loader = further.get("loader", getattr(trainer, "train_dataloader", None))
    module = getattr(trainer, "lightning_module", None)
    engine = further.get("engine", _engine_of(module))
    objects = {"optimizer": optimizers[0] if optimizers else None, "loader": loader, "model": module, **further}
    objects = {name: value for name, value in objects.items() if value is not None}
    found = opacus.read(engine if engine is not None else objects.get("optimizer"), objects)
    updates = count({"global_step": getattr(trainer, "global_step", None)}, "global_step", "the Trainer")
    facts = [fact for fact in found.facts if fact.field != "steps_source"]
    if any(fact.field == "steps_accounted" for fact in facts):
        facts.append(Fact("steps_source", "history", where="history"))
    else:
        facts += counted(updates, "trainer.")
    notes = found.notes
    if len(optimizers) > 1:
        notes = (*notes, f"the Trainer has {len(optimizers)} optimizers; the first one was read")
    read = (*found.read, f"global_step {updates}")
    return dataclasses.replace(found, facts=tuple(facts), notes=notes, read=read)


def _engine_of(module: object) -> object:
    """An attribute of a module that is an engine of Opacus; None where there is none."""
    values = list(getattr(module, "__dict__", {}).values())
    return next((each for each in values if any("PrivacyEngine" in cls.__name__ for cls in type(each).__mro__)), None)


def _checkpoint(path: Path) -> Found:
    """A checkpoint: the history that the state of a callback, or the checkpoint itself, has of an accountant."""
    data = mapping(_checkpoints.plain(path), str(path))
    updates = count(data, "global_step", str(path))
    states = [data.get("callbacks"), {"checkpoint": data}, {"state": data.get("privacy_accountant_state_dict")}]
    kept = [each for state in states if isinstance(state, dict) for each in state.values()]
    account = next(
        (each for each in kept if isinstance(each, dict) and "history" in each and "mechanism" in each), None
    )
    name = f"{NAME} {data.get(VERSION)}"[:60]
    if account is None:
        note = (
            "the checkpoint has no account: save the state of the accountant in a callback, or give its PrivacyEngine"
        )
        return Found(name, counted(updates), notes=(note,), read=(f"global_step {updates}",))
    accounted = of_history(account.get("history"), "the history of a callback")
    n, mechanism = total(accounted), str(account.get("mechanism"))[:40]
    facts = [
        Fact("steps_accounted", n, where="the history of a callback"),
        Fact("steps_source", "history", where="the history of a callback"),
        Fact("claim.by", f"opacus {mechanism}"),
        Fact("claim.kind", "estimate" if mechanism == "gdp" else "bound", where=f"mechanism {mechanism}"),
    ]
    contradictions: tuple[str, ...] = ()
    if n == 0:
        facts.append(Fact("steps", 0, where="the history of a callback is empty"))
    elif updates > n:
        contradictions = (f"global_step is {updates}, and the history of a callback has {n} steps",)
    read = (f"history of {n} steps", f"global_step {updates}")
    return Found(name, tuple(facts), accounted, (), (), read, contradictions)


def _metrics(file: Path) -> Found:
    """The last eps of a log; what it belongs to is not there."""
    try:
        names, *rows = [cells for _, cells in csv_tables.rows(_documents.text_of(file))] or [[]]
    except csv_tables.CsvError as error:
        raise UsageError(f"{file}: {str(error)[:120]}") from None
    for cells in reversed(rows):
        row = dict(zip(names, cells, strict=False))
        for name in COLUMNS:
            text = (row.get(name) or "").strip()
            if not text:
                continue
            try:
                eps = float(text)
            except ValueError:
                raise UsageError(f"{file}: {name} must be a number; found {text[:40]!r}") from None
            if not math.isfinite(eps):
                raise UsageError(f"{file}: {name} must be a finite number; found {text[:40]}")
            where = f"the last {name} of {file.name}, at step {str(row.get('step'))[:20]}"
            return Found(NAME, (Fact("claim.eps", eps, where=where),), read=(f"column {name}",))
    raise UsageError(f"{file}: no row has a figure under {', '.join(COLUMNS)}")
