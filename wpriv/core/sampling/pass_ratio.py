"""The density ratio of a pass of random allocation, between a distribution below it and one above it.

The ratio is the mean of t independent ratios of one step (docs/theory/allocation.md, Theorem 2). The sum is built by
doubling, on geometric cells that become shorter as the sum concentrates, so that every level adds about the same error.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import NamedTuple

import numpy as np

from wpriv.core.loss_pair import LossPair
from wpriv.numerics.arrays import Array
from wpriv.numerics.geometric_sums import UNIT_ROUNDOFF, Cells, added, grouped, refined, spread
from wpriv.numerics.root_finding import smallest_meeting

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
        base: dominating pair of one step, with finite losses.
        tol: relative error aimed at for eps of a pass.
        depth: smallest delta of a pass that matters.
    Returns:
        The distributions below and above; None where the ratio of a step is too large for floating point.
    """
    cut = CUT_SHARE * tol * depth
    losses = -_loss_with_rest(base, cut * steps**-CUT_EXPONENT), _loss_with_excess(base, cut)
    if max(losses[1], -losses[0]) > MAX_LOSS:
        return None
    plan = _plan(base, steps, tol, cut, losses)
    below, above = _one_step(base, plan.spacing * 2 ** plan.halvings(1), losses)
    return PassRatio(_sum(below, plan, grouped), _sum(above, plan, spread))


def _plan(base: LossPair, steps: int, tol: float, cut: float, losses: tuple[float, float]) -> _Plan:
    jump = math.expm1(_loss_with_excess(base, REFERENCE_DELTA)) / steps
    scale = math.log1p(max(REFERENCE_DEVIATIONS * _deviation(base, steps, losses), jump)) / REFERENCE_DEVIATIONS
    shortest = math.log(2 * steps) / MAX_CELLS
    spacing = max(min(math.sqrt(SPACING * tol) * scale, LONGEST_CELL), shortest)
    return _Plan(steps, spacing, min(JUMP_SHARE * jump, 1.0), cut)


def _deviation(base: LossPair, steps: int, losses: tuple[float, float]) -> float:
    """About the standard deviation of the mean of ``steps`` ratios between two losses, each at most ``steps``."""
    nodes: Array = np.asarray(np.linspace(*losses, DEVIATION_NODES), dtype=float)
    mass = _masses(*base.probabilities(nodes)[2:])
    ratios = np.minimum(np.exp((nodes[:-1] + nodes[1:]) / 2), steps)
    return math.sqrt(float(mass @ (ratios - 1) ** 2) / steps)


def _one_step(base: LossPair, spacing: float, losses: tuple[float, float]) -> tuple[Cells, Cells]:
    """The ratio of one step on cells between two losses: grouped, and spread."""
    first, stop = math.floor(losses[0] / spacing), math.ceil(losses[1] / spacing) + 1
    nodes: Array = spacing * np.arange(first, stop + 1, dtype=float)
    tails = base.probabilities(nodes)
    mass, mean = _masses(tails.sf_q, tails.cdf_q), _masses(tails.sf_p, tails.cdf_p)
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


def _masses(above: Array, below: Array) -> Array:
    """Masses between nodes from the tails above and below them, taken where the tail is smaller."""
    return np.maximum(np.where(above[:-1] < below[1:], -np.diff(above), np.diff(below)), 0.0)


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


def _loss_with_rest(base: LossPair, rest: float) -> float:
    """The y for which a loss of at most -y has Q-probability ``rest``, or minus the least loss where that is finite."""
    return _meeting(lambda y: float(base.tails(np.array(-y)).cdf_q), rest, -base.support[0])


def _meeting(log_decreasing: Callable[[float], float], value: float, largest: float) -> float:
    """Where a decreasing function, given by its logarithm, meets a value, or ``largest`` where that is finite."""
    if math.isfinite(largest):
        return float(largest)
    target = math.log(value)

    def miss(y: float) -> float:
        return log_decreasing(y) - target

    top = LEAST_LOSS
    while miss(top) > 0:
        top *= 2
    return float(smallest_meeting(miss, top, low=top / 2, high=top, rtol=LOSS_RTOL))
