"""Matching: a network moves points of one class to the distribution of another, privately.

A step releases the sliced Wasserstein gradient between the moved points and the goal.

Both classes may be private. Unlike the noise that enters a generator, the moved points are records themselves: they
pass through the network that is trained, so that the Jacobian of each is clipped. The goal's records pass through
nothing, and replacing one of them changes the gradient less.
"""

from __future__ import annotations

import copy
import dataclasses
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import numpy as np

from wpriv.accounting import evaluate
from wpriv.config.field_types import Field, Positive
from wpriv.config.train_schema import Train
from wpriv.core.process import Process
from wpriv.errors import UsageError
from wpriv.papers.penalty.penalty import Penalty, penalised_release
from wpriv.papers.tasks import _fairness, _sliced
from wpriv.training import models
from wpriv.training.data import scaled
from wpriv.training.engine import release_spec
from wpriv.training.tasks import TaskSpec

if TYPE_CHECKING:
    import torch
    from torch import Tensor, nn

    from wpriv.training.engine.job import Job, ReleaseGate

POINTS_SHOWN = 1000
SHOWN_TOL = 1e-3  # of the eps above a panel, three digits
UNIT = {
    "both": "the values of one training record of either class, of those that are moved or of those that they are "
    "moved to",
    "x": "the values of one training record of the class that is moved; the others are taken as public",
    "z": "the values of one training record of the class that others are moved to; those that are moved are taken as "
    "public",
}


class Options(_sliced.Options):
    """Keys under ``options`` of a recipe. There is no loss beside the distance: ``privacy.clip`` clips nothing."""

    private: Literal["both", "x", "z"] = Field(
        "both", description="whose records are protected: those moved (x), the goal (z)"
    )
    cap: Positive | None = Field(None, description="norm to which the noisy gradient is cut, which costs no privacy")
    shown: Annotated[list[Annotated[int, Field(ge=0)]], Field(max_length=12)] = Field(
        default_factory=list, description="steps after which the points are kept for the figure, beside the last"
    )


def sizes(recipe: Train, data: Any) -> dict[str, int]:
    """Return the numbers of records, in all and of each class: public, since neighbouring data sets share them."""
    groups = _class_indices(data, data.y_train)
    names = ["class records" if name == "records" else name for name in data.classes]  # not the number of all records
    return {"records": data.records, **{name: len(indices) for name, indices in zip(names, groups, strict=True)}}


def release(recipe: Train, sizes: Mapping[str, int]) -> release_spec.ReleaseSpec:
    """Return the release of a step: the gradient of the sliced distance over fixed numbers of records per class."""
    options = Options.model_validate(recipe.options)
    counts = _sliced.group_counts(sizes)
    penalty = _penalty(recipe, counts)
    clipped = (
        f"scores and points (norm {penalty.bound:g}) and the Jacobians of scores (norm {penalty.lipschitz:g}), all by "
        "themselves"
    )
    words = {"unit": UNIT[options.private], "clipped": clipped, "of": "the gradient of the sliced distance"}
    spec = penalised_release(recipe, penalty, _sliced.as_pairs(counts), **words)
    return dataclasses.replace(spec, batch=sum(penalty.sizes[0]))


