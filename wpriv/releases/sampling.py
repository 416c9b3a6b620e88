"""Exact draws of discrete Gaussian and discrete Laplace noise from the cryptographic stream, and their exact figures.

P(k) is proportional to exp(-k^2 / (2 sigma^2)) or to exp(-|k| / b), for the exact rational value of the double that the
accountant got. Up to ``TABLE`` a draw inverts a table of cumulative probabilities times 2^64: the 64-bit word u names
the least k with u < 2^64 F(k). A word that equals the whole part of an entry is undecided, and takes further words
until it is not. Beyond, draws are by rejection (Canonne, Kamath, Steinke 2020, Algorithms 1 to 3) in whole numbers.

The table is exact. Weights are whole multiples of 2^-p, each rounded down; ``_Weights`` bounds the sum of what rounding
and the cut tail leave out, and p is raised until both ends of every entry have one whole part.
"""

from __future__ import annotations

import math
from bisect import bisect_right
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from decimal import Context, Decimal
from fractions import Fraction
from functools import lru_cache
from itertools import accumulate

import numpy as np
from numpy.typing import NDArray

from wpriv.numerics.arrays import Array
from wpriv.randomness import Keystream, Words, words

GAUSS, LAPLACE = "gauss", "laplace"
TABLE = 10_000.0  # the largest sigma or b that is drawn from a table
WORD = 64
REFINEMENTS = 2**63  # value of the counter within a part of the stream where its further words begin
LEVEL = 0.95
PRECISION, CAP = 200, 140  # in bits, of the weights of points
MARGIN = Fraction(1, 2**57)  # of eps0, more than all roundings of weights
_CONTEXT = Context(prec=90)
SUMMED = 2000.0  # the largest sigma whose probabilities are added up one by one

Noises = NDArray[np.int64]


