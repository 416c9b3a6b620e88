"""The composed law from above and from below, read as brackets of delta and of eps."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property

from wpriv.numerics.root_finding import smallest_meeting
from wpriv.pld.lattice.convolve import LatticeComposition
from wpriv.pld.transform.inversion import TransformComposition


@dataclass(frozen=True)
class TwoSidedComposition:
    """The composed law from above and from below, the loss's spread, and by how much in eps either may lie on the wrong side.

    ``rise`` and ``fall`` cover rounding in the tails and what splitting off jumps costs. ``below`` composes from below, once that is asked.
    """

    upper: LatticeComposition | TransformComposition
    below: Callable[[], LatticeComposition | TransformComposition]
    rise: float
    fall: float
    spread: float

    @cached_property
    def lower(self) -> LatticeComposition | TransformComposition:
        return self.below()

    @property
    def cells(self) -> int:
        """The size of the larger last window, for knowing when to stop refining."""
        return max(self.upper.cells, self.lower.cells)

    def delta(self, eps: float) -> tuple[float, float]:
        """Lower and upper delta at eps."""
        return self.lower.delta(eps + self.fall, -1), self.upper.delta(eps - self.rise, +1)

    def suffices(self, eps: float, delta: float) -> bool:
        """Whether the law from above shows by itself that delta at eps >= 0 is no larger."""
        return eps >= 0 and self.upper.delta(eps - self.rise, +1) <= delta

    def epsilon(self, delta: float, guess: float, spread: float) -> tuple[float, float]:
        """Lower and upper eps >= 0 at delta, the upper one meeting it; (0, inf) for ends further off than some spreads from the guess."""
        high = self._solve(lambda eps: self.delta(eps)[1], delta, guess, spread, +1)
        low = self._solve(lambda eps: self.delta(eps)[0], delta, min(guess, high), spread, -1)
        return low, high

    def _solve(self, curve: Callable[[float], float], delta: float, guess: float, spread: float, sign: int) -> float:
        target = math.log(delta)

        def miss(eps: float) -> float:
            value = curve(eps)
            return math.log(value) - target if value > 0 else -700.0

        low = high = guess
        step = spread / 16
        while miss(low) <= 0 and low > 0 and step < 64 * spread:
            low, high, step = max(low - step, 0.0), low, 2 * step
        while miss(high) > 0 and step < 64 * spread:
            low, high, step = high, high + step, 2 * step
        if miss(high) > 0:
            return math.inf if sign > 0 else low
        if miss(low) <= 0:
            return high if low > 0 and sign > 0 else 0.0
        met = smallest_meeting(miss, high, low=low, high=high, rtol=1e-9)
        return met if sign > 0 else met * (1 - 2e-9)
