"""The pair of random allocation: every record takes part in one uniformly random step of each pass.

The density ratio of a pass of t steps is the mean of t independent ratios of one step (docs/theory/allocation.md). Its
distribution is not known in closed form, but lies between two discrete ones that are as close as one asks.
"""

from __future__ import annotations

import math
from functools import lru_cache
from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike

from wpriv.core.atomic_pair import AtomicPair
from wpriv.core.loss_pair import KeyedPair, LossPair, Tails
from wpriv.core.sampling.pass_ratio import pass_ratio
from wpriv.core.sampling.poisson_pair import poisson
from wpriv.numerics.arrays import Array
from wpriv.numerics.binomial import log_binomial
from wpriv.numerics.geometric_sums import UNDERFLOW_MASS, Cells

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
    Source:
        Feldman, Shenfeld (2025); the proof is in docs/theory/allocation.md.
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
        ends = _ends(self.base, self.steps, accuracy, self.depth)
        return ends.remove if self.forward else ends.add

    def for_delta(self, delta: float) -> LossPair:
        """Return the same pair with a ``sandwich`` that resolves a delta of one pass as small as this."""
        powers = math.ceil(math.log(max(delta, LEAST_DEPTH)) / math.log(DEPTH_FACTOR))
        return AllocatedPair(self.base, self.steps, self.forward, min(DEPTH_FACTOR**powers, USUAL_DEPTH))

    def reverse(self) -> LossPair:
        return AllocatedPair(self.base, self.steps, not self.forward, self.depth)

    def tails(self, eps: Array) -> Tails:
        """Compute ln of the four tail probabilities of a dominating pair, as ``LossPair.tails``."""
        return self.sandwich(USUAL_TOL)[1].tails(eps)

    def log_delta(self, eps: ArrayLike) -> Array:
        """Compute ln of the profile of a dominating pair: an upper bound of delta at eps."""
        return self.sandwich(USUAL_TOL)[1].log_delta(eps)


class _Ends(NamedTuple):
    """The dominated and the dominating pair of a pass, for removing and for adding a record."""

    remove: tuple[LossPair, LossPair]
    add: tuple[LossPair, LossPair]


@lru_cache(maxsize=16)
def _ends(base: LossPair, steps: int, tol: float, depth: float) -> _Ends:
    ratio = pass_ratio(base, steps, tol, depth)
    if ratio is None or max(ratio.above.mass_error, ratio.below.mass_error) > MAX_MASS_ERROR:
        # a single step is post-processing of the pass, and one release without sampling dominates it
        one_step = poisson(base, 1 / steps)
        return _Ends((one_step, base), (one_step.reverse(), base.reverse()))
    above, below = _Outcomes.of(ratio.above, steps), ratio.below
    dominated = _dominated(_Outcomes.of(below, steps), below.mass_error, below.value_error)
    rounding = ratio.above.mass_error + ratio.above.value_error
    growth = 1 + FIRST_ORDER_MARGIN * rounding + SUM_ROUNDING * above.losses.size
    shift = FIRST_ORDER_MARGIN * ratio.above.value_error
    lost = growth * ratio.above.lost / steps
    at_zero = growth * ratio.above.at_zero + UNDERFLOW_MASS
    remove = _dominating(above.losses + shift, growth * above.p, lost)
    add = _dominating(shift - above.losses[::-1], growth * above.q[::-1], at_zero)
    return _Ends((dominated, remove), (dominated.reverse(), add))


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
    """A pair that dominates, from upper bounds of the masses at increasing losses and of that at infinity.

    The masses that exceed one in all are taken from the lowest losses.
    """
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
