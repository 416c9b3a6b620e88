"""The exponential mechanism: a choice among candidates by noisy scores, a release of bounded range.

Bounds of the optimal adaptive composition are certified: docs/theory/bounded-range.md has the recursion and the proof.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import ClassVar

import numpy as np
from numpy.typing import ArrayLike

from wpriv.accounting.mechanisms.randomized_response import ResponsePair
from wpriv.core.kinds import Release
from wpriv.core.loss_pair import Bounds, KeyedPair, LossPair, Tails, symmetric_log_delta
from wpriv.core.mechanism import Mechanism
from wpriv.core.parameters import parameter
from wpriv.errors import UsageError
from wpriv.numerics.arrays import Array
from wpriv.numerics.log_space import log1mexp, log_exp_excess

# about so many products are computed for one profile, a row of them counted as so many more; the number of nodes in a
# range follows from it
WORK, ROW_WORK, MOST_NODES, LEAST_NODES = 4e7, 1200, 256, 6
# relative rounding of one recursion
ROUNDING = 1e-13
MAX_EXPONENT = 600.0


@dataclass(frozen=True)
class BoundedRangeProfile:
    """Bounds of the largest delta of n adaptive releases of range r at eps, [k] from 0 at equal distances in nats."""

    eps: Array
    lower: Array
    upper: Array

    def delta(self, eps: float) -> tuple[float, float]:
        """Bounds of delta at eps; delta is convex in e^eps, so that chords are above it, and extended chords below."""
        if eps > self.eps[-1]:
            return 0.0, float(self.upper[-1])
        # e^eps - 1 takes the place of e^eps, which would lose the digits of a small eps
        above = float(np.interp(math.expm1(eps), np.expm1(self.eps), self.upper)) * (1 + ROUNDING)
        place = int(np.searchsorted(self.eps, eps))
        rise = self._rise(place)
        below = float(self.lower[place]) + rise * (math.expm1(self.eps[place]) - math.expm1(eps)) * (1 - ROUNDING)
        return min(max(below, 0.0), above), above

    def epsilon(self, delta: float) -> tuple[float, float]:
        """Bounds of eps at delta; (0, inf) where the profile does not reach so far."""
        small = np.flatnonzero(self.upper <= delta)
        large = np.flatnonzero(self.lower > delta)
        low = self._least(int(large[-1]), delta) if large.size else 0.0
        if not small.size:
            return low, math.inf
        k = int(small[0])
        if k == 0:
            return low, 0.0
        share = (self.upper[k - 1] - delta) / (self.upper[k - 1] - self.upper[k])
        left, right = math.expm1(self.eps[k - 1]), math.expm1(self.eps[k])
        high = min(math.log1p(left + share * (right - left)) * (1 + ROUNDING), float(self.eps[k]))
        return min(low, high), high

    def _rise(self, place: int) -> float:
        """At most -d delta / d e^eps before a node: the chord of the two nodes from there."""
        if place + 1 >= self.eps.size:
            return 0.0
        width = math.expm1(self.eps[place + 1]) - math.expm1(self.eps[place])
        return max(0.0, float(self.lower[place] - self.upper[place + 1])) / width

    def _least(self, place: int, delta: float) -> float:
        """An eps from a node on at which delta is still exceeded: where an extended chord falls to it."""
        rise = self._rise(place + 1)
        if place + 1 >= self.eps.size or rise == 0:
            return float(self.eps[place])
        crossing = math.expm1(self.eps[place + 1]) - (delta - float(self.lower[place + 1])) / rise * (1 + ROUNDING)
        return max(float(self.eps[place]), math.log1p(max(crossing, 0.0)) * (1 - ROUNDING))


@lru_cache(maxsize=16)
def profile(r: float, n: int, top: float) -> BoundedRangeProfile | None:
    """Bound the profile of n adaptive releases of range r up to about ``top`` <= n r; None if it takes too long."""
    top = min(top, n * r)
    # n steps, each of a row of nodes top / r for every node
    rows = top / r
    nodes = min(MOST_NODES, math.floor(2 * WORK / n / (ROW_WORK + math.sqrt(ROW_WORK**2 + 4 * rows * WORK / n))))
    if nodes < LEAST_NODES or top + r > MAX_EXPONENT:
        return None
    eps: Array = np.asarray(r / nodes * np.arange(math.ceil(top / r * nodes - 1e-9) + 1), dtype=np.float64)
    upper, lower = np.zeros_like(eps), np.zeros_like(eps)  # delta of no release is 0 at every eps >= 0
    step = _Step(r, nodes, eps)
    for _ in range(n):
        upper, lower = step.above(upper), step.below(lower)
    upper = np.minimum.accumulate(upper * (1 + ROUNDING * (n + 10)))
    lower = np.maximum.accumulate((lower * (1 - ROUNDING * (n + 10)))[::-1])[::-1]
    return BoundedRangeProfile(eps, np.minimum(lower, upper), upper)


class _Step:
    """One step of the recursion delta'(y) = sup over t in [0, r] of p(t) delta(y - t) + (1 - p(t)) delta(y - t + r)."""

    def __init__(self, r: float, nodes: int, eps: Array):
        self.nodes, self.eps = nodes, eps
        t = r / nodes * np.arange(nodes + 1)
        self.p = np.expm1(t - r) * math.exp(r) / -math.expm1(r)
        self.rest = np.expm1(t) / math.expm1(r)
        # p is concave in e^-t, and exceeds its chord there by at most so much
        self.gap = (np.exp(t[1:] / 2) - np.exp(t[:-1] / 2)) ** 2 / math.expm1(r)
        mirrored = -(eps[nodes:0:-1] if eps.size > nodes else t[:0:-1])
        self.mirror, self.fall = np.exp(mirrored), -np.expm1(mirrored)

    def _extended(self, delta: Array, beyond: float) -> Array:
        """delta at ``nodes`` more points on either side: delta(-y) = 1 - e^-y + e^-y delta(y), and ``beyond``."""
        right = np.concatenate([delta, np.full(self.nodes, beyond)])
        left = self.fall + self.mirror * right[self.nodes : 0 : -1]
        return np.concatenate([left, right])

    def _at(self, values: Array, shift: int) -> Array:
        start = self.nodes + shift
        return values[start : start + self.eps.size]

    def below(self, delta: Array) -> Array:
        """The maximum over the nodes t only, from lower bounds of delta."""
        values = self._extended(delta, 0.0)
        best = np.zeros_like(delta)
        for j in range(self.nodes + 1):
            one = self.p[j] * self._at(values, -j) + self.rest[j] * self._at(values, self.nodes - j)
            np.maximum(best, one, out=best)
        return best

    def above(self, delta: Array) -> Array:
        """The maximum over all t, from upper bounds of delta at nodes and chords in e^y between them.

        In a cell of t, with theta in [0, 1] linear in e^-t, both deltas are at most their chords and p is at most its
        chord plus ``gap``: the sum is at most a quadratic function of theta, whose maximum is known.
        """
        values = self._extended(delta, float(delta[-1]))
        best = np.zeros_like(delta)
        far, low = self._at(values, 0), self._at(values, self.nodes)
        one = self.p[0] * far + self.rest[0] * low
        for j in range(self.nodes):
            next_far, next_low = self._at(values, -j - 1), self._at(values, self.nodes - j - 1)
            other = self.p[j + 1] * next_far + self.rest[j + 1] * next_low
            bulge = (self.p[j] - self.p[j + 1]) * ((next_far - next_low) - (far - low))
            extra = np.maximum(bulge, 0.0)
            with np.errstate(divide="ignore", invalid="ignore"):
                theta = np.where(extra > 0, np.clip(0.5 + (other - one) / (2 * extra), 0.0, 1.0), 0.0)
            inside = one + (other - one) * theta + extra * theta * (1 - theta)
            gap = self.gap[j] * np.maximum(far - low, next_far - next_low)
            np.maximum(best, np.maximum(np.maximum(one, other), inside) + gap, out=best)
            far, low, one = next_far, next_low, other
        return best


