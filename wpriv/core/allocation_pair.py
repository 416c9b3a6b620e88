"""The pair of random allocation, and the density ratio of one of its passes.

The ratio is the mean of t independent ratios of one step (docs/theory/allocation.md, Theorem 2). The sum is built by
doubling, on geometric cells that become shorter as the sum concentrates, so that every level adds about the same error.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import lru_cache
from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike

from wpriv.core.atomic_pair import AtomicPair
from wpriv.core.loss_pair import KeyedPair, LossPair, Tails
from wpriv.core.subsampled_pairs import poisson
from wpriv.numerics.arrays import Array, mass_between
from wpriv.numerics.log_space import log_binomial
from wpriv.numerics.root_finding import smallest_meeting
from wpriv.numerics.sums import UNDERFLOW_MASS, UNIT_ROUNDOFF, Cells, added, grouped, refined, spread

# square of the spacing of the last level, per tolerance and square of the scale of the loss (in nats)
SPACING = 1.2
# longest cell, in nats of the ratio
LONGEST_CELL = 0.05
# most cells between a ratio and the sum of all, which limits memory where the noise is very large
MAX_CELLS = 1 << 22
# delta that the scale of the loss is chosen for, and about how many standard deviations of the ratio that is away
REFERENCE_DELTA, REFERENCE_DEVIATIONS = 1e-6, 5.0
# share of the largest single ratio in the sum by which low levels are refined
JUMP_SHARE = 0.3
# share of the tolerance for masses that are cut off, and of the square of the last spacing for small ratios that
# are moved
CUT_SHARE, SMALL_RATIO_SHARE = 0.1, 0.05
# share of its part of the cut that a level may move to zero: masses z at zero with z' = z^2 + 1/4 stay below 1/2
ZERO_SHARE = 0.25
# power of a level's share of all terms by which rare small sums are cut off: more than one, so that those which were
# moved to zero in one level are cut off in the next
CUT_EXPONENT = 1.5
# accuracy assumed of the tails of a pair, in roundings relative to the loss at which they are evaluated, and of the
# mean of a cell, which its two ends determine
TAIL_ROUNDINGS, CELL_ROUNDINGS = 16, 128
# nodes at which the deviation of the ratio is estimated
DEVIATION_NODES = 4001
# least loss at which a search begins, and its relative accuracy
LEAST_LOSS, LOSS_RTOL = 1e-12, 1e-6
# largest loss whose exponential, in a sum of ratios, is far from overflow
MAX_LOSS = 600.0


class PassRatio(NamedTuple):
    """Distributions of the sum of the ratios of a pass: the means of cells below it, and the ends of cells above it."""

    below: Cells
    above: Cells


class _Plan(NamedTuple):
    """The width of the cells of a sum over a pass, and what may be left out.

    Attributes:
        steps: t, the number of terms of the sum.
        spacing: length of the cells of the last level.
        jump: share of the largest single ratio in the sum.
        cut: mass that each level may cut off.
    """

    steps: int
    spacing: float
    jump: float
    cut: float

    def halvings(self, terms: int) -> int:
        """The number of halvings from the cells of a sum of ``terms`` terms to those of the whole sum."""
        ratio = 1 / max(self.jump, math.sqrt(terms / self.steps))
        return max(math.floor(math.log2(min(ratio, max(LONGEST_CELL / self.spacing, 1.0))) + 1e-9), 0)


def pass_ratio(base: LossPair, steps: int, tol: float, depth: float) -> PassRatio | None:
    """Enclose the sum of the ratios of ``steps`` steps, in the order of E[(x - sum)_+] at all x.

    Args:
        base: dominating pair of one step, with finite losses. tol: relative error aimed at for eps of a pass.
        depth: smallest delta of a pass that matters.
    Returns:
        The distributions below and above; None where the ratio of a step is too large for floating point.
    """
    cut = CUT_SHARE * tol * depth
    losses = loss_range(base, cut * steps**-CUT_EXPONENT, cut)
    if max(losses[1], -losses[0]) > MAX_LOSS:
        return None
    plan = _plan(base, steps, tol, cut, losses)
    below, above = single_ratio(base, plan.spacing * 2 ** plan.halvings(1), losses)
    return PassRatio(_sum(below, plan, grouped), _sum(above, plan, spread))


def loss_range(base: LossPair, rest: float, cut: float) -> tuple[float, float]:
    """The losses between which all but a Q-probability of ``rest`` below and an excess of ``cut`` above lies."""
    # a loss of at most -y has Q-probability ``rest``, or all losses are above -y
    lowest = -_meeting(lambda y: float(base.tails(np.array(-y)).cdf_q), rest, -base.support[0])
    return lowest, _loss_with_excess(base, cut)


def _plan(base: LossPair, steps: int, tol: float, cut: float, losses: tuple[float, float]) -> _Plan:
    jump = math.expm1(_loss_with_excess(base, REFERENCE_DELTA)) / steps
    scale = math.log1p(max(REFERENCE_DEVIATIONS * _deviation(base, steps, losses), jump)) / REFERENCE_DEVIATIONS
    shortest = math.log(2 * steps) / MAX_CELLS
    spacing = max(min(math.sqrt(SPACING * tol) * scale, LONGEST_CELL), shortest)
    return _Plan(steps, spacing, min(JUMP_SHARE * jump, 1.0), cut)


def _deviation(base: LossPair, steps: int, losses: tuple[float, float]) -> float:
    """About the standard deviation of the mean of ``steps`` ratios between two losses, each at most ``steps``."""
    nodes: Array = np.asarray(np.linspace(*losses, DEVIATION_NODES), dtype=float)
    mass = _between(*base.probabilities(nodes)[2:])
    ratios = np.minimum(np.exp((nodes[:-1] + nodes[1:]) / 2), steps)
    return math.sqrt(float(mass @ (ratios - 1) ** 2) / steps)


def single_ratio(base: LossPair, spacing: float, losses: tuple[float, float]) -> tuple[Cells, Cells]:
    """The ratio of one step on cells between two losses: grouped, and spread."""
    first, stop = math.floor(losses[0] / spacing), math.ceil(losses[1] / spacing) + 1
    nodes: Array = spacing * np.arange(first, stop + 1, dtype=float)
    tails = base.probabilities(nodes)
    mass, mean = _between(tails.sf_q, tails.cdf_q), _between(tails.sf_p, tails.cdf_p)
    ends = np.exp(nodes)
    mean = np.clip(mean, ends[:-1] * mass, ends[1:] * mass)
    farthest = max(abs(float(nodes[0])), abs(float(nodes[-1])))
    error = TAIL_ROUNDINGS * CELL_ROUNDINGS * UNIT_ROUNDOFF * farthest / spacing
    cells = Cells(spacing, first, mass, mean, mass_error=error, value_error=error)
    below = cells._replace(mass=mass.copy(), mean=mean.copy())
    for values, low, high in ((below.mass, tails.cdf_q, tails.sf_q), (below.mean, tails.cdf_p, tails.sf_p)):
        values[0] += low[0]
        values[-1] += high[-1]
    above = spread(cells, first, stop)
    # what lies below the first node is divided between zero and this node, and what lies above the last moves down
    at_first = float(tails.cdf_p[0] / ends[0])
    above.mass[0] += at_first
    above.mass[-1] += tails.sf_q[-1]
    at_zero = max(float(tails.cdf_q[0]) - at_first, 0.0)
    above = above._replace(mean=above.mass * above.ends, at_zero=at_zero, lost=float(tails.sf_p[-1]))
    return below, above


def _between(above: Array, below: Array) -> Array:
    """Masses between nodes from the tails above and below them."""
    return mass_between(above[:-1], below[:-1], above[1:], below[1:])


def _sum(one: Cells, plan: _Plan, discretise: Callable[[Cells, int, int], Cells]) -> Cells:
    """The sum of all terms: of the powers of two in their number, with every sum discretised again."""
    power, power_terms = one, 1
    total, total_terms = None, 0
    while True:
        if plan.steps & power_terms:
            if total is None:
                total = power
            else:
                total = added(refined(total, round(total.spacing / power.spacing)), power)
                total = _discretised(total, total_terms + power_terms, plan, discretise)
            total_terms += power_terms
        if total is not None and total_terms == plan.steps:
            return total
        halvings = plan.halvings(power_terms) - plan.halvings(2 * power_terms)
        power_terms *= 2
        power = _discretised(added(power, power, 2**halvings), power_terms, plan, discretise)


def _discretised(cells: Cells, terms: int, plan: _Plan, discretise: Callable[[Cells, int, int], Cells]) -> Cells:
    """Discretise a sum of so many terms, without cells whose masses do not matter."""
    share = terms / plan.steps
    above = np.cumsum(cells.mean[::-1])[::-1]
    below = np.cumsum(cells.mass)
    ends = cells.ends
    rare = below <= plan.cut * share**CUT_EXPONENT
    with np.errstate(over="ignore"):
        squares = ends**2
    small = (
        (ends <= cells.spacing * terms)
        & (squares * below <= SMALL_RATIO_SHARE * plan.spacing**2 * terms * plan.steps)
        & (below <= ZERO_SHARE * plan.cut**share)
    )
    lowest = cells.first + int(np.argmin(rare | small))
    highest = cells.first + int(np.searchsorted(-above, -plan.cut * terms))
    return discretise(cells, lowest, max(highest, lowest + 1))


def _loss_with_excess(base: LossPair, excess: float) -> float:
    """The loss at which the profile is ``excess``, or the largest loss where that is finite."""
    return _meeting(lambda y: float(base.log_delta(y)), excess, base.support[1])


def _meeting(log_decreasing: Callable[[float], float], value: float, largest: float) -> float:
    """Where a decreasing function, given by its logarithm, meets a value, or ``largest`` where that is finite."""
    if math.isfinite(largest):
        return float(largest)
    target, top = math.log(value), LEAST_LOSS
    while log_decreasing(top) > target:
        top *= 2
    return smallest_meeting(lambda y: log_decreasing(y) - target, top, low=top / 2, high=top, rtol=LOSS_RTOL)


# The pair of random allocation: every record takes part in one uniformly random step of each pass.
#
# The density ratio of a pass of t steps is the mean of t independent ratios of one step (docs/theory/allocation.md).
# Its distribution is not known in closed form, but lies between two discrete ones that are as close as one asks.

# relative width of the sandwich where a single dominating pair is needed; the widest and the narrowest that is tried
USUAL_TOL, WIDEST_TOL, NARROWEST_TOL = 1e-4, 1e-2, 4e-6
# smallest delta of a pass that matters: usually, at all, and the factor between those that are told apart
USUAL_DEPTH, LEAST_DEPTH, DEPTH_FACTOR = 1e-9, 1e-270, 1e-3
# margin of a bound of the first order in the rounding, and rounding of sums of masses for each of them
FIRST_ORDER_MARGIN, SUM_ROUNDING = 1.01, 1e-15
# the largest number of steps, and the largest loss, for which the pass of a pair of two losses is summed exactly: its
# losses are apart by far more than their rounding
MAX_EXACT_STEPS, MAX_EXACT_LOSS = 512, 30.0
# largest relative rounding of a mass for which the bound of the first order holds with its margin
MAX_MASS_ERROR = 0.01


def allocated(base: LossPair, steps: int) -> LossPair:
    """Return the pair of one pass in which a record takes part in one of ``steps`` steps, drawn uniformly.

    The pair is that of removing a record; its ``reverse()`` is the pair of adding one.

    Args:
        base: dominating pair (P, Q) of one step under add-remove, without mass at an infinite loss.
        steps: number t of the steps of a pass.
    Source: Feldman, Shenfeld (2025); the proof is in docs/theory/allocation.md.
    """
    if steps == 1:
        return base
    two_losses = isinstance(base, AtomicPair) and base.losses.size == 2 and base.symmetric
    if two_losses and steps <= MAX_EXACT_STEPS and base.support[1] < MAX_EXACT_LOSS:
        return _of_two_losses(base.support[1], steps)
    return AllocatedPair(base, steps)


def _of_two_losses(eps0: float, steps: int) -> AtomicPair:
    """The pair of a pass of randomised response, exactly: the steps with the larger loss have a binomial number."""
    large = np.arange(steps + 1.0)
    small = steps - large
    losses = np.log1p((large * math.expm1(eps0) + small * math.expm1(-eps0)) / steps)
    losses[0] = -eps0
    log_q = log_binomial(small, steps, eps0)
    return AtomicPair(losses, log_q + losses, log_q=log_q)


class AllocatedPair(KeyedPair):
    """The mean over i of (P in step i, Q in all others) against Q in all steps.

    The exact pair is known only through ``sandwich``. Every other method answers for a pair that dominates it: its
    profile is an upper bound, and its tails are those of the dominating pair, not of the exact one.

    Args:
        depth: smallest delta of one pass that ``sandwich`` resolves; see ``for_delta``.
    """

    def __init__(self, base: LossPair, steps: int, forward: bool = True, depth: float = USUAL_DEPTH):
        self.base, self.steps, self.forward, self.depth = base, steps, forward, depth
        self.key = (base, steps, forward, depth)
        low, high = base.support
        # the ratio is the mean of t ratios of steps: no more than the largest of them, and no less than the least
        self.support = (low, high) if forward else (-high, -low)

    def sandwich(self, tol: float) -> tuple[LossPair, LossPair]:
        # sums that are resolved further out have more cells
        narrowest = NARROWEST_TOL * (math.log(self.depth) / math.log(USUAL_DEPTH)) ** 2
        # rounded down to a power of two, so that nearly equal tolerances share their distributions
        accuracy = 2.0 ** math.floor(math.log2(min(max(tol, narrowest), WIDEST_TOL)))
        return _ends(self.base, self.steps, accuracy, self.depth)[0 if self.forward else 1]

    def for_delta(self, delta: float) -> LossPair:
        powers = math.ceil(math.log(max(delta, LEAST_DEPTH)) / math.log(DEPTH_FACTOR))
        return AllocatedPair(self.base, self.steps, self.forward, min(DEPTH_FACTOR**powers, USUAL_DEPTH))

    def reverse(self) -> LossPair:
        return AllocatedPair(self.base, self.steps, not self.forward, self.depth)

    def tails(self, eps: Array) -> Tails:
        return self.sandwich(USUAL_TOL)[1].tails(eps)

    def log_delta(self, eps: ArrayLike) -> Array:
        return self.sandwich(USUAL_TOL)[1].log_delta(eps)


Ends = tuple[LossPair, LossPair]


@lru_cache(maxsize=16)
def _ends(base: LossPair, steps: int, tol: float, depth: float) -> tuple[Ends, Ends]:
    """The dominated and the dominating pair of a pass, for removing and for adding a record."""
    ratio = pass_ratio(base, steps, tol, depth)
    if ratio is None or max(ratio.above.mass_error, ratio.below.mass_error) > MAX_MASS_ERROR:
        # a single step is post-processing of the pass, and one release without sampling dominates it
        one_step = poisson(base, 1 / steps)
        return (one_step, base), (one_step.reverse(), base.reverse())
    dominated = dominated_pair(ratio.below, steps)
    remove, add = dominating_pairs(ratio.above, steps)
    return (dominated, remove), (dominated.reverse(), add)


def dominated_pair(cells: Cells, steps: int) -> AtomicPair:
    """The pair that is dominated where the ratio is above the sum ``cells`` over ``steps``, for removing a record."""
    return _dominated(_Outcomes.of(cells, steps), cells.mass_error, cells.value_error)


def dominating_pairs(cells: Cells, steps: int) -> Ends:
    """The pairs that dominate a ratio below the sum ``cells`` over ``steps``, for removing and for adding."""
    above = _Outcomes.of(cells, steps)
    growth = 1 + FIRST_ORDER_MARGIN * (cells.mass_error + cells.value_error) + SUM_ROUNDING * above.losses.size
    shift = FIRST_ORDER_MARGIN * cells.value_error
    remove = _dominating(above.losses + shift, growth * above.p, growth * cells.lost / steps)
    at_zero = growth * cells.at_zero + UNDERFLOW_MASS
    return remove, _dominating(shift - above.losses[::-1], growth * above.q[::-1], at_zero)


class _Outcomes(NamedTuple):
    """Outcomes of a pass with a finite loss: their losses, increasing, and their masses."""

    losses: Array
    p: Array
    q: Array

    @classmethod
    def of(cls, cells: Cells, steps: int) -> _Outcomes:
        """The outcomes of a pass whose ratio is the sum ``cells`` over the number of its steps."""
        some = (cells.mass > 0) & (cells.mean > 0)
        q, p = cells.mass[some], cells.mean[some] / steps
        # p may underflow
        losses = np.log(cells.mean[some]) - math.log(steps) - np.log(q)
        order = np.argsort(losses, kind="stable")
        return cls(losses[order], p[order], q[order])


def _dominating(losses: Array, masses: Array, infinity: float) -> AtomicPair:
    """A pair that dominates, from upper bounds of masses; the excess over one is taken from the lowest losses."""
    infinity = min(infinity, 1.0)
    above = np.minimum(np.append(np.cumsum(masses[::-1])[::-1], 0.0) + infinity, 1.0)
    above[0] = 1.0
    mass = -np.diff(above)
    kept = mass > 0
    losses, mass = losses[kept], mass[kept]
    rest = max(1 - float(mass @ np.exp(-losses)), 0.0)
    return AtomicPair(losses, np.log(mass), mass_at_plus_infinity=infinity, mass_at_minus_infinity=rest)


def _dominated(outcomes: _Outcomes, mass_error: float, value_error: float) -> AtomicPair:
    """A pair that is dominated, from outcomes that are right up to rounding (docs/theory/allocation.md, Theorem 6).

    One outcome, of neighbouring ones that are joined if they have to be, takes all that is missing. The losses of all
    others move towards its loss by the rounding of a value.
    """
    shrink = 1 - FIRST_ORDER_MARGIN * (mass_error + value_error) - SUM_ROUNDING * outcomes.losses.size
    shift = FIRST_ORDER_MARGIN * value_error
    large = np.maximum(outcomes.p, outcomes.q) > UNDERFLOW_MASS
    outcomes = _Outcomes(*(each[large] for each in outcomes))
    middle, reach = int(np.argmax(np.minimum(outcomes.p, outcomes.q))), 0
    while reach < outcomes.losses.size:
        pair = _joined(outcomes, slice(max(middle - reach, 0), middle + reach + 1), shrink, shift)
        if pair is not None:
            return pair
        reach = 2 * reach + 1
    return AtomicPair(np.zeros(1), np.zeros(1), symmetric=True)


def _joined(outcomes: _Outcomes, inner: slice, shrink: float, shift: float) -> AtomicPair | None:
    """The pair of ``_dominated`` in which the ``inner`` outcomes are joined, or None if their loss leaves its place."""
    middle = inner.start
    low, high = slice(0, middle), slice(inner.stop, None)
    losses = np.concatenate([outcomes.losses[low] + shift, outcomes.losses[high] - shift])
    low_q, high_p = np.log(shrink * outcomes.q[low]), np.log(shrink * outcomes.p[high])
    log_p = np.concatenate([low_q + losses[:middle], high_p])
    log_q = np.concatenate([low_q, high_p - losses[middle:]])
    rest_p, rest_q = 1 - math.fsum(np.exp(log_p)), 1 - math.fsum(np.exp(log_q))
    if not min(rest_p, rest_q) > 0:
        return None
    centre = math.log(rest_p / rest_q)
    if np.any(losses[:middle] >= centre) or np.any(losses[middle:] <= centre):
        return None
    rests = zip((losses, log_p, log_q), (centre, math.log(rest_p), math.log(rest_q)), strict=True)
    losses, log_p, log_q = (np.insert(each, middle, rest) for each, rest in rests)
    return AtomicPair(losses, log_p, log_q=log_q)
