"""Supervised training: a model, a loss of each record's output and target, and figures on test records."""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from wpriv.config.field_types import Field, StrictModel
from wpriv.config.train_schema import Train
from wpriv.engine import release_spec
from wpriv.errors import UsageError
from wpriv.tasks import _image_features, _normalisation, _target_checks

if TYPE_CHECKING:
    import torch
    from torch import Tensor, nn

    from wpriv.engine.adaptive_norm import AdaptiveNorm
    from wpriv.engine.batch_gradient import Batches
    from wpriv.engine.job import Job


class InputOptions(StrictModel):
    """Keys under ``options`` that say what of a record the model takes."""

    normalise: _normalisation.Normalise | None = Field(None, description=_normalisation.MEANING)
    features: _image_features.Features | None = Field(None, description=_image_features.MEANING)


CHUNK = 1000  # test records that are evaluated at once


def build_job(
    recipe: Train,
    model: nn.Module,
    loss: Callable[[Tensor, Tensor], Tensor],
    train: tuple[Tensor, Tensor],
    test: tuple[Tensor, Tensor],
    *,
    classes: int,
    adjacency: str,
    measure: Callable[[Tensor, Tensor], dict[str, Tensor]],
    vocabulary: int = 0,
    indexed: bool = False,
) -> Job:
    """Build the job that trains a model on the sum of its losses.

    Args:
        model: on the device of the records.
        loss: (outputs [B, ...], targets [B, ...]) -> losses [B], each of its own example alone.
        train, test: inputs and targets, [N, ...] each.
        classes: number of classes; integer targets are below it.
        measure: (outputs, targets) -> sums over test records by name; their means become metrics.
        vocabulary: the declared number of tokens, where inputs are tokens; else 0.
        indexed: integer targets are the places of outputs.
    Raises:
        UsageError, Unsupported: the model does not fit the records, or mixes or keeps examples where each one is
            clipped.
    """
    import torch

    from wpriv.engine import batch_gradient, copied_records, distance_observer, fine_tuning
    from wpriv.engine.clipping import clip
    from wpriv.engine.job import Job
    from wpriv.engine.model_checks import validate_model

    private, (inputs, targets) = recipe.privacy, train
    validate_model.require_shapes(model)
    model = fine_tuning.prepared(model, recipe)
    _target_checks.require_fit(model, loss, inputs, torch.cat([targets, test[1]]), vocabulary, classes, indexed)
    if inputs.dim() == 4:
        model = model.to(memory_format=torch.channels_last)  # type: ignore[call-overload]  # torch omits it
    copied = copied_records.of(recipe.augment, inputs)
    fetch = _fetcher(inputs, targets)
    batches = copied.batches(batch_gradient.Batches(model, loss, fetch, 1))
    method = ""
    if private is not None and private.clip != "batch-mean":
        # before any record passes through the model
        empty = copied.empty(inputs)
        method = clip.choose(
            batches.model,
            batches.loss,
            empty,
            targets[:0],
            method=clip.method_of(private),
            classes=max(classes, 1),
            batch=math.ceil(release_spec.expected_batch(recipe, len(inputs))),
        )
    batches = replace(batches, physical=_physical_batch(batches, recipe, len(inputs)))
    aggregator, adaptive = _aggregators(recipe, len(inputs), adjacency)

    def with_loss(other: Callable[[Tensor, Tensor], Tensor]) -> Any:
        # how this loss is clipped is tried anew, at its first batch
        return aggregator(replace(batches, loss=copied.loss(other)), "")

    return Job(
        model,
        aggregator(batches, method),
        lambda: _means(model, test, measure),
        distance_observer.make_observer(batches, recipe, adjacency),
        method=method,
        fetch=fetch,
        with_loss=with_loss,
        augmentation=copied.augmentation,
        adaptive=adaptive,
        batches=batches,
    )


def _fetcher(inputs: Tensor, targets: Tensor) -> Callable[[Any], tuple[Tensor, Tensor]]:
    """Return what takes the records of a batch by their indices; images as the layers read them fastest."""
    import torch

    def fetch(indices: Any) -> tuple[Tensor, Tensor]:
        rows = torch.from_numpy(indices).to(inputs.device)
        records = inputs.index_select(0, rows)
        if records.dim() == 4:
            records = records.contiguous(memory_format=torch.channels_last)
        return records, targets.index_select(0, rows)

    return fetch


