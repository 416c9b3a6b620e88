"""Per-step gradient aggregation: the bounded sum that receives noise, and diagnostics without noise.

There are three forms: ``per_example`` (DP-SGD), ``batch_mean`` (the procedure published with Wasserstein DP) and
``plain`` (no privacy). For accountants of observed pairs, the module also computes how far apart these sums are
without one or another record.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field, replace
from typing import cast

import numpy as np
import torch
from torch import Tensor, nn

from wpriv.config.train_parts import STABILITY, Adapt
from wpriv.config.train_schema import Privacy, Train
from wpriv.errors import UsageError
from wpriv.training.clipping import exact_sums
from wpriv.training.clipping.clip import ByGroup, clipped_sum, method_of
from wpriv.training.clipping.example_gradients import Automatic, Loss, Scaling, squares_of
from wpriv.training.clipping.record_trees import Records, called, raw
from wpriv.training.engine import cost_estimate, distributed
from wpriv.training.engine.release_spec import count_share, default_count_noise
from wpriv.training.engine.sampler import Indices, chunks
from wpriv.training.noise.release import Bounded

Fetch = Callable[[Indices], tuple[Records, Records]]


@dataclass(frozen=True)
class BatchGradient:
    """The sum of one step before noise.

    Args:
        total: the bounded sum.
        divisor: what the noisy sum is divided by; None for the number of records that took part.
        diagnostics: [3] number of records, sum of their losses, number of clipped gradients (nan where gradients are
            not clipped one by one). Computed from private records, without noise and not accounted for.
    """

    total: Bounded
    divisor: float | None
    diagnostics: Tensor


@dataclass
class RealCheck:
    """Whether records of the step under way are compared with records alone: the ``check`` of ``clipped_sum``."""

    seed: int | None = None


@dataclass(frozen=True)
class Batches:
    """A model and the records that pass through it.

    Args:
        loss: (outputs, targets) -> [B]. fetch: places -> inputs and targets.
        physical: the number of records that pass through the model at once.
        check: the engine sets it for each step; it is about the first records that pass through the model together.
    """

    model: nn.Module
    loss: Loss
    fetch: Fetch
    physical: int
    check: RealCheck = field(default_factory=RealCheck)

    def trainable(self) -> list[nn.Parameter]:
        return [p for p in self.model.parameters() if p.requires_grad]

    def gradient_sum(self, indices: Indices) -> tuple[list[Tensor], Tensor]:
        """Return the unclipped sum of the records' gradients, and the sum of their losses."""
        weights = self.trainable()
        parts, losses = [torch.zeros_like(p) for p in weights], torch.zeros((), device=weights[0].device)
        for chunk in chunks(indices, self.physical):
            inputs, targets = self.fetch(chunk)
            loss = self.loss(called(self.model, inputs), raw(targets)).sum()
            for part, gradient in zip(parts, torch.autograd.grad(loss, weights), strict=True):
                part += gradient
            losses = losses + loss.detach()
        return parts, losses


def make_aggregator(
    batches: Batches, private: Privacy | None, adjacency: str, batch: float, method: str = ""
) -> Callable[[Indices], BatchGradient]:
    """Return the aggregation that a recipe asks for, as a function of the places of a step's records."""
    if private is None:
        return functools.partial(plain, batches)
    if private.clip == "batch-mean":
        return functools.partial(batch_mean, batches, norm=private.norm, adjacency=adjacency)
    return functools.partial(
        per_example,
        batches,
        norm=clipping_of(private),
        adjacency=adjacency,
        divisor=float(batch),
        method=method or method_of(private),
        exact=private.exact,
    )


def at_norm(
    batches: Batches, private: Privacy, adjacency: str, batch: float, method: str, indices: Indices, norm: float
) -> BatchGradient:
    """Return the sum of a step with a clipping norm of that step, where the recipe adapts it."""
    return make_aggregator(batches, private.model_copy(update={"clip": norm}), adjacency, batch, method)(indices)


def scaling_of(private: Privacy) -> Scaling:
    """Return how the whole gradients of single records are clipped; with groups of parameters, their common bound."""
    if private.clip == "automatic":
        return Automatic(private.stability or STABILITY)
    return private.bound


def clipping_of(private: Privacy) -> Scaling | ByGroup:
    """Return how the gradients of single records are clipped, whole or by groups of parameters."""
    return cast(ByGroup, private.clip) if private.by_group else scaling_of(private)


def joined(parts: list[Bounded]) -> Bounded:
    """Return the sum over the physical batches of one step, bounded by the largest of their bounds.

    Each record is in one of the batches, and neighbours differ in one record (under replace-one at the same place), so
    that only one of the sums changes.
    """
    total = parts[0]
    for other in parts[1:]:
        for mine, theirs in zip(total.parts, other.parts, strict=True):
            mine += theirs
    return replace(total, sensitivity=max(part.sensitivity for part in parts))


