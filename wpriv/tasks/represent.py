"""Fair representation: an autoencoder whose codes are pulled to one law in both groups by a private sliced Wasserstein penalty."""

from __future__ import annotations

import csv
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
from pydantic import Field

from wpriv.core.document import Key
from wpriv.core.fields import Count, Share, Strict
from wpriv.core.schema_train import Train
from wpriv.errors import UsageError
from wpriv.tasks import _codes, _fairness, _sliced
from wpriv.train import account
from wpriv.train.penalty import Penalty

if TYPE_CHECKING:
    import torch

    from wpriv.train.job import Job

RESULTS = ("reconstruction", "core", "distance", "accuracy", "disparate_impact", "parity_gap", "group_accuracy", "loss")
FIGURES = {"codes.csv": "codes"}
POINTS = 1000
UNIT = "all values of one training record within its group"


class Options(_sliced.Options, Strict):
    """What a recipe may say under ``options``; C, the clip of the loss gradients, is ``privacy.clip``."""

    alpha: Share = Field(description="weight of the Wasserstein penalty; the reconstruction has the rest")
    error: Literal["mean", "sum"] = Field("mean", description="the squared error of a record: mean or sum over its numbers")
    core: Count | None = Field(None, description="the first so many columns, whose reconstruction is told by itself")


def faults(recipe: Train) -> list[tuple[Key, str]]:
    """What does not go with this task."""
    return _sliced.faults(recipe)


def sizes(recipe: Train, data: Any) -> dict[str, int]:
    """The records, and those of each group: public, since the neighbours never change them."""
    return {"records": data.records, **{name: len(places) for name, places in _groups(data).items()}}


def release(recipe: Train, sizes: Mapping[str, int]) -> account.Release:
    """A step releases the penalised gradient over a batch of fixed parts."""
    counts = [count for name, count in sizes.items() if name != "records"]
    return account.penalised(recipe, _penalty(recipe, counts), [(counts[0], counts[1])], unit=UNIT)


def start(recipe: Train, data: Any, device: torch.device, *, adjacency: str) -> Job:
    """The autoencoder of a recipe on its data: first weights from torch's global generator, which the engine has seeded.

    Raises:
        UsageError: the data have no two groups or two classes, or the model makes no codes.
    """
    import torch

    from wpriv.train.job import Job
    from wpriv.train.penalised import Objective

    options = Options.model_validate(recipe.options)
    groups = _groups(data)
    inputs, tests = (torch.tensor(_sliced.as_float(x), device=device) for x in (data.x_train, data.x_test))
    model = _sliced.autoencoder(recipe, tuple(inputs.shape[1:])).to(device)
    numbers = inputs[0].numel()
    core = numbers if options.core is None else options.core
    if core > numbers:
        raise UsageError(f"options: core: {core} columns were named and a record has {numbers} numbers")
    scale = 1 / numbers if options.error == "mean" else 1.0
    penalty = _penalty(recipe, [len(places) for places in groups.values()])
    of_group, labels = data.sensitive_test, data.y_test
    places = [torch.from_numpy(np.flatnonzero(of_group == group)).to(device) for group in (0, 1)]
    judged = _codes.split(len(labels))[1]

    def fetch(own: Any) -> tuple[torch.Tensor, torch.Tensor]:
        found = inputs.index_select(0, torch.from_numpy(own).to(device))
        return found, found

    def evaluate() -> dict[str, float]:
        with torch.no_grad():
            codes, made = model(tests)
        errors = (made - tests).flatten(1).square()
        found = codes.cpu().numpy()
        decided = _fairness.decisions(_codes.chosen(found, labels), of_group[judged], labels[judged])
        told = _codes.chosen(found, of_group) == (of_group[judged] == 1)
        return {
            "reconstruction": float(errors.mean()),
            "core": float(errors[:, :core].mean()),
            "distance": _sliced.distance(codes[places[0]], codes[places[1]]),
            **{name: decided[name] for name in ("accuracy", "disparate_impact", "parity_gap") if name in decided},
            "group_accuracy": float(told.mean()),
        }

    def leave(folder: Path) -> None:
        with torch.no_grad():
            found = model(tests)[0][:, :2].cpu().numpy()
        with (folder / "codes.csv").open("w", encoding="utf-8", newline="") as file:
            writer = csv.writer(file, lineterminator="\n")
            writer.writerow(("group", "x", "y"))
            for group in (0, 1):
                # of codes with one number the second is none
                writer.writerows((group, *(round(float(v), 5) for v in (*code, 0.0)[:2])) for code in found[of_group == group][:POINTS])

    objective = Objective(
        model,
        lambda outputs, targets: _sliced.squared(outputs, targets) * scale,
        fetch,
        penalty,
        lambda outputs: outputs[0],
        _sliced.drawn(_width(model, tests), options.directions, device),
    )
    gather = objective.plain if recipe.privacy is None else objective.clipped
    return Job(model, gather, evaluate, groups=list(zip(groups.values(), penalty.sizes[0], strict=True)), leave=leave)


def _width(model: Any, tests: Any) -> int:
    """The numbers of a code."""
    return int(model(tests[:1])[0].shape[1])


def _groups(data: Any) -> dict[str, Any]:
    """The places of the training records of both groups by their names.

    Raises:
        UsageError: there are no two groups, or no two classes to tell apart by the codes.
    """
    groups = data.sensitive_train
    if groups is None:
        raise UsageError(f"{data.name} has no column of groups; name one by its parameter sensitive")
    if len(data.classes) != 2 or set(np.unique(groups)) != {0, 1}:
        told = f"{len(data.classes)} classes and {len(np.unique(groups))} groups"
        raise UsageError(f"codes are compared between two groups, and judged by two classes; found {told} in {data.name}")
    return {f"{data.sensitive}={group}": np.flatnonzero(groups == group) for group in (0, 1)}


def _penalty(recipe: Train, counts: list[int]) -> Penalty:
    options = Options.model_validate(recipe.options)
    first, second = (_sliced.share(recipe, count, sum(counts)) for count in counts)
    return _sliced.penalty(recipe, options, options.alpha, (first, second))
