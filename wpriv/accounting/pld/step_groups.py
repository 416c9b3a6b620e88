"""The steps of a composition, its two ends, its scale, single large losses, and Chernoff's bound."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Protocol

import numpy as np

from wpriv.accounting.pld import constants
from wpriv.accounting.pld.discretize import Pmf, Sides
from wpriv.accounting.pld.saddle_point import (
    ApproximatePmf,
    Cumulants,
    StepGroup,
    TailScan,
    cumulants,
    group_pairs,
    log_tail_factor,
    merged_counts,
    scan_tails,
    tilted_weights,
)
from wpriv.core.process import WeightedPairs
from wpriv.errors import Unsupported
from wpriv.numerics.arrays import Array, Counts
from wpriv.numerics.root_finding import smallest_meeting


@dataclass(frozen=True)
class Steps:
    """The steps of one composition.

    Attributes:
        groups: groups of like pairs.
        pmfs: an approximate PMF for each group.
        negligible_share: share of delta by which it may change when rare losses are neglected.
        log_finite: ln of the probability that no loss is infinite.
    """

    groups: list[StepGroup]
    pmfs: list[ApproximatePmf]
    negligible_share: float
    log_finite: float

    @cached_property
    def counts(self) -> list[Counts]:
        return [group.counts for group in self.groups]

    @cached_property
    def total(self) -> int:
        """Number of steps, all compositions counted."""
        return sum(int(n.sum()) for n in self.counts)

    @cached_property
    def distinct_steps(self) -> int:
        """Number of distinct steps."""
        return sum(n.size for n in self.counts)

    def cumulants(self, tilt: float) -> Cumulants:
        """Estimated cumulants of the composed loss at a tilt."""
        return cumulants(self.pmfs, self.counts, tilt)

    def negligible_mass(self, delta: float, counts: Counts) -> float:
        """P-mass of one step of a group with these counts that may move to +infinity without affecting delta."""
        share = self.negligible_share * delta / (int(counts.max()) * self.distinct_steps)
        return max(share, constants.MASS_FLOOR)

    def rounding_shift(self, state: Cumulants) -> float:
        """Bound in eps on the shift of the composed loss by rounding of the tails."""
        deviations = constants.ROUNDING_DEVIATIONS
        sizes = [np.abs(m) + deviations * np.sqrt(v) for m, v in zip(state.means, state.variances, strict=True)]
        total = sum(float(n @ size) for n, size in zip(self.counts, sizes, strict=True))
        return constants.TAIL_ROUNDINGS * constants.UNIT_ROUNDOFF * total

    def least_spacing(self) -> float:
        """Spacing of nodes (nats) below which the rounding of tails would decide the masses on them."""
        ends = np.array([0.0]), np.array([1e-9])
        each = zip(self.groups, self.cumulants(0.0).variances, strict=True)
        unknown = [(group.counts, variance) for group, variance in each if group.pair.cell_parts(*ends) is None]
        deviation = sum(float(n @ np.sqrt(variance)) for n, variance in unknown) / self.total
        return math.sqrt(constants.SPACING_ROUNDINGS * constants.UNIT_ROUNDOFF * deviation)

    def negligible_bottom(self, share: float) -> float:
        """Tilted mass of one step that may lie below its lowest node; ``share`` of the tilted mass decides delta."""
        return max(constants.NEGLIGIBLE_BOTTOM_SHARE * share / self.total, constants.MASS_FLOOR)


# Pessimistic and optimistic composed PLDs, evaluated as brackets of delta and eps.


class OneSidedComposition(Protocol):
    """A pessimistic or optimistic composition: its tilt, about its tilted mean, and its number of cells or atoms."""

    @property
    def centre(self) -> float: ...

    @property
    def tilt(self) -> float: ...

    @property
    def cells(self) -> int: ...

    def delta(self, eps: float, sign: int) -> float:
        """delta at eps from above (sign +1) or from below (sign -1)."""


@dataclass(frozen=True)
class TwoSidedComposition:
    """A pessimistic and an optimistic composition of the same steps.

    Attributes:
        upper: the pessimistic composition.
        compose_lower: makes the optimistic composition, once it is needed.
        eps_slack: by how much in eps the pessimistic composition may lie too low, and the optimistic one too high, from
            rounding of the tails and splitting off of jumps.
        deviation: standard deviation of the tilted loss.
    """

    upper: OneSidedComposition
    compose_lower: Callable[[], OneSidedComposition]
    eps_slack: float
    deviation: float

    @cached_property
    def lower(self) -> OneSidedComposition:
        """The optimistic composition."""
        return self.compose_lower()

    @property
    def cells(self) -> int:
        """Number of cells (atoms) of the larger composition, by which the cost of a refinement is judged."""
        return max(self.upper.cells, self.lower.cells)

    def delta(self, eps: float) -> tuple[float, float]:
        """Lower and upper delta at eps."""
        constants.add("reading", 1)
        return self.lower.delta(eps + self.eps_slack, -1), self.upper.delta(eps - self.eps_slack, +1)

    def meets_target(self, eps: float, delta: float) -> bool:
        """Tell whether the pessimistic composition alone proves (eps, delta), eps >= 0."""
        return eps >= 0 and self.upper.delta(eps - self.eps_slack, +1) <= delta

    def epsilon(self, delta: float, guess: float, deviation: float) -> tuple[float, float]:
        """Lower and upper eps >= 0 at delta; an end many standard deviations away from the guess is 0 or inf.

        Args:
            guess: an eps near the answer, which sets the speed.
            deviation: scale of the search, in nats.
        """
        high = self._solve(lambda eps: self.delta(eps)[1], delta, guess, deviation, +1)
        low = self._solve(lambda eps: self.delta(eps)[0], delta, min(guess, high), deviation, -1)
        return low, high

    def _solve(self, curve: Callable[[float], float], delta: float, guess: float, deviation: float, sign: int) -> float:
        """The eps >= 0 at which a decreasing curve meets delta, rounded up (sign +1) or down (sign -1)."""
        target, rtol = math.log(delta), constants.EPS_SEARCH_RTOL

        def miss(eps: float) -> float:
            value = curve(eps)
            return math.log(value) - target if value > 0 else -700.0

        low = high = guess
        step, farthest = constants.EPS_SEARCH_STEP * deviation, constants.EPS_SEARCH_RANGE * deviation
        while miss(low) <= 0 and low > 0 and step < farthest:
            low, high, step = max(low - step, 0.0), low, 2 * step
        while miss(high) > 0 and step < farthest:
            low, high, step = high, high + step, 2 * step
        if miss(high) > 0:
            return math.inf if sign > 0 else low
        if miss(low) <= 0:
            return high if low > 0 and sign > 0 else 0.0
        eps = smallest_meeting(miss, high, low=low, high=high, rtol=rtol)
        return eps if sign > 0 else eps * (1 - 2 * rtol)


def compose_sides(
    sides: Sequence[Sides[Pmf]], compose: Callable[[Sequence[Pmf]], OneSidedComposition], slack: float, deviation: float
) -> TwoSidedComposition:
    """Compose the pessimistic PMFs of groups now, and the optimistic ones once they are needed.

    Nothing passed may refer to the steps, or else a reference cycle would keep all arrays alive.

    Args:
        slack: shift of eps by rounding. deviation: standard deviation of the tilted loss.
    """
    upper = compose([upper for upper, _ in sides])
    return TwoSidedComposition(upper, lambda: compose([lower() for _, lower in sides]), slack, deviation)


# Where and how finely to compose for a question: the eps expected at a delta, and the factor of a refinement.
#
# These only steer the certified composition; no figure depends on their accuracy. Its bracket is checked by
# ``ordered``.


def log_delta_guess(state: Cumulants, tilt: float, eps: float) -> float:
    """ln delta at eps by the saddle-point approximation at the given tilt."""
    return state.cgf - tilt * eps + log_tail_factor(tilt, math.sqrt(state.variance))


def expected_eps(state: Cumulants, tilt: float, log_delta: float, guess: float, best: tuple[float, float]) -> float:
    """The eps about which to compose: by saddle point, Chernoff's bound or guess; or the middle of a narrow bracket."""
    chernoff = (state.cgf - log_delta) / tilt if tilt > 0 else math.inf
    # the tilt is right to a percent only: one step of Newton's method from its mean
    slope = tilt + 1 / math.sqrt(state.variance)
    near = state.mean + (log_delta_guess(state, tilt, state.mean) - log_delta) / slope
    eps = max(min(near, chernoff, guess), 0.0)
    if best[0] >= constants.NARROW_BRACKET_RATIO * best[1]:
        eps = (best[0] + best[1]) / 2
    if eps > constants.MAX_CERTIFIED_EPS:
        raise Unsupported(
            f"pld certifies eps up to {constants.MAX_CERTIFIED_EPS:g}; this process needs about {eps:.3g}. "
            "Increase the noise"
        )
    return eps


