"""Scans of loss pairs, the cumulants of their losses, and the saddle point of a composition."""

from __future__ import annotations

import math
from collections.abc import Callable, Hashable
from dataclasses import dataclass
from functools import cached_property, lru_cache
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.special import erfcx

from wpriv.accounting.pld import constants
from wpriv.core.loss_pair import LossPair, Reversed
from wpriv.core.process import WeightedPairs
from wpriv.numerics.arrays import Array, Counts, mass_between


@dataclass(frozen=True, eq=False)
class StepGroup:
    """Like steps of a process.

    Attributes:
        members: K loss pairs, one for each distinct step.
        counts: [K] number of compositions of each.
        pair: the batched pair, whose tails have shape [m] for one member, else [K, m].
    """

    members: tuple[LossPair, ...]
    counts: Counts
    pair: LossPair


def merged_counts(run: WeightedPairs) -> dict[LossPair, int]:
    """The number of compositions of each distinct pair."""
    counts: dict[LossPair, int] = {}
    for pair, n in run:
        counts[pair] = counts.get(pair, 0) + n
    return counts


def group_pairs(counts: dict[LossPair, int]) -> list[StepGroup]:
    """Group like pairs; a pair that cannot be batched, or has mass at an infinite loss, forms a group of its own."""
    buckets: dict[Hashable, list[LossPair]] = {}
    for pair in counts:
        batch_key = pair.batch_key()
        bucket: Hashable = pair
        if batch_key is not None and pair.mass_at_plus_infinity == 0 and pair.mass_at_minus_infinity == 0:
            family, parameters = batch_key
            ratio = math.log(constants.BATCH_PARAMETER_RATIO)
            bucket = family, tuple(round(math.log(number) / ratio) for number in parameters)
        buckets.setdefault(bucket, []).append(pair)
    groups = []
    for pairs in buckets.values():
        for start in range(0, len(pairs), constants.MAX_BATCH_SIZE):
            members = tuple(pairs[start : start + constants.MAX_BATCH_SIZE])
            member_counts = np.array([counts[pair] for pair in members], dtype=np.int64)
            groups.append(StepGroup(members, member_counts, batch_pairs(members)))
    return groups


def batch_pairs(members: tuple[LossPair, ...]) -> LossPair:
    """One pair whose tails have a row for each member; a single member is returned itself."""
    return members[0] if len(members) == 1 else members[0].batched(members)


# Scan the tails of loss pairs on nodes that are refined where the mass lies, so that no scale need be known.
#
# One scan serves both directions (add and remove). It steers the certified computation (see ``saddle_point``), and by
# itself gives a certified, if loose, upper bound of delta (Chernoff's), which often suffices to dismiss one of the two
# directions.

Flags = NDArray[np.bool_]
Shares = tuple[float, float, float]


class MomentBound(NamedTuple):
    """Upper bounds of E[e^{tilt L}] of K losses but ``mass_above``, with mean and mean square of the tilted loss."""

    log_moment: Array
    mean: Array
    mean_square: Array
    mass_above: Array


