"""TensorFlow Privacy: the configuration of an optimizer, its attributes, and the text of a privacy statement."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from pathlib import Path

from wpriv.checks.premises import Fact, Found
from wpriv.checks.readers import _documents
from wpriv.checks.readers._documents import count, mapping, real
from wpriv.checks.readers._gaussian_steps import gauss
from wpriv.errors import UsageError

NAME = "tensorflow_privacy"
STATEMENT = "DP-SGD performed over"
_NUMBER = r"([0-9.]+(?:e[+-]?[0-9]+)?)"
_PARAGRAPH = re.compile(
    rf"DP-SGD performed over {_NUMBER} examples with {_NUMBER} examples per iteration, noise multiplier {_NUMBER} for "
    rf"{_NUMBER} epochs (with|without) microbatching, and (?:no bound on number of|at most {_NUMBER}) examples per user"
)
_LEVEL = re.compile(rf"Example-level DP with add-or-remove-one adjacency at delta = {_NUMBER} computed with (\w+) acc")
_EPS = re.compile(rf"Epsilon assuming Poisson sampling \(\*\): {_NUMBER}")
_USER = re.compile(
    rf"User-level DP .*? at delta = {_NUMBER} computed .*? Epsilon assuming Poisson sampling \(\*\): ({_NUMBER}|inf)"
)
_ORDER_EPS = re.compile(rf"Epsilon with each example occurring once per epoch: {_NUMBER}")


def recognises(x: object) -> bool:
    """Tell whether x is an optimizer or a model of TensorFlow Privacy, its configuration, or a file of a statement."""
    if isinstance(x, Path):
        return STATEMENT in _documents.head(x) or _documents.is_json_object(x, *CONFIG) or _is_sparse(x)
    if isinstance(x, Mapping):
        return all(key in x for key in CONFIG) or all(key in x for key in SPARSE)
    return hasattr(x, "_num_microbatches") and (hasattr(x, "_l2_norm_clip") or hasattr(x, "_global_state"))


CONFIG, SPARSE = ("global_state", "num_microbatches"), ("l2_norm_clip", "noise_multiplier", "num_microbatches")


def _is_sparse(x: Path) -> bool:
    return _documents.is_json_object(x, *SPARSE)


def read(x: object, further: Mapping[str, object]) -> Found:
    """Read a configuration, the attributes of a live optimizer or model, or a statement."""
    if isinstance(x, Path):
        text = _documents.text_of(x)
        if STATEMENT in text:
            return _statement(" ".join(text.split()), str(x))
        return _config(mapping(_documents.document(x), str(x)))
    if isinstance(x, Mapping):
        return _config(x)
    state = getattr(x, "_global_state", None)
    names = {"l2_norm_clip": "_l2_norm_clip", "noise_multiplier": "_noise_multiplier"}
    data = {key: getattr(x, name) for key, name in names.items() if getattr(x, name, None) is not None}
    if state is not None:
        data["global_state"] = {key: getattr(state, key) for key in ("l2_norm_clip", "stddev") if hasattr(state, key)}
    return _config({**data, "num_microbatches": getattr(x, "_num_microbatches", None)})


def _config(data: Mapping[str, object]) -> Found:
    """Noise and clipping; a microbatch of more than one record is clipped as a whole, and its size is not shown."""
    owner = "the configuration"
    state = data.get("global_state")
    if state is not None:
        values = mapping(state, "global_state")
        norm, std = real(values, "l2_norm_clip", "global_state"), real(values, "stddev", "global_state")
    else:
        norm = real(data, "l2_norm_clip", owner)
        std = norm * real(data, "noise_multiplier", owner)
    if not norm:
        raise UsageError("the clipping norm of the configuration is 0; it must be above 0")
    facts = [
        Fact("clip.norm", norm, where="l2_norm_clip"),
        Fact("noise.std", std, where="stddev"),
        # both are floats of 32 bits, whose quotient has seven digits
        Fact("noise.multiplier", float(f"{std / norm:.7g}"), where="stddev / l2_norm_clip"),
        Fact("noise.relative_to", "clip", where="stddev / l2_norm_clip"),
    ]
    if data.get("num_microbatches") is None:
        facts.append(Fact("clip.per", "record", where="num_microbatches is None: each record is one"))
        return Found(NAME, tuple(facts), notes=(), read=("l2_norm_clip", "stddev"))
    parts = count(data, "num_microbatches", owner)
    facts.append(Fact("divisor", "constant", where=f"num_microbatches is {parts}"))
    note = f"give clip.per: record where the batch has {parts} records, or else microbatch, which doubles what one adds"
    return Found(NAME, tuple(facts), notes=(note,), read=("l2_norm_clip", "stddev", f"num_microbatches {parts}"))


def _statement(text: str, name: str) -> Found:
    """All that a statement says; its claim is the figure for Poisson sampling, at the delta that it names."""
    paragraph, level, poisson = _PARAGRAPH.search(text), _LEVEL.search(text), _EPS.search(text)
    if paragraph is None or level is None or poisson is None:
        raise UsageError(f"{name}: a privacy statement of TensorFlow Privacy lacks its first paragraph or its epsilon")
    words = ("examples", "batch", "noise", "epochs")
    data: dict[str, object] = {key: _number(paragraph[k]) for k, key in enumerate(words, 1)}
    records, batch = count(data, "examples", name), count(data, "batch", name)
    z, epochs = real(data, "noise", name), real(data, "epochs", name)
    if not 0 < batch <= records or not epochs:
        raise UsageError(f"{name}: the statement has batches of {batch} of {records} examples for {epochs:g} epochs")
    rate, micro = batch / records, paragraph[5] == "with"
    steps = math.ceil(epochs / rate)
    facts = [
        Fact("claim.eps", _number(poisson[1]), where="Epsilon assuming Poisson sampling"),
        Fact("claim.printed", True, where="the statement has three decimals"),
        Fact("claim.delta_accounted", _number(level[1]), where="at delta"),
        Fact("claim.by", f"{NAME}, {level[2].lower()}"),
        Fact("adjacency", "add-remove", where="add-or-remove-one adjacency"),
        Fact("records", records, where="examples"),
        Fact("sampling.batch", batch, where="examples per iteration"),
        Fact("sampling.rate", rate, where="examples per iteration / examples"),
        Fact("sampling.rate_accounted", rate, where="examples per iteration / examples"),
        Fact("steps", steps, where=f"{epochs:g} epochs, as planned"),
        Fact("steps_source", "planned", where="epochs"),
        Fact("noise.multiplier", z, where="noise multiplier"),
        Fact("clip.per", "microbatch" if micro else "record", where=f"{paragraph[5]} microbatching"),
    ]
    if (user := _USER.search(text)) is not None and paragraph[6] is not None and user[2] != "inf":
        # its claim for users, who have up to so many examples
        most = count({"most": _number(paragraph[6])}, "most", name)
        facts[0] = Fact("claim.eps", _number(user[2]), where="User-level, Epsilon assuming Poisson sampling")
        facts += [Fact("unit", "record"), Fact("max_per_unit", most, where=f"at most {most} examples per user")]
    step = gauss(z, rate, steps)
    if micro:
        step = {**step, "noise_multiplier": z / 2}
    other = _ORDER_EPS.search(text)
    notes = () if other is None else (f"its other figure, {other[1]}, is for each example once per epoch",)
    return Found(NAME, tuple(facts), (step,), (), notes, ("privacy statement",))


def _number(text: str) -> float:
    """A number of the statement; one at the end of a sentence has a full stop behind it."""
    return float(text.rstrip("."))