def refinement_factor(width: float, before: float, tol: float, composition: TwoSidedComposition) -> float | None:
    """The factor on the allowed error for a refinement; None if it would not fit, or the last one gained little."""
    cells = composition.cells
    least = (cells / constants.MAX_REFINED_CELLS) ** 2
    wanted = constants.BLIND_REFINEMENT_FACTOR
    if math.isfinite(width):
        wanted = max(constants.REFINEMENT_AIM * tol / width, constants.MIN_REFINEMENT_FACTOR)
    unprofitable = cells > constants.CHEAP_REFINEMENT_CELLS and width > constants.UNPROFITABLE_WIDTH_RATIO * before
    if least > constants.HOPELESS_REFINEMENT_FACTOR or unprofitable:
        return None
    return min(constants.MAX_REFINEMENT_FACTOR, max(wanted, least))


def ordered(ends: tuple[float, float]) -> tuple[float, float]:
    """The ends of a bracket, with a crossing by rounding corrected; a larger crossing is a fault of the engine."""
    low, high = ends
    if low > high * (1 + constants.BRACKET_CROSSING_TOLERANCE):
        raise ArithmeticError(f"two certified brackets exclude each other: lower end {low!r}, upper end {high!r}")
    return min(low, high), high


# Where single large losses decide: the sum of the deltas of the steps, the cut below them, and the tilt.
#
# All of these only steer the certified composition; no answer depends on their accuracy.


