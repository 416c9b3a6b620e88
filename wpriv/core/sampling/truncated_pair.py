"""Poisson sampling with a largest batch: a batch of more records is replaced by a random part of it."""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike
from scipy.special import betainc

from wpriv.core.loss_pair import KeyedPair, LossPair, Tails
from wpriv.core.sampling.mixture import blend, mix
from wpriv.core.sampling.poisson_pair import poisson
from wpriv.numerics.arrays import Array
from wpriv.numerics.cell_parts import CellParts

# relative error allowed to the binomial tail probabilities, above the 1e-8 that was seen for up to 2^40 records
BINOMIAL_MARGIN = 1e-6


def truncated_poisson(one: LossPair, two: LossPair, rate: float, max_batch: int, records: int) -> LossPair:
    """Return the pair of removing a record, where a batch of more than B records keeps B of them, drawn uniformly.

    It is known between two pairs: see ``TruncatedPair.sandwich``.

    Args:
        one: dominating pair of the mechanism where one record is removed.
        two: where two are, or one is replaced by another.
        rate: q in (0, 1], the probability that a record is drawn.
        max_batch: B, at least 1.
        records: N, the largest number of records that a data set may have.
    Source:
        docs/theory/groups.md, Theorem 4; compare Chua et al. (2024).
    """
    if max_batch >= records:
        return poisson(one, rate)
    # P(at least B of the N - 1 other records are drawn), and P(more than B of all N are)
    full = float(betainc(max_batch, records - max_batch, rate))
    beyond = float(betainc(max_batch + 1, records - max_batch, rate))
    lost = rate * full * (1 + BINOMIAL_MARGIN) - max_batch / records * beyond * (1 - BINOMIAL_MARGIN)
    # a drawn record is kept with a probability of at least B/N
    least = poisson(one, max(rate - lost, rate * max_batch / records * (1 - 1e-12)))
    chance = min(full * (1 + BINOMIAL_MARGIN) + 1e-300, 1.0)
    other = poisson(two, rate)
    return TruncatedPair(least, other if chance >= 1 else AlternativesPair(poisson(one, rate), other, chance))


class AlternativesPair(KeyedPair):
    """A public coin decides between two pairs: the second has the given probability."""

    def __init__(self, usual: LossPair, other: LossPair, chance: float):
        self.key = (usual, other, chance)
        self.usual, self.other, self.chance = usual, other, chance
        rest = 1 - chance
        self.mass_at_plus_infinity = rest * usual.mass_at_plus_infinity + chance * other.mass_at_plus_infinity
        self.mass_at_minus_infinity = rest * usual.mass_at_minus_infinity + chance * other.mass_at_minus_infinity
        ends = usual.support, other.support
        self.support = min(end[0] for end in ends), max(end[1] for end in ends)
        self.atoms = np.unique(np.concatenate([usual.atoms, other.atoms]))

    def tails(self, eps: Array) -> Tails:
        each = zip(self.usual.tails(eps), self.other.tails(eps), strict=True)
        return Tails(*(mix(first, second, self.chance) for first, second in each))

    def probabilities(self, eps: Array) -> Tails:
        each = zip(self.usual.probabilities(eps), self.other.probabilities(eps), strict=True)
        return Tails(*(blend(first, second, self.chance) for first, second in each))

    def cell_parts(self, low: Array, high: Array) -> CellParts | None:
        first, second = self.usual.cell_parts(low, high), self.other.cell_parts(low, high)
        if first is None or second is None:
            return None
        return first.times(1 - self.chance).plus(second.times(self.chance))

    def log_delta(self, eps: ArrayLike) -> Array:
        return mix(self.usual.log_delta(eps), self.other.log_delta(eps), self.chance)

    def reverse(self) -> LossPair:
        return AlternativesPair(self.usual.reverse(), self.other.reverse(), self.chance)


class TruncatedPair(KeyedPair):
    """A pair between a dominated and a dominating one; all but ``sandwich`` is dominating."""

    def __init__(self, least: LossPair, most: LossPair):
        self.key = (least, most)
        self.least, self.most = least, most
        self.mass_at_plus_infinity = most.mass_at_plus_infinity
        self.mass_at_minus_infinity = most.mass_at_minus_infinity
        self.support, self.atoms = most.support, most.atoms

    def sandwich(self, tol: float) -> tuple[LossPair, LossPair]:
        return self.least, self.most

    def tails(self, eps: Array) -> Tails:
        return self.most.tails(eps)

    def probabilities(self, eps: Array) -> Tails:
        return self.most.probabilities(eps)

    def cell_parts(self, low: Array, high: Array) -> CellParts | None:
        return self.most.cell_parts(low, high)

    def log_delta(self, eps: ArrayLike) -> Array:
        return self.most.log_delta(eps)

    def reverse(self) -> LossPair:
        return TruncatedPair(self.least.reverse(), self.most.reverse())
