"""A cheap first look at loss pairs: where their losses live, their cumulant functions, and which tilt a question asks for.

What is found here only steers the certified computation (tilt, grid, windows); no answer depends on its accuracy.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from scipy.special import erfcx

from wpriv.core.loss_pair import LossPair
from wpriv.numerics.arrays import Array, Counts
from wpriv.pld.adaptive_nodes import TailScan, scan_tails
from wpriv.pld.stacking import batch_pairs

# P-masses down to which tails can be resolved: the deeper, the smaller a delta can be asked about, and the more losses are probed
DEPTHS = (1e-25, 1e-50, 1e-100, 1e-150)
# exponents below it are summed as they are: no sum of masses overflows, nor does the bulk's vanish
LOG_RANGE = 600.0

# tilts that are tried for the inversion of a transform, in units of the saddle's, and what Chernoff's bound is above delta there at least
CONTOURS, LOST = (
    np.concatenate([np.geomspace(0.02, 0.5, 8)[:-1], np.linspace(0.5, 1.2, 15), np.linspace(1.3, 3, 8)]),
    3.0,
)


@dataclass(frozen=True)
class ApproximatePmf:
    """Losses y [m] (increasing) and the P-mass [K, m] at each, a row for each pair of a group; mass at +infinity left out.

    ``shortened`` says that losses above the last one were left out, ``end`` that all lie below it but for P-masses that no double can
    tell from zero.
    """

    y: Array
    mass: Array
    end: float
    shortened: bool = False

    @staticmethod
    def of(found: TailScan, infinity: float) -> ApproximatePmf:
        """The cells of a scan, each in its middle but for what its Q-mass asks for; ``infinity`` is the pair's own."""
        ends, (mass, other) = found.y, found.masses()
        mass[:, 0] = np.maximum(mass[:, 0], np.minimum(found.tails[1, :, 1], 1.0 - infinity))
        beyond = np.cumsum(mass[:, ::-1], axis=1)[:, ::-1]
        # the far tail sits at the lower end of a cell that was not refined: its middle would weigh far too much when tilted
        falls = (mass > 0.5 * beyond) & (mass < 1e-12) & (ends[1:] > 0)
        (keep,) = np.nonzero((mass > 1e-300).any(axis=0))
        if not keep.size:
            return ApproximatePmf(np.zeros(1), np.full((mass.shape[0], 1), 1e-300), 0.0)
        y = np.where(falls.any(axis=0), ends[:-1], (ends[1:] + ends[:-1]) / 2)[keep]
        mass, other = mass[:, keep], np.where(falls, 0.0, other)[:, keep]
        # where Q has digits, some of a cell's mass moves to the middle beside it, so that the mean of a small loss is right
        short = np.where(other > 1e-290, mass - np.exp(np.minimum(y, 700.0)) * other, 0.0)
        up = np.minimum(np.maximum(short[:, :-1], 0.0) / -np.expm1(-np.diff(y)), mass[:, :-1])
        down = np.minimum(np.maximum(-short[:, 1:], 0.0) / np.expm1(np.minimum(np.diff(y), 700.0)), mass[:, 1:])
        mass[:, :-1] += down - up
        mass[:, 1:] += up - down
        return ApproximatePmf(y, mass, float(ends[keep[-1] + 1]))

    def reaches(self, cut: float) -> bool:
        """Whether there are losses above the cut; or below it, and none above that only their rarity has left out."""
        return float(self.y[-1]) >= cut or (float(self.y[0]) <= -cut and not self.shortened)

    def up_to(self, last: int) -> ApproximatePmf:
        """The losses up to an index."""
        if last >= self.y.size - 1:
            return self
        return ApproximatePmf(self.y[: last + 1], self.mass[:, : last + 1], float(self.y[last + 1]), True)

    def tilted(self, tilt: float) -> tuple[Array, Array, Array]:
        """ln E[e^{tilt L}], and the mean and the variance of the tilted loss, [K] each."""
        if tilt * float(self.y[-1]) < LOG_RANGE:
            grown = np.exp(tilt * self.y)
            total = self.mass @ grown
            mean = self.mass @ (grown * self.y) / total
            away = self.y - mean.mean()
            variance = self.mass @ (grown * away * away) / total - (mean - mean.mean()) ** 2
            return np.log(total), mean, variance
        weight, log_total = _weighed(self, tilt)
        mean = weight @ self.y
        return log_total, mean, (weight * (self.y - mean[:, None]) ** 2).sum(axis=1)


def approximate_pmf(*members: LossPair, depth: float = DEPTHS[-1]) -> ApproximatePmf:
    """Probes one pair, or several that can be stacked, down to P-masses of ``depth``."""
    return ApproximatePmf.of(scan_tails(*members, depth=depth), float(batch_pairs(members).mass_at_plus_infinity))


@dataclass(frozen=True)
class Cumulants:
    """The sum over steps of n K(lambda), n K'(lambda), n K''(lambda), and per group the means and variances of one step of each kind."""

    total: float
    mean: float
    variance: float
    means: list[Array]
    variances: list[Array]


def cumulants(probes: list[ApproximatePmf], counts: list[Counts], tilt: float) -> Cumulants:
    """Cumulant function of the composed loss at one tilt, from the probes' discrete laws."""
    found = [p.tilted(tilt) for p in probes]
    means, variances = [mean for _, mean, _ in found], [np.maximum(variance, 1e-300) for _, _, variance in found]
    totals = [
        sum(float(n @ v) for n, v in zip(counts, values, strict=True))
        for values in ([log for log, _, _ in found], means, variances)
    ]
    return Cumulants(totals[0], totals[1], totals[2], means, variances)


