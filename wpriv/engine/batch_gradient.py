"""What a step takes from its records: the bounded sum that noise is added to, and what was seen on the way.

Three ways: ``per_example`` (DP-SGD), ``batch_mean`` (the procedure published with Wasserstein DP) and ``plain`` (no privacy). And for
accountants that price observed pairs of records: how far apart those sums are without one or the other.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np
import torch
from torch import Tensor, nn

from wpriv.config.train_schema import Privacy
from wpriv.engine.clipping.clip import clipped_sum, method_of
from wpriv.engine.exact_sums import MOST
from wpriv.engine.release import Bounded
from wpriv.engine.sampler import Indices, chunks
from wpriv.errors import UsageError

Loss = Callable[[Tensor, Tensor], Tensor]
Fetch = Callable[[Indices], tuple[Tensor, Tensor]]


@dataclass(frozen=True)
class BatchGradient:
    """One step's sum before noise. What else is seen is of the private records: neither noisy nor accounted.

    Args:
        total: the bounded sum. divisor: what it is divided by after the noise; None for the number of records that took part.
        seen: [3] number of records, sum of their losses, number of those whose gradient was clipped (nan where none is by itself).
    """

    total: Bounded
    divisor: float | None
    seen: Tensor


@dataclass(frozen=True)
class Batches:
    """A model, its loss (outputs, targets) -> [B], the records by their places, and how many go through the model at once."""

    model: nn.Module
    loss: Loss
    fetch: Fetch
    physical: int

    def trainable(self) -> list[nn.Parameter]:
        return [p for p in self.model.parameters() if p.requires_grad]

    def gradient_sum(self, indices: Indices) -> tuple[list[Tensor], Tensor]:
        """The sum of the losses' gradients over records, unclipped, and the sum of the losses."""
        weights = self.trainable()
        parts, losses = [torch.zeros_like(p) for p in weights], torch.zeros((), device=weights[0].device)
        for own in chunks(indices, self.physical):
            inputs, targets = self.fetch(own)
            loss = self.loss(self.model(inputs), targets).sum()
            for part, found in zip(parts, torch.autograd.grad(loss, weights), strict=True):
                part += found
            losses = losses + loss.detach()
        return parts, losses


def make_aggregator(
    batches: Batches, private: Privacy | None, adjacency: str, batch: int, method: str = ""
) -> Callable[[Indices], BatchGradient]:
    """The way that a recipe asks for, as a function of the places of a step's records; ``method`` is what its ``auto`` turned out to be."""
    if private is None:
        return functools.partial(plain, batches)
    if private.clip == "batch-mean":
        return functools.partial(batch_mean, batches, norm=private.norm)
    return functools.partial(
        per_example,
        batches,
        norm=float(private.clip),
        adjacency=adjacency,
        divisor=float(batch),
        method=method or method_of(private),
        exact=private.exact,
    )


def joined(parts: list[Bounded]) -> Bounded:
    """The sum over the physical batches of one step. Each record stands in one of them, and a neighbour differs in one record (under
    replace-one it stands at the same place), so that the bound is the largest of theirs and not their sum."""
    total = parts[0]
    for other in parts[1:]:
        for mine, theirs in zip(total.parts, other.parts, strict=True):
            mine += theirs
    return replace(total, sensitivity=max(part.sensitivity for part in parts))


def per_example(
    batches: Batches,
    indices: Indices,
    *,
    norm: float,
    adjacency: str,
    divisor: float,
    method: str = "auto",
    exact: bool = False,
) -> BatchGradient:
    """The sum of the records' gradients, each clipped to ``norm``.

    It is divided by the expected batch, which does not depend on the draw.

    Raises:
        UsageError: as ``clipped_sum``; or ``exact``, and the step has more records than can be added up exactly.
    """
    if exact and len(indices) > MOST:
        raise UsageError(f"noise: exact adds up to {MOST} records a step; found {len(indices)}. Take a smaller batch")
    parts, seen = [], []
    # no record at all is a batch like any other: its sum is zero and gets noise
    for own in chunks(indices, batches.physical) or [indices]:
        inputs, targets = batches.fetch(own)
        found = clipped_sum(
            batches.model, batches.loss, inputs, targets, norm=norm, adjacency=adjacency, method=method, exact=exact
        )
        parts.append(found.total)
        losses = found.losses.detach()
        seen.append(torch.stack([losses.new_tensor(len(own)), losses.sum(), (found.norms > norm).sum()]))
    # what was seen stays on the device: to ask for it at every step would make the step wait
    return BatchGradient(joined(parts), divisor, torch.stack(seen).sum(dim=0))


