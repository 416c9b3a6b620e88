"""Classification by a model with cross-entropy, measured by its accuracy on test records."""

from __future__ import annotations

import functools
import math
from collections.abc import Mapping
from dataclasses import replace
from typing import TYPE_CHECKING

from wpriv.config.train_schema import Train
from wpriv.core import registry
from wpriv.training import models
from wpriv.training.engine import cost_estimate
from wpriv.training.tasks import TaskSpec, _image_features, _supervised

if TYPE_CHECKING:
    import torch

    from wpriv.training.data import Data
    from wpriv.training.engine.job import Job


class Options(_supervised.InputOptions):
    """Keys under ``options`` of a recipe."""


def estimate_cost(recipe: Train, sizes: Mapping[str, int], steps: int, batch: int) -> cost_estimate.CostEstimate | None:
    """Estimate time and memory of a training for a dry run; imports torch but for the models of shipped recipes.

    Returns:
        None if the data set does not declare ``SHAPE`` and ``CLASSES``, or if the size of the model cannot be measured.
    Raises:
        Unsupported: a layer of the model mixes the records that are clipped one by one.
    """
    source = None if recipe.data.own else registry.load("data", recipe.data.name)
    shape = getattr(source, "SHAPE", None)
    if source is None or shape is None:
        return None
    pixels, classes = math.prod(shape), len(source.CLASSES)
    features = Options.model_validate(recipe.options).features
    if features is not None:
        shape = (_image_features.feature_count(features, shape),)
    cost, private = cost_estimate.of_model(recipe.model, shape, classes), recipe.privacy
    if cost is None:
        return None
    stored = cost_estimate.stored_cost(recipe.model, shape, classes)
    if private is not None and private.clip != "batch-mean" and stored is None:
        from wpriv.training.clipping import probe_model

        probe_model.check_modules(cost_estimate.without_numbers(recipe.model, shape, classes))
    if recipe.augment is not None:
        copies = recipe.augment.copies
        cost = replace(cost, products=copies * cost.products, kept=copies * cost.kept)
    # for bdp and wdp each step computes the batch's gradient again without each of some records
    observed = any(word.partition(":")[0] in ("bdp", "wdp") for word in recipe.accountants)
    leaves_out = observed and private is not None and private.clip == "batch-mean"
    return cost_estimate.estimate(
        cost,
        steps=steps,
        batch=batch,
        private=private is not None,
        physical=recipe.physical,
        budget=recipe.memory,
        # bytes as they are read, and numbers of 4 bytes; a fifth more for test records
        data=1.2 * sizes["records"] * (5 * pixels + 4 * math.prod(shape) * (features is not None)),
        exact=private is not None and private.exact,
        gradients=1 + private.pairs if private is not None and leaves_out else 1,
    )


def build_job(recipe: Train, data: Data, device: torch.device, *, adjacency: str) -> Job:
    """Build the model of a recipe on its data."""
    import torch
    from torch.nn.functional import cross_entropy

    _supervised.require_classes(data)
    data = _supervised.counted(data)
    options = Options.model_validate(recipe.options)
    train, test = (
        (_supervised.to_inputs(x, options, device), torch.tensor(y, device=device).long())
        for x, y in ((data.x_train, data.y_train), (data.x_test, data.y_test))
    )
    return _supervised.build_job(
        recipe,
        models.build(recipe.model, train[0].shape[1:], len(data.classes)).to(device),
        functools.partial(cross_entropy, reduction="none"),
        train,
        test,
        classes=len(data.classes),
        adjacency=adjacency,
        vocabulary=data.vocabulary,
        indexed=True,
        measure=lambda scores, targets: {"accuracy": (scores.argmax(dim=1) == targets).sum()},
    )


TASK = TaskSpec(
    options=Options,
    results=("accuracy", "loss"),
    build_job=build_job,
    test_metrics=("accuracy",),
    estimate_cost=estimate_cost,
    **_supervised.FIELDS,
    has_classes=lambda recipe: True,
)