MIN_RANGE, MAX_RANGE = 1e-6, 1e100
# of the exponentials and logarithms in rho
RHO_ROUNDING = 1e-14


@dataclass(frozen=True)
class Exponential(Mechanism):
    """Select an outcome y with probability proportional to e^(eps0 u(D, y) / (2 s)), s the sensitivity of the score u.

    More generally, any release whose privacy loss lies in an interval of length eps0 on every pair of neighbours
    (bounded range): also e^(eps0 u / s) where a record moves all scores in the same direction, and report-noisy-max
    with Gumbel noise of scale 2 s / eps0. One release is eps0-DP, but several cost less than as many other eps0-DP
    releases.

    Source:
        McSherry, Talwar (2007); Durfee, Rogers (2019) (bounded range); Dong, Durfee, Rogers (2020), whose generalised
        randomised response is the worst case at each end of the interval; Harrison, Manurangsi (2025) (its rho).
    """

    release: ClassVar[Release] = Release.SELECTION
    source: ClassVar[str] = "Durfee, Rogers 2019; Dong, Durfee, Rogers 2020; Harrison, Manurangsi 2025"

    eps0: float = parameter("range of the privacy loss of one selection, in nats (its eps)", exclusive_minimum=0)

    def __post_init__(self) -> None:
        super().__post_init__()
        # below, the density of the loss varies by less than the rounding of its tails
        if not MIN_RANGE <= self.eps0 <= MAX_RANGE:
            raise UsageError(
                f"exponential: eps0 must lie between {MIN_RANGE:g} and {MAX_RANGE:g}; found {self.eps0:g}. "
                f"For a smaller one use `mech='zcdp'` with rho = eps0^2 / 8"
            )

    def pair(self) -> LossPair:
        return BoundedRangePair(self.eps0)

    def grouped(self, records: int) -> Exponential:
        """Losses of m records add up, and so do the lengths of their intervals."""
        return replace(self, eps0=records * self.eps0)