def rare_cut(steps: Steps, eps: float, log_allowance: float) -> float | None:
    """The largest cut under which sums without a large loss add at most e^log_allowance; None if there is none."""
    for share in constants.RARE_CUTS:
        cut = share * eps
        tilts = np.geomspace(*constants.BULK_TILTS, constants.BULK_TILT_COUNT) / cut
        each = list(zip(steps.pmfs, steps.counts, strict=True))
        jumps = sum(float(n @ pmf.mass[:, pmf.y > cut].sum(axis=1)) for pmf, n in each)
        if jumps > constants.MAX_RARE_JUMPS:
            return None
        logs = -tilts * eps
        for pmf, n in each:
            bulk = pmf.y <= cut
            growth = np.expm1(tilts[:, None] * np.maximum(pmf.y[bulk], -cut))
            logs = logs + np.log1p(growth @ pmf.mass[:, bulk].T) @ n
        if float(logs.min()) <= log_allowance:
            return cut
    return None


def single_loss_delta(groups: Sequence[StepGroup], eps: float) -> float:
    """The sum of the deltas of all steps at eps; at eps = 0, of their total variation distances."""
    each = (step for group in groups for step in zip(group.members, group.counts.tolist(), strict=True))
    return sum(float(n) * math.exp(float(pair.log_delta(eps))) for pair, n in each)


def approximate_single_loss_delta(steps: Steps, eps: float) -> float:
    """As ``single_loss_delta``, from the approximate PMFs: less accurate, and faster for many kinds of steps."""
    each = zip(steps.counts, steps.pmfs, strict=True)
    return sum(float(n @ pmf.mass @ -np.expm1(np.minimum(eps - pmf.y, 0.0))) for n, pmf in each)


def single_loss_slope(steps: Steps, eps: float) -> float:
    """The slope of -ln delta at eps (per nat), where single losses decide; at least 1 / eps."""
    further = eps * 1.01
    logs = [math.log(max(single_loss_delta(steps.groups, e), constants.MASS_FLOOR)) for e in (eps, further)]
    return max((logs[0] - logs[1]) / (further - eps), 1.0 / eps)


def small_tilt(steps: Steps, tilt: float, eps: float, delta: float, cut: float, relative: float) -> float:
    """The smallest tilt tried at which delta has a large enough share in the outcomes with a large loss."""
    shares = []
    tilts = [share * tilt for share in constants.RARE_TILTS]
    for candidate in tilts:
        each = list(zip(steps.counts, steps.pmfs, strict=True))
        jump = sum(float(n @ tilted_weights(pmf, candidate)[:, pmf.y > cut].sum(axis=1)) for n, pmf in each)
        cgf = sum(float(n @ pmf.tilted_moments(candidate)[0]) for n, pmf in each)
        shares.append(math.log(delta) + candidate * eps - cgf - math.log(max(jump, constants.MASS_FLOOR)))
    wanted = min(max(shares), math.log(min(constants.RARE_SHARE_ROUNDING * steps.total / relative, 0.1)))
    return next(candidate for candidate, share in zip(tilts, shares, strict=True) if share >= wanted)


# Chernoff's bound of delta, without composing anything: from above, or from below where delta is nearly 1.


def chernoff_suffices(scans: list[TailScan], counts: list[Counts], eps: float, delta: float) -> bool:
    """Tell whether Chernoff's bound at eps > 0 is at most delta > 0, its tilt improved by Newton's method."""

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
    """A lower bound of eps at delta, 0 < delta < 1: the largest eps at which the bound above is delta; at least 0."""
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
