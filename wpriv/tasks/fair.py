"""Fair prediction: a classifier or a regression whose scores are pulled to one law in both groups by a private Wasserstein penalty."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import numpy as np

from wpriv import models
from wpriv.config.field_types import Count, Field, Number, Share
from wpriv.config.train_schema import Train
from wpriv.config.yaml_document import Key
from wpriv.engine import release_spec
from wpriv.engine.penalty.penalty import Penalty
from wpriv.errors import UsageError
from wpriv.hints import did_you_mean
from wpriv.tasks import TaskSpec, _fairness, _point_csv, _sliced

if TYPE_CHECKING:
    import torch
    from torch import Tensor

    from wpriv.engine.job import Job

# where responses lie; scores are compared about the middle
MIDDLE = 0.5
EVALUATED_ALONG = 32
UNIT = {
    "parity": "the features and the label of one training record within its group",
    "odds": "the features of one training record within its group and label",
}
GROUPS = "which group a record is in, and how many are in each: the neighbours never change that"


class Options(_sliced.Options):
    """What a recipe may say under ``options``; C, the clip of the loss gradients, is ``privacy.clip``."""

    kind: Literal["classification", "regression"] = "classification"
    notion: Literal["parity", "odds"] = Field(
        "parity", description="the same law of scores in both groups, or that for each label"
    )
    alpha: Share = Field(description="weight of the Wasserstein penalty; the loss has the rest")
    groups: list[Count] | None = Field(
        None,
        description="records of group 0 and 1, for odds those of label 0, then of label 1, that the recipe counts on",
    )
    ranges: dict[str, Annotated[list[Number], Field(min_length=2, max_length=2)]] = Field(
        default_factory=dict, description="columns brought from [low, high], public numbers, to [0, 1]"
    )


def validate(recipe: Train) -> list[tuple[Key, str]]:
    """What does not go with this task."""
    found = _sliced.validate(recipe)
    for name, (low, high) in Options.model_validate(recipe.options).ranges.items():
        if not low < high:
            found.append(
                (
                    ("options", "ranges", name),
                    f"a range goes from its lower end to its upper; found [{low:g}, {high:g}]",
                )
            )
    return found


def declared_sizes(recipe: Train) -> dict[str, int] | None:
    """The sizes as the recipe tells them, for a plan without data; None where it does not."""
    counts = Options.model_validate(recipe.options).groups
    return (
        None
        if counts is None
        else {"records": sum(counts), **{f"group {place}": count for place, count in enumerate(counts)}}
    )


def sizes(recipe: Train, data: Any) -> dict[str, int]:
    """The records, and those of each group, pair after pair: public, since the neighbours never change them.

    Raises:
        UsageError: they are not what the recipe counts on (unless it cuts the data), or there are no two groups.
    """
    options = Options.model_validate(recipe.options)
    found = {name: len(places) for name, places in _fairness.groups(data, by_label=options.notion == "odds").items()}
    if (
        options.groups is not None
        and recipe.data.limit is recipe.data.first is None
        and [*found.values()] != options.groups
    ):
        raise UsageError(
            f"groups: the recipe counts on {options.groups} records; found {[*found.values()]} in {data.name}"
        )
    return {"records": data.records, **found}


def release(recipe: Train, sizes: Mapping[str, int]) -> release_spec.ReleaseSpec:
    """A step releases the penalised gradient over a batch of fixed parts."""
    options, counts = Options.model_validate(recipe.options), _sliced.counted(sizes)
    unit = UNIT[options.notion]
    return release_spec.penalised(
        recipe, _penalty(recipe, options, counts), _sliced.pairs(counts), unit=unit, not_covered=(GROUPS,)
    )


def build_job(recipe: Train, data: Any, device: torch.device, *, adjacency: str) -> Job:
    """The model of a recipe on its data: first weights from torch's global generator, which the engine has seeded.

    A classifier's scores are sigmoid(output), its loss binary cross-entropy; a regression's sigmoid(outputs) - 1/2 and the squared
    distance of sigmoid(outputs) from the response.

    Raises:
        UsageError, Unsupported: the data have no two groups, two classes or responses in [0, 1], or the model does not fit them.
    """
    import torch

    from wpriv.engine.job import Job
    from wpriv.engine.penalty.objective import Objective, penalty_of

    options = Options.model_validate(recipe.options)
    classifies, by_label = options.kind == "classification", options.notion == "odds"
    groups, held = (_fairness.groups(data, part, by_label=by_label) for part in ("train", "test"))
    inputs, tests = (
        torch.tensor(_ranged(x, data.columns, options), device=device) for x in (data.x_train, data.x_test)
    )
    targets, goals = (torch.tensor(y, device=device) for y in _targets(options, data))
    width = targets.shape[1]
    model = models.build(recipe.model, inputs.shape[1:], width).to(device)
    penalty = _penalty(recipe, options, [len(places) for places in groups.values()])
    loss, scores = _loss_and_scores(classifies)

    def fetch(places: Any) -> tuple[Tensor, Tensor]:
        own = torch.from_numpy(places).to(device)
        return inputs.index_select(0, own), targets.index_select(0, own)

    order = torch.from_numpy(np.concatenate(list(held.values()))).to(device)
    compared = _sliced.pairs([len(places) for places in held.values()])
    axes = None if width == 1 else _sliced.fixed(width, EVALUATED_ALONG).to(device)

    def evaluate() -> dict[str, float]:
        with torch.no_grad():
            outputs = model(tests)
            found = scores(outputs)
            distance = penalty_of(found[order], compared, axes)[1]
            risk = loss(outputs, goals).mean()
        chosen = (found[:, 0] > MIDDLE if classifies else found.sum(dim=1) > 0).cpu().numpy()
        told = _fairness.decisions(chosen, data.sensitive_test, data.y_test)
        if not classifies:
            told = {"accuracy": told["accuracy"], **_fairness.halves(chosen, data.sensitive_test)}
        return {**told, "risk": float(risk), "distance": float(distance)}

    def save_artifacts(folder: Path) -> None:
        with torch.no_grad():
            found = model(tests).sigmoid().cpu().numpy()
        _point_csv.write(
            folder / "scores.csv", _fairness.spread(found, data.sensitive_test, data.y_test if by_label else None)
        )

    directions = None if width == 1 else _sliced.drawn(width, options.directions, device)
    objective = Objective(model, loss, fetch, penalty, scores, directions)
    gather = objective.gather(recipe.privacy, inputs, targets)
    drawn = list(zip(groups.values(), [size for pair in penalty.sizes for size in pair], strict=True))
    return Job(model, gather, evaluate, groups=drawn, save_artifacts=save_artifacts)


def _loss_and_scores(classifies: bool) -> tuple[Callable[[Tensor, Tensor], Tensor], Callable[[Tensor], Tensor]]:
    """(outputs, targets) -> losses [n], and outputs -> the scores [n, d] that are compared: both of a model's logits [n, d]."""
    from torch.nn.functional import binary_cross_entropy_with_logits as cross_entropy

    def loss(outputs: Tensor, targets: Tensor) -> Tensor:
        each = (
            cross_entropy(outputs, targets, reduction="none") if classifies else (outputs.sigmoid() - targets).square()
        )
        return each.sum(dim=1)

    return loss, lambda outputs: outputs.sigmoid() - (0.0 if classifies else MIDDLE)


def _penalty(recipe: Train, options: Options, counts: Sequence[int]) -> Penalty:
    return _sliced.penalty(recipe, options, options.alpha, _sliced.shares(recipe, counts))


def _ranged(x: Any, columns: tuple[str, ...], options: Options) -> Any:
    """Features as float32, bytes in [0, 1], and named columns brought from their range to [0, 1], where they are cut."""
    found = x.astype(np.float32) / (255 if x.dtype == np.uint8 else 1)
    for name, (low, high) in options.ranges.items():
        if name not in columns:
            near = did_you_mean(name, list(columns))
            raise UsageError(f"options: ranges: no column called {name[:60]!r}{near or '.'}")
        place = columns.index(name)
        found[:, place] = np.clip((found[:, place] - low) / (high - low), 0, 1)
    return found


def _targets(options: Options, data: Any) -> tuple[Any, Any]:
    """[N, 1] labels or [N, q] responses, to train and to test on, as float32."""
    if options.kind == "classification":
        return data.y_train[:, None].astype(np.float32), data.y_test[:, None].astype(np.float32)
    if not data.response:
        raise UsageError(f"{data.name} has no responses, which a regression needs; choose kind: classification")
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
)
