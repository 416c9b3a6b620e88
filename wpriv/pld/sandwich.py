"""The bracket of a run that is itself known only between two: the lower end of one that it dominates, the upper end of one above it."""

from __future__ import annotations

import math
from collections.abc import Callable

from wpriv.core.guarantee import epsilon_at
from wpriv.core.loss_pair import LossPair
from wpriv.core.process import WeightedPairs, closed_form, sandwich
from wpriv.pld.composition import Composition

# the brackets of the two runs themselves take half of the tolerance
SHARE = 0.5
# a bracket of delta too wide by more than this is left as it is: far out in the tail every sum would have to be hundreds of times finer
MOST = 20.0


class SandwichedComposition:
    """Answers like ``Composition``, with the lower end from a run below and the upper one from a run above, moved closer as need be."""

    def __init__(self, run: WeightedPairs, tol: float):
        self.run = run
        self._place(tol)

    def _place(self, tol: float) -> None:
        ends = sandwich(self.run, tol)
        assert ends is not None  # who asks knows that some pair has two
        self.tol, self.below, self.above = tol, _side(ends[0]), _side(ends[1])

    def delta(self, eps: float, tol: float, enough: float = -1.0) -> tuple[float, float]:
        """Lower and upper delta at eps; see ``Composition.delta``."""
        return self._narrowed(lambda side, most: side.delta(eps, SHARE * tol, most), tol, enough)

    def epsilon(self, delta: float, tol: float, enough: float = -1.0) -> tuple[float, float]:
        """Lower and upper eps >= 0 at delta; see ``Composition.epsilon``."""
        return self._narrowed(lambda side, most: side.epsilon(delta, SHARE * tol, most), tol, enough)

    def _narrowed(
        self, ask: Callable[[Composition | _ClosedForm, float], tuple[float, float]], tol: float, enough: float
    ) -> tuple[float, float]:
        high, low = self._ends(ask, enough)
        if high > enough and tol * high < high - low <= MOST * tol * high and self.tol >= tol:
            self._place(0.6 * tol * tol * high / (high - low))
            high, low = self._ends(ask, enough)
        return low, high

    def _ends(
        self, ask: Callable[[Composition | _ClosedForm, float], tuple[float, float]], enough: float
    ) -> tuple[float, float]:
        high = ask(self.above, enough)[1]
        return high, min(ask(self.below, -1.0)[0], high)


class _ClosedForm:
    """A run with a closed form: both ends are its own profile."""

    def __init__(self, pair: LossPair):
        self.pair = pair

    def delta(self, eps: float, tol: float, enough: float = -1.0) -> tuple[float, float]:
        value = math.exp(self._log_delta(eps))
        return value, value

    def epsilon(self, delta: float, tol: float, enough: float = -1.0) -> tuple[float, float]:
        value = epsilon_at(self._log_delta, delta, high=self.pair.support[1])
        return value, value

    def _log_delta(self, eps: float) -> float:
        return float(self.pair.log_delta(eps))


def _side(run: WeightedPairs) -> Composition | _ClosedForm:
    whole = closed_form(run)
    return Composition(run) if whole is None else _ClosedForm(whole)