def per_example(
    batches: Batches,
    indices: Indices,
    *,
    norm: Scaling | ByGroup,
    adjacency: str,
    divisor: float,
    method: str = "auto",
    exact: bool = False,
) -> BatchGradient:
    """Sum gradients clipped to ``norm`` or automatically, not finite ones as zero; divisor: the expected batch."""
    # of all processes together, each of which has an equal share
    limit, records = exact_sums.MAX_RECORDS, len(indices) * distributed.size()
    if exact and records > limit:
        raise UsageError(f"noise: exact sums up to {limit} records per step; found {records}. Use a smaller batch")
    parts, diagnostics = [], []
    # an empty batch is a batch: its sum is zero and gets noise
    for number, chunk in enumerate(chunks(indices, batches.physical) or [indices]):
        inputs, targets = batches.fetch(chunk)
        check = None if number else batches.check.seed
        network = (batches.model, batches.loss, inputs, targets)
        clipped = clipped_sum(*network, norm=norm, adjacency=adjacency, method=method, exact=exact, check=check)
        parts.append(clipped.total)
        losses = clipped.losses.detach()
        # losses may have half precision under autocast, which would round the counts that an adapted norm releases
        losses = losses.to(torch.promote_types(losses.dtype, torch.float32))
        over = (clipped.norms > norm).sum() if isinstance(norm, (int, float)) else losses.new_tensor(math.nan)
        # the loss of one record that is not finite would be all that a mean shows
        finite = torch.where(losses.isfinite(), losses, 0.0)
        diagnostics.append(torch.stack([losses.new_tensor(len(chunk)), finite.sum(), over]))
    # the diagnostics stay on the device: reading them at every step would stall it
    return BatchGradient(joined(parts), divisor, torch.stack(diagnostics).sum(dim=0))


def batch_mean(batches: Batches, indices: Indices, *, norm: float, adjacency: str) -> BatchGradient:
    """Return the mean gradient of a batch, clipped as a whole to ``norm``: any two such means are at most 2 norm apart,
    and so are those of neighbours of every kind.

    The influence of one record is not bounded by less than that: noise far below 2 norm provides no privacy.

    Source: Yang, Qi, Zhou (2024), experiments (batch-mean clipping in place of Abadi et al.'s per-example clipping).
    """
    parts, losses = batches.gradient_sum(indices)
    mean = clip([part / max(len(indices), 1) for part in parts], norm)
    return BatchGradient(Bounded(mean, 2 * norm, adjacency), 1.0, _diagnostics(indices, losses))


def plain(batches: Batches, indices: Indices) -> BatchGradient:
    """Return the unbounded sum of the gradients, for training without privacy."""
    parts, losses = batches.gradient_sum(indices)
    return BatchGradient(Bounded(parts, 0.0, "replace-one"), None, _diagnostics(indices, losses))


def _diagnostics(indices: Indices, losses: Tensor) -> Tensor:
    return torch.stack([losses.new_tensor(len(indices)), losses, losses.new_tensor(math.nan)])


def clip(parts: list[Tensor], norm: float) -> list[Tensor]:
    """Scale one vector, given in parts, down to an l2 norm of at most ``norm``; to zero where it is not finite."""
    length = torch.cat([squares_of(part.reshape(1, -1)) for part in parts]).sum().sqrt()
    factor = (norm / (length * (1 + 64 * torch.finfo(length.dtype).eps))).clamp(max=1.0)
    return [(part * factor).masked_fill(~length.isfinite(), 0.0) for part in parts]


def left_out_distances(
    batches: Batches, indices: Indices, chosen: Indices, *, norm: float, mask: list[Tensor], mixing: bool
) -> Tensor:
    """Return [pairs] distances between the clipped mean gradients of a batch that lacks one or another record.

    Args:
        chosen: which records to leave out, as positions in ``indices``.
        mask: applied to all means, one tensor per parameter.
        mixing: the model's output for a record depends on the others (batch normalisation), so that each mean needs a
            pass of its own.
    """
    rows, full = [], [] if mixing else batches.gradient_sum(indices)[0]
    for place in chosen:
        if mixing:
            parts = batches.gradient_sum(np.delete(indices, place))[0]
        else:
            single = batches.gradient_sum(indices[place : place + 1])[0]
            parts = [total - one for total, one in zip(full, single, strict=True)]
        mean = clip([part / max(len(indices) - 1, 1) for part in parts], norm)
        rows.append(flat([part * kept for part, kept in zip(mean, mask, strict=True)]))
    return torch.pdist(torch.stack(rows))


def flat(parts: Iterable[Tensor]) -> Tensor:
    """Return the numbers of all parts as one vector."""
    return torch.cat([part.reshape(-1) for part in parts])


