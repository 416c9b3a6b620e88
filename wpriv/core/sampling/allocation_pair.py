"""The pair of random allocation: every record takes part in one uniformly random step of each pass.

The density ratio of a pass of t steps is the mean of t independent ratios of one step (docs/theory/allocation.md). Its
distribution is not known in closed form, but lies between two discrete ones that are as close as one asks.
"""

from __future__ import annotations

import math
from functools import lru_cache

import numpy as np
from numpy.typing import ArrayLike

from wpriv.core.atomic_pair import AtomicPair
from wpriv.core.loss_pair import KeyedPair, LossPair, Tails
from wpriv.numerics.arrays import Array
from wpriv.numerics.ratio_lattice import RatioCells, contracted_masses, spread_masses
from wpriv.numerics.root_finding import smallest_meeting
from wpriv.numerics.sum_of_ratios import SumMasses, sum_masses

# relative width of the sandwich where a single dominating pair is needed, and the finest one
USUAL, FINEST = 1e-4, 1e-8
# masses at infinity that a pass may add, the smaller first, and nodes of one step's ratio
CUT_MASSES, MAX_NODES = (1e-13, 1e-12, 1e-11, 1e-10), 1 << 20
# square of the spacing per tolerance and variance of the ratio
SPACING = 4.0
# bound on the relative perturbation of a ratio that explains the rounding of tails and nodes, in unit roundoffs
RATIO_ROUNDINGS, UNIT_ROUNDOFF = 64, 2.0**-53
# share of the mass at infinity by which it may grow to leave out the rarest losses
RARE_SHARE = 1e-3


def allocated(base: LossPair, steps: int) -> LossPair:
    """Return the pair of one pass in which a record takes part in one of ``steps`` steps, drawn uniformly.

    The pair is that of removing a record; its ``reverse()`` is the pair of adding one.

    Args:
        base: dominating pair (P, Q) of one step under add-remove, without mass at an infinite loss.
        steps: number t of the steps of a pass.
    Source:
        Feldman, Shenfeld (2025); the proof is in docs/theory/allocation.md.
    """
    return base if steps == 1 else AllocatedPair(base, steps)


class AllocatedPair(KeyedPair):
    """The mean over i of (P in step i, Q in all others) against Q in all steps; all but ``sandwich`` is dominating."""

    def __init__(self, base: LossPair, steps: int, forward: bool = True):
        self.base, self.steps, self.forward = base, steps, forward
        self.key = (base, steps, forward)
        low, high = base.support
        # the ratio is the mean of t ratios of steps: no more than the largest of them, and no less than the least
        self.support = (low, high) if forward else (-high, -low)

    def sandwich(self, tol: float) -> tuple[LossPair, LossPair]:
        # rounded down to a power of two, so that nearly equal tolerances share their distributions
        accuracy = 2.0 ** math.floor(math.log2(min(max(tol, FINEST), 1e-2)))
        return _bracket(self.base, self.steps, accuracy)[0 if self.forward else 1]

    def reverse(self) -> LossPair:
        return AllocatedPair(self.base, self.steps, not self.forward)

    def tails(self, eps: Array) -> Tails:
        return self.sandwich(USUAL)[1].tails(eps)

    def log_delta(self, eps: ArrayLike) -> Array:
        return self.sandwich(USUAL)[1].log_delta(eps)


@lru_cache(maxsize=16)
def _bracket(base: LossPair, steps: int, tol: float) -> tuple[tuple[LossPair, LossPair], tuple[LossPair, LossPair]]:
    """The dominated and the dominating pair of a pass, for removing and for adding a record."""
    cells = _cells(base, tol)
    shift = RATIO_ROUNDINGS * UNIT_ROUNDOFF * (1 + math.log1p(cells.step * cells.q.shape[1]))
    contracted = contracted_masses(cells)
    lower = None if contracted is None else sum_masses(contracted, steps)
    upper = sum_masses(spread_masses(cells), steps)
    cut = cells.excess * (1 + 1e-9) + math.exp(upper.log_above) * cells.step / steps
    losses, high_p, high_q = _losses(upper, upper.high, cells.step / steps)
    beyond = float(upper.high[0]) if upper.first == 0 else 0.0
    missing = math.exp(upper.log_below) + beyond
    dominating = _raised(losses + shift, high_p, cut), _raised(shift - losses[::-1], high_q[::-1], missing)
    if lower is None:
        nothing = AtomicPair(np.zeros(1), np.zeros(1), symmetric=True)
        return (nothing, dominating[0]), (nothing, dominating[1])
    losses, low_p, low_q = _losses(lower, lower.low, cells.step / steps)
    dominated = _merged(losses - shift, low_p), _merged(-losses[::-1] - shift, low_q[::-1])
    return (dominated[0], dominating[0]), (dominated[1], dominating[1])


