"""Fair representation: an autoencoder with a private sliced Wasserstein penalty between the codes of two groups."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from wpriv.config.field_types import Count, Field, Share
from wpriv.config.train_schema import Train
from wpriv.errors import UsageError
from wpriv.papers.penalty.penalty import penalised_release
from wpriv.papers.tasks import _fairness, _sliced
from wpriv.training.data import scaled
from wpriv.training.engine import release_spec
from wpriv.training.tasks import TaskSpec

if TYPE_CHECKING:
    import torch

    from wpriv.training.engine.job import Job

POINTS_SHOWN = 1000
UNIT = "all values of one training record within its group"
FAIRNESS = ("accuracy", "disparate_impact", "parity_gap")


class Options(_sliced.Options):
    """Keys under ``options`` of a recipe; C, the clip of the loss gradients, is ``privacy.clip``."""

    alpha: Share = Field(description="weight of the Wasserstein penalty; the reconstruction has the rest")
    error: Literal["mean", "sum"] = Field(
        "mean", description="the squared error of a record: mean or sum over its numbers"
    )
    core: Count | None = Field(
        None, description="number of first columns whose reconstruction error is also measured separately"
    )


def sizes(recipe: Train, data: Any) -> dict[str, int]:
    """Return the numbers of records, in all and of each group: public, since neighbouring data sets share them."""
    groups = _fairness.groups(data)
    return {"records": data.records, **{name: len(indices) for name, indices in groups.items()}}


def release(recipe: Train, sizes: Mapping[str, int]) -> release_spec.ReleaseSpec:
    """Return the release of a step: the penalised gradient over fixed numbers of records of both groups."""
    counts = _sliced.group_counts(sizes)
    penalty = _sliced.group_penalty(recipe, Options.model_validate(recipe.options), counts)
    return penalised_release(recipe, penalty, _sliced.as_pairs(counts), unit=UNIT)


def build_job(recipe: Train, data: Any, device: torch.device, *, adjacency: str) -> Job:
    """Build the autoencoder of a recipe on its data."""
    import torch

    from wpriv.training.engine.job import Job

    options = Options.model_validate(recipe.options)
    groups, test_groups = _fairness.groups(data), _fairness.groups(data, "test")
    inputs, tests = (torch.tensor(scaled(x), device=device) for x in (data.x_train, data.x_test))
    model = _sliced.build_autoencoder(recipe, tuple(inputs.shape[1:])).to(device)
    penalty = _sliced.group_penalty(recipe, options, [len(indices) for indices in groups.values()])
    numbers = inputs[0].numel()
    core = numbers if options.core is None else options.core
    if core > numbers:
        raise UsageError(f"options: core must be at most {numbers}, the numbers of a record; found {core}")
    compared = [torch.from_numpy(indices).to(device) for indices in test_groups.values()]

    def evaluate() -> dict[str, float]:
        with torch.no_grad():
            codes, reconstructions = model(tests)
        errors = (reconstructions - tests).flatten(1).square()
        return {
            "reconstruction": float(errors.mean()),
            "core": float(errors[:, :core].mean()),
            "distance": _sliced.distance(*(codes[indices] for indices in compared)),
            **_probe_codes(codes.cpu().numpy(), data.sensitive_test, data.y_test),
        }

    def save_artifacts(folder: Path) -> None:
        with torch.no_grad():
            codes = model(tests)[0]
        rows = [
            {"group": group, **_fairness.xy(code)}
            for group, indices in enumerate(compared)
            for code in codes[indices[:POINTS_SHOWN]].tolist()
        ]
        _fairness.write(folder / "codes.csv", rows)

    objective = _sliced.autoencoder_objective(model, inputs, tests, options, penalty)
    aggregate = objective.make_aggregator(recipe.privacy, inputs, inputs)
    batches = list(zip(groups.values(), penalty.sizes[0], strict=True))
    return Job(model, aggregate, evaluate, groups=batches, save_artifacts=save_artifacts)


def _probe_codes(codes: Any, groups: Any, labels: Any) -> dict[str, float]:
    """Accuracy, fairness and ``group_accuracy`` of classifiers fitted to some test codes, on the others."""
    predicted = _fairness.split(len(labels))[1]
    measures = _fairness.decision_measures(_fairness.predict(codes, labels), groups[predicted], labels[predicted])
    correct = _fairness.predict(codes, groups) == (groups[predicted] == 1)
    return {name: measures[name] for name in FAIRNESS if name in measures} | {"group_accuracy": float(correct.mean())}


TASK = TaskSpec(
    options=Options,
    results=("reconstruction", "core", "distance", *FAIRNESS, "group_accuracy", "loss"),
    build_job=build_job,
    validate=_sliced.validate,
    release=release,
    sizes=sizes,
    figures={"codes.csv": "codes"},
)
