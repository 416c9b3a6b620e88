"""Privacy buckets: losses rounded to the powers of a factor, from above and from below, in a fixed number of buckets.

The numerical bounds of Meiser and Mohammadi (2018), with which the plots of Sommer et al. (2019) compare, without the
error terms that they keep for each bucket. Rounding moves the sum of n losses by up to n buckets, so that both ends
drift apart as n grows. It must not be confused with ``pld``, whose lattice keeps the mean of the likelihood ratio and
follows the question.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import reduce

import numpy as np

from wpriv.accounting.pld import constants
from wpriv.accounting.pld.lattice import energy, fast_length, integer_power
from wpriv.accounting.pld.saddle_point import merged_counts
from wpriv.core.guarantee import Curve, epsilon_at
from wpriv.core.loss_pair import LOSS_ROUNDING, LossPair
from wpriv.core.process import Process, WeightedPairs, require_exact_plds
from wpriv.errors import UsageError
from wpriv.numerics.arrays import Array, mass_between
from wpriv.numerics.bracket import Bracket, exp_or_inf
from wpriv.numerics.root_finding import smallest_meeting

NOTION = "approximate-dp"
CLAIM = "certified"
SOURCE = "Meiser, Mohammadi 2018 (privacy buckets, without error terms); Sommer, Meiser, Mohammadi 2019, Theorem 1"
EXPLAIN = """\
Bucket i holds the losses from (i-1) ln f to i ln f, for i from -number/2 to number/2; larger ones count as infinite.
Upper end: every loss as large as its bucket allows; lower end: as small. Sums of 8 losses by Fourier transforms, again
and again; where they outgrow the buckets, two become one (f is squared). Rounding is inside both ends: 3e-13 n and more
of delta, below which no delta is reached. factor=0 takes the least f whose buckets hold the losses of each step."""
MAX_NUMBER, UNIT = 2**20, constants.UNIT_ROUNDOFF
# losses beyond the buckets, relative to one release, where the factor is chosen; and mass by which sums outgrow them
NEGLIGIBLE = 1e-15
# losses that are added by one transform
RADIX = 8


@dataclass(frozen=True)
class Buckets:
    """The P-masses of losses in buckets, rounded up or down.

    Args:
        width: ln of the factor. mass: [2 h + 1] mass at the losses -h width, ..., h width.
        infinity: mass at an infinite loss. error: bound on what rounding moves the mean of any rising weight in [0, 1].
    """

    width: float
    mass: Array
    infinity: float
    error: float
    upward: bool

    def delta(self, eps: float) -> float:
        """delta at eps of these losses, without the bound of the rounding."""
        losses = (np.arange(self.mass.size) - self.mass.size // 2) * self.width
        # a negative mass is rounding: without it the upper end falls with eps
        mass = np.maximum(self.mass, 0.0) if self.upward else self.mass
        return float(mass @ -np.expm1(np.minimum(eps - losses, 0.0))) + self.infinity

    def end(self, eps: float) -> float:
        """delta at eps with the rounding added, or subtracted."""
        rounding, known = self.error + UNIT * (self.mass.size * self.width + 100), self.infinity * (1 - 1e-12)
        return min(self.delta(eps) + rounding, 1.0) if self.upward else max(self.delta(eps) - rounding, known)

    def merged(self) -> Buckets:
        """The same losses with the factor squared; the outer half of the buckets is then empty."""
        half = self.mass.size // 2
        places = half + (np.arange(-half, half + 1) + self.upward) // 2
        return replace(self, width=2 * self.width, mass=np.bincount(places, self.mass, self.mass.size).astype(float))

    def fitted(self, size: int) -> Buckets:
        """The same losses in so few buckets: two become one as often as more than rounding lies outside of them."""
        out = (self.mass.size - size) // 2
        bottom, top = float(self.mass[:out].sum()), float(self.mass[self.mass.size - out :].sum())
        if bottom + top > NEGLIGIBLE:
            return self.merged().fitted(size)
        kept = self.mass[out : out + size].copy()
        kept[0] += bottom if self.upward else 0.0
        return replace(self, mass=kept, infinity=self.infinity + (max(top, 0.0) if self.upward else 0.0))

    def times(self, n: int) -> Buckets:
        """The sum of n such losses."""
        if n <= RADIX:
            return summed([(self, n)])
        return summed([(self.times(n // RADIX), RADIX), *([(self, n % RADIX)] if n % RADIX else [])])


def summed(parts: list[tuple[Buckets, int]]) -> Buckets:
    """The sum of losses, so often each, in as many buckets as each has."""
    width, first = max(each.width for each, _ in parts), parts[0][0]
    size, length = first.mass.size, sum(n for _, n in parts) * (first.mass.size - 1) + 1
    window = fast_length(length)
    depth = math.log2(window)
    # as in accounting/pld/lattice.py: of each value of a transform and its powers, and of all values of the inverse
    noise = UNIT * (constants.FFT_VALUE_ROUNDINGS * depth + 3) * (1 + 2 / math.pi * (math.log(window) + 1))
    values, log_finite, error = np.ones(window // 2 + 1, dtype=complex), 0.0, 0.0
    for each, n in parts:
        while each.width < width:
            each = each.merged()
        values = values * integer_power(np.fft.rfft(each.mass, window), n)
        log_finite += n * math.log1p(-each.infinity) if each.infinity < 1 else -math.inf
        error += n * (each.error + noise) * (1 + 1e-9)
    error += constants.FFT_VECTOR_ROUNDINGS * UNIT * depth * math.sqrt(energy(values))
    masses = np.fft.irfft(values, window)[:length]
    return Buckets(width, masses, -math.expm1(log_finite), error, first.upward).fitted(size)


def buckets_of(pair: LossPair, width: float, number: int, *, upward: bool) -> Buckets:
    """The losses of one release, each rounded to the end of its bucket that is above it, or below."""
    half = number // 2
    # a loss that is within its own rounding of the end of a bucket is taken to be that end
    rounding = LOSS_ROUNDING * half * width
    edges = np.arange(-half, half + 1) * width
    tails = pair.probabilities(np.asarray(edges + (rounding if upward else -rounding), dtype=float))
    inner = mass_between(tails.sf_p[:-1], tails.cdf_p[:-1], tails.sf_p[1:], tails.cdf_p[1:])
    beyond = max(float(tails.sf_p[-1]) - pair.mass_at_plus_infinity, 0.0)
    mass = np.concatenate([[0.0], inner]) if upward else np.append(inner, beyond)
    mass[0] += float(tails.cdf_p[0]) if upward else 0.0
    # a tail that is off by some roundings moves so much mass to the next bucket
    tail = np.minimum(tails.sf_p, tails.cdf_p)
    moved = constants.TAIL_ROUNDINGS * UNIT * width * float(tail.sum()) + rounding
    return Buckets(width, mass, pair.mass_at_plus_infinity + (beyond if upward else 0.0), moved, upward)


def account(process: Process, *, tol: float = 1e-3, factor: float = 0.0, number: float = 100_000) -> Curve:
    """Account for a process by privacy buckets; ``tol`` is not used.

    Args:
        factor: f > 1, of two neighbouring buckets; 0 chooses it. number: of buckets, even, from 2 to 2^20.
    Raises:
        Unsupported: some pair has no exact PLD. UsageError: an option out of range.
    """
    if not (factor == 0 or 1 < factor < math.inf) or number % 2 or not 2 <= number <= MAX_NUMBER:
        raise UsageError(
            f"buckets: factor must exceed 1 (or be 0 to be chosen), and number must be even, from 2 to {MAX_NUMBER:,}; "
            f"found {factor:g} and {number:g}"
        )
    runs = process.directions()
    require_exact_plds(runs, "buckets")
    width = math.log(factor) if factor else max(_reach(pair) for run in runs for pair, _ in run) / (number // 2)

    def composed(run: WeightedPairs, upward: bool) -> Buckets:
        counts = merged_counts(run).items()
        steps = (buckets_of(pair, width, int(number), upward=upward).times(n) for pair, n in counts)
        return reduce(lambda a, b: summed([(a, 1), (b, 1)]), steps)

    above, below = ([composed(run, upward) for run in runs] for upward in (True, False))
    used = f"factor {exp_or_inf(width):.9g}, {number:,.0f} buckets"

    def log_of(ends: list[Buckets]) -> Callable[[float], float]:
        return lambda eps: math.log(max(0.0, *(each.end(eps) for each in ends)) or 5e-324)

    def delta(eps: float) -> Bracket:
        high = max(each.end(eps) for each in above)
        return Bracket.between(min(max(each.end(eps) for each in below), high), high)

    def epsilon(delta: float) -> Bracket:
        top = max(each.width * (each.mass.size // 2) for each in above)
        high = epsilon_at(log_of(above), delta, high=top)
        low = epsilon_at(log_of(below), delta, high=top) if log_of(below)(top) <= math.log(delta) else top
        return Bracket.between(min(low * (1 - 1e-11), high), high)

    return Curve(process, "buckets", NOTION, CLAIM, f"{SOURCE}; {used}", delta, epsilon)


def _reach(pair: LossPair) -> float:
    """The distance from 0 beyond which finite losses are negligible, on either side."""
    if all(map(math.isfinite, pair.support)):
        return max(map(abs, pair.support)) or 1.0

    def excess(y: float) -> float:
        tails = pair.probabilities(np.array([y, -y]))
        beyond = float(tails.sf_p[0]) - pair.mass_at_plus_infinity + float(tails.cdf_p[1])
        return math.log(max(beyond, 5e-324) / NEGLIGIBLE)

    return smallest_meeting(excess, 1.0, rtol=1e-6)
