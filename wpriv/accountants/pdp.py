"""Probabilistic differential privacy: the chance that the privacy loss exceeds eps. A notion of its own.

PDP implies (eps, delta)-DP with the same figures, but not the reverse, and it is not closed under post-processing, so its delta
is never to be called the delta of differential privacy. Not to be confused with ``pld``, whose delta is smaller.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Protocol

import numpy as np

from wpriv.core.guarantee import Bracket, Curve, epsilon_at
from wpriv.core.loss_pair import LossPair
from wpriv.core.process import Process, closed_form, require_exact_plds
from wpriv.errors import Unsupported
from wpriv.numerics.root_finding import smallest_meeting
from wpriv.pld.composition import Composition
from wpriv.pld.two_sided import TwoSidedComposition

NOTION = "probabilistic-dp"
CLAIM = "certified"
SOURCE = "Sommer, Meiser, Mohammadi 2019, Definition 7, Lemma 7 and Corollary 5.1"
EXPLAIN = """delta_PDP(eps) = max over both orders of P(Y > eps), Y the sum of the privacy losses of all steps.
Exact where the composition has a closed form (Gauss: Corollary 5.1). Elsewhere P(Y > eps) = f - t f' at t = e^eps, and the slope of
the convex profile f lies between the secants of its certified bracket on either side. Not closed under post-processing."""

# relative width at which the search for a certified eps ends
SEARCH = 3e-4
# the secants' span is one of these shares of eps, or of the spread of the loss where that is larger
_SPANS = np.geomspace(1e-7, 1.0, 29)

# what is smaller is bounded, but not bracketed narrowly
NOUGHT = 1e-100

Ends = tuple[float, float]


class _Order(Protocol):
    """One order of the neighbours; ``enough`` is an upper end below which nothing more need be known."""

    def tail(self, eps: float, enough: float) -> Ends: ...

    def epsilon(self, delta: float) -> Ends: ...


def account(process: Process, *, tol: float = 1e-3) -> Curve:
    """The curve of probabilistic DP of any process that ``pld`` can price.

    Args:
        tol: relative width asked of the bracket underneath; the bracket of PDP itself is about its square root.
    Raises:
        Unsupported: the grid would not fit in memory (raised when the curve is asked).
    """
    require_exact_plds(process, "pdp")
    runs = process.directions()
    closed = [pair for pair in map(closed_form, runs) if pair is not None]
    exact = len(closed) == len(runs)
    orders: list[_Order] = (
        [*map(_Exact, closed)] if exact else [_Certified(Composition(run), min(tol, 1e-2) / 10) for run in runs]
    )

    def delta(eps: float) -> Bracket:
        if exact:
            return Bracket.exact_exp(max(float(pair.tails(np.array(eps)).sf_p) for pair in closed))
        low, high = 0.0, 0.0
        for order in orders:
            # a later order need not be known better than to lie far below an earlier one
            ends = order.tail(eps, max(1e-3 * low, NOUGHT))
            low, high = max(low, ends[0]), max(high, ends[1])
        return Bracket(_middle(low, high), low, high)

    def epsilon(delta: float) -> Bracket:
        low, high = 0.0, 0.0
        for order in orders:
            # an order that meets delta below an earlier one's eps does not matter
            if order.tail(low, 1e-3 * delta)[1] > delta:
                ends = order.epsilon(delta)
                low, high = max(low, ends[0]), max(high, ends[1])
        return Bracket(_middle(low, high), low, high)

    return Curve(process, "pdp", NOTION, "exact" if exact else CLAIM, SOURCE, delta, epsilon)


def _middle(low: float, high: float) -> float:
    """An estimate between two ends: their mean, or the safe end where they are far apart."""
    return (low + high) / 2 if high <= 2 * low else high


class _Exact:
    """A composition in closed form."""

    def __init__(self, pair: LossPair):
        self.pair = pair

    def tail(self, eps: float, enough: float) -> Ends:
        value = float(np.exp(self.pair.tails(np.array(eps)).sf_p))
        return value, value

    def epsilon(self, delta: float) -> Ends:
        found = epsilon_at(lambda eps: float(self.pair.tails(np.array(eps)).sf_p), delta, high=self.pair.support[1])
        return found, found


class _Certified:
    """A composition known by certified brackets of its profile."""

    def __init__(self, composition: Composition, tol: float):
        self.composition, self.tol = composition, tol

    def tail(self, eps: float, enough: float) -> Ends:
        if eps >= self.composition.top:
            return self.composition.mass_at_plus_infinity, self.composition.mass_at_plus_infinity
        low, high = self.composition.delta(eps, self.tol, enough)
        if high <= 0:
            return 0.0, 0.0
        found = self._secants(eps)
        if (low, high) == (0.0, enough) and found[1] > enough:
            # a bound of delta alone was enough for delta, and no law was composed there
            low, _ = self.composition.delta(eps, self.tol)
            found = self._secants(eps)
        return max(low, found[0]), found[1]

    def _secants(self, eps: float) -> Ends:
        if not self.composition.seen:
            return 0.0, 1.0
        secants = _Secants(self._best(eps))
        return secants.low(eps), secants.high(eps)

    def epsilon(self, delta: float) -> Ends:
        top = self.composition.top
        if delta <= self.composition.mass_at_plus_infinity:
            return (top, top) if delta == self.composition.mass_at_plus_infinity else (math.inf, math.inf)
        # the loss of approximate DP is below that of probabilistic DP, and mostly near it
        floor, high = self.composition.epsilon(delta, 100 * self.tol)
        secants = None
        for _ in range(4):
            if math.isinf(high):
                return floor, high
            # one composed law serves a whole search, and is good where delta is of the size that it was composed for
            asked = high
            if asked < top:
                self.composition.delta(asked, self.tol)
            law = self._best(asked)
            if secants is not None and law is secants.both:
                break
            secants = _Secants(law)
            high = min(_least_eps(secants.high, delta, max(asked, 0.1 * law.spread)), top)
            if abs(high - asked) * (law.upper.tilt + 1 / law.spread) < 0.2:
                break
        assert secants is not None
        # the search ends above the root by at most its tolerance: on the safe side for the upper end only
        low = _least_eps(secants.low, delta, high) * (1 - 1.01 * SEARCH)
        return min(max(low, floor), high), high

    def _best(self, eps: float) -> TwoSidedComposition:
        """Of the laws composed so far, the smallest that brackets delta at eps as narrowly as asked, or else the narrowest."""

        def rank(both: TwoSidedComposition) -> tuple[float, int]:
            low, high = _ends(both, eps)
            return max(high - low, self.tol * high), both.cells

        return min(self.composition.seen, key=rank)


class _Secants:
    """Bounds of P(Y > eps) by secants of one certified bracket of the profile, over the span that serves best.

    Every span gives a bound. The best one is walked to on a ladder, from where the last eps had it: it hardly moves with eps.
    """

    def __init__(self, both: TwoSidedComposition):
        self.both = both
        self.rungs = [_SPANS.size // 2] * 2

    def high(self, eps: float) -> float:
        low, high = _ends(self.both, eps)

        def bound(span: float) -> float:
            return high + (_ends(self.both, eps - span)[1] - low) / -math.expm1(-span)

        return min(self._walk(0, eps, bound), 1.0)

    def low(self, eps: float) -> float:
        low, _ = _ends(self.both, eps)

        def bound(span: float) -> float:
            return (_ends(self.both, eps + span)[1] - low) / math.expm1(min(span, 700.0)) - low

        return max(-self._walk(1, eps, bound), 0.0)

    def _walk(self, side: int, eps: float, bound: Callable[[float], float]) -> float:
        unit = max(abs(eps), self.both.spread)
        known: dict[int, float] = {}

        def at(rung: int) -> float:
            if rung not in known:
                known[rung] = bound(float(_SPANS[rung]) * unit)
            return known[rung]

        here = self.rungs[side]
        for stride in (4, 1):
            while True:
                best = min((k for k in (here - stride, here + stride) if 0 <= k < _SPANS.size), key=at)
                if at(best) >= at(here):
                    break
                here = best
        self.rungs[side] = here
        return at(here)


def _ends(both: TwoSidedComposition, eps: float) -> Ends:
    """delta at eps from below and above; far below the middle of a tilted law what it left out would overflow, so it says nothing there."""
    low, high = both.delta(eps)
    beyond = both.upper.tilt * (both.upper.centre - eps) > 600
    return low, 1.0 if beyond else high


def _least_eps(bound: Callable[[float], float], delta: float, guess: float) -> float:
    target = math.log(delta)
    try:
        return smallest_meeting(lambda eps: math.log(max(bound(eps), 1e-300)) - target, guess, rtol=SEARCH)
    except Unsupported:
        return math.inf
