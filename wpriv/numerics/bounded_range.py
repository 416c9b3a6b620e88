"""The optimal adaptive composition of releases whose privacy loss has a bounded range, between certified bounds.

``docs/theory/bounded-range.md`` has the recursion and the proof of both ends.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import lru_cache

import numpy as np

from wpriv.numerics.arrays import Array

# about so many products are computed for one profile, a row of them counted as so many more; the number of nodes in a
# range follows from it
WORK, ROW_WORK, MOST_NODES, LEAST_NODES = 4e7, 1200, 256, 6
# relative rounding of one recursion
ROUNDING = 1e-13
MAX_EXPONENT = 600.0


@dataclass(frozen=True)
class BoundedRangeProfile:
    """Bounds of the largest delta of n adaptively chosen releases of range r, at equally spaced eps from 0.

    Args:
        eps: [k] in nats. lower, upper: [k] bounds of delta, both decreasing.
    """

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
    """Bound the profile of n adaptively chosen releases of range r up to about ``top``, which is at most n r.

    Returns:
        The profile; None where the recursion would take too long.
    """
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
