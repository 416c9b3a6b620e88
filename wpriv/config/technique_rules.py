"""Validate techniques of training: which keys belong together, and which tasks have the techniques."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from wpriv.config.train_schema import Privacy, Train

Fault = tuple[tuple[str, ...], str]
OBSERVING = ("bdp", "wdp")
"""Accountants that compare gradients clipped to one norm in all steps."""


def faults(model: Train, task: Any) -> Iterator[Fault]:
    """Yield the key and the message of each fault.

    Args:
        task: the ``TaskSpec`` of the recipe.
    """
    private = model.privacy
    if private is not None:
        yield from _clipping(model, private)
    if model.init is not None and not Path(model.init.file).is_file():
        yield ("init",), f"init: no file of weights {model.init.file}; give the path of one"
    if task.clips_single_records:
        return
    if private is not None and (observed := observing(model)):
        message = f"{observed[0]} compares gradients of records, which the task {model.task} does not observe; use pld"
        yield ("accountants",), message
    sums = f"it needs a task that trains one network on a sum of losses, such as classify or fit; found {model.task}"
    for name in ("augment", "average", "init", "freeze", "lora"):
        if getattr(model, name) is not None:
            yield (name,), f"{name}: {sums}. Leave {name} out"
    if private is not None and private.clip == "automatic":
        yield ("privacy", "clip"), f"clip: automatic: {sums}. Give a number"
    if private is not None and private.adapt is not None:
        yield ("privacy", "adapt"), f"adapt: {sums}. Leave adapt out"


def observing(model: Train) -> list[str]:
    """Return the accountants of a recipe that observe gradients while it trains."""
    return [name for name in model.accountants if name.partition(":")[0] in OBSERVING]


def _clipping(model: Train, private: Privacy) -> Iterator[Fault]:
    """Keys that belong to one way of clipping, beside another."""
    if model.batch is not None and model.batch < private.pairs and (observed := observing(model)):
        message = f"{observed[0]} compares {private.pairs} records of every step; found a batch of {model.batch}"
        yield ("privacy", "pairs"), f"{message}. Take a larger batch, or fewer pairs"
    if private.stability is not None and private.clip != "automatic":
        yield ("privacy", "stability"), "stability belongs to automatic clipping (clip: automatic); remove it"
    if private.adapt is None:
        return
    if not isinstance(private.clip, (int, float)):
        message = f"adapt changes a clipping norm that begins with a number; found clip: {private.clip}. Give a number"
        yield ("privacy", "adapt"), message
    elif not private.adapt.smallest <= private.clip <= private.adapt.largest:
        ends = f"{private.adapt.smallest:g} and {private.adapt.largest:g}"
        yield ("privacy", "clip"), f"clip, the norm at the first step, must lie between {ends}; found {private.clip:g}"
    if private.exact:
        message = "exact noise needs one grid for all steps, and adapt changes the norm and so the grid. Use rounded"
        yield ("privacy", "noise"), message
    if observed := observing(model):
        message = f"accountants: {observed[0]} compares gradients under one clipping norm, which adapt changes; use pld"
        yield ("accountants",), message
