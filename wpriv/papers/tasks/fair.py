"""Fair prediction: a classifier or regression with a private Wasserstein penalty between the scores of two groups."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import numpy as np

from wpriv.config.field_types import Count, Field, Number, Share
from wpriv.config.train_schema import Train
from wpriv.errors import UsageError
from wpriv.hints import did_you_mean
from wpriv.papers.penalty.penalty import penalised_release
from wpriv.papers.tasks import _fairness, _sliced
from wpriv.training import models
from wpriv.training.engine import release_spec
from wpriv.training.tasks import Fault, TaskSpec

if TYPE_CHECKING:
    import torch
    from torch import Tensor

    from wpriv.training.engine.job import Job

MIDDLE = 0.5  # of the interval of responses; scores are centred there
EVALUATION_DIRECTIONS = 32
UNIT = {
    "parity": "the features and the label of one training record within its group",
    "odds": "the features of one training record within its group and label",
}
GROUPS = "which group a record is in, and how many are in each: neighbouring data sets have the same groups"


class Options(_sliced.Options):
    """Keys under ``options`` of a recipe; C, the clip of the loss gradients, is ``privacy.clip``."""

    kind: Literal["classification", "regression"] = Field(
        "classification", description="what is predicted: the label, or the numbers of the response"
    )
    notion: Literal["parity", "odds"] = Field(
        "parity",
        description="what the penalty compares: all scores of both groups (parity), or those of each label (odds)",
    )
    alpha: Share = Field(description="weight of the Wasserstein penalty; the loss has the rest")
    groups: list[Count] | None = Field(
        None,
        description="records of group 0 and 1, for odds those of label 0, then of label 1, that the recipe counts on",
    )
    ranges: dict[str, Annotated[list[Number], Field(min_length=2, max_length=2)]] = Field(
        default_factory=dict, description="columns scaled from [low, high], which are public numbers, to [0, 1]"
    )


def validate(recipe: Train) -> Iterator[Fault]:
    """Faults: those of all sliced tasks, and empty ranges."""
    yield from _sliced.validate(recipe)
    for name, (low, high) in Options.model_validate(recipe.options).ranges.items():
        if not low < high:
            message = f"the lower end of a range must be below its upper end; found [{low:g}, {high:g}]"
            yield ("options", "ranges", name), message


def declared_sizes(recipe: Train) -> dict[str, int] | None:
    """Return the sizes that the recipe declares by ``groups``, for a plan without data; None where it declares none."""
    counts = Options.model_validate(recipe.options).groups
    if counts is None:
        return None
    return {"records": sum(counts), **{f"group {position}": count for position, count in enumerate(counts)}}


def sizes(recipe: Train, data: Any) -> dict[str, int]:
    """The public numbers of records, in all and of each group, pair by pair."""
    options = Options.model_validate(recipe.options)
    groups = _fairness.groups(data, by_label=options.notion == "odds")
    counts = {name: len(indices) for name, indices in groups.items()}
    limited = recipe.data.limit is not None or recipe.data.first is not None
    if options.groups is not None and not limited and [*counts.values()] != options.groups:
        raise UsageError(
            f"options: groups: the recipe declares {options.groups} records; found {[*counts.values()]} in {data.name}"
        )
    return {"records": data.records, **counts}


def release(recipe: Train, sizes: Mapping[str, int]) -> release_spec.ReleaseSpec:
    """Return the release of a step: the penalised gradient over fixed numbers of records of each group."""
    options, counts = Options.model_validate(recipe.options), _sliced.group_counts(sizes)
    penalty = _sliced.group_penalty(recipe, options, counts)
    words = {"unit": UNIT[options.notion], "not_covered": (GROUPS,)}
    return penalised_release(recipe, penalty, _sliced.as_pairs(counts), **words)


def build_job(recipe: Train, data: Any, device: torch.device, *, adjacency: str) -> Job:
    """Build the model of a recipe on its data.

    A classifier has the scores sigmoid(output) and binary cross-entropy as loss; a regression has sigmoid(outputs) -
    1/2 and the squared distance of sigmoid(outputs) from the response.
    """
    import torch

    from wpriv.papers.penalty.objective import Objective, penalty_of
    from wpriv.training.engine.job import Job

    options = Options.model_validate(recipe.options)
    classifies, by_label = options.kind == "classification", options.notion == "odds"
    groups, test_groups = (_fairness.groups(data, part, by_label=by_label) for part in ("train", "test"))
    inputs, tests = (
        torch.tensor(_to_unit_ranges(x, data.columns, options), device=device) for x in (data.x_train, data.x_test)
    )
    targets, test_targets = (torch.tensor(y, device=device) for y in _targets(options, data))
    width = targets.shape[1]
    model = models.build(recipe.model, inputs.shape[1:], width).to(device)
    penalty = _sliced.group_penalty(recipe, options, [len(indices) for indices in groups.values()])
    loss, scores = _loss_and_scores(classifies)

    def fetch(indices: Any) -> tuple[Tensor, Tensor]:
        rows = torch.from_numpy(indices).to(device)
        return inputs.index_select(0, rows), targets.index_select(0, rows)

    order = torch.from_numpy(np.concatenate(list(test_groups.values()))).to(device)
    compared = _sliced.as_pairs([len(indices) for indices in test_groups.values()])
    axes = None if width == 1 else _sliced.fixed_directions(width, EVALUATION_DIRECTIONS).to(device)

    def evaluate() -> dict[str, float]:
        with torch.no_grad():
            outputs = model(tests)
            test_scores = scores(outputs)
            distance = penalty_of(test_scores[order], compared, axes)[1]
            risk = loss(outputs, test_targets).mean()
        decisions = (test_scores[:, 0] > MIDDLE if classifies else test_scores.sum(dim=1) > 0).cpu().numpy()
        measures = _fairness.decision_measures(decisions, data.sensitive_test, data.y_test)
        if not classifies:
            shares = _fairness.shares_above_antidiagonal(decisions, data.sensitive_test)
            measures = {"accuracy": measures["accuracy"], **shares}
        return {**measures, "risk": float(risk), "distance": float(distance)}

    def save_artifacts(folder: Path) -> None:
        with torch.no_grad():
            predictions = model(tests).sigmoid().cpu().numpy()
        labels = data.y_test if by_label else None
        _fairness.write(folder / "scores.csv", _fairness.score_rows(predictions, data.sensitive_test, labels))

    directions = None if width == 1 else _sliced.direction_sampler(width, options.directions, device)
    objective = Objective(model, loss, fetch, penalty, scores, directions)
    aggregate = objective.make_aggregator(recipe.privacy, inputs, targets)
    batches = list(zip(groups.values(), [size for pair in penalty.sizes for size in pair], strict=True))
    return Job(model, aggregate, evaluate, groups=batches, save_artifacts=save_artifacts)


def _loss_and_scores(classifies: bool) -> tuple[Callable[[Tensor, Tensor], Tensor], Callable[[Tensor], Tensor]]:
    """Functions of a model's logits [n, d]: (outputs, targets) -> losses [n], and outputs -> compared scores [n, d]."""
    from torch.nn.functional import binary_cross_entropy_with_logits as cross_entropy

    def loss(outputs: Tensor, targets: Tensor) -> Tensor:
        if classifies:
            return cross_entropy(outputs, targets, reduction="none").sum(dim=1)
        return (outputs.sigmoid() - targets).square().sum(dim=1)

    return loss, lambda outputs: outputs.sigmoid() - (0.0 if classifies else MIDDLE)


