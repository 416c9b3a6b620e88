"""Matching: a network moves the points of one class to the law of another's by the private sliced Wasserstein gradient.

Both may be private. Unlike a generator that is fed with noise, what is moved are records too: they pass through the network that trains,
so that the Jacobian of each is clipped. The others pass through nothing: replacing one of those moves the gradient less.
"""

from __future__ import annotations

import csv
import dataclasses
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import numpy as np
from pydantic import Field

from wpriv import models
from wpriv.core.document import Key
from wpriv.core.fields import Positive, Strict
from wpriv.core.schema_train import Train
from wpriv.errors import UsageError
from wpriv.tasks import _sliced
from wpriv.train import account
from wpriv.train.penalty import Penalty

if TYPE_CHECKING:
    import torch

    from wpriv.train.job import Job
    from wpriv.train.release import Bounded

RESULTS = ("distance", "loss")
FIGURES = {"points.csv": "points"}
POINTS = 1000
UNIT = {
    "both": "the values of one training record of either class, of those that are moved or of those that they are moved to",
    "x": "the values of one training record of the class that is moved; the others are taken as public",
    "z": "the values of one training record of the class that others are moved to; those that are moved are taken as public",
}


class Options(_sliced.Options, Strict):
    """What a recipe may say under ``options``. There is no loss beside the distance: ``privacy.clip`` clips nothing."""

    private: Literal["both", "x", "z"] = Field("both", description="whose records are protected: those moved (x), the goal (z)")
    cap: Positive | None = Field(None, description="norm to which the noisy gradient is cut, which costs no privacy")
    shown: Annotated[list[Annotated[int, Field(ge=0)]], Field(max_length=12)] = Field(
        default_factory=list, description="steps after which the points are kept for the figure, beside the last"
    )


def faults(recipe: Train) -> list[tuple[Key, str]]:
    """What does not go with this task."""
    return _sliced.faults(recipe)


def sizes(recipe: Train, data: Any) -> dict[str, int]:
    """The records, and those of each class: public, since the neighbours never change them."""
    return {"records": data.records, **{data.classes[k]: len(places) for k, places in enumerate(_classes(data, data.y_train))}}


def release(recipe: Train, sizes: Mapping[str, int]) -> account.Release:
    """A step releases the gradient of the sliced distance over a batch of fixed parts of both classes."""
    options = Options.model_validate(recipe.options)
    counts = [count for name, count in sizes.items() if name != "records"]
    penalty = _penalty(recipe, counts)
    clipped = f"scores and points (norm {penalty.bound:g}) and the Jacobians of scores (norm {penalty.lipschitz:g}), all by themselves"
    words = {"unit": UNIT[options.private], "clipped": clipped, "of": "the gradient of the sliced distance"}
    found = account.penalised(recipe, penalty, [(counts[0], counts[1])], **words)
    return dataclasses.replace(found, batch=sum(penalty.sizes[0]))


def start(recipe: Train, data: Any, device: torch.device, *, adjacency: str) -> Job:
    """The network of a recipe on its data: first weights from torch's global generator, which the engine has seeded.

    Raises:
        UsageError: the data have no two classes of rows.
    """
    import torch
    from torch import nn

    from wpriv.train.gather import clipped
    from wpriv.train.job import Job, optimizer_of
    from wpriv.train.penalised import Objective

    options = Options.model_validate(recipe.options)
    groups, held = _classes(data, data.y_train), _classes(data, data.y_test)
    records = torch.tensor(_sliced.as_float(data.x_train), device=device)
    moved, goal = (torch.tensor(_sliced.as_float(data.x_test[own]), device=device) for own in held)
    penalty = _penalty(recipe, [len(places) for places in groups])
    first = penalty.sizes[0][0]
    width = records.shape[1]
    network = models.build(recipe.model, (width,), width)
    model = nn.ModuleDict({"network": network}).to(device)
    # in the model, so that checkpoints hold what a run that goes on has shown
    taken = torch.zeros((), dtype=torch.int64, device=device)
    shown = {step: torch.zeros_like(moved[:POINTS]) for step in sorted(set(options.shown))}
    for name, buffer in {"taken": taken, **{f"shown_{step}": points for step, points in shown.items()}}.items():
        model.register_buffer(name, buffer)

    def at(places: Any) -> torch.Tensor:
        return records.index_select(0, torch.from_numpy(places).to(device))

    objective = Objective(
        network,
        None,
        lambda places: (at(places[:first]), None),
        penalty,
        lambda outputs: outputs,
        _sliced.drawn(width, options.directions, device),
        lambda places: at(places[first:]),
    )
    gather = objective.plain if recipe.privacy is None else objective.clipped
    weights = list(network.parameters())
    optimizer = optimizer_of(weights, recipe.optimizer)

    def learn(places: Any, noisy: Callable[[Bounded], list[torch.Tensor]]) -> torch.Tensor:
        keep()
        gathered = gather(places)
        parts = noisy(gathered.total)
        if options.cap is not None:
            parts = clipped(parts, options.cap)
        for weight, part in zip(weights, parts, strict=True):
            weight.grad = part
        optimizer.step()
        taken.add_(1)
        return gathered.seen

    def keep() -> None:
        if int(taken) in shown:
            with torch.no_grad():
                shown[int(taken)].copy_(network(moved[:POINTS]))

    def evaluate() -> dict[str, float]:
        with torch.no_grad():
            return {"distance": _sliced.distance(network(moved), goal)}

    def leave(folder: Path) -> None:
        with torch.no_grad():
            made = {**{step: points for step, points in shown.items() if step < int(taken)}, int(taken): network(moved[:POINTS])}
        with (folder / "points.csv").open("w", encoding="utf-8", newline="") as file:
            writer = csv.writer(file, lineterminator="\n")
            writer.writerow(("panel", "kind", "x", "y"))
            for step, points in made.items():
                for kind, own in (("target", goal[:POINTS]), ("moved", points)):
                    writer.writerows((f"step {step}", kind, *(round(v, 5) for v in (*point, 0.0)[:2])) for point in own.tolist())

    return Job(
        model,
        None,
        evaluate,
        learn=learn,
        optimizers={"network": optimizer},
        groups=list(zip(groups, penalty.sizes[0], strict=True)),
        leave=leave,
    )


def _classes(data: Any, labels: Any) -> list[Any]:
    """The places of the records of both classes.

    Raises:
        UsageError: there are no two classes of rows.
    """
    if len(data.classes) != 2 or len(data.shape) != 1 or len(np.unique(labels)) != 2:
        told = f"{len(data.classes)} classes of shape {list(data.shape)}"
        raise UsageError(f"match moves the rows of one class to those of another: two classes of rows; found {told} in {data.name}")
    return [np.flatnonzero(labels == label) for label in (0, 1)]


def _penalty(recipe: Train, counts: list[int]) -> Penalty:
    options = Options.model_validate(recipe.options)
    first, second = (_sliced.share(recipe, count, sum(counts)) for count in counts)
    return _sliced.penalty(recipe, options, 1.0, (first, second), fixed=True, private=options.private)
