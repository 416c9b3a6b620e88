"""Estimate cumulant generating functions of step losses and the saddle-point tilt for a given eps or delta.

These estimates only steer the certified computation (tilt, lattice, windows); no answer depends on their accuracy.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from scipy.special import erfcx

from wpriv.core.loss_pair import LossPair
from wpriv.numerics.arrays import Array, Counts
from wpriv.pld import constants
from wpriv.pld.adaptive_nodes import TailScan, scan_tails
from wpriv.pld.stacking import batch_pairs


@dataclass(frozen=True)
class ApproximatePmf:
    """Uncertified PMFs of the step losses of a group of K pairs.

    Attributes:
        y: [m] increasing losses.
        mass: [K, m] P-mass at each; mass at +infinity is left out.
        end: an upper bound of all losses with P-mass that a double can tell from zero.
    """

    y: Array
    mass: Array
    end: float

    @staticmethod
    def of(scan: TailScan, infinity: float) -> ApproximatePmf:
        """Put the mass of each cell of a scan near its middle; ``infinity`` is the P-mass of the pair at +infinity."""
        ends, (mass, q_mass) = scan.y, scan.cell_masses()
        mass[:, 0] = np.maximum(mass[:, 0], np.minimum(scan.tails[1, :, 1], 1.0 - infinity))
        beyond = np.cumsum(mass[:, ::-1], axis=1)[:, ::-1]
        # the far tail is put on the lower end of its undivided cell, whose middle would weigh far too much when tilted
        far_tail = (mass > constants.FAR_TAIL_SHARE * beyond) & (mass < constants.FAR_TAIL_MASS) & (ends[1:] > 0)
        (keep,) = np.nonzero((mass > constants.MASS_FLOOR).any(axis=0))
        if not keep.size:
            return ApproximatePmf(np.zeros(1), np.full((mass.shape[0], 1), constants.MASS_FLOOR), 0.0)
        y = np.where(far_tail.any(axis=0), ends[:-1], (ends[1:] + ends[:-1]) / 2)[keep]
        mass, q_mass = mass[:, keep], np.where(far_tail, 0.0, q_mass)[:, keep]
        # where the Q-mass is accurate, mass moves to the neighbouring cell so that the mean of a small loss is right
        by_tails = np.where(q_mass > 1e-290, mass - np.exp(np.minimum(y, 700.0)) * q_mass, 0.0)
        start, above = y - ends[:-1][keep], scan.above[:, keep]
        with np.errstate(over="ignore"):
            by_parts = np.exp(start) * above - np.expm1(start) * mass
        missing = np.where(np.isfinite(by_parts) & (q_mass > 1e-290), by_parts, by_tails)
        up = np.minimum(np.maximum(missing[:, :-1], 0.0) / -np.expm1(-np.diff(y)), mass[:, :-1])
        down = np.minimum(np.maximum(-missing[:, 1:], 0.0) / np.expm1(np.minimum(np.diff(y), 700.0)), mass[:, 1:])
        mass[:, :-1] += down - up
        mass[:, 1:] += up - down
        return ApproximatePmf(y, mass, float(ends[keep[-1] + 1]))

    def up_to(self, last: int) -> ApproximatePmf:
        """The PMF restricted to the losses up to an index."""
        if last >= self.y.size - 1:
            return self
        return ApproximatePmf(self.y[: last + 1], self.mass[:, : last + 1], float(self.y[last + 1]))

    def tilted_moments(self, tilt: float) -> tuple[Array, Array, Array]:
        """ln E[e^{tilt L}], and the mean and the variance of the tilted loss, [K] each."""
        # losses of more than 1e150 overflow, and masses may underflow; the caller then finds no tilt and refuses
        with np.errstate(over="ignore", invalid="ignore", divide="ignore"):
            if abs(tilt * float(self.y[-1])) < constants.MAX_EXPONENT_PMF:
                growth = np.exp(tilt * self.y)
                total = self.mass @ growth
                mean = self.mass @ (growth * self.y) / total
                offset = self.y - mean.mean()
                variance = self.mass @ (growth * offset * offset) / total - (mean - mean.mean()) ** 2
                return np.log(total), mean, variance
            weight, log_total = _tilt(self, tilt)
            mean = weight @ self.y
            return log_total, mean, (weight * (self.y - mean[:, None]) ** 2).sum(axis=1)


def approximate_pmf(*members: LossPair, depth: float = constants.SCAN_DEPTHS[-1]) -> ApproximatePmf:
    """Approximate the PMF of one pair, or of several that can be batched, down to P-masses of ``depth``."""
    return ApproximatePmf.of(scan_tails(*members, depth=depth), float(batch_pairs(members).mass_at_plus_infinity))


@dataclass(frozen=True)
class Cumulants:
    """Cumulants of the composed loss at a tilt; K is the cumulant generating function of a step composed n times.

    Attributes:
        cgf: sum of n K(tilt), the cumulant generating function.
        mean: sum of n K'(tilt), the tilted mean.
        variance: sum of n K''(tilt), the tilted variance.
        means: per group [K] the tilted mean of one composition of each step.
        variances: the same of the variance.
    """

    cgf: float
    mean: float
    variance: float
    means: list[Array]
    variances: list[Array]


def cumulants(pmfs: list[ApproximatePmf], counts: list[Counts], tilt: float) -> Cumulants:
    """Estimate the cumulants of the composed loss at one tilt from approximate PMFs of its steps."""
    moments = [pmf.tilted_moments(tilt) for pmf in pmfs]
    means = [mean for _, mean, _ in moments]
    variances = [np.maximum(variance, constants.MASS_FLOOR) for _, _, variance in moments]
    cgf, mean, variance = (
        sum(float(n @ v) for n, v in zip(counts, values, strict=True))
        for values in ([log_moment for log_moment, _, _ in moments], means, variances)
    )
    return Cumulants(cgf, mean, variance, means, variances)


def log_tail_factor(tilt: float, deviation: float) -> float:
    """ln of E[(1 - e^-x)_+ e^{-tilt x}] for x ~ N(0, deviation^2): the saddle-point factor of delta."""
    if deviation <= 0:
        return -math.inf
    r = deviation / math.sqrt(2)
    value = 0.5 * float(erfcx(tilt * r) - erfcx((1 + tilt) * r))
    return math.log(value) if value > 0 else -math.inf


def tilt_for_delta(pmfs: list[ApproximatePmf], counts: list[Counts], log_delta: float) -> float:
    """The tilt >= 0 at which the saddle-point approximation of ln delta meets the target (to about 1%)."""

    def excess(tilt: float) -> tuple[float, float]:
        c = cumulants(pmfs, counts, tilt)
        deviation = math.sqrt(c.variance)
        value = c.cgf - tilt * c.mean + log_tail_factor(tilt, deviation) - log_delta
        return value, tilt * c.variance + 1 / (tilt + 1 / deviation)

    at_zero, deviation = excess(0.0)
    # a normally distributed loss needs at most this tilt
    return _newton_root(excess, at_zero, math.sqrt(2 * at_zero) / deviation) if at_zero > 0 else 0.0


def tilt_for_eps(pmfs: list[ApproximatePmf], counts: list[Counts], eps: float) -> float:
    """The tilt >= 0 at which the tilted mean of the composed loss is eps (to about 1%)."""

    def shortfall(tilt: float) -> tuple[float, float]:
        c = cumulants(pmfs, counts, tilt)
        return eps - c.mean, c.variance

    at_zero, variance = shortfall(0.0)
    return _newton_root(shortfall, at_zero, at_zero / variance) if at_zero > 0 else 0.0


def tilt_for_contour(
    pmfs: list[ApproximatePmf],
    counts: list[Counts],
    tilt: float,
    eps: float,
    log_delta: float,
    log_allowance: float,
    log_range: float,
) -> float:
    """The tilt c at which inverting the transform is cheapest: where the shortest period suffices.

    A period suffices if it keeps the wrap-around of delta at eps below e^log_allowance. With g(b) = ln E[e^{bY}] - b
    eps, Chernoff's bound, a period a leaves at most e^{g(b) - |b - c| a}, for any b on either side of c. The number of
    frequencies is proportional to the period and to sqrt(1 + c).

    Args:
        tilt: the saddle point's.
        log_delta: ln delta at eps, approximately.
        log_allowance: ln of the wrap-around that is allowed.
        log_range: largest g(c) - ln delta at which rounding of the transform stays within its allowance.
    """
    tilts = tilt * constants.CONTOUR_TILT_RATIOS
    with np.errstate(over="ignore"):
        log_bound = np.array(
            [
                cumulants(pmfs, counts, b).cgf + _log_jump_probability(pmfs, counts, b, eps) - b * eps
                for b in tilts.tolist()
            ]
        )
    log_bound[~np.isfinite(log_bound)] = np.inf
    excess = log_bound - log_allowance
    with np.errstate(divide="ignore", invalid="ignore"):
        periods = excess / np.abs(tilts - tilts[:, None])
    rows, columns = np.indices(periods.shape)
    above, below = (np.where(side, periods, np.inf).min(axis=1) for side in (columns > rows, columns < rows))
    cost = np.maximum(above, below) * np.sqrt(1 + tilts)
    limit = max(
        log_delta + log_range + constants.CONTOUR_LOG_SLACK, float(log_bound.min()) + constants.CONTOUR_MIN_LOG_SLACK
    )
    cost[log_bound > limit] = np.inf
    return float(tilts[np.argmin(cost)]) if np.isfinite(cost).any() else tilt


def _log_jump_probability(pmfs: list[ApproximatePmf], counts: list[Counts], tilt: float, eps: float) -> float:
    """ln of the tilted probability that at least one loss is so large that the sum may come near eps."""
    bulk_end = constants.BULK_EPS_SHARE * eps / sum(int(n.sum()) for n in counts)
    log_no_jump = 0.0
    for pmf, n in zip(pmfs, counts, strict=True):
        jumps = tilted_weights(pmf, tilt)[:, pmf.y > bulk_end].sum(axis=1)
        log_no_jump += float(n @ np.log1p(-np.minimum(jumps, 1 - 1e-16)))
    return math.log(max(-math.expm1(log_no_jump), constants.MASS_FLOOR))


def _newton_root(f: Callable[[float], tuple[float, float]], at_zero: float, start: float) -> float:
    """Root of a decreasing function with the value ``at_zero`` at 0.

    Newton's method while it converges quickly, else bisection of logarithms.

    Args:
        f: value and absolute slope.
    """
    low, high, x, last = 0.0, math.inf, start, math.inf
    tolerance = constants.TILT_RELATIVE_STEP
    for _ in range(constants.TILT_SEARCH_STEPS):
        value, slope = f(x)
        low, high = (x, high) if value > 0 else (low, x)
        step = x + value / slope
        near = abs(step - x) <= tolerance * x and abs(value) <= constants.TILT_RELATIVE_RESIDUAL * at_zero
        if near or high < 1e-12 * start or high - low <= tolerance * high:
            return min(max(step, low), high)
        if low < step < min(high, 4 * x) and abs(value) < 0.2 * last:
            x = step
        elif math.isinf(high):
            x *= 4
        else:
            x = math.sqrt(max(low, high / 16) * high)
        last = abs(value)
    return high


def tilted_weights(pmf: ApproximatePmf, tilt: float) -> Array:
    """[K, m] the tilted probabilities of the losses."""
    return _tilt(pmf, tilt)[0]


def _tilt(pmf: ApproximatePmf, tilt: float) -> tuple[Array, Array]:
    """[K, m] the tilted probabilities of the losses, and [K] ln E[e^{tilt L}]."""
    if abs(tilt * float(pmf.y[-1])) < constants.MAX_EXPONENT_PMF:
        weight, peak = pmf.mass * np.exp(tilt * pmf.y), np.zeros(1)
    else:
        with np.errstate(divide="ignore", over="ignore", invalid="ignore"):
            exponent = np.log(pmf.mass) + tilt * pmf.y
        peak = exponent.max(axis=1)
        weight = np.exp(exponent - peak[:, None])
    total = weight.sum(axis=1)
    return weight / total[:, None], peak + np.log(total)


def top_index(pmf: ApproximatePmf, top_mass: float) -> int:
    """Index of the loss beyond which the P-mass of every row is below ``top_mass``."""
    beyond = np.cumsum(pmf.mass[:, ::-1], axis=1).max(axis=0)[::-1]
    return min(int(np.searchsorted(-beyond, -top_mass)), pmf.y.size - 1)