def _cells(base: LossPair, tol: float) -> RatioCells:
    """The masses of the ratio of one step, on a lattice that is as fine as the tolerance asks."""
    step, nodes = 0.0, 0
    for cut in CUT_MASSES:
        top = _loss_with_excess(base, cut)
        ratios = np.exp(np.linspace(-top, top, 4001)) if top < 300 else np.exp(np.linspace(-300.0, 300.0, 4001))
        spread = _deviation(base, ratios)
        step = math.sqrt(SPACING * tol) * spread
        # a node at the ratio one
        step = 1 / math.ceil(1 / step)
        nodes = math.ceil(math.exp(min(top, 300.0)) / step)
        if nodes <= MAX_NODES:
            break
    if nodes > MAX_NODES:
        step = 1 / max(1, math.floor(MAX_NODES / math.exp(min(top, 300.0))))
        nodes = math.ceil(math.exp(min(top, 300.0)) / step)
    ends = step * np.arange(2 * nodes + 1) / 2
    with np.errstate(divide="ignore"):
        tails = base.probabilities(np.log(ends))
    q = np.maximum(np.where(tails.sf_q[:-1] < tails.cdf_q[1:], -np.diff(tails.sf_q), np.diff(tails.cdf_q)), 0.0)
    p = np.maximum(np.where(tails.sf_p[:-1] < tails.cdf_p[1:], -np.diff(tails.sf_p), np.diff(tails.cdf_p)), 0.0)
    p = np.clip(p, ends[:-1] * q, ends[1:] * q)
    excess = math.exp(float(base.log_delta(math.log(float(ends[-1])))))
    return RatioCells(step, q.reshape(-1, 2).T, p.reshape(-1, 2).T, float(tails.sf_q[-1]), excess, 0.0)


def _deviation(base: LossPair, ratios: Array) -> float:
    """About the standard deviation of the ratio of one step, where its losses lie between those given."""
    tails = base.probabilities(np.log(ratios))
    q = np.maximum(np.where(tails.sf_q[:-1] < tails.cdf_q[1:], -np.diff(tails.sf_q), np.diff(tails.cdf_q)), 0.0)
    middle = (ratios[:-1] + ratios[1:]) / 2
    return math.sqrt(float(q @ (middle - 1) ** 2))


def _loss_with_excess(base: LossPair, excess: float) -> float:
    """The loss y at which the profile is ``excess``, at most the largest loss."""
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


def _losses(masses: SumMasses, bounds: Array, unit: float) -> tuple[Array, Array, Array]:
    """Losses of all ratios above zero, with the masses under both distributions."""
    place = np.arange(masses.first, masses.first + bounds.size)
    at = place > 0
    ratios = place[at] * unit
    return np.log(ratios), bounds[at] * ratios, bounds[at]


def _raised(losses: Array, high: Array, infinity: float) -> AtomicPair:
    """A pair that dominates, from upper bounds of the masses: the masses that are too much are taken from below."""
    above = np.append(np.cumsum(high[::-1])[::-1], 0.0)
    rare = int(np.searchsorted(-above, -RARE_SHARE * infinity))
    infinity = min(infinity + float(above[min(rare, above.size - 1)]), 1.0)
    above = np.minimum(np.append(np.cumsum(high[:rare][::-1])[::-1], 0.0) + infinity, 1.0)
    mass = -np.diff(above)
    if above[0] < 1 and mass.size:
        mass[0] += 1 - above[0]
    kept = mass > 0
    losses, mass = losses[:rare][kept], mass[kept]
    rest = max(1 - float(mass @ np.exp(-losses)), 0.0)
    return AtomicPair(losses, np.log(mass), mass_at_plus_infinity=infinity, mass_at_minus_infinity=rest)


def _merged(losses: Array, low: Array) -> AtomicPair:
    """A pair that is dominated, from lower bounds of the masses: all that is missing becomes one outcome."""
    kept = low > 0
    losses, mass = losses[kept], low[kept]
    missing_p = 1 - math.fsum(mass) - 1e-15
    missing_q = 1 - math.fsum(mass * np.exp(-losses)) + 1e-15
    if missing_p > 0 and missing_q > 0:
        losses, mass = np.append(losses, math.log(missing_p / missing_q)), np.append(mass, missing_p)
    return AtomicPair(losses, np.log(mass))
