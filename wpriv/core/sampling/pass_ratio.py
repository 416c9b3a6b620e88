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

# square of the spacing of the last level, per tolerance and square of the scale of the loss
SPACING = 1.2
# longest cell, in nats of the ratio
LONGEST_CELL = 0.05
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
# nodes at which the deviation of the ratio is estimated, and the largest loss there
DEVIATION_NODES, DEVIATION_LOSS = 4001, 60.0
# largest loss whose exponential, in a sum of ratios, is far from overflow
MAX_LOSS = 600.0


class PassRatio(NamedTuple):
    """Distributions of the sum of the ratios of a pass: the means of cells below it, and the ends of cells above it."""

    below: Cells
    above: Cells


class _Plan(NamedTuple):
    """How finely the sum of a pass is computed.

    Attributes:
        steps: t, the number of terms of the sum.
        scale: scale of the loss of a pass, in nats.
        spacing: length of the cells of the last level.
        jump: share of the largest single ratio in the sum.
        cut: mass that each level may cut off.
    """

    steps: int
    scale: float
    spacing: float
    jump: float
    cut: float

    def halvings(self, terms: int) -> int:
        """How often the cells of a sum of so many terms have still to be halved for those of the whole sum."""
        ratio = 1 / max(self.jump, math.sqrt(terms / self.steps))
        return max(math.floor(math.log2(min(ratio, max(LONGEST_CELL / self.spacing, 1.0))) + 1e-9), 0)


def pass_ratio(base: LossPair, steps: int, tol: float, depth: float) -> PassRatio | None:
    """Enclose the sum of the ratios of ``steps`` steps, in the order of their puts.

    Args:
        base: dominating pair of one step, with finite losses.
        tol: relative error aimed at for eps of a pass.
        depth: smallest delta of a pass that matters.
    Returns:
        The distributions below and above; None where the ratio of a step is too large for floating point.
    """
    cut = CUT_SHARE * tol * depth
    losses = -_loss_with_excess(base.reverse(), cut), _loss_with_excess(base, cut)
    if max(losses[1], -losses[0]) > MAX_LOSS:
        return None
    plan = _plan(base, steps, tol, cut)
    below, above = _one_step(base, plan.spacing * 2 ** plan.halvings(1), losses)
    return PassRatio(_sum(below, plan, grouped), _sum(above, plan, spread))


def _plan(base: LossPair, steps: int, tol: float, cut: float) -> _Plan:
    jump = math.exp(_loss_with_excess(base, REFERENCE_DELTA)) / steps
    scale = math.log1p(max(REFERENCE_DEVIATIONS * _deviation(base, steps), jump)) / REFERENCE_DEVIATIONS
    spacing = min(math.sqrt(SPACING * tol) * scale, LONGEST_CELL)
    return _Plan(steps, scale, spacing, min(JUMP_SHARE * jump, 1.0), cut)


def _deviation(base: LossPair, steps: int) -> float:
    """About the standard deviation of the mean of ``steps`` ratios, those above ``steps`` left out."""
    low, high = (min(max(end, -DEVIATION_LOSS), DEVIATION_LOSS) for end in base.support)
    losses = np.linspace(low, high, DEVIATION_NODES)
    mass = _masses(*base.probabilities(losses)[2:])
    ratios = np.minimum(np.exp((losses[:-1] + losses[1:]) / 2), steps)
    return math.sqrt(float(mass @ (ratios - 1) ** 2) / steps)


def _one_step(base: LossPair, spacing: float, losses: tuple[float, float]) -> tuple[Cells, Cells]:
    """The ratio of one step on cells between two losses: grouped, and spread."""
    first, stop = math.floor(losses[0] / spacing), math.ceil(losses[1] / spacing) + 1
    nodes = spacing * np.arange(first, stop + 1)
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


def _sum(one: Cells, plan: _Plan, discretised: Callable[[Cells, int, int], Cells]) -> Cells:
    """The sum of all terms, from the binary digits of their number, with every level discretised again."""
    power, terms = one, 1
    total: Cells | None = None
    count, remaining = 0, plan.steps
    while True:
        if remaining & 1:
            if total is None:
                total = power
            else:
                total = refined(total, round(total.spacing / power.spacing))
                total = _discretised(added(total, power), count + terms, plan, discretised)
            count += terms
        remaining >>= 1
        if not remaining:
            return total
        factor = 2 ** (plan.halvings(terms) - plan.halvings(2 * terms))
        terms *= 2
        power = _discretised(added(power, power, factor), terms, plan, discretised)


def _discretised(cells: Cells, terms: int, plan: _Plan, discretised: Callable[[Cells, int, int], Cells]) -> Cells:
    """Discretise a sum of so many terms, without cells whose masses do not matter."""
    share = terms / plan.steps
    above = np.cumsum(cells.mean[::-1])[::-1]
    below = np.cumsum(cells.mass)
    ends = cells.ends
    rare = below <= plan.cut * share**CUT_EXPONENT
    small = (
        (ends <= cells.spacing * terms)
        & (ends**2 * below <= SMALL_RATIO_SHARE * plan.spacing**2 * terms * plan.steps)
        & (below <= ZERO_SHARE * plan.cut**share)
    )
    lowest = cells.first + int(np.argmin(rare | small))
    highest = cells.first + int(np.searchsorted(-above, -plan.cut * terms))
    return discretised(cells, lowest, max(highest, lowest + 1))


def _loss_with_excess(base: LossPair, excess: float) -> float:
    """The loss at which the profile is ``excess``, at most the largest loss."""
    high = base.support[1]
    if math.isfinite(high):
        return float(high)
    target = math.log(excess)

    def miss(y: float) -> float:
        return float(base.log_delta(y)) - target

    top = 1e-12
    while miss(top) > 0:
        top *= 2
    return float(smallest_meeting(miss, top, low=top / 2, high=top, rtol=1e-6))