@dataclass(frozen=True)
class TailScan:
    """Tails of K batched pairs on increasing losses.

    Attributes:
        y: [m] losses in nats.
        tails: [4, K, m] P(L > y), P(L <= y), Q(L > y), Q(L <= y).
        above: [K, m-1] P - e^a Q of every cell (a, b] to the rounding of the loss; nan where it is not known.
    """

    y: Array
    tails: Array
    above: Array

    @staticmethod
    def of(pair: LossPair, y: Array, tails: Array) -> TailScan:
        """The scan with what lies above the start of narrow cells."""
        narrow = np.diff(y) <= 1
        parts = pair.cell_parts(y[:-1], np.nextafter(y[1:], np.inf))
        above = np.nan if parts is None else np.where(narrow, parts.above, np.nan)
        return TailScan(y, tails, np.broadcast_to(above, (tails.shape[1], y.size - 1)))

    def cell_masses(self) -> tuple[Array, Array]:
        """[K, m-1] the P- and the Q-mass of every cell."""
        start, end = self.tails[:, :, :-1], self.tails[:, :, 1:]
        return mass_between(start[0], start[1], end[0], end[1]), mass_between(start[2], start[3], end[2], end[3])

    def mirrored(self) -> TailScan:
        """The scan of the pairs (Q, P), for losses without atoms."""
        width, mass = np.diff(self.y), self.cell_masses()[0]
        with np.errstate(over="ignore", invalid="ignore"):
            below = np.expm1(width) * mass - np.exp(width) * self.above
            above = (np.exp(-self.y[1:]) * below)[:, ::-1].copy()
        return TailScan(-self.y[::-1], self.tails[::-1, :, ::-1].copy(), above)

    def bound_moment(self, tilt: float, rare: float = 0.0) -> MomentBound:
        """Bound E[e^{tilt L}] from above, tilt > 0, over losses up to a node with P-mass at most ``rare`` above."""
        last = min(int(np.searchsorted(-self.tails[0].max(axis=0), -rare)), self.y.size - 1)
        y, masses = self.y[: last + 1], self._dominating_masses[:, : last + 1]
        rounding = constants.TAIL_ROUNDINGS * constants.UNIT_ROUNDOFF
        exponent = tilt * y
        exponent += rounding * np.abs(exponent)
        peak = float(exponent.max())
        weight = np.exp(exponent - peak)
        total, mean, square = (masses @ values for values in (weight, weight * y, weight * y * y))
        return MomentBound(
            peak + np.log(total) + rounding * (y.size + 1),
            mean / total,
            square / total,
            self.tails[0, :, last] + constants.UNDERFLOW_MASS,
        )

    def bound_affinity(self, share: float) -> Array:
        """[K] ln of an upper bound of E_P[e^{-share L}; L < inf], 0 < share <= 1: the integral of p^(1-share) q^share.

        By Hoelder's inequality that of a cell is at most P(cell)^(1-share) Q(cell)^share.
        """
        rounding, underflow = constants.TAIL_ROUNDINGS * constants.UNIT_ROUNDOFF, constants.UNDERFLOW_MASS
        parts = []
        for above, below in (self.tails[:2], self.tails[2:]):
            inner = mass_between(above[:, :-1], below[:, :-1], above[:, 1:], below[:, 1:])
            inner += rounding * np.minimum(above[:, :-1], below[:, 1:])
            parts.append(np.concatenate([below[:, :1], inner, above[:, -1:]], axis=1) * (1 + rounding) + underflow)
        total = (parts[0] ** (1 - share) * parts[1] ** share).sum(axis=1)
        return np.asarray(np.log(total) + rounding * (self.y.size + 1))

    @cached_property
    def _dominating_masses(self) -> Array:
        """[K, m] masses on the nodes with at least the exponential moment of the loss (chords of the profile).

        Of all distributions with given P- and Q-mass in a cell, the one on the cell's ends has the largest moment.
        """
        y, (p, q) = self.y, self.cell_masses()
        start, width = y[:-1], np.diff(y)
        rounding, underflow = constants.TAIL_ROUNDINGS * constants.UNIT_ROUNDOFF, constants.UNDERFLOW_MASS
        tail_p, tail_q = (np.minimum(t[:, :-1], u[:, 1:]) for t, u in (self.tails[:2], self.tails[2:]))
        # masses are raised by what rounding or underflow may have taken; the share of the upper end likewise
        p += rounding * tail_p + underflow
        with np.errstate(over="ignore", invalid="ignore"):
            growth = np.exp(start)
            noise = rounding * (2 + np.abs(start)) * (tail_p + np.where(tail_q > 0, growth * tail_q, 0.0)) + underflow
            left = (np.where(q > 0, growth * q, 0.0) - p * np.exp(-width) - noise) / -np.expm1(-width)
        left = np.where(left < p, np.maximum(left, 0.0), np.maximum(p - noise, 0.0))
        masses = np.zeros(self.tails.shape[1:])
        masses[:, :-1] = left
        masses[:, 1:] += p - left
        masses[:, 0] += self.tails[1, :, 0] + underflow
        return masses


