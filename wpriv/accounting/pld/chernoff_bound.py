"""Bound delta by Chernoff's bound, without composing anything: from above, or from below where it is nearly 1."""

from __future__ import annotations

import math

import numpy as np

from wpriv.accounting.pld import constants
from wpriv.accounting.pld.saddle_point import ApproximatePmf, TailScan, group_pairs, merged_counts, scan_tails
from wpriv.accounting.pld.step_groups import Steps
from wpriv.core.process import WeightedPairs
from wpriv.numerics.arrays import Array, Counts


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
    log_moment = _log_affinity(scans, steps.counts, s)
    complement = math.exp(min(log_moment + s * (eps + steps.rounding_shift(plain)), 0.0))
    return max(math.nextafter(1 - complement, 0.0), 0.0)


def epsilon_far_below(run: WeightedPairs, delta: float) -> float:
    """A lower bound of eps at delta, 0 < delta < 1: the largest eps at which the bound above is delta; at least 0.

    Args:
        run: pairs with their counts.
    """
    if not 0 < delta < 1:
        return 0.0
    groups = group_pairs(merged_counts(run))
    scans = [scan_tails(*group.members, depth=constants.SCAN_DEPTHS[0]) for group in groups]
    infinite = [float(group.pair.mass_at_plus_infinity) for group in groups]
    steps = Steps(groups, [ApproximatePmf.of(scan, mass) for scan, mass in zip(scans, infinite, strict=True)], 0.0, 0.0)
    plain, log_complement = steps.cumulants(0.0), math.log1p(-delta)
    if not plain.variance > 0:
        return 0.0
    # the best s for a normally distributed loss, and others near it
    normal = math.sqrt(-2 * log_complement / plain.variance)
    tried = {min(factor * normal, 1.0) for factor in constants.FAR_BELOW_FACTORS} if math.isfinite(normal) else {1.0}
    ends = [(log_complement - _log_affinity(scans, steps.counts, s)) / s for s in sorted(tried - {0.0})]
    best = max(ends, default=0.0) - steps.rounding_shift(plain)
    return max(best, 0.0) * (1 - constants.CHERNOFF_RELATIVE_MARGIN) if math.isfinite(best) else 0.0


def _log_affinity(scans: list[TailScan], counts: list[Counts], s: float) -> float:
    """ln of an upper bound of E_P[e^(-s Y); Y < inf] of the composition."""
    return sum(float(n @ scan.bound_affinity(s)) for scan, n in zip(scans, counts, strict=True))