def log_tail_factor(tilt: float, deviation: float) -> float:
    """ln of E[(1 - e^-x)_+ e^{-tilt x}] for x ~ N(0, deviation^2): the saddle-point factor of delta."""
    if deviation <= 0:
        return -math.inf
    r = deviation / math.sqrt(2)
    value = 0.5 * float(erfcx(tilt * r) - erfcx((1 + tilt) * r))
    return math.log(value) if value > 0 else -math.inf


def tilt_for_delta(probes: list[ApproximatePmf], counts: list[Counts], log_delta: float) -> float:
    """The tilt lambda >= 0 at which the saddle-point approximation of ln delta meets the target (to about 1%)."""

    def miss(tilt: float) -> tuple[float, float]:
        c = cumulants(probes, counts, tilt)
        spread = math.sqrt(c.variance)
        value = c.total - tilt * c.mean + log_tail_factor(tilt, spread) - log_delta
        return value, tilt * c.variance + 1 / (tilt + 1 / spread)

    at_zero, spread = miss(0.0)
    # a normal loss needs at most this tilt
    return _root(miss, at_zero, math.sqrt(2 * at_zero) / spread) if at_zero > 0 else 0.0


def tilt_for_eps(probes: list[ApproximatePmf], counts: list[Counts], eps: float) -> float:
    """The tilt lambda >= 0 at which the tilted mean of the composed loss is eps (to about 1%)."""

    def miss(tilt: float) -> tuple[float, float]:
        c = cumulants(probes, counts, tilt)
        return eps - c.mean, c.variance

    short, variance = miss(0.0)
    return _root(miss, short, short / variance) if short > 0 else 0.0


def tilt_for_contour(
    probes: list[ApproximatePmf],
    counts: list[Counts],
    tilt: float,
    eps: float,
    log_delta: float,
    log_room: float,
    lost: float,
) -> float:
    """The tilt c at which the transform is best inverted: where the shortest period keeps the wrap-around of delta at eps below e^log_room.

    With g(b) = ln E[e^{bY}] - b eps, Chernoff's bound, a period a leaves at most e^{g(b) - |b - c| a}, for any b on either side of c. The
    number of frequencies goes with the period and the root of 1 + c. What is read is e^{log_delta - g(c)} of the sum, no less than e^-lost.
    """
    grid = tilt * CONTOURS
    with np.errstate(over="ignore"):
        log_bound = np.array(
            [cumulants(probes, counts, b).total + _some_jump(probes, counts, b, eps) - b * eps for b in grid.tolist()]
        )
    log_bound[~np.isfinite(log_bound)] = np.inf
    excess = log_bound - log_room
    with np.errstate(divide="ignore", invalid="ignore"):
        periods = excess / np.abs(grid - grid[:, None])
    rows, columns = np.indices(periods.shape)
    above, below = (np.where(side, periods, np.inf).min(axis=1) for side in (columns > rows, columns < rows))
    cost = np.maximum(above, below) * np.sqrt(1 + grid)
    cost[log_bound > max(log_delta + lost + LOST, float(log_bound.min()) + 0.1)] = np.inf
    return float(grid[np.argmin(cost)]) if np.isfinite(cost).any() else tilt


def _some_jump(probes: list[ApproximatePmf], counts: list[Counts], tilt: float, eps: float) -> float:
    """ln of the tilted probability that not all losses are too small for their sum to come near eps."""
    most = 0.6 * eps / sum(int(n.sum()) for n in counts)
    never = 0.0
    for p, n in zip(probes, counts, strict=True):
        jumps = tilted_weights(p, tilt)[:, p.y > most].sum(axis=1)
        never += float(n @ np.log1p(-np.minimum(jumps, 1 - 1e-16)))
    return math.log(max(-math.expm1(never), 1e-300))


def _root(f: Callable[[float], tuple[float, float]], at_zero: float, start: float) -> float:
    """A root of a function that decreases from ``at_zero``, given with how fast it falls: Newton's steps while they converge quickly."""
    low, high, x, last = 0.0, math.inf, start, math.inf
    for _ in range(60):
        value, fall = f(x)
        low, high = (x, high) if value > 0 else (low, x)
        step = x + value / fall
        near = abs(step - x) <= 0.01 * x and abs(value) <= 0.02 * at_zero
        if near or high < 1e-12 * start or high - low <= 0.01 * high:
            return min(max(step, low), high)
        if low < step < min(high, 4 * x) and abs(value) < 0.2 * last:
            x = step
        elif math.isinf(high):
            x *= 4
        else:
            x = math.sqrt(max(low, high / 16) * high)
        last = abs(value)
    return high


def tilted_weights(p: ApproximatePmf, tilt: float) -> Array:
    """[K, m] the tilted probabilities of the probe's losses."""
    return _weighed(p, tilt)[0]


def _weighed(p: ApproximatePmf, tilt: float) -> tuple[Array, Array]:
    """[K, m] the tilted probabilities of the probe's losses, and [K] ln E[e^{tilt L}]."""
    if tilt * float(p.y[-1]) < LOG_RANGE:
        weight, peak = p.mass * np.exp(tilt * p.y), np.zeros(1)
    else:
        with np.errstate(divide="ignore"):
            exponent = np.log(p.mass) + tilt * p.y
        peak = exponent.max(axis=1)
        weight = np.exp(exponent - peak[:, None])
    total = weight.sum(axis=1)
    return weight / total[:, None], peak + np.log(total)


def top_index(p: ApproximatePmf, top_mass: float) -> int:
    """Index of the probe's loss beyond which every row's P-mass is below ``top_mass``."""
    plain = np.cumsum(p.mass[:, ::-1], axis=1).max(axis=0)[::-1]
    return min(int(np.searchsorted(-plain, -top_mass)), p.y.size - 1)
