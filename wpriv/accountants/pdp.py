"""Probabilistic differential privacy: the chance that the privacy loss exceeds eps. A notion of its own.

PDP implies (eps, delta)-DP with the same figures, but not the reverse, and it is not closed under post-processing, so its delta
is never to be called the delta of differential privacy. Not to be confused with ``pld``, whose delta is smaller.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np

from wpriv.core.certified import Composition
from wpriv.core.curve import Bracket, Curve
from wpriv.core.pair import LossPair
from wpriv.core.process import Process, closed_form
from wpriv.core.roots import least
from wpriv.errors import Unsupported

NOTION = "probabilistic-dp"
CLAIM = "certified"
SOURCE = "Sommer, Meiser, Mohammadi 2019, Definition 7, Lemma 7 and Corollary 5.1"
EXPLAIN = """delta_PDP(eps) = max over both orders of P(Y > eps), Y the sum of the privacy losses of all steps.
Exact where the composition has a closed form (Gauss: Corollary 5.1). Elsewhere P(Y > eps) = f - t f' at t = e^eps, and the slope of
the convex profile f lies between the secants of its certified bracket on either side. Not closed under post-processing."""

# relative width at which the search for a certified eps ends
SEARCH = 3e-4
Tail = Callable[[float, float], tuple[float, float]]
# the secants' span is chosen among these shifts of eps, as shares of one
_SPANS = np.geomspace(1e-7, 1.0, 29)


def account(process: Process, *, tol: float = 1e-3) -> Curve:
    """The curve of probabilistic DP of any process that ``pld`` can price.

    Args:
        tol: relative width asked of the bracket underneath; the bracket of PDP itself is about its square root.
    Raises:
        Unsupported: the grid would not fit in memory (raised when the curve is asked).
    """
    runs = process.runs()
    closed = [closed_form(run) for run in runs]
    tails: list[Tail]
    if all(pair is not None for pair in closed):
        tails, claim = [_exact_tail(pair) for pair in closed if pair is not None], "exact"
    else:
        tails, claim = [_certified_tail(Composition(run), min(tol, 1e-2) / 10) for run in runs], CLAIM

    def worst(eps: float) -> tuple[float, float]:
        low, high = 0.0, 0.0
        for tail in tails:
            # a later order need not be known better than to lie far below an earlier one
            ends = tail(eps, 1e-3 * low)
            low, high = max(low, ends[0]), max(high, ends[1])
        return low, high

    def delta(eps: float) -> Bracket:
        low, high = worst(eps)
        return Bracket((low + high) / 2, low, high)

    def epsilon(delta_: float) -> Bracket:
        if claim == "exact":
            return Bracket.exact(_least_eps(lambda eps: worst(eps)[1], delta_, rtol=1e-12))
        high = _least_eps(lambda eps: worst(eps)[1], delta_)
        # the search ends above the root by at most its tolerance: on the safe side for the upper end only
        low = min(_least_eps(lambda eps: worst(eps)[0], delta_, guess=high) * (1 - 1.01 * SEARCH), high)
        return Bracket((low + high) / 2, low, high)

    return Curve(process, "pdp", NOTION, claim, SOURCE, delta, epsilon)


def _exact_tail(pair: LossPair) -> Tail:
    def tail(eps: float, enough: float) -> tuple[float, float]:
        value = float(np.exp(pair.tails(np.array(eps)).sf_p))
        return value, value

    return tail


def _certified_tail(composition: Composition, tol: float) -> Tail:
    def tail(eps: float, enough: float) -> tuple[float, float]:
        if eps >= composition.top:
            return composition.infinity, composition.infinity
        low, high = composition.delta(eps, tol, enough)
        if high <= 0:
            return 0.0, 0.0
        best_low, best_high = low, 1.0
        both = composition.nearest(eps)
        for span in _SPANS * max(abs(eps), 1e-3 * both.spread):
            before, after = both.delta(eps - span)[1], both.delta(eps + span)[1]
            best_high = min(best_high, high + (before - low) / -math.expm1(-span))
            best_low = max(best_low, low + (low - after) / math.expm1(span))
        return best_low, best_high

    return tail


def _least_eps(upper: Callable[[float], float], delta: float, guess: float = 1.0, rtol: float = SEARCH) -> float:
    target = math.log(delta)
    try:
        return least(lambda eps: math.log(max(upper(eps), 1e-300)) - target, guess, rtol=rtol)
    except Unsupported:
        return math.inf
