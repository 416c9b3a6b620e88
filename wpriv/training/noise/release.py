"""Releases of private training: sums that carry their sensitivity, and the only function that adds noise to them.

Whatever makes a sum (clipping, for example) guarantees its bound, which stays with the sum; a sum of bounded sums is
bounded by the sum of their bounds.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Tensor

from wpriv.core.kinds import STANDARD_ADJACENCIES, Adjacency
from wpriv.errors import Unsupported, UsageError
from wpriv.training.noise.noise_stream import CorrelatedNoise, Noise

GRID_BITS = 20
# the smallest standard deviation of noise, whose grid is a normal number of float64
MIN_DEVIATION = 2.0 ** (GRID_BITS - 1022)
# numbers that a CPU adds and rounds at a time, so that they stay in its cache
PIECE = 2**15
# the largest share of the sensitivity that rounding the sum to the grid of an exact release may add
MAX_ROUNDING_SHARE = 2.0**-6


class Part(NamedTuple):
    """Some coordinates of a vector: ``length`` of them from the place ``first`` on."""

    first: int
    length: int


@dataclass(frozen=True)
class Bounded:
    """A data-dependent sum whose l2 change between neighbouring batches is at most ``sensitivity``.

    Args:
        parts: one tensor for each trainable parameter, in the model's order; together they are one vector.
        sensitivity: the largest l2 distance of this vector between neighbours; >= 0 and finite.
        adjacency: ``add-remove``, ``replace-one`` or ``replace-within-group``, the neighbouring relation.
        grid: a power of two of which every number of the parts, in float64, is an exact multiple, so that the
            sensitivity is that of these very numbers (wpriv/training/clipping/exact_sums.py); 0 where the sensitivity
            is that of the real numbers that the parts approximate.
        dtype: the precision of the noisy release; by default that of the parts.
    Raises:
        UsageError: no such sensitivity or adjacency.
    """

    parts: list[Tensor]
    sensitivity: float
    adjacency: str
    grid: float = 0.0
    dtype: torch.dtype | None = None

    def __post_init__(self) -> None:
        known = (*STANDARD_ADJACENCIES, Adjacency.WITHIN_GROUP)
        if self.adjacency not in known:
            raise UsageError(f"adjacency must be one of {', '.join(known)}; found {self.adjacency!r}")
        if not 0 <= self.sensitivity < math.inf:
            raise UsageError(f"a sensitivity must be finite and at least 0; found {self.sensitivity}")

    def __add__(self, other: Bounded) -> Bounded:
        """Return the sum of both, whose bound is the sum of both bounds (triangle inequality).

        Raises:
            UsageError: they are bounded under different adjacencies, or their parts differ in number or shape.
        """
        if self.adjacency != other.adjacency:
            raise UsageError(
                f"a sum bounded under {self.adjacency} cannot be added to one bounded under {other.adjacency}"
            )
        shapes = [[tuple(part.shape) for part in each.parts] for each in (self, other)]
        if shapes[0] != shapes[1]:
            raise UsageError(f"only sums of the same shapes can be added; found {shapes[0]} and {shapes[1]}")
        parts = [mine + theirs for mine, theirs in zip(self.parts, other.parts, strict=True)]
        grid = min(self.grid, other.grid)
        return Bounded(parts, self.sensitivity + other.sensitivity, self.adjacency, grid, self.dtype)

    def scaled(self, factor: float) -> Bounded:
        """Return ``factor`` times this sum, rounded and so on no grid; ``factor`` must not depend on the data.

        Raises:
            UsageError: the factor is not a finite number.
        """
        if not math.isfinite(factor):
            raise UsageError(f"a sum is scaled by a finite number; found {factor}")
        parts = [part * factor for part in self.parts]
        return Bounded(parts, self.sensitivity * abs(factor), self.adjacency, 0.0, self.dtype)


def add_noise(
    total: Bounded,
    sigma: float,
    noise: Noise | CorrelatedNoise | None = None,
    *,
    private: bool = True,
    exact: bool = False,
    coordinates: tuple[Sequence[Part], int] | None = None,
) -> list[Tensor]:
    """Return the sum plus normal noise of standard deviation ``sigma`` times its sensitivity on each coordinate.

    With ``private`` this is the Gaussian mechanism of noise multiplier sigma. Sum and noise are added in float64 and
    rounded to a grid of 2^-21 to 2^-20 standard deviations, so that the low digits of a release do not reveal which
    sum it was made of. By default the floating-point error of the sum and of the noise is not covered by the
    accounting. With ``exact`` it is: see ``exact_form``.

    Args:
        total: the sum; its parts share one precision and one device.
        sigma: the noise multiplier, > 0; 0 is allowed where ``private`` is false, for training without privacy.
        noise: its source, on the device of the parts; by default under a new key from the operating system. With
            correlated noise ``sigma`` is that of the independent noise that it is made of.
        exact: release the Gaussian mechanism without any floating-point error.
        coordinates: where the parts are only some coordinates of the released vector: their places in it, and its
            length. The noise is that of these coordinates in a release of the whole vector.
    Returns:
        New tensors in the order and shapes of ``total.parts``.
    Raises:
        UsageError: sigma is out of range, or 0 in a private release; the standard deviation of the noise underflows or
            overflows; or the parts differ in precision or device.
        Unsupported: ``exact``, and ``total.grid`` is 0: the sensitivity does not cover the rounding of the sum.
    """
    if not math.isfinite(sigma) or sigma < 0 or (private and sigma == 0):
        raise UsageError(f"the noise multiplier of a private release must be finite and above 0; found {sigma}")
    if not total.parts:
        return []
    first = total.parts[0]
    for part in total.parts:
        if part.dtype != first.dtype or part.device != first.device:
            pair = f"{part.dtype} on {part.device} beside {first.dtype} on {first.device}"
            raise UsageError(f"parts that are released together must share precision and device; found {pair}")
    if exact and not total.grid:
        raise Unsupported(
            "noise: exact needs a sum whose sensitivity covers rounding, as clipped_sum(..., exact=True) gives; found "
            "one of floating-point numbers. Use noise: rounded"
        )
    deviation = sigma * total.sensitivity
    if sigma and total.sensitivity and not MIN_DEVIATION <= deviation < math.inf:
        raise UsageError(
            f"noise of {sigma:g} times the sensitivity {total.sensitivity:g} is out of the range of float64; scale the "
            f"sum and its sensitivity"
        )
    dtype, source = total.dtype or first.dtype, noise or Noise(device=first.device)
    if not deviation:
        return [part.to(dtype, copy=True) for part in total.parts]
    # one draw for all parts: a launch for each would take longer than making the numbers
    sizes = [part.numel() for part in total.parts]
    grid = grid_of(deviation)
    if coordinates is not None:
        if exact:
            raise Unsupported("noise: exact draws the noise of a whole vector; found a part of one. Use noise: rounded")
        numbers = source.normal_at(*coordinates, deviation / grid)
    elif not exact:
        sums = source.noisy_sum(total.parts, deviation / grid, grid) if dtype == torch.float32 else None
        if sums is not None:
            return sums
        numbers = source.normal(sum(sizes), deviation / grid, torch.float64)
    elif isinstance(source, CorrelatedNoise):
        raise Unsupported("noise: exact is proven for independent noise of each step. Use rounded")
    else:
        grid, deviation = exact_form(total, sigma, sum(sizes))
        numbers = source.rounded_normal(sum(sizes), deviation / grid)
    shares = torch.split(numbers, sizes)
    return [_rounded_sum(share, part, grid, exact, dtype) for share, part in zip(shares, total.parts, strict=True)]


def grid_of(deviation: float) -> float:
    """Return the grid of a release: the power of two in (2^-21, 2^-20] standard deviations."""
    return math.ldexp(1.0, math.frexp(deviation)[1] - 1 - GRID_BITS)


def exact_form(total: Bounded, sigma: float, count: int) -> tuple[float, float]:
    """Return the grid of an exact release of ``count`` numbers, and the standard deviation of its noise.

    The deviation is sigma times the sensitivity of the sum after it was rounded to the grid: two vectors at a distance
    of at most s are at most s + grid sqrt(count) apart once every coordinate is rounded, and at most s where they lie
    on the grid already. The grid is that of ``grid_of``, or finer where rounding would add more than a share
    ``MAX_ROUNDING_SHARE`` to the sensitivity. The deviation is rounded upwards.

    Let x be the sum, rounded to multiples of the grid g, and Z the vector of normal numbers of standard deviation s.
    Then round(x + Z) = x + round(Z), coordinate by coordinate, as x is a multiple of g: the release is distributed as
    a rounded release of the Gaussian mechanism on x, and rounding is post-processing. Its noise multiplier is s over
    the sensitivity of x: at least sigma. ``Noise.rounded_normal`` draws round(Z / g) without error, s / g being exact;
    x / g and the sum of both are integers, exact below 2^53.

    Source: Mironov (2012) on the low digits of floating-point noise; Casacuberta et al. (2022) on sensitivities that
        rounding exceeds.
    """
    grid = grid_of(sigma * total.sensitivity)
    while grid > total.grid and grid * math.sqrt(count) > MAX_ROUNDING_SHARE * total.sensitivity:
        grid /= 2
    added = grid * math.sqrt(count) if grid > total.grid else 0.0
    return grid, sigma * (total.sensitivity + added) * (1 + 2.0**-50)


def _rounded_sum(numbers: Tensor, part: Tensor, grid: float, exact: bool, dtype: torch.dtype) -> Tensor:
    """One part plus its noise in multiples of the grid, exact as a power of two; on a CPU a piece at a time."""
    result = torch.empty(part.shape, dtype=dtype, device=part.device)
    if not len(numbers):
        return result
    size = PIECE if part.device.type == "cpu" else len(numbers)
    pieces = (torch.split(each, size) for each in (numbers, part.reshape(-1), result.view(-1)))
    for noise, value, place in zip(*pieces, strict=True):
        if exact:
            noise.add_((value / grid).round_())
            if float(noise.abs().max()) >= 2.0**52:
                limit = f"noise: exact holds sums up to {2.0**52 * grid:.3g} at this noise multiplier"
                raise UsageError(f"{limit}; use a smaller batch or more noise")
        else:
            noise.add_(value, alpha=1 / grid).round_()
        torch.mul(noise, grid, out=place)
    return result