def build_job(recipe: Train, data: Any, device: torch.device, *, adjacency: str) -> Job:
    """Build the network of a recipe on its data."""
    import torch

    from wpriv.papers.penalty.objective import Objective
    from wpriv.training.engine.batch_gradient import clip
    from wpriv.training.engine.job import Job
    from wpriv.training.engine.update_rules import UpdateRule

    options = Options.model_validate(recipe.options)
    groups, test_groups = _class_indices(data, data.y_train), _class_indices(data, data.y_test)
    records = torch.tensor(scaled(data.x_train), device=device)
    test_points, goal = (torch.tensor(scaled(data.x_test[indices]), device=device) for indices in test_groups)
    width = records.shape[1]
    model = _with_earlier_networks(models.build(recipe.model, (width,), width), options.shown).to(device)
    network, weights = model.network, list(model.network.parameters())
    optimizer = UpdateRule(weights, recipe.optimizer)
    penalty = _penalty(recipe, [len(indices) for indices in groups])
    moved_count = penalty.sizes[0][0]

    def select(indices: Any) -> Tensor:
        return records.index_select(0, torch.from_numpy(indices).to(device))

    objective = Objective(
        network,
        None,
        fetch=lambda indices: (select(indices[:moved_count]), None),
        penalty=penalty,
        scores=lambda outputs: outputs,
        directions=_sliced.direction_sampler(width, options.directions, device),
        points=lambda indices: select(indices[moved_count:]),
    )
    aggregate = objective.make_aggregator(recipe.privacy, records, None)

    def custom_step(indices: Any, gate: ReleaseGate) -> Tensor:
        if int(model.taken) in options.shown:
            model[f"after_{int(model.taken)}"].load_state_dict(network.state_dict())
        gathered = aggregate(indices)
        model.multiplier.fill_(gate.multiplier)
        parts = gate(gathered.total)
        if options.cap is not None:
            parts = clip(parts, options.cap)
        for weight, part in zip(weights, parts, strict=True):
            weight.grad = part
        optimizer.step()
        model.taken += 1
        return gathered.diagnostics

    def evaluate() -> dict[str, float]:
        with torch.no_grad():
            return {"distance": _sliced.distance(network(test_points), goal)}

    def save_artifacts(folder: Path) -> None:
        taken = int(model.taken)
        movers = {step: model[f"after_{step}"] for step in sorted(set(options.shown)) if step < taken}
        rows = []
        for step, mover in {**movers, taken: network}.items():
            with torch.no_grad():
                moved = mover(test_points)
            place = {"panel": f"step {step}", "header": f"distance = {_sliced.distance(moved, goal):.3g}"}
            if recipe.privacy is not None and recipe.privacy.delta is not None:
                counts = [len(indices) for indices in groups]
                costs = epsilons(penalty, counts, float(model.multiplier), step, recipe.privacy.delta)
                place["header"] += "; " + ", ".join(f"ε of {side} = {eps:.3g}" for side, eps in costs.items())
            for kind, points in (("target", goal), ("moved", moved)):
                rows += [{**place, "kind": kind, **_fairness.xy(point)} for point in points[:POINTS_SHOWN].tolist()]
        _fairness.write(folder / "points.csv", rows)

    return Job(
        model,
        None,
        evaluate,
        custom_step=custom_step,
        optimizers={"network": optimizer},
        groups=list(zip(groups, penalty.sizes[0], strict=True)),
        save_artifacts=save_artifacts,
    )


def _with_earlier_networks(network: nn.Module, steps: Sequence[int]) -> Any:
    """The network, the number of steps taken, their noise, and copies with the weights after some steps.

    Weights are kept in place of the points that they move: these are test records, which have no noise, and the file of
    the model may be published.
    """
    import torch
    from torch import nn

    earlier = {f"after_{step}": copy.deepcopy(network).requires_grad_(False) for step in sorted(set(steps))}
    model = nn.ModuleDict({"network": network, **earlier})
    model.register_buffer("taken", torch.zeros((), dtype=torch.int64))
    model.register_buffer("multiplier", torch.zeros((), dtype=torch.float64))
    return model


def epsilons(penalty: Penalty, counts: Sequence[int], multiplier: float, steps: int, delta: float) -> dict[str, float]:
    """Certified eps by private class, X moved to Z (Rodriguez-Vitores et al. 2025, Theorem A.1, Figure 13)."""
    costs = {}
    for side in ("x", "z") if penalty.private == "both" else (penalty.private,):
        alone = dataclasses.replace(penalty, private=side)
        step = alone.step(multiplier * penalty.sensitivity / alone.sensitivity, _sliced.as_pairs(counts), max(steps, 1))
        costs[side.upper()] = evaluate.curve(Process((step,)), "pld", SHOWN_TOL).epsilon(delta=delta) if steps else 0.0
    return costs


def _class_indices(data: Any, labels: Any) -> list[Any]:
    """The indices of the records of each of the two classes."""
    if len(data.classes) != 2 or len(data.shape) != 1 or len(np.unique(labels)) != 2:
        raise UsageError(
            f"match moves the rows of one class to those of another and needs two classes of rows; found "
            f"{len(data.classes)} classes of shape {list(data.shape)} in {data.name}"
        )
    return [np.flatnonzero(labels == label) for label in (0, 1)]


def _penalty(recipe: Train, counts: Sequence[int]) -> Penalty:
    options = Options.model_validate(recipe.options)
    batches = _sliced.batch_sizes(recipe, counts)
    return _sliced.penalty(recipe, options, 1.0, batches, fixed=True, private=options.private)


TASK = TaskSpec(
    options=Options,
    results=("distance", "loss"),
    build_job=build_job,
    validate=_sliced.validate,
    release=release,
    sizes=sizes,
    figures={"points.csv": "points"},
    reads_labels=True,
)
