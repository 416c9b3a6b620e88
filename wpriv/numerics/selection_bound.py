"""Bounds of the privacy profile of the best of K runs from that of one run; docs/theory/tuning.md has the proofs."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from wpriv.numerics.arrays import Array

# relative allowance for the rounding of all sums here
ROUNDING = 1e-10
# points of the lines below which the profile is integrated, and the smallest of them, in units of 1 / E[K]
CELLS, SMALLEST = 1500, 1e-5
# ends of the cells that the probability of a set is divided into, for a lower bound
SIZES = 25

# beyond this eps an upper bound keeps its value
MAX_EXPONENT = 600.0

Function = Callable[[Array], Array]


@dataclass(frozen=True)
class ProfileTable:
    """Bounds of the privacy profile of one run, for both orders of the neighbours, at increasing eps from 0.

    Args:
        eps: [k] in nats, the first 0. upper, lower: [k] bounds of the larger of the two deltas; both do not increase.
    """

    eps: Array
    upper: Array
    lower: Array

    def hockey_stick(self, t: Array) -> Array:
        """Bound E_Q[(dP/dQ - t)_+] from above at t > 0, by chords of the table and beyond it by its last value.

        The profile is convex as a function of t = e^eps, so that chords of upper bounds are upper bounds.
        """
        t = np.asarray(t, dtype=float)
        above = np.interp(np.maximum(t, 1 / np.maximum(t, 1e-300)), np.exp(self.eps), self.upper)
        return np.asarray(np.where(t >= 1, above, 1 - np.minimum(t, 1) * (1 - above)))

    def lines(self) -> tuple[Array, Array]:
        """Lines (a, b), of falling slope, below which lies the largest Q(S) at P(S) = x: Q(S) <= a x + b.

        Q(S) <= e^eps P(S) + delta(eps), and the same of the complement: 1 - P(S) <= e^eps (1 - Q(S)) + delta(eps).
        """
        t = np.exp(self.eps)
        a = np.concatenate([t[::-1], 1 / t[1:]])
        return a, np.concatenate([self.upper[::-1], 1 - (1 - self.upper[1:]) / t[1:]])

    def reachable(self, x: Array) -> tuple[Array, Array]:
        """Bound the largest Q(S) at P(S) = x by the least of ``lines`` and 1; return it with the slope of that line."""
        a, b = self.lines()
        heights = a[:, None] * np.asarray(x, dtype=float) + b[:, None]
        best, least = heights.argmin(axis=0), heights.min(axis=0)
        return np.minimum(least, 1.0), np.where(least < 1, a[best], 0.0)

    def kinks(self) -> Array:
        """Where consecutive lines cross, as far as that is inside (0, 1)."""
        a, b = self.lines()
        with np.errstate(divide="ignore", invalid="ignore"):
            x = np.diff(b) / -np.diff(a)
        return np.asarray(x[(x > 0) & (x < 1)])


@dataclass(frozen=True)
class Selection:
    """Bounds of the profile of the best of K runs, for the worst order of the outcomes.

    Args:
        table: bounds of the profile of one run. slope: x -> f'(1 - x), f the generating function of K; log_fall: minus
            the derivative of its logarithm; reach: x -> 1 - f(1 - x); within: x -> f(x) - f(0).
    """

    table: ProfileTable
    slope: Function
    log_fall: Function
    reach: Function
    within: Function

    @cached_property
    def _lines(self) -> tuple[Array, Array]:
        """Lines (a, b): on cells of x, sup (slope(x) t - c slope(g(x))) is at most max (a t - c b), for all c, t > 0.

        slope is convex and falls; on a cell it is at most its chord, and slope(g(x)) at least the tangent, at the
        middle, of slope along a line above g. Their difference is linear, so that the ends of the cell suffice. A
        tangent that falls below 0 inside the cell counts up to there: beyond it slope(g(x)) is at least 0, and
        slope(x) at most the chord at that point.
        """
        mean = float(self.slope(np.zeros(1))[0])
        cells = np.geomspace(SMALLEST / max(mean, 1.0), 1.0, CELLS)
        x = np.unique(np.concatenate([[0.0], cells, self.table.kinks()]))
        a = self.slope(x)
        middle, half = (x[1:] + x[:-1]) / 2, np.diff(x) / 2
        g, steepness = self.table.reachable(middle)
        height = self.slope(g)
        fall = height * self.log_fall(g) * steepness * half
        share, crosses = np.ones_like(fall), fall > height
        share[crosses] = (height + fall)[crosses] / (2 * fall[crosses])
        ends = a[:-1] + share * np.diff(a)
        return np.concatenate([a[:-1], ends]), np.concatenate([height + fall, np.maximum(height - fall, 0.0)])

    def upper(self, eps: float) -> float:
        """An upper bound of delta at eps: E_Q phi(dP/dQ), phi the maximum of 0 and of the lines, by its kinks."""
        slopes, heights = self._lines
        a, kinks = _envelope(slopes, math.exp(min(eps, MAX_EXPONENT)) * heights)
        weights = np.diff(np.concatenate([[0.0], a]))
        integral = float(weights @ self.table.hockey_stick(kinks))
        # all runs together differ with probability at most reach(delta(0)), by coupling each of them
        every = float(self.reach(np.minimum(self.table.upper[:1], 1.0))[0])
        return min(1.0, min(integral, every) * (1 + ROUNDING))

    @cached_property
    def _sets(self) -> tuple[Array, Array]:
        """Sets S = {dP/dQ > e}: e, a bound d of delta(e), and a range of Q(S).

        In one order of the neighbours P(S) - e Q(S) is delta(e), at least d. In every order P(S) - e' Q(S) is at most
        delta(e'): for e' < e it bounds Q(S) from above, and for e' > e from below. Below 1, delta(e) = 1 - e + e
        delta(1/e) of the other order.

        Returns:
            [k, 2] e and d, and [k, m] values of Q(S), which divide its range into cells.
        """
        table, falls, t = self.table, np.exp(-self.table.eps[:0:-1]), np.exp(self.table.eps)
        e = np.concatenate([falls, t])
        d, most = (
            np.concatenate([-np.expm1(-table.eps[:0:-1]) + falls * known[:0:-1], known])
            for known in (table.lower, table.upper)
        )
        rise, rounding = most[None, :] - d[:, None], 1e-15 * (most[None, :] + d[:, None])
        gap = e[:, None] - e[None, :]
        with np.errstate(divide="ignore", invalid="ignore"):
            above = np.where(gap > 0, (rise + rounding) / gap, np.inf).min(axis=1)
            below = np.where(gap < 0, (rise + rounding) / gap, 0.0).max(axis=1)
        high = np.minimum(np.minimum(above * (1 + 1e-12), (1 - d) / e), 1.0)
        low = np.clip(below * (1 - 1e-12), 0.0, high)
        chosen = (d > 0) & (high >= 0)
        q = low[chosen, None] + (high - low)[chosen, None] * np.linspace(0, 1, SIZES) ** 2
        return np.stack([e, d], axis=1)[chosen], q

    def lower(self, eps: float) -> float:
        """A lower bound of delta at eps: that of the best of several scores, the larger or the smaller privacy loss.

        For each set S of losses above a threshold, two scores: one prefers S, so that the best run is in S with
        probability r(P(S)), r = reach; the other avoids S, so that it is in S with probability w(P(S)), w = within.
        On the neighbour these are r(Q(S)) and w(Q(S)). The smallest difference over all admitted Q(S) counts: on a cell
        of Q(S), the concave r is at least its chord and at most a tangent, and the convex w the other way round.
        """
        sets, q = self._sets
        if not len(sets):
            return 0.0
        e, d = sets[:, :1], sets[:, 1:]
        ratio = math.exp(min(eps, MAX_EXPONENT)) * (1 + ROUNDING)
        p = np.minimum(d + e * q, 1.0)
        middle, half = (q[:, 1:] + q[:, :-1]) / 2, np.diff(q) / 2
        p_middle = np.minimum(d + e * middle, 1.0)
        reached, other = self.reach(p) * (1 - ROUNDING), ratio * self.reach(middle)
        change = ratio * self.slope(middle) * half
        prefers = np.minimum(reached[:, :-1] - other + change, reached[:, 1:] - other - change)
        kept, other = self.within(p_middle) * (1 - ROUNDING), ratio * self.within(q)
        change = self.slope(1 - p_middle) * e * half
        avoids = np.minimum(kept - change - other[:, :-1], kept + change - other[:, 1:])
        return max(0.0, float(np.max([prefers.min(axis=1), avoids.min(axis=1)])))


def _envelope(slopes: Array, heights: Array) -> tuple[Array, Array]:
    """The maximum of 0 and of the lines slopes t - heights, t > 0: increasing slopes, and where each line begins."""
    order = np.lexsort((heights, slopes))
    hull = [(0.0, 0.0, 0.0)]  # slope, height, beginning
    for a, b in zip(slopes[order].tolist(), heights[order].tolist(), strict=True):
        if a <= hull[-1][0]:
            continue  # of lines of one slope the highest came first
        while True:
            a0, b0, start = hull[-1]
            begin = (b - b0) / (a - a0)
            if begin > start or len(hull) == 1:
                break
            hull.pop()
        hull.append((a, b, begin))
    lines = np.array(hull[1:])
    return lines[:, 0], lines[:, 2]
