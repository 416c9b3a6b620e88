"""Brackets for compositions whose PLD is only known between a dominated and a dominating PLD."""

from __future__ import annotations

import math
from collections.abc import Callable

from wpriv.core.guarantee import ROUNDING, epsilon_ends
from wpriv.core.loss_pair import LossPair, log_profile_ends
from wpriv.core.process import WeightedPairs, closed_form, sandwich
from wpriv.errors import Unsupported
from wpriv.numerics import counted_work
from wpriv.numerics.bracket import safe_exp
from wpriv.pld import constants
from wpriv.pld.composition import Composition


class SandwichedComposition:
    """A composition of steps whose exact PLDs are unavailable, with the methods of ``Composition``.

    The lower ends come from a composition of dominated pairs, the upper ends from one of dominating pairs; the two are
    made closer where the bracket would be too wide.

    Args:
        run: pairs with their counts, at least one of which has a ``sandwich``.
        tol: relative tolerance of eps for the distance between the two.
    """

    def __init__(self, run: WeightedPairs, tol: float):
        self.run, self.count = run, sum(n for _, n in run)
        # the least tolerance that did not take too much work
        self.least_tol = 0.0
        self._enclose(tol)

    def _enclose(self, tol: float) -> None:
        """Choose the two compositions, as close as ``tol`` and the work that may be done for it allow."""
        while True:
            try:
                with counted_work.stop_at(counted_work.total() + constants.SANDWICH_WORK):
                    ends = sandwich(self.run, tol)
                break
            except Unsupported:
                if tol >= constants.WIDEST_SANDWICH:
                    raise
                self.least_tol = tol = constants.SANDWICH_COARSENING * tol
        assert ends is not None  # the caller has checked that some pair has a sandwich
        self.tol, self.dominated, self.dominating = tol, _composition(ends[0]), _composition(ends[1])

    def delta(self, eps: float, tol: float, sufficient_upper: float = -1.0) -> tuple[float, float]:
        """Lower and upper delta at eps; see ``Composition.delta``."""
        share = constants.SANDWICH_COMPOSITION_SHARE

        def evaluate(side: Composition | _ClosedForm, upper: float) -> tuple[float, float]:
            return side.delta(eps, share * tol, upper)

        is_spent = counted_work.limit(constants.SANDWICH_DEPTH_WORK)
        for _ in range(constants.SANDWICH_DEPTHS):
            low, high = self._ends(evaluate, sufficient_upper)
            narrow = high - low <= tol * high or high <= sufficient_upper
            if narrow or is_spent() or self._resolving(high / self.count) == self.run:
                break
            # all that is known is that delta is smaller than what the pairs resolve
            self._resolve((high / self.count) ** constants.SANDWICH_DEPTH_POWER)
        return self._bracket(evaluate, tol, sufficient_upper)

    def epsilon(self, delta: float, tol: float, sufficient_upper: float = -1.0) -> tuple[float, float]:
        """Lower and upper eps >= 0 at delta; see ``Composition.epsilon``."""
        self._resolve(delta / self.count)
        share = constants.SANDWICH_COMPOSITION_SHARE
        return self._bracket(lambda side, upper: side.epsilon(delta, share * tol, upper), tol, sufficient_upper)

    def _resolving(self, delta: float) -> WeightedPairs:
        """The pairs, with sandwiches that resolve a delta of one step as small as this."""
        return [(pair.for_delta(delta), n) for pair, n in self.run]

    def _resolve(self, delta: float) -> None:
        run = self._resolving(delta)
        if run != self.run:
            self.run = run
            self._enclose(self.tol)

    def _bracket(
        self,
        evaluate: Callable[[Composition | _ClosedForm, float], tuple[float, float]],
        tol: float,
        sufficient_upper: float,
    ) -> tuple[float, float]:
        low, high = self._ends(evaluate, sufficient_upper)
        # a bracket of delta far out in the tail may be so wide that the pairs would have to be hundreds of times closer
        fixable = tol * high < high - low <= constants.SANDWICH_MAX_WIDTH * tol * high
        aim = max(constants.SANDWICH_AIM * tol * tol * high / (high - low) if high > low else tol, self.least_tol)
        if high > sufficient_upper and fixable and self.tol >= tol and aim < self.tol:
            self._enclose(aim)
            low, high = self._ends(evaluate, sufficient_upper)
        return low, high

    def _ends(
        self, evaluate: Callable[[Composition | _ClosedForm, float], tuple[float, float]], sufficient_upper: float
    ) -> tuple[float, float]:
        high = evaluate(self.dominating, sufficient_upper)[1]
        return min(evaluate(self.dominated, -1.0)[0], high), high


class _ClosedForm:
    """A composition in closed form: both ends of every bracket are its own profile, rounded outwards."""

    def __init__(self, pair: LossPair):
        self.pair = pair

    def delta(self, eps: float, tol: float, sufficient_upper: float = -1.0) -> tuple[float, float]:
        low, high = log_profile_ends(self.pair, eps)
        slack = ROUNDING * (1 - high) if math.isfinite(high) else 0.0
        return math.exp(low - slack), safe_exp(high + slack)

    def epsilon(self, delta: float, tol: float, sufficient_upper: float = -1.0) -> tuple[float, float]:
        return epsilon_ends(lambda eps: log_profile_ends(self.pair, eps), delta, high=self.pair.support[1])


def _composition(run: WeightedPairs) -> Composition | _ClosedForm:
    pair = closed_form(run)
    return Composition(run, work_share=0.5) if pair is None else _ClosedForm(pair)