class SupremumPair(KeyedPair):
    """The pair whose profile is the supremum of the profiles of all releases of range r; it dominates each of them.

    By docs/theory/bounded-range.md it is delta(y) = (e^(r/2) - e^(y/2))^2 / (e^r - 1) for |y| <= r. As a function of
    e^y it is convex, falls from 1 - e^y at y = -r to 0 at y = r, and is therefore a profile itself, of a pair with a
    density: Q(L > y) = -d delta / d e^y = (e^((r-y)/2) - 1) / (e^r - 1). A pair that dominates every step dominates
    adaptive compositions. No single release attains it at every y, so that its compositions are upper bounds.
    """

    symmetric = True

    def __init__(self, r: float):
        self.key = (r,)
        self.r = r
        self.support, self.atoms = (-r, r), np.array([-r, r])

    def tails(self, eps: Array) -> Tails:
        y = np.asarray(eps, dtype=float)
        inner = np.clip(y, -self.r, self.r)
        below, above = -(self.r + inner) / 2, (inner - self.r) / 2
        low, high = self._log_share(below), self._log_share(above)
        inside = (high, above + low, below + high, low)
        ends = ((0.0, -np.inf), (-np.inf, 0.0), (0.0, -np.inf), (-np.inf, 0.0))
        outside = (y <= -self.r, y >= self.r)
        return Tails(*(np.select(outside, end, tail) for end, tail in zip(ends, inside, strict=True)))

    def log_delta(self, eps: ArrayLike) -> Array:
        """Compute ln of (e^(r/2) - e^(eps/2))^2 / (e^r - 1) for 0 <= eps <= r; delta is 0 above."""
        y = np.asarray(eps, dtype=float)
        half = np.minimum((np.abs(y) - self.r) / 2, 0.0)
        above = self._log_share(half) + log1mexp(half)
        return symmetric_log_delta(y, above)

    def _log_share(self, x: Array) -> Array:
        """Compute ln((1 - e^x) / (1 - e^-r)) for -r <= x <= 0; a difference of logarithms would lose digits."""
        with np.errstate(divide="ignore"):
            return np.asarray(np.minimum(np.log(np.expm1(x) / np.expm1(-self.r)), 0.0))


class BoundedRangePair(SupremumPair):
    """All releases of range r: ``SupremumPair`` from above, G_t at t = r/2 from below, and the largest divergences.

    The profile of one release is exact: each of its points is attained by some G_t.
    """

    exact_alone = True

    def sandwich(self, tol: float) -> tuple[LossPair, LossPair]:
        """Return G_(r/2), randomized response at r/2, of which compositions may consist, and the dominating pair."""
        return ResponsePair(self.r / 2, 0.0, 1), SupremumPair(self.r)

    def renyi(self, orders: Array) -> Array:
        """Compute the largest divergence of each order over all releases of range r, which bounds every composition.

        Proof. As in ``SupremumPair``, G_t is the worst for given t. E_Q e^(alpha L) = A e^((alpha-1) t) - B e^(alpha
        t) for G_t, with A = e^r (1 - e^(-alpha r)) / (e^r - 1) and B = (1 - e^(-(alpha-1) r)) / (e^r - 1), is largest
        at e^t = A (alpha-1) / (B alpha). With phi(x) = ln(sinh(x/2) / (x/2)) the maximum is e^K, K = alpha phi(alpha
        r) - phi(r) - (alpha-1) phi((alpha-1) r). K / (alpha (alpha-1)) is largest at alpha = 1
        (``zcdp_rho``). (Rounding: for small alpha - 1 the three terms nearly cancel, so that the result is rounded up.)
        """
        alpha = np.asarray(orders, dtype=float)
        lam = alpha - 1
        largest = alpha * _phi(alpha * self.r)
        exponent = (largest - _phi(np.asarray(self.r)) - lam * _phi(lam * self.r) + 1e-15 * largest) / lam
        return np.asarray(np.minimum(np.minimum(exponent, alpha * self.zcdp_rho()), self.r))

    def optimal_composition(self, n: int, top: float) -> tuple[Bounds, Bounds] | None:
        composed = profile(self.r, n, top)
        return None if composed is None else (composed.delta, composed.epsilon)

    def zcdp_rho(self) -> float:
        """x - 1 - ln x with x = r / (1 - e^-r), rounded up: at most r^2 / 8 (docs/theory/bounded-range.md)."""
        if self.r < 1:
            # ln x from the small difference of x and e^(r/2)
            rho = math.exp(float(log_exp_excess(self.r / 2 - _phi(np.asarray(self.r)))))
        else:
            x = self.r / -math.expm1(-self.r)
            rho = x - 1 - math.log(x)
        return rho * (1 + RHO_ROUNDING)


def _phi(x: Array) -> Array:
    """Compute ln(sinh(x/2) / (x/2)) for x >= 0, right to rounding: by its series for small x."""
    z = np.minimum(x / 2, 2.0)
    series = np.zeros_like(z)
    for k in range(18, 0, -1):
        series = z * z / (2 * k * (2 * k + 1)) * (1 + series)
    far = np.maximum(x, 4.0)
    return np.asarray(np.where(x <= 4, np.log1p(series), far / 2 + np.log1p(-np.exp(-far)) - np.log(far)))
