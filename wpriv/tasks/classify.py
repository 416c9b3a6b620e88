"""Classification: a model, cross-entropy, and the share of test records that it gets right."""

from __future__ import annotations

import functools
import math
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from wpriv import models
from wpriv.config.field_types import StrictModel
from wpriv.config.train_schema import Train
from wpriv.engine import cost_estimate, release_spec
from wpriv.tasks import TaskSpec, _normalisation

if TYPE_CHECKING:
    import torch

    from wpriv.engine.job import Job

# the numbers it measures, under the names that `expect:` knows
EVALUATED_AT_ONCE = 1000
# of data sets of ten classes whose shape is known before they are read
SHAPES = {
    "mnist": (1, 28, 28),
    "fashion-mnist": (1, 28, 28),
    "usps": (1, 16, 16),
    "digits": (1, 8, 8),
    "cifar10": (3, 32, 32),
    "svhn": (3, 32, 32),
}


class Options(StrictModel):
    """What a recipe may say under ``options``."""

    normalise: _normalisation.Normalise | None = None


def release(recipe: Train, sizes: Mapping[str, int]) -> release_spec.ReleaseSpec:
    """A step releases the sum of the records' clipped gradients."""
    return release_spec.gradients(recipe, sizes["records"])


def supports_exact_noise(recipe: Train) -> bool:
    """Whether all that is released is a sum of records clipped one by one, which ``privacy: {noise: exact}`` needs."""
    return recipe.privacy is not None and recipe.privacy.clip != "batch-mean"


def estimate_cost(recipe: Train, sizes: Mapping[str, int], steps: int, batch: int) -> cost_estimate.Guess | None:
    """The time and memory of a training, for a dry run; None where model or data set are not among those that are known."""
    shape = SHAPES.get(recipe.data.name)
    found = None if shape is None else cost_estimate.of(recipe.model.name, recipe.model.parameters(), shape, 10)
    if shape is None or found is None:
        return None
    # as they are read, and as numbers of 4 bytes; a fifth more for those that test it
    data = 1.2 * 5 * sizes["records"] * math.prod(shape)
    own = recipe.physical
    private = recipe.privacy
    how = {"private": private is not None, "exact": private is not None and private.exact}
    return cost_estimate.guess(found, steps=steps, batch=batch, physical=own, budget=recipe.memory, data=data, **how)


def build_job(recipe: Train, data: Any, device: torch.device, *, adjacency: str) -> Job:
    """The model of a recipe on its data: first weights from torch's global generator, which the engine has seeded.

    Raises:
        UsageError, Unsupported: the model does not fit the data, or mixes or keeps examples where each one is clipped.
    """
    import numpy as np
    import torch
    from torch.nn.functional import cross_entropy

    from wpriv.engine import batch_gradient, memory, watched_pairs
    from wpriv.engine.clipping import clip
    from wpriv.engine.job import Job

    private = recipe.privacy
    options = Options.model_validate(recipe.options)
    inputs, targets = _ready(data.x_train, data.y_train, options, device)
    test_inputs, test_targets = _ready(data.x_test, data.y_test, options, device)
    loss = functools.partial(cross_entropy, reduction="none")
    model = models.build(recipe.model, inputs.shape[1:], len(data.classes)).to(device)
    if inputs.dim() == 4:
        model = model.to(memory_format=torch.channels_last)

    def fetch(places: Any) -> tuple[torch.Tensor, torch.Tensor]:
        own = torch.from_numpy(places).to(device)
        found = inputs.index_select(0, own)
        if found.dim() == 4:
            found = found.contiguous(memory_format=torch.channels_last)
        return found, targets.index_select(0, own)

    def evaluate() -> dict[str, float]:
        right = 0.0
        with torch.no_grad():
            for first in range(0, len(test_targets), EVALUATED_AT_ONCE):
                own = slice(first, first + EVALUATED_AT_ONCE)
                right += float((model(test_inputs[own]).argmax(dim=1) == test_targets[own]).sum())
        return {"accuracy": right / len(test_targets)}

    method = ""
    if private is not None and private.clip != "batch-mean":
        # before any record passes through the model
        method = clip.choose_for(model, loss, tuple(inputs.shape[1:]), len(data.classes), clip.method_of(private))
    two = np.arange(min(2, len(inputs)))
    physical = recipe.physical or memory.physical_batch(model, loss, fetch, two, recipe.memory)
    batches = batch_gradient.Batches(model, loss, fetch, physical)
    gathered = batch_gradient.make_aggregator(batches, private, adjacency, recipe.batch or len(inputs), method)
    return Job(model, gathered, evaluate, watched_pairs.of(batches, recipe, adjacency), method=method)


def _ready(x: Any, y: Any, options: Options, device: torch.device) -> tuple[torch.Tensor, torch.Tensor]:
    """Records as the model takes them and classes as whole numbers, on the device."""
    import torch

    return _normalisation.normalised(_normalisation.floats(x, device), options.normalise), torch.tensor(
        y, device=device
    ).long()


TASK = TaskSpec(
    options=Options,
    results=("accuracy", "loss"),
    build_job=build_job,
    release=release,
    supports_exact_noise=supports_exact_noise,
    estimate_cost=estimate_cost,
)
