"""Bound delta by Chernoff's bound, without composing anything: from above, or from below where it is nearly 1."""

from __future__ import annotations

import math

import numpy as np

from wpriv.numerics.arrays import Array, Counts
from wpriv.pld import constants
from wpriv.pld.adaptive_nodes import TailScan
from wpriv.pld.step_groups import Steps


def chernoff_suffices(scans: list[TailScan], counts: list[Counts], eps: float, delta: float) -> bool:
    """Tell whether Chernoff's bound of delta at eps > 0 is at most delta > 0.

    The tilt starts at that of a normally distributed loss and is improved by Newton's method.

    Args:
        scans: tails of the steps of each group.
        counts: per group [K] number of compositions of each step.
    """

    def total(values: list[Array]) -> float:
        return sum(float(n @ each) for n, each in zip(counts, values, strict=True))

    tilt = max(-2 * math.log(delta), 1.0) / eps
    rare = constants.CHERNOFF_RARE_SHARE * delta / sum(int(n.sum()) for n in counts)
    for _ in range(constants.CHERNOFF_STEPS):
        bounds = [scan.bound_moment(tilt, rare) for scan in scans]
        log_moment, mean = total([b.log_moment for b in bounds]), total([b.mean for b in bounds])
        square = total([b.mean_square for b in bounds])
        size = total([np.sqrt(b.mean_square) for b in bounds])
        mass_above = -math.expm1(total([np.log1p(-b.mass_above) for b in bounds]))
        # the largest (1 - e^-x) e^{-tilt x} over x > 0
        log_peak = -tilt * math.log1p(1 / tilt) - math.log1p(tilt)
        roundings = (1 + constants.ROUNDING_DEVIATIONS) * constants.TAIL_ROUNDINGS
        log_bound = log_moment - tilt * (eps - roundings * constants.UNIT_ROUNDOFF * size) + log_peak
        if mass_above + math.exp(min(log_bound, 0.0)) <= delta * (1 - constants.CHERNOFF_RELATIVE_MARGIN):
            return True
        slope = mean - eps - math.log1p(1 / tilt)
        curvature = square - total([b.mean**2 for b in bounds]) + 1 / (tilt + tilt**2)
        if log_bound - slope**2 / (2 * curvature) > math.log(delta) + constants.CHERNOFF_HOPELESS_MISS:
            break
        tilt = min(max(tilt - slope / curvature, tilt / 4), 4 * tilt)
    return False


def delta_far_below(steps: Steps, scans: list[TailScan], eps: float) -> float:
    """A lower bound of delta at an eps far below the mean loss, where it is nearly 1; 0 elsewhere.

    1 - delta = E_P[min(1, e^(eps - Y))] is at most e^(s eps) E_P[e^(-s Y); Y < inf] for every s in (0, 1].
    """
    plain = steps.cumulants(0.0)
    below = plain.mean - eps
    if below < constants.FAR_BELOW_DEVIATIONS * math.sqrt(plain.variance):
        return 0.0
    s = min(below / plain.variance, 1.0)
    log_moment = sum(float(n @ scan.bound_affinity(s)) for scan, n in zip(scans, steps.counts, strict=True))
    complement = math.exp(min(log_moment + s * (eps + steps.rounding_shift(plain)), 0.0))
    return max(math.nextafter(1 - complement, 0.0), 0.0)
