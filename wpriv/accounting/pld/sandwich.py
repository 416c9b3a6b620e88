"""Compositions that are known between two others, and the tail of a composed loss."""

from __future__ import annotations

import math
from collections.abc import Callable

from wpriv.accounting.pld import constants
from wpriv.accounting.pld.composition import Composition
from wpriv.accounting.pld.step_groups import TwoSidedComposition
from wpriv.core.guarantee import ROUNDING, epsilon_ends
from wpriv.core.loss_pair import LossPair, log_profile_ends
from wpriv.core.process import WeightedPairs, closed_form, sandwich
from wpriv.errors import Unsupported
from wpriv.numerics import counted_work
from wpriv.numerics.bracket import safe_exp
from wpriv.numerics.root_finding import smallest_meeting

Ends = tuple[float, float]
Evaluate = Callable[["Composition | _ClosedForm", float], Ends]


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

        def evaluate(side: Composition | _ClosedForm, upper: float) -> Ends:
            return side.delta(eps, constants.SANDWICH_COMPOSITION_SHARE * tol, upper)

        start = counted_work.total()
        low, high = self._ends(evaluate, sufficient_upper)
        for _ in range(constants.SANDWICH_DEPTHS):
            narrow = high - low <= tol * high or high <= sufficient_upper
            is_spent = counted_work.total() > start + constants.SANDWICH_DEPTH_WORK
            if narrow or is_spent or self._resolving(high / self.count) == self.run:
                break
            # all that is known is that delta is smaller than what the pairs resolve
            self._resolve((high / self.count) ** constants.SANDWICH_DEPTH_POWER)
            low, high = self._ends(evaluate, sufficient_upper)
        return self._tightened(evaluate, (low, high), tol, sufficient_upper, start)

    def epsilon(self, delta: float, tol: float, sufficient_upper: float = -1.0) -> tuple[float, float]:
        """Lower and upper eps >= 0 at delta; see ``Composition.epsilon``."""
        start = counted_work.total()
        self._resolve(delta / self.count)

        def evaluate(side: Composition | _ClosedForm, upper: float) -> Ends:
            return side.epsilon(delta, constants.SANDWICH_COMPOSITION_SHARE * tol, upper)

        return self._tightened(evaluate, self._ends(evaluate, sufficient_upper), tol, sufficient_upper, start)

    def _resolving(self, delta: float) -> WeightedPairs:
        """The pairs, with sandwiches that resolve a delta of one step as small as this."""
        return [(pair.for_delta(delta), n) for pair, n in self.run]

    def _resolve(self, delta: float) -> None:
        run = self._resolving(delta)
        if run != self.run:
            self.run = run
            self._enclose(self.tol)

    def _tightened(self, evaluate: Evaluate, ends: Ends, tol: float, sufficient_upper: float, start: float) -> Ends:
        """The bracket from closer pairs, where these may make it narrow enough and work is left since ``start``."""
        low, high = ends
        # a bracket of delta far out in the tail may be so wide that the pairs would have to be hundreds of times closer
        fixable = tol * high < high - low <= constants.SANDWICH_MAX_WIDTH * tol * high
        fixable = fixable and counted_work.total() <= start + constants.SANDWICH_TIGHTENING_WORK
        aim = max(constants.SANDWICH_AIM * tol * tol * high / (high - low) if high > low else tol, self.least_tol)
        if high > sufficient_upper and fixable and self.tol >= tol and aim < self.tol:
            self._enclose(aim)
            return self._ends(evaluate, sufficient_upper)
        return low, high

    def _ends(self, evaluate: Evaluate, sufficient_upper: float) -> Ends:
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


# Certified brackets of the tail probability P(L > eps) of a composed privacy loss.
#
# P(L > eps) = f - t f' at t = e^eps, f the privacy profile as a function of t. The profile is convex, so its slope lies
# between the secants of its certified bracket on either side of eps.


