"""Quantiles of integers, drawn exactly: points of a grid, the likelier the nearer their ranks are to what is asked for.

For the share a/b the distance of a point y is k(y) = abs((b - a) #{x < y} - a #{x > y}), and k* is the least one. One
person of at most M rows changes all k, and k*, by at most Delta = M max(a, b - a), and so min(k(y), k* + K). A point
has weight W = round(2^200 e^(-eps min(k(y) - k*, K) / (2 Delta))), eps slightly below eps0; K is where the exponential
reaches 2^-140, so that rounding changes the logarithm of a weight by less than 2^-60. All weights share the factor that
k* makes: the privacy loss lies in an interval of length eps0. Where many rows are equal k* is large, and with a cap of
k itself all points would be alike.
"""

from __future__ import annotations

import math
from bisect import bisect_right
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from decimal import Context, Decimal
from fractions import Fraction
from functools import lru_cache
from itertools import accumulate

import numpy as np

from wpriv.randomness import Keystream
from wpriv.releases.sampling import LEVEL, REFINEMENTS, Bits

PRECISION, CAP = 200, 140  # in bits
MARGIN = Fraction(1, 2**57)  # of eps0, more than all roundings of weights
_CONTEXT = Context(prec=90)


@dataclass(frozen=True)
class Selection:
    """One quantile of values in steps from ``least`` to ``most``, at ``share``; ``rows`` is M, of one person."""

    share: Fraction
    eps0: float
    rows: int
    least: int
    most: int

    @property
    def sensitivity(self) -> int:
        """Delta: the most by which one person changes the distance of a point."""
        a, b = self.share.numerator, self.share.denominator
        return self.rows * max(a, b - a)

    def segments(self, values: Sequence[int]) -> Iterator[tuple[int, int, int]]:
        """Yield first point, number of points and distance, for stretches of one distance that cover the grid."""
        a, b = self.share.numerator, self.share.denominator
        distinct, counts = np.unique(np.asarray(values, np.int64), return_counts=True)
        start, below, total = self.least, 0, len(values)
        for value, count in zip(distinct.tolist(), counts.tolist(), strict=True):
            if value > start:
                yield start, value - start, abs((b - a) * below - a * (total - below))
            yield value, 1, abs((b - a) * below - a * (total - below - count))
            start, below = value + 1, below + count
        if start <= self.most:
            yield start, self.most - start + 1, abs((b - a) * below - a * (total - below))

    def weights(self, distances: Sequence[int]) -> list[int]:
        """The weights of points at some distances, of which the least is that of the best point."""
        best = min(distances)
        return [_weight(Fraction(self.eps0) - MARGIN, 2 * self.sensitivity, each - best) for each in distances]

    def draw(self, values: Sequence[int], key: bytes, part: int) -> int:
        """Return the point that a part of a key's stream chooses."""
        stretches = list(self.segments(values))
        weights = self.weights([distance for _, _, distance in stretches])
        sums = list(accumulate(width * weight for (_, width, _), weight in zip(stretches, weights, strict=True)))
        u = Bits(Keystream(key, (part << 64) + REFINEMENTS)).below(sums[-1])
        place = bisect_right(sums, u)
        return stretches[place][0] + (u - (sums[place - 1] if place else 0)) // weights[place]

    def rank_error(self, level: float = LEVEL) -> float:
        """The distance, over b, within which the drawn point is of the best one with a probability of ``level``."""
        points = self.most - self.least + 1
        return 2 * self.sensitivity / self.eps0 * math.log(points / (1 - level)) / self.share.denominator


@lru_cache(maxsize=2**18)
def _weight(eps: Fraction, scale: int, excess: int) -> int:
    cap = math.ceil(CAP * math.log(2) * scale / eps)
    exponent = eps * min(excess, cap) / scale
    quotient = _CONTEXT.divide(Decimal(exponent.numerator), Decimal(exponent.denominator))
    return round(_CONTEXT.multiply(_CONTEXT.exp(-quotient), Decimal(1 << PRECISION)))
