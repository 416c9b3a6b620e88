"""Pessimistic and optimistic composed PLDs, evaluated as brackets of delta and eps."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import Protocol

from wpriv.numerics.root_finding import smallest_meeting
from wpriv.pld import constants, work


class OneSidedComposition(Protocol):
    """A pessimistic or optimistic composition.

    ``tilt`` is that of its PMF, ``centre`` about the mean of the tilted loss, ``cells`` the number of cells or atoms.
    """

    @property
    def centre(self) -> float: ...

    @property
    def tilt(self) -> float: ...

    @property
    def cells(self) -> int: ...

    def delta(self, eps: float, sign: int) -> float:
        """delta at eps from above (sign +1) or from below (sign -1)."""


@dataclass(frozen=True)
class TwoSidedComposition:
    """A pessimistic and an optimistic composition of the same steps.

    Attributes:
        upper: the pessimistic composition.
        compose_lower: makes the optimistic composition, once it is needed.
        upper_eps_slack: by how much in eps the pessimistic composition may lie too low, from rounding of the tails and
            splitting off of jumps.
        lower_eps_slack: by how much in eps the optimistic composition may lie too high.
        deviation: standard deviation of the tilted loss.
    """

    upper: OneSidedComposition
    compose_lower: Callable[[], OneSidedComposition]
    upper_eps_slack: float
    lower_eps_slack: float
    deviation: float

    @cached_property
    def lower(self) -> OneSidedComposition:
        """The optimistic composition."""
        return self.compose_lower()

    @property
    def cells(self) -> int:
        """Number of cells (atoms) of the larger composition, by which the cost of a refinement is judged."""
        return max(self.upper.cells, self.lower.cells)

    def delta(self, eps: float) -> tuple[float, float]:
        """Lower and upper delta at eps."""
        work.add("reading", 1)
        return self.lower.delta(eps + self.lower_eps_slack, -1), self.upper.delta(eps - self.upper_eps_slack, +1)

    def meets_target(self, eps: float, delta: float) -> bool:
        """Tell whether the pessimistic composition alone proves (eps, delta), eps >= 0."""
        return eps >= 0 and self.upper.delta(eps - self.upper_eps_slack, +1) <= delta

    def epsilon(self, delta: float, guess: float, deviation: float) -> tuple[float, float]:
        """Lower and upper eps >= 0 at delta; an end many standard deviations away from the guess is 0 or inf.

        Args:
            guess: an eps near the answer, which sets the speed.
            deviation: scale of the search, in nats.
        """
        high = self._solve(lambda eps: self.delta(eps)[1], delta, guess, deviation, +1)
        low = self._solve(lambda eps: self.delta(eps)[0], delta, min(guess, high), deviation, -1)
        return low, high

    def _solve(self, curve: Callable[[float], float], delta: float, guess: float, deviation: float, sign: int) -> float:
        """The eps >= 0 at which a decreasing curve meets delta, rounded up (sign +1) or down (sign -1)."""
        target, rtol = math.log(delta), constants.EPS_SEARCH_RTOL

        def miss(eps: float) -> float:
            value = curve(eps)
            return math.log(value) - target if value > 0 else -700.0

        low = high = guess
        step, farthest = constants.EPS_SEARCH_STEP * deviation, constants.EPS_SEARCH_RANGE * deviation
        while miss(low) <= 0 and low > 0 and step < farthest:
            low, high, step = max(low - step, 0.0), low, 2 * step
        while miss(high) > 0 and step < farthest:
            low, high, step = high, high + step, 2 * step
        if miss(high) > 0:
            return math.inf if sign > 0 else low
        if miss(low) <= 0:
            return high if low > 0 and sign > 0 else 0.0
        eps = smallest_meeting(miss, high, low=low, high=high, rtol=rtol)
        return eps if sign > 0 else eps * (1 - 2 * rtol)
