"""The test that breaks a claimed (eps, delta): call the record "in" where the privacy loss exceeds eps.

For t = e^eps this test has TPR - t FPR = H_t(P||Q), the largest of all tests. Its two rates follow from bounds of the
profile f(t) at t and at points on both sides: -FPR is a slope of the convex f. docs/theory/refuting-tests.md has the
proof.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from wpriv.core.attacks.trade_off import PROFILE_ROUNDING, DeltaEnds, Line
from wpriv.core.loss_pair import LossPair
from wpriv.core.process import WeightedPairs, closed_form, sandwich

# distances in eps at which the profile is evaluated beside the threshold; each gives a bound, and the best is taken
DISTANCES = (0.1, 0.02)


@dataclass(frozen=True)
class ThresholdTest:
    """The test "loss > threshold" of one order of the neighbours, with bounds of its rates and of its advantage.

    Args:
        threshold: eps, in nats.
        order: the order of the neighbours, an index into ``Process.directions``.
        fpr_lower, fpr_upper: Q(L > eps). tpr_lower, tpr_upper: P(L > eps).
        delta_lower, delta_upper: TPR - e^eps FPR, which is the profile at eps.
    """

    threshold: float
    order: int
    fpr_lower: float
    fpr_upper: float
    tpr_lower: float
    tpr_upper: float
    delta_lower: float
    delta_upper: float


def threshold_test(pairs: WeightedPairs, delta_ends: DeltaEnds, eps: float, order: int) -> ThresholdTest:
    """Bound the rates of the test that calls the record "in" where the loss of all steps together exceeds eps.

    Args:
        pairs: the loss pairs of this order of the neighbours with their counts.
        delta_ends: both ends of delta of this order, at any eps >= 0.
        eps: the threshold, at least 0.
    """
    low, high = delta_ends(eps)
    # the tails of a pair that is only known between two others are not its own
    exact = closed_form(pairs) if sandwich(pairs, 1.0) is None else None
    if exact is not None:
        fpr, tpr = _exact_rates(exact, eps)
    else:
        fpr = _fpr(delta_ends, eps)
        t = math.exp(eps)
        # TPR = f(t) + t FPR; and a rate is at most 1
        tpr = low + t * fpr[0], min(high + t * fpr[1], 1.0)
    return ThresholdTest(eps, order, *fpr, *tpr, low, high)


def _exact_rates(pair: LossPair, eps: float) -> tuple[tuple[float, float], tuple[float, float]]:
    """Both rates of one pair in closed form, moved outwards by the rounding of its tails."""
    tails = pair.tails(np.array(eps))
    rates = [math.exp(float(tail)) for tail in (tails.sf_q, tails.sf_p)]
    fpr, tpr = ((rate * (1 - PROFILE_ROUNDING), min(rate * (1 + PROFILE_ROUNDING), 1.0)) for rate in rates)
    return fpr, tpr


def _fpr(delta_ends: DeltaEnds, eps: float) -> tuple[float, float]:
    """Bounds of Q(L > eps), which lies between minus the slopes of the chords of f on both sides of t."""
    at = _line(delta_ends, eps)
    lower, upper = 0.0, math.exp(-eps)  # P(L > eps) >= t Q(L > eps)
    for distance in DISTANCES:
        lower = max(lower, at.rates_between(_line(delta_ends, eps + distance))[0])
        if eps - distance >= 0:
            upper = min(upper, _line(delta_ends, eps - distance).rates_between(at)[1])
    return min(lower, upper), upper


def _line(delta_ends: Callable[[float], tuple[float, float]], eps: float) -> Line:
    low, high = delta_ends(eps)
    return Line(eps, max(low, 0.0) * (1 - PROFILE_ROUNDING), min(high * (1 + PROFILE_ROUNDING), 1.0))