class AdaptiveNorm:
    """A clipping norm that follows a quantile of the gradients' norms, by counts released with noise.

    The clipped gradients and the bits of those at most C long are one release; docs/theory/clipping.md, Theorem 3.

    Args:
        plan: quantile, rate and noise. norm: C at the first step. batch: the expected number of records of a step.
    Source: Andrew, Thakkar, McMahan, Ramaswamy (2021), Algorithm 1 and Theorem 1.
    """

    def __init__(self, plan: Adapt, norm: float, batch: float):
        self.plan, self.norm, self.batch = plan, norm, batch
        self.count_noise = plan.count_noise or default_count_noise(batch)
        self.share = math.nan

    def begin(self, multiplier: float, adjacency: str) -> None:
        """Divide the noise between gradients and counts."""
        self.share = count_share(multiplier, self.count_noise, adjacency)

    def attach(self, aggregate: Callable[[Indices, float], BatchGradient]) -> Callable[[Indices], BatchGradient]:
        """Return an aggregation at the present norm with the count as a further coordinate.

        Args:
            aggregate: (places, C) -> the sum of gradients clipped to C, whose diagnostics count the clipped ones.
        """

        def both(indices: Indices) -> BatchGradient:
            gradient = aggregate(indices, self.norm)
            count, _, over = gradient.diagnostics
            # the bits of the records that are not clipped are 1: their sum, less 1/2 for each record
            bits = (count / 2 - over).double()
            like = gradient.total.parts[0]
            part = (2 * self.share * self.norm * bits).to(like.dtype).reshape(1)
            total = gradient.total
            sensitivity = total.sensitivity * math.sqrt(1 + self.share**2) * (1 + 2.0**-50)
            joint = Bounded([*total.parts, part], sensitivity, total.adjacency, 0.0, total.dtype)
            return replace(gradient, total=joint)

        return both

    def detach(self, parts: list[Tensor]) -> list[Tensor]:
        """Return a noisy release without its last coordinate, by which the norm is updated."""
        noisy_bits = float(parts[-1]) / (2 * self.share * self.norm)
        below = noisy_bits / self.batch + 0.5
        # a count far outside of [0, 1], by noise, moves the norm no further than the ends do
        step = self.plan.rate * (min(max(below, 0.0), 1.0) - self.plan.quantile)
        self.norm = min(max(self.norm * math.exp(-step), self.plan.smallest), self.plan.largest)
        return parts[:-1]


# --- distances between gradients of pairs of records, for data-dependent accountants (bdp, wdp) ---
#
# They are computed from the private records without noise and are not accounted for: whoever sees them, or an eps
# computed from them, learns something that no guarantee covers.

DATA_DEPENDENT = ("bdp", "wdp")
_MIXING = nn.modules.batchnorm._BatchNorm


def make_observer(batches: Batches, recipe: Train, adjacency: str) -> Callable[[Indices, list[Tensor]], Tensor] | None:
    """Return what the engine calls at every step with the places of its records and the mask.

    Returns:
        A function (places, mask) -> [pairs] distances; None if no accountant of the recipe uses them.
    """
    private = recipe.privacy
    if private is None or not any(word.partition(":")[0] in DATA_DEPENDENT for word in recipe.accountants):
        return None
    if private.clip == "batch-mean":
        return functools.partial(_left_out, batches, private)
    return functools.partial(_singles, batches, private, adjacency)


def _left_out(batches: Batches, private: Privacy, indices: Indices, mask: list[Tensor]) -> Tensor:
    mixing = any(isinstance(module, _MIXING) for module in batches.model.modules())
    chosen = _evenly_spaced(len(indices), private.pairs)
    mask = mask or [weight.new_ones(weight.shape) for weight in batches.trainable()]
    return left_out_distances(batches, indices, chosen, norm=private.norm, mask=mask, mixing=mixing)


def _singles(batches: Batches, private: Privacy, adjacency: str, indices: Indices, mask: list[Tensor]) -> Tensor:
    """[pairs] distances of clipped sums that lack one or another record: those of the clipped gradients."""
    rows = []
    for place in indices[_evenly_spaced(len(indices), private.pairs)]:
        inputs, targets = batches.fetch(np.array([place]))
        norm = clipping_of(private)
        clipped = clipped_sum(batches.model, batches.loss, inputs, targets, norm=norm, adjacency=adjacency)
        rows.append(flat(clipped.total.parts))
    return torch.pdist(torch.stack(rows))


def _evenly_spaced(size: int, count: int) -> Indices:
    """Return ``count`` places spread evenly over a batch, whose records are random already."""
    if size < count:
        raise UsageError(
            f"bdp and wdp compare {count} records of every step; found a step of {size}. "
            f"Take a larger batch, or fewer pairs"
        )
    return np.arange(count) * size // count


def physical_batch(model: nn.Module, loss: Loss, fetch: Fetch, two: Indices, megabytes: int) -> int:
    """Return the largest batch whose activations are expected to stay below a budget; at least 1.

    It depends on the model and the shape of a record alone, so that the same recipe always gets the same batches.
    """
    inputs, targets = fetch(two)
    kept = cost_estimate.kept_bytes(model, lambda: loss(called(model, inputs), raw(targets)).sum()) / len(two)
    weights = sum(p.numel() for p in model.parameters() if p.requires_grad)
    return cost_estimate.largest_batch(kept, weights, megabytes)
