"""Noisy counts of unknown keys above a threshold: the worst pair over how many keys a person alone holds.

docs/theory/thresholds.md has the proofs.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import lru_cache
from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike

from wpriv.core.guarantee import epsilon_at
from wpriv.core.loss_pair import KeyedPair, LossPair, ReversedOfBoth, Tails, gaussian_mu, reversed_log_delta
from wpriv.numerics.arrays import Array
from wpriv.numerics.bracket import positive_exp
from wpriv.numerics.log_space import log1mexp

# ln of the least probability of releasing a key that is accounted for; rarer ones are raised to it
LEAST_LOG = -680.0
# below this ln of a probability p, n p stands for 1 - (1 - p)^n
RARE_LOG = -40.0
# the delta for which a lower end is chosen where none is named
USUAL_DELTA = 1e-6
# no loss is searched beyond this
FARTHEST = 1e200
# rounding of ln delta of a part, relative to 1 + |ln delta|
ROUNDING = 1e-13
# losses between which two parts are compared first, and the shares of an interval that divide it further
LADDER, SECTIONS = np.geomspace(1e-12, FARTHEST, 300), np.linspace(0, 1, 66)[1:-1]
# those of a part: in standard deviations of a Gaussian loss, and shares of a bounded one's range
DEVIATIONS, SHARES = np.linspace(-40, 40, 161), np.linspace(0, 1, 161)


GROUPED = (
    "whose keys may be the same or different. Take the person for the record: `keys=...` is the number of keys of a "
    "person, and `sensitivity` the largest contribution to one of them"
)


class Part(NamedTuple):
    """A pair of the known keys, of which P keeps the share e^log_keep and moves the rest to loss +inf.

    Attributes:
        base: the symmetric pair of the known keys, or None where no key is known.
        log_keep, log_leak: ln of the probability that no unknown key is released, and of its complement.
    """

    base: LossPair | None
    log_keep: float
    log_leak: float

    def log_delta(self, eps: Array) -> Array:
        """ln H_{e^eps}(P||Q), right to rounding for eps >= 0."""
        return np.asarray(np.logaddexp(self.log_leak, self.log_keep + self._of_base(eps - self.log_keep)))

    def reversed_log_delta(self, eps: Array) -> Array:
        """ln H_{e^eps}(Q||P), right to rounding for eps >= 0."""
        return self._of_base(eps + self.log_keep)

    def _of_base(self, eps: Array) -> Array:
        return log1mexp(np.minimum(eps, 0.0)) if self.base is None else self.base.log_delta(eps)

    def tails(self, eps: Array) -> Tails:
        """ln of the four tail probabilities."""
        x = eps - self.log_keep
        if self.base is None:
            above = np.where(x < 0, 0.0, -np.inf)
            below = np.where(x < 0, -np.inf, 0.0)
            base = Tails(above, below, above, below)
        else:
            base = self.base.tails(x)
        above = np.logaddexp(self.log_leak, self.log_keep + base.sf_p)
        return Tails(np.minimum(above, 0.0), self.log_keep + base.cdf_p, base.sf_q, base.cdf_q)


def part(base: LossPair | None, keys: int, log_release: float) -> Part:
    """The part with so many unknown keys, each released with probability e^log_release."""
    if not keys:
        return Part(base, 0.0, -math.inf)
    log_release = max(log_release, LEAST_LOG)
    if log_release < RARE_LOG:
        return Part(base, -keys * math.exp(log_release), math.log(keys) + log_release)
    log_keep = keys * float(log1mexp(np.asarray(log_release)))
    return Part(base, log_keep, float(log1mexp(np.asarray(log_keep))))


class ThresholdSupremum(KeyedPair):
    """The pair whose profile is the largest of those of some parts.

    Args:
        key: what determines the parts, and equals that of another pair only where the parts are the same.
        parts: in an order in which each pair of parts crosses once: the earlier is larger at small eps and the later
            one at large eps.
    """

    def __init__(self, key: tuple[object, ...], parts: Sequence[Part]):
        self.key = key
        self._active, self._starts = _envelope(tuple(parts))
        last = self._active[-1]
        self.mass_at_plus_infinity = positive_exp(last.log_leak)
        lower, upper = (_support(self._active[end])[end] for end in (0, -1))
        self.support = (lower, max(upper, self._starts[-1]))
        self.atoms = self._atoms()

    def _atoms(self) -> Array:
        """The losses of positive probability: those of each part where it is active, and where parts change."""
        ends = [*self._starts[1:], math.inf]
        atoms = [np.array(self._starts[1:])]
        for active, start, end in zip(self._active, self._starts, ends, strict=True):
            points = np.zeros(1) if active.base is None else active.base.atoms
            shifted = points + active.log_keep
            atoms.append(shifted[(start <= shifted) & (shifted <= end)])
        return np.unique(np.concatenate(atoms))

    def tails(self, eps: Array) -> Tails:
        y = np.asarray(eps, dtype=float)
        result = np.zeros((4, *y.shape))
        for chosen, active in self._by_part(y):
            result[:, chosen] = active.tails(y[chosen])
        return Tails(*result)

    def log_delta(self, eps: ArrayLike) -> Array:
        y = np.asarray(eps, dtype=float)
        result = np.zeros(y.shape)
        for chosen, active in self._by_part(y):
            x = y[chosen]
            negative = np.minimum(x, 0.0)
            below = reversed_log_delta(negative, active.reversed_log_delta(-negative))
            result[chosen] = np.where(x < 0, below, active.log_delta(np.maximum(x, 0.0)))
        return result

    def reversed_log_delta_at(self, eps: Array) -> Array:
        """ln H_{e^eps}(Q||P) for eps >= 0, right to rounding."""
        result = np.zeros(eps.shape)
        for chosen, active in self._by_part(-eps):
            result[chosen] = active.reversed_log_delta(eps[chosen])
        return result

    def reverse(self) -> LossPair:
        return ReversedOfBoth(self)

    def _by_part(self, eps: Array) -> list[tuple[Array, Part]]:
        """Masks of the shape of eps with the part that is the largest there."""
        place = np.searchsorted(self._starts, eps, side="right") - 1
        return [(place == index, self._active[index]) for index in np.unique(place)]


class ThresholdPair(ThresholdSupremum):
    """All numbers of unknown keys: the supremum of parts that dominate them, and one number of them from below.

    In compositions the number that is worst may differ between releases and eps, so that they are bracketed.

    Args:
        attained: parts that are the pairs of some neighbours. If they are ``parts`` itself, the profile of one release
            is exact, since each of its points is attained.
        delta: the delta of one release at which the lower end is that of the worst attained part.
    """

    def __init__(
        self, key: tuple[object, ...], parts: Sequence[Part], attained: Sequence[Part], delta: float = USUAL_DELTA
    ):
        super().__init__((*key, delta), parts)
        self.exact_alone = attained is parts
        self._parts, self._attained, self._delta, self._plain_key = parts, attained, delta, key

    def sandwich(self, tol: float) -> tuple[LossPair, LossPair]:
        index = int(np.argmax([_eps_at(one, self._delta) for one in self._attained]))
        lower = ThresholdSupremum((*self._plain_key, "one", index), [self._attained[index]])
        return lower, ThresholdSupremum((*self._plain_key, "all"), self._parts)

    def for_delta(self, delta: float) -> ThresholdPair:
        depth = 10.0 ** math.floor(math.log10(max(delta, 1e-290)))
        if depth == self._delta:
            return self
        return ThresholdPair(self._plain_key, self._parts, self._attained, depth)


def _eps_at(one: Part, delta: float) -> float:
    """About the least eps >= 0 at which a part has at most this delta; infinite if there is none."""
    if one.log_leak > math.log(delta):
        return math.inf
    return epsilon_at(lambda eps: float(one.log_delta(np.asarray(eps))), delta, high=FARTHEST)


def _support(active: Part) -> tuple[float, float]:
    """The interval of the finite losses of a part."""
    low, high = (0.0, 0.0) if active.base is None else active.base.support
    return low + active.log_keep, high + active.log_keep


@lru_cache(maxsize=32)
def _envelope(parts: tuple[Part, ...]) -> tuple[list[Part], list[float]]:
    """The parts that are the largest somewhere, in the order of eps, and where each one begins to be."""
    active, starts = [parts[0]], [-math.inf]
    for later in parts[1:]:
        start = _crossing(active[-1], later)
        while start <= starts[-1] and len(active) > 1:
            active.pop(), starts.pop()
            start = _crossing(active[-1], later)
        if start == -math.inf:
            active, starts = [later], [start]
        elif start < math.inf:
            active.append(later)
            starts.append(start)
    return active, starts


def _crossing(earlier: Part, later: Part) -> float:
    """The least eps, up to rounding, from which on the later part has the larger delta."""
    ladder = np.unique(np.concatenate([-LADDER, [0.0], LADDER, _losses(earlier), _losses(later)]))
    order = _order(earlier, later, ladder)
    if not np.any(order < 0):
        return math.inf
    if not np.any(order > 0):
        return -math.inf
    # the order is that of the earlier part, then of the later one; far out both may be 0, or their difference
    first = int(np.flatnonzero(order > 0)[-1])
    last = first + int(np.flatnonzero(order[first:] < 0)[0]) if np.any(order[first:] < 0) else 0
    if not last:
        return math.inf
    low, high = float(ladder[first]), float(ladder[last])
    while True:
        points = low + (high - low) * SECTIONS
        points = points[(low < points) & (points < high)]
        if not points.size:
            return high
        # between two clear orders, the later part begins as soon as it is larger at all
        count = int(np.count_nonzero(_order(earlier, later, points, 0.0) >= 0))
        ends = np.concatenate([[low], points, [high]])
        low, high = float(ends[count]), float(ends[count + 1])


def _losses(one: Part) -> Array:
    """Losses of a part, as dense as its tails vary."""
    mu = None if one.base is None else gaussian_mu(one.base)
    if mu is None:
        low, high = _support(one)
        return low + (high - low) * SHARES
    return one.log_keep + np.concatenate([mu * DEVIATIONS - mu * mu / 2, mu * DEVIATIONS + mu * mu / 2])


def _order(one: Part, other: Part, eps: Array, rounding: float = ROUNDING) -> Array:
    """The sign of the difference of the deltas of two parts at each eps; 0 where it is within their rounding."""
    negative, positive = np.minimum(eps, 0.0), np.maximum(eps, 0.0)
    first, second = (
        np.where(eps < 0, part.reversed_log_delta(-negative), part.log_delta(positive)) for part in (one, other)
    )
    with np.errstate(invalid="ignore"):
        difference = np.nan_to_num(first - second, nan=0.0)
    least = rounding * (1 + np.minimum(np.abs(first), np.abs(second)))
    return np.asarray(np.where(np.abs(difference) > least, np.sign(difference), 0.0))