def _physical_batch(batches: Batches, recipe: Train, records: int) -> int:
    """Return how many records are processed at once: the recipe's number, or what fits in memory."""
    import numpy as np

    from wpriv.engine import memory

    few = np.arange(min(2, records))
    return recipe.physical or memory.physical_batch(batches.model, batches.loss, batches.fetch, few, recipe.memory)


def _aggregators(
    recipe: Train, records: int, adjacency: str
) -> tuple[Callable[[Batches, str], Any], AdaptiveNorm | None]:
    """Return what makes the private sum of given batches by a clipping method, and the norm that it adapts, if any."""
    from wpriv.engine import adaptive_norm, batch_gradient

    private, expected = recipe.privacy, release_spec.expected_batch(recipe, records)
    if private is None or private.adapt is None:
        return lambda of, method: batch_gradient.make_aggregator(of, private, adjacency, expected, method), None
    adaptive = adaptive_norm.AdaptiveNorm(private.adapt, private.bound, expected)

    def aggregator(of: Batches, method: str) -> Any:
        return adaptive.attach(functools.partial(batch_gradient.at_norm, of, private, adjacency, expected, method))

    return aggregator, adaptive


def to_inputs(x: Any, options: InputOptions, device: torch.device) -> Tensor:
    """Return records as the model takes them: float32 on the device.

    They are normalised by public constants if given, and images are replaced by their features if the options name
    some. Tokens (int64) stay whole numbers.

    Raises:
        UsageError: tokens are to be normalised or to have features, or the records are no images of a fitting size.
    """
    if x.dtype == "int64":
        import torch

        for key in ("normalise", "features"):
            if getattr(options, key) is not None:
                raise UsageError(f"options: {key}: tokens are names of words and no quantities; leave it out")
        return torch.tensor(x, device=device)
    inputs = _normalisation.normalised(x, options.normalise, device)
    if options.features is None:
        return inputs
    return _image_features.rows_of_images(inputs, options.features, options.normalise)


def release(recipe: Train, sizes: Mapping[str, int]) -> release_spec.ReleaseSpec:
    """Return the release of a step: the sum of the records' clipped gradients."""
    return release_spec.gradients(recipe, sizes["records"])


def supports_exact_noise(recipe: Train) -> bool:
    """Return whether each release is a sum of records clipped one by one: unless batch means are clipped."""
    return recipe.privacy is not None and recipe.privacy.clip != "batch-mean"


def remarks(recipe: Train, sizes: Mapping[str, int]) -> tuple[str, ...]:
    """Return what the statement says about fixed features of the records."""
    given = recipe.options.get("features")
    if given is None:
        return ()
    features = InputOptions.model_validate({"features": given}).features
    assert features is not None
    count = features.decorrelate
    scaled = "scaled and " if features.scaling == "synthetic" else ""
    public = f", {scaled}decorrelated by {count} synthetic images, which hold no record" if count else ""
    return (
        f"The model takes features of each record in place of the record: {features.name}, a fixed map that "
        f"was not learnt from records{public}. Each record's features depend on that record alone, and cost no privacy",
    )


FIELDS: dict[str, Any] = {
    "release": release,
    "supports_exact_noise": supports_exact_noise,
    "remarks": remarks,
    "clips_single_records": True,
    "accepts_tokens": True,
    "reads_labels": True,
}
"""What the tasks of supervised training have in common, as fields of ``TaskSpec``."""


def _means(
    model: nn.Module, test: tuple[Tensor, Tensor], measure: Callable[[Tensor, Tensor], dict[str, Tensor]]
) -> dict[str, float]:
    """Return the means of the measured figures over the test records."""
    import torch

    inputs, targets = test
    sums: dict[str, float] = {}
    with torch.no_grad():
        for first in range(0, len(targets), CHUNK):
            chunk = slice(first, first + CHUNK)
            for name, total in measure(model(inputs[chunk]), targets[chunk]).items():
                sums[name] = sums.get(name, 0.0) + float(total)
    return {name: total / len(targets) for name, total in sums.items()}