@lru_cache(maxsize=512)
def scan_tails(*members: LossPair, depth: float) -> TailScan:
    """Scan one pair, or several that can be batched, down to P-masses (Q-masses of the reverse) of ``depth``; cached.

    For large batches the nodes are refined on a few representative pairs and reused for the rest.
    """
    pair = batch_pairs(members)
    if isinstance(pair, Reversed) and not pair.atoms.size:
        forward = (member.forward for member in members if isinstance(member, Reversed))
        return scan_tails(*forward, depth=depth).mirrored()
    if len(members) <= 2 * constants.REPRESENTATIVES:
        return _refine_scan(pair, depth, constants.FINE_CELL_SHARES)
    y = _thinned_nodes(batch_pairs(_representatives(members)), depth)
    return TailScan.of(pair, y, _tails(pair, y))


def _representatives(members: tuple[LossPair, ...]) -> tuple[LossPair, ...]:
    """A few of many like pairs: by each parameter the smallest, the largest and some evenly spaced in rank."""
    keys = (member.batch_key() for member in members)
    parameters = np.array([key[1] for key in keys if key is not None])
    ranks = np.linspace(0, len(members) - 1, constants.REPRESENTATIVES).astype(int)
    return tuple(members[k] for k in np.unique(np.argsort(parameters, axis=0, kind="stable")[ranks]))


def _refine_scan(pair: LossPair, depth: float, shares: Shares) -> TailScan:
    """The tails on the first nodes, and on those of every cell that had to be divided."""
    y = _first_nodes(pair)
    tails = _tails(pair, y)
    node_parts, tail_parts, divisions = [y], [tails], constants.CELL_DIVISIONS
    # the cells not examined yet: their ends and the tails there
    low, high, start, end = y[:-1], y[1:], tails[:, :, :-1], tails[:, :, 1:]
    while True:
        too_wide = _too_wide((low, high), (start, end), (y, tails), pair, depth, shares)
        if not too_wide.any():
            break
        low, high = low[too_wide], high[too_wide]
        start, end = start[:, :, None, too_wide], end[:, :, None, too_wide]
        new = low + (high - low) * np.arange(1, divisions)[:, None] / divisions
        new_tails = _tails(pair, new.ravel())
        node_parts.append(new.ravel())
        tail_parts.append(new_tails)
        inner = new_tails.reshape(*new_tails.shape[:2], *new.shape)
        low, high = np.concatenate([low[None], new]).ravel(), np.concatenate([new, high[None]]).ravel()
        start, end = (
            np.concatenate(ends, axis=2).reshape(*new_tails.shape[:2], -1) for ends in ((start, inner), (inner, end))
        )
    y = np.concatenate(node_parts)
    order = np.argsort(y, kind="stable")
    return TailScan.of(pair, y[order], np.concatenate(tail_parts, axis=2)[:, :, order])


def _thinned_nodes(pair: LossPair, depth: float) -> Array:
    """The nodes of a roughly refined scan, without every second one where the cell around it is narrow enough."""
    shares = constants.ROUGH_CELL_SHARES
    scan = _refine_scan(pair, depth, shares)
    y, tails = scan.y, scan.tails
    second = np.arange(1, y.size - 1, 2)
    ends = (y[second - 1], y[second + 1]), (tails[:, :, second - 1], tails[:, :, second + 1])
    too_wide = _too_wide(*ends, (y, tails), pair, depth, shares)
    return np.delete(y, second[~(too_wide | np.isin(y[second], pair.atoms))])


def _first_nodes(pair: LossPair) -> Array:
    """Losses of every order of magnitude within the support, its ends, and the atoms if they are few."""
    low, high = pair.support
    ladder = np.concatenate([-constants.FIRST_LOSSES[::-1], [0.0], constants.FIRST_LOSSES])
    y = ladder[(ladder > low) & (ladder < high)]
    ends = [v for v in (low, high) if math.isfinite(v)]
    if len(ends) == 2 and high > low:
        # the distribution of a bounded loss varies fastest near its ends
        distances = (high - low) * constants.FIRST_END_DISTANCES
        y = np.concatenate([y, low + distances, high - distances])
    few_atoms = pair.atoms if pair.atoms.size <= constants.MAX_NODE_ATOMS else np.empty(0)
    y = np.unique(np.concatenate([y, ends, few_atoms]))
    if y.size < 2:
        y = np.array([y[0] - 1e-9, y[0]]) if y.size else np.array([-1e-9, 0.0])
    return y


