"""Classification by a model with cross-entropy, measured by its accuracy on test records."""

from __future__ import annotations

import functools
import math
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from wpriv import models
from wpriv.config.field_types import Field, StrictModel
from wpriv.config.train_schema import Train
from wpriv.core import registry
from wpriv.engine import cost_estimate, release_spec
from wpriv.tasks import TaskSpec, _normalisation

if TYPE_CHECKING:
    import torch

    from wpriv.engine.job import Job

CHUNK = 1000  # test records that are evaluated at once


class Options(StrictModel):
    """Keys under ``options`` of a recipe."""

    normalise: _normalisation.Normalise | None = Field(None, description=_normalisation.MEANING)


def release(recipe: Train, sizes: Mapping[str, int]) -> release_spec.ReleaseSpec:
    """Return the release of a step: the sum of the records' clipped gradients."""
    return release_spec.gradients(recipe, sizes["records"])


def supports_exact_noise(recipe: Train) -> bool:
    """Return whether each release is a sum of records clipped one by one: unless batch means are clipped."""
    return recipe.privacy is not None and recipe.privacy.clip != "batch-mean"


def estimate_cost(recipe: Train, sizes: Mapping[str, int], steps: int, batch: int) -> cost_estimate.CostEstimate | None:
    """Estimate time and memory of a training for a dry run; imports torch.

    Returns:
        None if the data set does not declare ``SHAPE`` and ``CLASSES``, or if the size of the model cannot be measured.
    Raises:
        Unsupported: a layer of the model mixes the records that are clipped one by one.
    """
    source = registry.load("data", recipe.data.name)
    shape = getattr(source, "SHAPE", None)
    cost = None if shape is None else cost_estimate.of_model(recipe.model, shape, len(source.CLASSES))
    if shape is None or cost is None:
        return None
    private = recipe.privacy
    if private is not None and private.clip != "batch-mean":
        from wpriv.engine import model_cost
        from wpriv.engine.model_checks import validate_model

        validate_model.check(model_cost.without_numbers(recipe.model, shape, len(source.CLASSES)))
    return cost_estimate.estimate(
        cost,
        steps=steps,
        batch=batch,
        private=private is not None,
        physical=recipe.physical,
        budget=recipe.memory,
        # bytes as they are read, and numbers of 4 bytes; a fifth more for test records
        data=1.2 * 5 * sizes["records"] * math.prod(shape),
        exact=private is not None and private.exact,
    )


def build_job(recipe: Train, data: Any, device: torch.device, *, adjacency: str) -> Job:
    """Build the model of a recipe on its data.

    Raises:
        UsageError, Unsupported: the model does not fit the data, or mixes or keeps examples where each one is clipped.
    """
    import numpy as np
    import torch
    from torch.nn.functional import cross_entropy

    from wpriv.engine import batch_gradient, distance_observer, memory
    from wpriv.engine.clipping import clip
    from wpriv.engine.job import Job

    private = recipe.privacy
    options = Options.model_validate(recipe.options)
    inputs, targets = _to_tensors(data.x_train, data.y_train, options, device)
    test_inputs, test_targets = _to_tensors(data.x_test, data.y_test, options, device)
    loss = functools.partial(cross_entropy, reduction="none")
    model = models.build(recipe.model, inputs.shape[1:], len(data.classes)).to(device)
    if inputs.dim() == 4:
        model = model.to(memory_format=torch.channels_last)

    def fetch(indices: Any) -> tuple[torch.Tensor, torch.Tensor]:
        rows = torch.from_numpy(indices).to(device)
        records = inputs.index_select(0, rows)
        if records.dim() == 4:
            records = records.contiguous(memory_format=torch.channels_last)
        return records, targets.index_select(0, rows)

    def evaluate() -> dict[str, float]:
        correct = 0.0
        with torch.no_grad():
            for first in range(0, len(test_targets), CHUNK):
                chunk = slice(first, first + CHUNK)
                correct += float((model(test_inputs[chunk]).argmax(dim=1) == test_targets[chunk]).sum())
        return {"accuracy": correct / len(test_targets)}

    method = ""
    if private is not None and private.clip != "batch-mean":
        # before any record passes through the model
        method = clip.choose_for(model, loss, tuple(inputs.shape[1:]), len(data.classes), clip.method_of(private))
    probe_indices = np.arange(min(2, len(inputs)))
    physical = recipe.physical or memory.physical_batch(model, loss, fetch, probe_indices, recipe.memory)
    batches = batch_gradient.Batches(model, loss, fetch, physical)
    aggregate = batch_gradient.make_aggregator(
        batches, private, adjacency, release_spec.expected_batch(recipe, len(inputs)), method
    )
    observe = distance_observer.make_observer(batches, recipe, adjacency)
    return Job(model, aggregate, evaluate, observe, method=method)


def _to_tensors(x: Any, y: Any, options: Options, device: torch.device) -> tuple[torch.Tensor, torch.Tensor]:
    """Records as the model takes them and classes as integers, on the device."""
    import torch

    inputs = _normalisation.normalise(_normalisation.to_floats(x, device), options.normalise)
    return inputs, torch.tensor(y, device=device).long()


TASK = TaskSpec(
    options=Options,
    results=("accuracy", "loss"),
    build_job=build_job,
    release=release,
    supports_exact_noise=supports_exact_noise,
    estimate_cost=estimate_cost,
)