def batch_mean(batches: Batches, indices: Indices, *, norm: float) -> BatchGradient:
    """The mean gradient of a batch, clipped as a whole to ``norm``: any two such means are at most 2 norm apart, whoever is in them.

    One record's part in it is not bounded by less than that, so that noise far below 2 norm hides nobody.

    Source:
        Yang, Qi, Zhou (2024), experiments (batch-mean clipping in place of Abadi et al.'s per-example clipping).
    """
    parts, losses = batches.gradient_sum(indices)
    mean = clipped([part / max(len(indices), 1) for part in parts], norm)
    return BatchGradient(Bounded(mean, 2 * norm, "replace-one"), 1.0, _seen(indices, losses))


def plain(batches: Batches, indices: Indices) -> BatchGradient:
    """The sum of the gradients, unbounded, for their mean: training without privacy."""
    parts, losses = batches.gradient_sum(indices)
    return BatchGradient(Bounded(parts, 0.0, "replace-one"), None, _seen(indices, losses))


def _seen(indices: Indices, losses: Tensor) -> Tensor:
    return torch.stack([losses.new_tensor(len(indices)), losses, losses.new_tensor(math.nan)])


def clipped(parts: list[Tensor], norm: float) -> list[Tensor]:
    """One vector in parts, scaled down to a norm of at most ``norm``."""
    length = torch.linalg.vector_norm(torch.stack([torch.linalg.vector_norm(part) for part in parts]))
    if not bool(length.isfinite()):
        raise UsageError("a gradient is not a finite number. Look for NaN in the data; a lower learning rate may help")
    factor = (norm / (length * (1 + 64 * torch.finfo(length.dtype).eps))).clamp(max=1.0)
    return [part * factor for part in parts]


def single_distances(batches: Batches, indices: Indices, *, norm: float, adjacency: str) -> Tensor:
    """[pairs] distances between the clipped sums that lack one or the other of some records: those of their clipped gradients."""
    rows = []
    for place in indices:
        inputs, targets = batches.fetch(np.array([place]))
        rows.append(
            _flat(clipped_sum(batches.model, batches.loss, inputs, targets, norm=norm, adjacency=adjacency).total.parts)
        )
    return torch.pdist(torch.stack(rows))


def left_out_distances(
    batches: Batches, indices: Indices, chosen: Indices, *, norm: float, keep: list[Tensor], mixing: bool
) -> Tensor:
    """[pairs] distances between the clipped mean gradients of a batch that lacks one or the other of ``chosen``, under one mask.

    Args:
        chosen: places in ``indices`` (not in the data set). keep: the mask, one tensor a parameter.
        mixing: the model's output for a record depends on the others (batch normalisation), so that each mean needs its own pass.
    """
    rows, whole = [], [] if mixing else batches.gradient_sum(indices)[0]
    for place in chosen:
        if mixing:
            parts = batches.gradient_sum(np.delete(indices, place))[0]
        else:
            own = batches.gradient_sum(indices[place : place + 1])[0]
            parts = [all_ - one for all_, one in zip(whole, own, strict=True)]
        mean = clipped([part / max(len(indices) - 1, 1) for part in parts], norm)
        rows.append(_flat([part * kept for part, kept in zip(mean, keep, strict=True)]))
    return torch.pdist(torch.stack(rows))


def _flat(parts: list[Tensor]) -> Tensor:
    return torch.cat([part.reshape(-1) for part in parts])