def _too_wide(
    ends: tuple[Array, Array],
    tails: tuple[Array, Array],
    ladder: tuple[Array, Array],
    pair: LossPair,
    depth: float,
    shares: Shares,
) -> Flags:
    """Flag the cells to be divided: those with much mass, and those over which a tail falls steeply.

    Args:
        ends: [c] lower and upper ends of the cells. tails: [4, K, c] tails at these ends.
        ladder: first nodes [m], and the tails there.
    """
    (low, high), (start, end) = ends, tails
    first, last = ladder[0][0], ladder[0][-1]
    mass = mass_between(start[0], start[1], end[0], end[1])
    mass[:, low == first] = np.maximum(mass, np.minimum(end[1], 1.0 - pair.mass_at_plus_infinity))[:, low == first]
    heavy = np.any(mass > shares[0], axis=0)
    steep = _steep(mass, start[0], ladder[1][0, :, -1], depth, shares) & (high < last)
    if not pair.symmetric and not pair.atoms.size:
        q_mass = mass_between(start[2], start[3], end[2], end[3])
        steep |= _steep(q_mass, end[3], ladder[1][3, :, 0], depth, shares) & (low > first)
    # a least width, since a cell with an atom at zero would be divided for ever
    relative_width = np.where(heavy, constants.MIN_HEAVY_CELL, constants.MIN_LIGHT_CELL)
    finest = np.maximum(relative_width * np.abs(high), constants.MIN_CELL_WIDTH)
    flags: Flags = (heavy | steep) & (high - low > finest)
    return flags


def _steep(mass: Array, tail: Array, rest: Array, depth: float, shares: Shares) -> Flags:
    """Flag the cells that hold, in some row, most of their tail, apart from the ``rest`` beyond all nodes."""
    beyond = np.maximum(tail - rest[:, None], 4 * constants.UNIT_ROUNDOFF * rest[:, None])
    deep = (mass > shares[1] * beyond) & (mass > depth)
    deepest = (mass > shares[2] * beyond) & (mass > constants.DEEPEST_MASS)
    return np.asarray(np.any(deep | deepest, axis=0))


def _tails(pair: LossPair, y: Array) -> Array:
    tails = np.array([np.atleast_2d(tail) for tail in pair.probabilities(y)])
    constants.add("loss", tails[0].size)
    return tails


# Estimate cumulant generating functions of step losses and the saddle-point tilt for a given eps or delta.
#
# These estimates only steer the certified computation (tilt, lattice, windows); no answer depends on their accuracy.


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
        tilt: the saddle point's. log_delta: ln delta at eps, approximately.
        log_allowance: ln of the wrap-around that is allowed.
        log_range: largest g(c) - ln delta at which rounding of the transform stays within its allowance.
    """
    tilts = tilt * constants.CONTOUR_TILT_RATIOS
    with np.errstate(over="ignore"):
        bounds = [
            (b, cumulants(pmfs, counts, b).cgf + _log_jump_probability(pmfs, counts, b, eps)) for b in tilts.tolist()
        ]
        log_bound = np.array([log_moment - b * eps for b, log_moment in bounds])
    log_bound[~np.isfinite(log_bound)] = np.inf
    excess = log_bound - log_allowance
    with np.errstate(divide="ignore", invalid="ignore"):
        periods = excess / np.abs(tilts - tilts[:, None])
    rows, columns = np.indices(periods.shape)
    above, below = (np.where(side, periods, np.inf).min(axis=1) for side in (columns > rows, columns < rows))
    cost = np.maximum(above, below) * np.sqrt(1 + tilts)
    least = float(log_bound.min()) + constants.CONTOUR_MIN_LOG_SLACK
    limit = max(log_delta + log_range + constants.CONTOUR_LOG_SLACK, least)
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
    """Root of a decreasing function, by Newton's method or bisection; ``f`` gives value and absolute slope."""
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