def _to_unit_ranges(x: Any, columns: tuple[str, ...], options: Options) -> Any:
    """Features as float32: bytes divided by 255, and named columns mapped from their range to [0, 1] and clipped."""
    # float64 is rounded after it was brought to the range
    features = x.copy() if x.dtype == np.float64 else x.astype(np.float32) / (255 if x.dtype == np.uint8 else 1)
    for name, (low, high) in options.ranges.items():
        if name not in columns:
            near = did_you_mean(name, list(columns))
            raise UsageError(f"options: ranges: no column called {name[:60]!r}{near or '.'}")
        column = columns.index(name)
        features[:, column] = np.clip((features[:, column] - low) / (high - low), 0, 1)
    return features.astype(np.float32)


def _targets(options: Options, data: Any) -> tuple[Any, Any]:
    """Labels [N, 1] or responses [N, q] for training and testing, as float32."""
    if options.kind == "classification":
        return data.y_train[:, None].astype(np.float32), data.y_test[:, None].astype(np.float32)
    if not data.response:
        raise UsageError(f"a regression needs responses and {data.name} has none; choose kind: classification")
    for numbers in (data.response_train, data.response_test):
        if numbers.min() < 0 or numbers.max() > 1:
            raise UsageError(
                f"responses must lie in [0, 1]; found {numbers.min():g} to {numbers.max():g} in {data.name}"
            )
    return data.response_train, data.response_test


TASK = TaskSpec(
    options=Options,
    results=("accuracy", *_fairness.MEASURES, "risk", "distance", "loss"),
    build_job=build_job,
    validate=validate,
    release=release,
    declared_sizes=declared_sizes,
    sizes=sizes,
    figures={"scores.csv": "scores"},
    reads_labels=True,
)
