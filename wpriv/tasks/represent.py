"""Fair representation: an autoencoder whose codes are pulled to one law in both groups by a private sliced Wasserstein penalty."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from wpriv.config.field_types import Count, Field, Share
from wpriv.config.train_schema import Train
from wpriv.config.yaml_document import Key
from wpriv.data import scaled
from wpriv.engine import release_spec
from wpriv.engine.penalty.penalty import Penalty
from wpriv.errors import UsageError
from wpriv.tasks import TaskSpec, _code_probe, _fairness, _point_csv, _sliced

if TYPE_CHECKING:
    import torch

    from wpriv.engine.job import Job

POINTS = 1000
UNIT = "all values of one training record within its group"


class Options(_sliced.Options):
    """What a recipe may say under ``options``; C, the clip of the loss gradients, is ``privacy.clip``."""

    alpha: Share = Field(description="weight of the Wasserstein penalty; the reconstruction has the rest")
    error: Literal["mean", "sum"] = Field(
        "mean", description="the squared error of a record: mean or sum over its numbers"
    )
    core: Count | None = Field(None, description="the first so many columns, whose reconstruction is told by itself")


def validate(recipe: Train) -> list[tuple[Key, str]]:
    """What does not go with this task."""
    return _sliced.validate(recipe)


def sizes(recipe: Train, data: Any) -> dict[str, int]:
    """The records, and those of each group: public, since the neighbours never change them."""
    return {"records": data.records, **{name: len(places) for name, places in _fairness.groups(data).items()}}


def release(recipe: Train, sizes: Mapping[str, int]) -> release_spec.ReleaseSpec:
    """A step releases the penalised gradient over a batch of fixed parts."""
    counts = _sliced.counted(sizes)
    return release_spec.penalised(recipe, _penalty(recipe, counts), _sliced.pairs(counts), unit=UNIT)


def build_job(recipe: Train, data: Any, device: torch.device, *, adjacency: str) -> Job:
    """The autoencoder of a recipe on its data: first weights from torch's global generator, which the engine has seeded.

    Raises:
        UsageError: the data have no two groups or two classes, or the model makes no codes.
    """
    import torch

    from wpriv.engine.job import Job
    from wpriv.engine.penalty.objective import Objective

    options = Options.model_validate(recipe.options)
    groups = _fairness.groups(data)
    inputs, tests = (torch.tensor(scaled(x), device=device) for x in (data.x_train, data.x_test))
    model = _sliced.autoencoder(recipe, tuple(inputs.shape[1:])).to(device)
    penalty = _penalty(recipe, [len(places) for places in groups.values()])
    numbers = inputs[0].numel()
    core = numbers if options.core is None else options.core
    if core > numbers:
        raise UsageError(f"options: core: {core} columns were named and a record has {numbers} numbers")
    scale = 1 / numbers if options.error == "mean" else 1.0
    first, second = (torch.from_numpy(np.flatnonzero(data.sensitive_test == group)).to(device) for group in (0, 1))

    def fetch(places: Any) -> tuple[torch.Tensor, torch.Tensor]:
        found = inputs.index_select(0, torch.from_numpy(places).to(device))
        return found, found

    def evaluate() -> dict[str, float]:
        with torch.no_grad():
            codes, made = model(tests)
        errors = (made - tests).flatten(1).square()
        return {
            "reconstruction": float(errors.mean()),
            "core": float(errors[:, :core].mean()),
            "distance": _sliced.distance(codes[first], codes[second]),
            **_told(codes.cpu().numpy(), data.sensitive_test, data.y_test),
        }

    def save_artifacts(folder: Path) -> None:
        with torch.no_grad():
            codes = model(tests)[0]
        shown = ((group, codes[own[:POINTS]].tolist()) for group, own in enumerate((first, second)))
        _point_csv.write(
            folder / "codes.csv", [{"group": group, **_point_csv.xy(code)} for group, own in shown for code in own]
        )

    axes = _sliced.drawn(_sliced.width(model, tests), options.directions, device)
    objective = Objective(
        model,
        lambda outputs, targets: _sliced.squared(outputs, targets) * scale,
        fetch,
        penalty,
        lambda outputs: outputs[0],
        axes,
    )
    gather = objective.gather(recipe.privacy, inputs, inputs)
    return Job(
        model,
        gather,
        evaluate,
        groups=list(zip(groups.values(), penalty.sizes[0], strict=True)),
        save_artifacts=save_artifacts,
    )


def _told(codes: Any, groups: Any, labels: Any) -> dict[str, float]:
    """What classifiers make of the codes of one part of the test records that were fitted to the other: labels, fairly, and groups."""
    judged = _code_probe.split(len(labels))[1]
    decided = _fairness.decisions(_code_probe.chosen(codes, labels), groups[judged], labels[judged])
    right = _code_probe.chosen(codes, groups) == (groups[judged] == 1)
    kept = {name: value for name, value in decided.items() if name in ("accuracy", "disparate_impact", "parity_gap")}
    return {**kept, "group_accuracy": float(right.mean())}


def _penalty(recipe: Train, counts: Sequence[int]) -> Penalty:
    options = Options.model_validate(recipe.options)
    return _sliced.penalty(recipe, options, options.alpha, _sliced.shares(recipe, counts))


TASK = TaskSpec(
    options=Options,
    results=(
        "reconstruction",
        "core",
        "distance",
        "accuracy",
        "disparate_impact",
        "parity_gap",
        "group_accuracy",
        "loss",
    ),
    build_job=build_job,
    validate=validate,
    release=release,
    sizes=sizes,
    figures={"codes.csv": "codes"},
)
