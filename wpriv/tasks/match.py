"""Matching: a network moves the points of one class to the law of another's by the private sliced Wasserstein gradient.

Both may be private. Unlike a generator that is fed with noise, what is moved are records too: they pass through the network that trains,
so that the Jacobian of each is clipped. The others pass through nothing: replacing one of those moves the gradient less.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import numpy as np

from wpriv import models
from wpriv.config.field_types import Field, Positive
from wpriv.config.train_schema import Train
from wpriv.config.yaml_document import Key
from wpriv.data import scaled
from wpriv.engine import release_spec
from wpriv.engine.penalty.penalty import Penalty
from wpriv.errors import UsageError
from wpriv.tasks import TaskSpec, _point_csv, _sliced

if TYPE_CHECKING:
    import torch
    from torch import Tensor, nn

    from wpriv.engine.job import Job, ReleaseGate

POINTS = 1000
UNIT = {
    "both": "the values of one training record of either class, of those that are moved or of those that they are moved to",
    "x": "the values of one training record of the class that is moved; the others are taken as public",
    "z": "the values of one training record of the class that others are moved to; those that are moved are taken as public",
}


class Options(_sliced.Options):
    """What a recipe may say under ``options``. There is no loss beside the distance: ``privacy.clip`` clips nothing."""

    private: Literal["both", "x", "z"] = Field(
        "both", description="whose records are protected: those moved (x), the goal (z)"
    )
    cap: Positive | None = Field(None, description="norm to which the noisy gradient is cut, which costs no privacy")
    shown: Annotated[list[Annotated[int, Field(ge=0)]], Field(max_length=12)] = Field(
        default_factory=list, description="steps after which the points are kept for the figure, beside the last"
    )


def validate(recipe: Train) -> list[tuple[Key, str]]:
    """What does not go with this task."""
    return _sliced.validate(recipe)


def sizes(recipe: Train, data: Any) -> dict[str, int]:
    """The records, and those of each class: public, since the neighbours never change them."""
    return {
        "records": data.records,
        **{data.classes[k]: len(places) for k, places in enumerate(_classes(data, data.y_train))},
    }


def release(recipe: Train, sizes: Mapping[str, int]) -> release_spec.ReleaseSpec:
    """A step releases the gradient of the sliced distance over a batch of fixed parts of both classes."""
    options = Options.model_validate(recipe.options)
    counts = _sliced.counted(sizes)
    penalty = _penalty(recipe, counts)
    clipped = f"scores and points (norm {penalty.bound:g}) and the Jacobians of scores (norm {penalty.lipschitz:g}), all by themselves"
    words = {"unit": UNIT[options.private], "clipped": clipped, "of": "the gradient of the sliced distance"}
    found = release_spec.penalised(recipe, penalty, _sliced.pairs(counts), **words)
    return dataclasses.replace(found, batch=sum(penalty.sizes[0]))


def build_job(recipe: Train, data: Any, device: torch.device, *, adjacency: str) -> Job:
    """The network of a recipe on its data: first weights from torch's global generator, which the engine has seeded.

    Raises:
        UsageError: the data have no two classes of rows.
    """
    import torch

    from wpriv.engine.batch_gradient import clipped
    from wpriv.engine.job import Job, optimizer_of
    from wpriv.engine.penalty.objective import Objective

    options = Options.model_validate(recipe.options)
    groups, held = _classes(data, data.y_train), _classes(data, data.y_test)
    records = torch.tensor(scaled(data.x_train), device=device)
    moved, goal = (torch.tensor(scaled(data.x_test[own]), device=device) for own in held)
    width = records.shape[1]
    model = _model(models.build(recipe.model, (width,), width), moved[:POINTS], options.shown).to(device)
    network, weights = model.network, list(model.network.parameters())
    optimizer = optimizer_of(weights, recipe.optimizer)
    penalty = _penalty(recipe, [len(places) for places in groups])
    first = penalty.sizes[0][0]

    def at(places: Any) -> Tensor:
        return records.index_select(0, torch.from_numpy(places).to(device))

    axes = _sliced.drawn(width, options.directions, device)
    fetch, points = (lambda places: (at(places[:first]), None)), (lambda places: at(places[first:]))
    objective = Objective(network, None, fetch, penalty, lambda outputs: outputs, axes, points)
    gather = objective.gather(recipe.privacy, records, None)

    def picture() -> Tensor:
        with torch.no_grad():
            found: Tensor = network(moved[:POINTS])
            return found

    def custom_step(places: Any, noisy: ReleaseGate) -> Tensor:
        if int(model.taken) in options.shown:
            model.get_buffer(f"shown_{int(model.taken)}").copy_(picture())
        gathered = gather(places)
        parts = noisy(gathered.total)
        if options.cap is not None:
            parts = clipped(parts, options.cap)
        for weight, part in zip(weights, parts, strict=True):
            weight.grad = part
        optimizer.step()
        model.taken += 1
        return gathered.seen

    def evaluate() -> dict[str, float]:
        with torch.no_grad():
            return {"distance": _sliced.distance(network(moved), goal)}

    def save_artifacts(folder: Path) -> None:
        taken = int(model.taken)
        shown = {step: model.get_buffer(f"shown_{step}") for step in sorted(set(options.shown)) if step < taken}
        _point_csv.write(folder / "points.csv", _rows({**shown, taken: picture()}, goal[:POINTS]))

    drawn = list(zip(groups, penalty.sizes[0], strict=True))
    return Job(
        model,
        None,
        evaluate,
        custom_step=custom_step,
        optimizers={"network": optimizer},
        groups=drawn,
        save_artifacts=save_artifacts,
    )


def _model(network: nn.Module, points: Tensor, steps: Sequence[int]) -> Any:
    """The network, and in buffers, for checkpoints, what a run that goes on must know: steps taken, and where points lay at some."""
    import torch
    from torch import nn

    model = nn.ModuleDict({"network": network})
    model.register_buffer("taken", torch.zeros((), dtype=torch.int64))
    for step in sorted(set(steps)):
        model.register_buffer(f"shown_{step}", torch.zeros_like(points))
    return model


def _rows(shown: dict[int, Tensor], goal: Tensor) -> list[dict[str, Any]]:
    """The points of every panel of the figure: after each of some steps where they lay, over where they are to lie."""
    return [
        {"panel": f"step {step}", "kind": kind, **_point_csv.xy(point)}
        for step, moved in shown.items()
        for kind, points in (("target", goal), ("moved", moved))
        for point in points.tolist()
    ]


def _classes(data: Any, labels: Any) -> list[Any]:
    """The places of the records of both classes.

    Raises:
        UsageError: there are no two classes of rows.
    """
    if len(data.classes) != 2 or len(data.shape) != 1 or len(np.unique(labels)) != 2:
        told = f"{len(data.classes)} classes of shape {list(data.shape)}"
        raise UsageError(
            f"match moves the rows of one class to those of another: two classes of rows; found {told} in {data.name}"
        )
    return [np.flatnonzero(labels == label) for label in (0, 1)]


def _penalty(recipe: Train, counts: Sequence[int]) -> Penalty:
    options = Options.model_validate(recipe.options)
    return _sliced.penalty(recipe, options, 1.0, _sliced.shares(recipe, counts), fixed=True, private=options.private)


TASK = TaskSpec(
    options=Options,
    results=("distance", "loss"),
    build_job=build_job,
    validate=validate,
    release=release,
    sizes=sizes,
    figures={"points.csv": "points"},
)
