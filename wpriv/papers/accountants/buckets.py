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
from wpriv.accounting.pld.lattice import energy, fast_length
from wpriv.core.guarantee import Curve, epsilon_at
from wpriv.core.loss_pair import LOSS_ROUNDING, LossPair
from wpriv.core.process import Process, WeightedPairs, require_exact_plds
from wpriv.errors import UsageError
from wpriv.numerics.arrays import Array, mass_between
from wpriv.numerics.bracket import Bracket
from wpriv.numerics.root_finding import smallest_meeting

NOTION = "approximate-dp"
CLAIM = "certified"
SOURCE = "Meiser, Mohammadi 2018 (privacy buckets, without error terms); Sommer, Meiser, Mohammadi 2019, Theorem 1"
DISPLAY_NAME = "privacy buckets"
EXPLAIN = """\
Bucket i holds the losses from (i-1) ln f to i ln f, for i from -number/2 to number/2; larger ones count as infinite.
Upper end: every loss as large as its bucket allows; lower end: as small. Sums of n losses by repeated squaring; where
they outgrow the buckets, two become one (f is squared). Rounding of the Fourier transforms is inside both ends: about
5e-13 n, below which no delta is reached. factor=0 takes the least f whose buckets hold the losses of each step."""
MAX_NUMBER = 2**22
# losses beyond the buckets, relative to one release, where the factor is chosen; and mass by which sums outgrow them
NEGLIGIBLE = 1e-15


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
        return float(self.mass @ -np.expm1(np.minimum(eps - losses, 0.0))) + self.infinity

    def end(self, eps: float) -> float:
        """delta at eps with the rounding added, or subtracted."""
        rounding = self.error + constants.UNIT_ROUNDOFF * (self.mass.size * self.width + 100)
        return min(self.delta(eps) + rounding, 1.0) if self.upward else max(self.delta(eps) - rounding, self.infinity)

    def merged(self) -> Buckets:
        """The same losses with the factor squared, in as many buckets, of which half are empty."""
        half = self.mass.size // 2
        at = (np.arange(-half, half + 1) + self.upward) // 2
        mass = np.bincount(at + half, weights=self.mass, minlength=self.mass.size)
        return replace(self, width=2 * self.width, mass=mass)

    def plus(self, other: Buckets) -> Buckets:
        """The sum of both losses, in as many buckets."""
        a, b = self, other
        while a.width != b.width:
            a, b = (a.merged(), b) if a.width < b.width else (a, b.merged())
        half, size = a.mass.size // 2, fast_length(2 * a.mass.size - 1)
        values = np.fft.rfft(a.mass, size) * np.fft.rfft(b.mass, size)
        sums = np.fft.irfft(values, size)[: 2 * a.mass.size - 1]
        # as in accounting/pld/lattice.py: each value of the transform, and all values of its inverse
        unit, depth = constants.UNIT_ROUNDOFF, math.log2(size)
        error = unit * (2 * constants.FFT_VALUE_ROUNDINGS * depth + 3) * (1 + 2 / math.pi * (math.log(size) + 1))
        error += constants.FFT_VECTOR_ROUNDINGS * unit * depth * math.sqrt(energy(values))
        infinity = a.infinity + b.infinity - a.infinity * b.infinity
        joint = replace(a, infinity=infinity, error=(a.error + b.error) * (1 + 1e-9) + error)
        bottom, top = float(sums[:half].sum()), float(sums[3 * half + 1 :].sum())
        if bottom + top > NEGLIGIBLE:
            wide = replace(joint, mass=sums).merged()
            return replace(wide, mass=wide.mass[half : 3 * half + 1])
        kept = sums[half : 3 * half + 1].copy()
        kept[0] += bottom if self.upward else 0.0
        return replace(joint, mass=kept, infinity=infinity + max(top, 0.0) if self.upward else infinity)

    def times(self, n: int) -> Buckets:
        """The sum of n such losses, by repeated squaring."""
        half = self.times(n // 2) if n > 1 else self
        square = half.plus(half) if n > 1 else half
        return square.plus(self) if n > 1 and n % 2 else square


def buckets_of(pair: LossPair, width: float, number: int, *, upward: bool) -> Buckets:
    """The losses of one release, each rounded to the end of its bucket that is above it, or below."""
    half = number // 2
    # a loss that is within its own rounding of the end of a bucket is taken to be that end
    rounding = LOSS_ROUNDING * half * width
    tails = pair.probabilities(np.arange(-half, half + 1) * width + (rounding if upward else -rounding))
    inner = mass_between(tails.sf_p[:-1], tails.cdf_p[:-1], tails.sf_p[1:], tails.cdf_p[1:])
    beyond = max(float(tails.sf_p[-1]) - pair.mass_at_plus_infinity, 0.0)
    mass = np.concatenate([[0.0], inner]) if upward else np.append(inner, beyond)
    mass[0] += float(tails.cdf_p[0]) if upward else 0.0
    # a tail that is off by some roundings moves so much mass to the next bucket
    tail = np.minimum(tails.sf_p, tails.cdf_p)
    moved = constants.TAIL_ROUNDINGS * constants.UNIT_ROUNDOFF * width * float(tail.sum()) + rounding
    return Buckets(width, mass, pair.mass_at_plus_infinity + (beyond if upward else 0.0), moved, upward)


def account(process: Process, *, tol: float = 1e-3, factor: float = 0.0, number: float = 100_000) -> Curve:
    """Account for a process by privacy buckets; ``tol`` is not used.

    Args:
        factor: f > 1, of two neighbouring buckets; 0 chooses it. number: of buckets, even, from 2 to 2^22.
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
    width = math.log(factor) or 1.0 if factor else max(_reach(pair) for run in runs for pair, _ in run) / (number // 2)

    def composed(run: WeightedPairs, upward: bool) -> Buckets:
        return reduce(Buckets.plus, (buckets_of(pair, width, int(number), upward=upward).times(n) for pair, n in run))

    above, below = ([composed(run, upward) for run in runs] for upward in (True, False))
    used = f"factor {math.exp(width):.9g}, {number:,.0f} buckets"

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