@dataclass(frozen=True)
class Noise:
    """Integer noise: ``gauss`` with sigma, or ``laplace`` with scale b, both above 0 and in steps of the grid.

    >>> Noise("laplace", 1.0).half_width(), round(Noise("gauss", 1.0).variance(), 7)
    (3, 0.9999998)
    """

    family: str
    spread: float

    def draw(self, key: bytes, part: int, count: int) -> list[int]:
        """Return ``count`` independent draws from one part of a key's stream, 0 to 2^64 - 1."""
        stream = Keystream(key, (part << 64) + REFINEMENTS)
        if self.spread > TABLE:
            bits = Bits(stream)
            one = _gauss if self.family == GAUSS else _laplace
            exact = Fraction(self.spread)
            return [one(exact, bits) for _ in range(count)]
        draws = self.of_words(words(key, part, count), lambda: stream.read(WORD // 8))
        return [int(draw) for draw in draws]

    def of_words(self, bits: Words, more: Callable[[], bytes]) -> Noises:
        """Return the draws that [n] 64-bit words name; ``more`` returns the next 8 bytes for undecided ones."""
        entries, first = _entries(self.family, self.spread)
        place = np.searchsorted(entries, bits, side="right")
        undecided = np.flatnonzero((place > 0) & (entries[np.maximum(place, 1) - 1] == bits))
        draws = place.astype(np.int64) + first
        for index in undecided.tolist():
            draws[index] = self._refined(int(bits[index]), more)
        return draws

    def _refined(self, u: int, more: Callable[[], bytes]) -> int:
        """Return the draw that a word and as many further ones as it needs name."""
        digits = WORD
        while True:
            u, digits = u << WORD | int.from_bytes(more(), "little"), digits + WORD
            entries, first = _thresholds(self.family, self.spread, digits)
            place = bisect_right(entries, u)
            if place < len(entries) and (place == 0 or entries[place - 1] < u):
                return place + first

    def variance(self) -> float:
        """The variance, in steps squared: slightly below sigma^2, or 2 r / (1 - r)^2 with r = e^(-1/b)."""
        return _variance(self)

    def half_width(self, level: float = LEVEL) -> int:
        """The least h with P(|Z| <= h) >= level."""
        return _half_width(self, level)

    def tail(self, k: int) -> float:
        """P(Z >= k) for k >= 1, rounded up by a part in 10^9."""
        if self.family == LAPLACE:
            r = math.exp(-1 / self.spread)
            return min(1.0, math.exp(-k / self.spread) / (1 + r) * (1 + 1e-9))
        if self.spread <= SUMMED:
            reach = np.arange(k, k + math.ceil(40 * self.spread) + 2, dtype=float)
            mass = np.exp(-((reach / self.spread) ** 2) / 2).sum() / _total(self.spread)
        else:
            from scipy.special import ndtr

            mass = ndtr(-(k - 0.5) / self.spread) * (1 + 1 / self.spread)
        return min(1.0, float(mass) * (1 + 1e-9) + 1e-300)


# Figures of a noise, which are asked for with every number that has it.


@lru_cache(maxsize=16)
def _variance(noise: Noise) -> float:
    if noise.family == LAPLACE:
        return 2 * math.exp(-1 / noise.spread) / math.expm1(-1 / noise.spread) ** 2
    if noise.spread > 50:  # the difference from sigma^2 is below e^(-2 pi^2 sigma^2)
        return noise.spread**2
    k, p = _probabilities(noise.spread)
    return float(2 * (k**2 * p).sum())


@lru_cache(maxsize=16)
def _half_width(noise: Noise, level: float) -> int:
    if noise.family == LAPLACE:
        r = math.exp(-1 / noise.spread)
        return max(0, math.ceil(-noise.spread * math.log((1 - level) * (1 + r) / 2) - 1 - 1e-12))
    if noise.spread > SUMMED:  # by the integral from -h - 1/2 to h + 1/2, which differs by less than 1 / sigma^2
        from scipy.special import ndtri

        return math.ceil(float(ndtri((1 + level) / 2)) * noise.spread - 0.5)
    k, p = _probabilities(noise.spread)
    inside = 1 - 2 * (p[::-1].cumsum()[::-1] - p)  # P(|Z| <= k)
    return int(k[int(np.argmax(inside >= level))])


def _total(spread: float) -> float:
    reach = np.arange(1, math.ceil(40 * spread) + 2, dtype=float)
    return float(1 + 2 * np.exp(-((reach / spread) ** 2) / 2).sum())


def _probabilities(spread: float) -> tuple[Array, Array]:
    """k = 0, 1, ... as far as doubles reach, and P(Z = k) of Gaussian noise."""
    k = np.arange(math.ceil(40 * spread) + 2, dtype=float)
    return k, np.exp(-((k / spread) ** 2) / 2) / _total(spread)


# The table: whole parts of F(k) 2^digits.


@dataclass(frozen=True)
class _Weights:
    """Weights of k = 0, 1, ..., K as multiples of 2^-p, none above the true one; all errors and the tail add up to at
    most ``missing``."""

    weights: list[int]
    missing: int


def _weights(family: str, spread: float, p: int, digits: int) -> _Weights:
    """Multiply up the weights until the tail is below 2^-digits of the weight of 0, or below the resolution.

    w(k+1) = w(k) a(k), with a(k) = r for Laplace noise, r = e^(-1/b), and a(k+1) = a(k) q^2, a(0) = q for Gaussian
    noise, q = e^(-1/(2 sigma^2)). Each product is rounded down. In units of 2^-p the error of q is at most 2 and that
    of q^2 at most 5; so that of a(k) is at most 6 k + 2, that of w(k) at most (3 k + 3) k, and the sum of those of all
    weights at most 4 (K + 2)^3. Beyond K the weights fall at least as fast as a(K)^j.
    """
    exact = Fraction(spread)
    exponent = 1 / (2 * exact**2) if family == GAUSS else 1 / exact
    one = 1 << p
    a = _exponential(exponent, p)
    square = a * a >> p if family == GAUSS else one
    weights, least = [one], one >> digits
    w = a
    while w > least or len(weights) == 1:
        weights.append(w)
        a = a * square >> p
        w = w * a >> p
    k = len(weights)
    error = 6 * k + 2
    tail = (w + (3 * k + 3) * k) * one // max(one - a - error, 1) + 1
    return _Weights(weights, 4 * (k + 2) ** 3 + tail)


def _exponential(x: Fraction, p: int) -> int:
    """Return e^-x times 2^p, rounded down, at most 2 too small."""
    context = Context(prec=int(p / 3.3) + 25)
    quotient = context.divide(Decimal(x.numerator), Decimal(x.denominator))
    if quotient > p:  # e^-x < 2^-p
        return 0
    value = context.multiply(context.exp(-quotient), Decimal(1 << p))
    return max(int(value) - 1, 0)


@lru_cache(maxsize=16)
def _thresholds(family: str, spread: float, digits: int) -> tuple[list[int], int]:
    """Return the whole parts of F(k) 2^digits, k rising from the second value, which is returned as well."""
    for extra in (96, 224, 480, 992):
        p = digits + 2 * extra
        table = _weights(family, spread, p, digits + extra)
        half = table.weights[1:]
        total = table.weights[0] + 2 * sum(half)
        over = 2 * table.missing
        below = list(accumulate(half[::-1]))  # sum of the weights up to -K, ..., up to -1
        sums = [*below, *(total - sum_ for sum_ in below[::-1]), total]
        # what is missing at most: of the whole, and to the left of a value
        low = [(sum_ << digits) // (total + over) for sum_ in sums[:-1]]
        high = [min(((sum_ + over) << digits) // total, (1 << digits) - 1) for sum_ in sums[:-1]]
        if low == high:
            return low, -len(half)
    raise ArithmeticError("the probabilities of the noise need more digits than any double has")


@lru_cache(maxsize=16)
def _entries(family: str, spread: float) -> tuple[Words, int]:
    entries, first = _thresholds(family, spread, WORD)
    return np.array([*entries, (1 << WORD) - 1], np.uint64), first


# Rejection in whole numbers, for noise too wide for a table.


class Bits:
    """Uniform whole numbers from a stream of bytes."""

    def __init__(self, stream: Keystream):
        self._stream = stream

    def below(self, n: int) -> int:
        """A uniform whole number from 0 to n - 1."""
        size = (n - 1).bit_length()
        count = -(-size // 8)
        while True:
            u = int.from_bytes(self._stream.read(count), "little") >> (8 * count - size)
            if u < n:
                return u

    def exp(self, x: Fraction) -> bool:
        """True with probability e^-x, x >= 0."""
        while x > 1:
            if not self._small(Fraction(1)):
                return False
            x -= 1
        return self._small(x)

    def _small(self, x: Fraction) -> bool:
        k = 1
        while self.below(x.denominator * k) < x.numerator:
            k += 1
        return k % 2 == 1


def _laplace(b: Fraction, bits: Bits) -> int:
    """Draw k with probability proportional to e^(-|k|/b)."""
    while True:
        u = bits.below(b.numerator)
        if not bits.exp(Fraction(u, b.numerator)):
            continue
        v = 0
        while bits.exp(Fraction(1)):
            v += 1
        size = (u + b.numerator * v) // b.denominator
        is_negative = bits.below(2) == 1
        if not (is_negative and size == 0):
            return -size if is_negative else size


def _gauss(sigma: Fraction, bits: Bits) -> int:
    """Draw k with probability proportional to e^(-k^2/(2 sigma^2)), from Laplace noise of nearly the same width."""
    t = math.floor(sigma) + 1
    while True:
        k = _laplace(Fraction(t), bits)
        if bits.exp((abs(k) - sigma**2 / t) ** 2 / (2 * sigma**2)):
            return k


# Quantiles of integers, drawn exactly: points of a grid, the likelier the nearer their ranks are to what is asked for.
#
# For the share a/b the distance of a point y is k(y) = abs((b - a) #{x < y} - a #{x > y}), and k* is the least one. One
# person of at most M rows changes all k, and k*, by at most Delta = M max(a, b - a), and so min(k(y), k* + K). A point
# has weight W = round(2^200 e^(-eps min(k(y) - k*, K) / (2 Delta))), eps slightly below eps0; K is where the
# exponential reaches 2^-140, so that rounding changes the logarithm of a weight by less than 2^-60. All weights share
# the factor that k* makes: the privacy loss lies in an interval of length eps0. Where many rows are equal k* is large,
# and with a cap of k itself all points would be alike.


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
