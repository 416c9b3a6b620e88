"""What private training releases: sums that carry their sensitivity, and the one place where noise is added to them.

A bound is kept by what made the sum (clipping, say) and travels with it; sums of bounded sums are bounded by the sum of their bounds.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor

from wpriv.core.process import ADJACENCIES, WITHIN_GROUP
from wpriv.errors import UsageError
from wpriv.train.noise import Noise


@dataclass(frozen=True)
class Bounded:
    """A data-dependent sum whose l2 change between neighbouring batches is at most ``sensitivity``.

    Args:
        parts: one tensor for each trainable parameter, in the model's order; together they are one vector.
        sensitivity: the most that its l2 norm changes between neighbours; >= 0 and finite.
        adjacency: ``add-remove``, ``replace-one`` or ``replace-within-group``, the neighbours that are meant.
    Raises:
        UsageError: no such sensitivity or adjacency.
    """

    parts: list[Tensor]
    sensitivity: float
    adjacency: str

    def __post_init__(self) -> None:
        known = (*ADJACENCIES, WITHIN_GROUP)
        if self.adjacency not in known:
            raise UsageError(f"adjacency must be one of {', '.join(known)}; found {self.adjacency!r}")
        if not 0 <= self.sensitivity < math.inf:
            raise UsageError(f"a sensitivity must be finite and at least 0; found {self.sensitivity}")

    def __add__(self, other: Bounded) -> Bounded:
        """The sum of both, whose bound is the sum of both bounds (triangle inequality).

        Raises:
            UsageError: they are bounded under different adjacencies, or their parts differ in number or shape.
        """
        if self.adjacency != other.adjacency:
            raise UsageError(f"a sum bounded under {self.adjacency} cannot be added to one bounded under {other.adjacency}")
        shapes = [[tuple(part.shape) for part in each.parts] for each in (self, other)]
        if shapes[0] != shapes[1]:
            raise UsageError(f"only sums of the same shapes can be added; found {shapes[0]} and {shapes[1]}")
        parts = [mine + theirs for mine, theirs in zip(self.parts, other.parts, strict=True)]
        return Bounded(parts, self.sensitivity + other.sensitivity, self.adjacency)

    def scaled(self, factor: float) -> Bounded:
        """``factor`` times this sum; ``factor`` must not depend on the data.

        Raises:
            UsageError: the factor is not a finite number.
        """
        if not math.isfinite(factor):
            raise UsageError(f"a sum is scaled by a finite number; found {factor}")
        return Bounded([part * factor for part in self.parts], self.sensitivity * abs(factor), self.adjacency)


def noisy(total: Bounded, sigma: float, noise: Noise | None = None, *, private: bool = True) -> list[Tensor]:
    """The sum plus normal noise of standard deviation ``sigma`` times its sensitivity on each coordinate: a release.

    With ``private`` this is the Gaussian mechanism of noise multiplier sigma, up to what floating point does to it: the noise is
    drawn in float32 (float64 for parts of that precision), and the low bits of a floating-point sum are not covered by the accounting.

    Args:
        total: what is released; its parts share one precision and one device.
        sigma: the noise multiplier, > 0; 0 is allowed where ``private`` is false, for training without privacy.
        noise: where the noise comes from, for the device of the parts; by default under a key of its own from the operating system.
    Returns:
        New tensors in the order and shapes of ``total.parts``.
    Raises:
        UsageError: sigma is out of range, or 0 in a private release; or the parts differ in precision or device.
    """
    if not math.isfinite(sigma) or sigma < 0 or (private and sigma == 0):
        raise UsageError(f"the noise multiplier of a private release must be finite and above 0; found {sigma}")
    if not total.parts:
        return []
    first = total.parts[0]
    for part in total.parts:
        if part.dtype != first.dtype or part.device != first.device:
            found = f"{part.dtype} on {part.device} beside {first.dtype} on {first.device}"
            raise UsageError(f"parts that are released together must share precision and device; found {found}")
    if sigma == 0:
        return [part.clone() for part in total.parts]
    # one draw for all parts: a launch for each would cost more than the numbers
    sizes = [part.numel() for part in total.parts]
    dtype = torch.float64 if first.dtype == torch.float64 else torch.float32
    drawn = (noise or Noise(device=first.device)).normal(sum(sizes), sigma * total.sensitivity, dtype)
    return [flat.view(part.shape).add_(part).to(part.dtype) for flat, part in zip(torch.split(drawn, sizes), total.parts, strict=True)]