class LossTail:
    """The tail of the loss of a composition, evaluated at any eps or probability.

    Args:
        composition: the composition of one direction. tol: relative width asked of the bracket of delta underneath.
    """

    def __init__(self, composition: Composition, tol: float):
        self.composition, self.tol = composition, tol

    def probability(self, eps: float, sufficient_upper: float = -1.0) -> Ends:
        """Lower and upper P(L > eps); an upper end of at most ``sufficient_upper`` is not refined.

        Raises:
            Unsupported: no composition fits in memory.
        """
        if eps >= self.composition.max_loss:
            return self.composition.mass_at_plus_infinity, self.composition.mass_at_plus_infinity
        low, high = self.composition.delta(eps, self.tol, sufficient_upper)
        if high <= 0:
            return 0.0, 0.0
        tail_low, tail_high = self._secants(eps)
        if (low, high) == (0.0, sufficient_upper) and tail_high > sufficient_upper:
            # delta was bounded without a composition there
            low, _ = self.composition.delta(eps, self.tol)
            tail_low, tail_high = self._secants(eps)
        return max(low, tail_low), tail_high

    def epsilon(self, probability: float) -> Ends:
        """Lower and upper end of the least eps >= 0 with P(L > eps) at most the given probability.

        Raises:
            Unsupported: no composition fits in memory.
        """
        max_loss = self.composition.max_loss
        if probability <= self.composition.mass_at_plus_infinity:
            end = max_loss if probability == self.composition.mass_at_plus_infinity else math.inf
            return end, end
        # the eps at which delta, which is smaller, equals the probability; mostly near the answer
        floor, high = self.composition.epsilon(probability, 100 * self.tol)
        bounds = None
        for _ in range(constants.MAX_TAIL_COMPOSITIONS):
            if math.isinf(high):
                return floor, high
            # one composition serves a whole search, and is accurate where delta has the size that it was composed for
            eps = high
            if eps < max_loss:
                self.composition.delta(eps, self.tol)
            composition = self._best(eps)
            if bounds is not None and composition is bounds.composition:
                break
            bounds = _SecantBounds(composition)
            high = min(_least_eps(bounds.upper, probability, max(eps, 0.1 * composition.deviation)), max_loss)
            slope = composition.upper.tilt + 1 / composition.deviation
            if abs(high - eps) * slope < constants.TAIL_EPS_MOVE:
                break
        assert bounds is not None
        # the search ends above the root by at most its tolerance, which is the safe side for the upper end only
        low = _least_eps(bounds.lower, probability, high) * (1 - 1.01 * constants.TAIL_SEARCH_RTOL)
        return min(max(low, floor), high), high

    def _secants(self, eps: float) -> Ends:
        if not self.composition.recent:
            return 0.0, 1.0
        bounds = _SecantBounds(self._best(eps))
        return bounds.lower(eps), bounds.upper(eps)

    def _best(self, eps: float) -> TwoSidedComposition:
        """The smallest recent composition that brackets delta at eps as narrowly as asked, or else the narrowest."""

        def rank(composition: TwoSidedComposition) -> tuple[float, int]:
            low, high = _delta_ends(composition, eps)
            return max(high - low, self.tol * high), composition.cells

        return min(self.composition.recent, key=rank)


class _SecantBounds:
    """Bounds of P(L > eps) by secants of one certified bracket of the profile, over the span that gives the best bound.

    The bound of every span is valid. The search for the best one walks along the ladder of spans from the last eps's
    best, since the best span hardly depends on eps.
    """

    def __init__(self, composition: TwoSidedComposition):
        self.composition = composition
        self.best_spans = [constants.SECANT_SPANS.size // 2] * 2

    def upper(self, eps: float) -> float:
        low, high = _delta_ends(self.composition, eps)

        def bound(span: float) -> float:
            return high + (_delta_ends(self.composition, eps - span)[1] - low) / -math.expm1(-span)

        return min(self._minimum(0, eps, bound), 1.0)

    def lower(self, eps: float) -> float:
        low, _ = _delta_ends(self.composition, eps)

        def bound(span: float) -> float:
            return (_delta_ends(self.composition, eps + span)[1] - low) / math.expm1(min(span, 700.0)) - low

        return max(-self._minimum(1, eps, bound), 0.0)

    def _minimum(self, side: int, eps: float, bound: Callable[[float], float]) -> float:
        """The least bound over the ladder of spans, found by walking from the last best one of this side."""
        unit, spans = max(abs(eps), self.composition.deviation), constants.SECANT_SPANS
        values: dict[int, float] = {}

        def at(k: int) -> float:
            if k not in values:
                values[k] = bound(float(spans[k]) * unit)
            return values[k]

        here = self.best_spans[side]
        for stride in (4, 1):
            while True:
                neighbour = min((k for k in (here - stride, here + stride) if 0 <= k < spans.size), key=at)
                if at(neighbour) >= at(here):
                    break
                here = neighbour
        self.best_spans[side] = here
        return at(here)


def _delta_ends(composition: TwoSidedComposition, eps: float) -> Ends:
    """Lower and upper delta at eps; 1 as the upper end far below the centre, where the slack would overflow."""
    low, high = composition.delta(eps)
    distance = composition.upper.tilt * (composition.upper.centre - eps)
    return low, 1.0 if distance > constants.MAX_EXPONENT_TAIL_PROBABILITY else high


def _least_eps(bound: Callable[[float], float], probability: float, guess: float) -> float:
    """The least eps at which a bound of the tail probability meets the given one; inf where there is none."""
    target = math.log(probability)

    def miss(eps: float) -> float:
        return math.log(max(bound(eps), constants.MASS_FLOOR)) - target

    try:
        return smallest_meeting(miss, guess, rtol=constants.TAIL_SEARCH_RTOL)
    except Unsupported:
        return math.inf
