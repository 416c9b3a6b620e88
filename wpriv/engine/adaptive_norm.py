"""Adaptive clipping: the clipping norm follows a quantile of the gradients' norms, by counts released with noise.

In each step record i adds its clipped gradient, and the bit b_i = 1 if its norm is at most C, as b_i - 1/2. Both sums
are ONE release: a vector with one more coordinate, 2 r C times the sum of b_i - 1/2. A record moves it by at most
C sqrt(1 + r^2), which the noise multiplier of the accounting is about; r is such that the noise on the count has the
standard deviation of the plan. docs/theory/clipping.md has the proof.

Source:
    Andrew, Thakkar, McMahan, Ramaswamy (2021), "Differentially Private Learning with Adaptive Clipping", Algorithm 1
    and Theorem 1.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace

from torch import Tensor

from wpriv.config.technique_schema import Adapt
from wpriv.engine.batch_gradient import BatchGradient
from wpriv.engine.release import Bounded
from wpriv.engine.sampler import Indices
from wpriv.numerics.count_noise import count_share, default_count_noise


class AdaptiveNorm:
    """The clipping norm of a training and its update.

    Args:
        plan: quantile, rate and noise. norm: C at the first step. batch: the expected number of records of a step.
        multiplier, adjacency: of the accounted release, which ``begin`` sets.
    """

    def __init__(self, plan: Adapt, norm: float, batch: float):
        self.plan, self.norm, self.batch = plan, norm, batch
        self.count_noise = plan.count_noise or default_count_noise(batch)
        self.share = math.nan

    def begin(self, multiplier: float, adjacency: str) -> None:
        """Divide the noise between gradients and counts.

        Raises:
            UsageError: the count has too little noise for this multiplier.
        """
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
