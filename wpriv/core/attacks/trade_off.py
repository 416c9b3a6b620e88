"""The trade-off function of one order of neighbours, bounded from both sides by points of the privacy profile.

A test of "the record is in the data" (distribution P) against "it is not" (Q) has a false-positive rate a under Q and a
false-negative rate under P; T(a) is the least false-negative rate. The profile f(t) = H_t(P||Q) is its dual: T(a) is
the supremum over t >= 0 of the lines 1 - t a - f(t). Upper bounds of f at a few t are thus lower bounds of T; lower
bounds of f with its convexity are upper bounds of T. docs/theory/trade-off.md has the proofs.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import pairwise

import numpy as np

from wpriv.core.atomic_pair import AtomicPair
from wpriv.numerics.arrays import Array

# lower and upper end of delta at an eps >= 0
DeltaEnds = Callable[[float], tuple[float, float]]
# relative rounding error of the few operations by which lines and chords are evaluated, with a margin
ROUNDING = 1e-14
# relative accuracy of a profile in closed form
PROFILE_ROUNDING = 1e-12
# the largest |ln t| at which the profile is evaluated; a double holds e^709
MAX_LOG_T = 600.0


@dataclass(frozen=True)
class Line:
    """A supporting line of the trade-off function, FNR >= 1 - f(t) - t FPR, with bounds of f(t) at one t.

    Args:
        log_t: ln t.
        delta_low, delta_high: bounds of delta at eps = |ln t|, of the pair (P, Q) for t >= 1 and of (Q, P) for t < 1,
            where f(t) = 1 - t + t delta.
    """

    log_t: float
    delta_low: float
    delta_high: float

    @cached_property
    def t(self) -> float:
        return math.exp(self.log_t)

    def profile(self, delta: float) -> float:
        """f(t) for a value of delta."""
        return delta if self.log_t >= 0 else -math.expm1(self.log_t) + self.t * delta

    def error_rates(self, fpr: float) -> tuple[float, float]:
        """An upper bound of the true-positive rate and a lower bound of the false-negative rate, rounded outwards."""
        if self.log_t < 0:
            # 1 - f(t) = t (1 - delta), which keeps its digits where it is small
            fnr = self.t * (1 - self.delta_high - fpr - ROUNDING)
            return min(1 - fnr + ROUNDING, 1.0), max(fnr, 0.0)
        tpr = self.t * fpr + self.delta_high
        return min(tpr * (1 + ROUNDING), 1.0), max(1 - tpr - ROUNDING * max(tpr, 1.0), 0.0)

    def attained(self, fpr: float) -> tuple[float, float]:
        """A lower bound of the true-positive rate and an upper bound of the false-negative rate of the best test for t,
        if its false-positive rate is at least ``fpr``."""
        if self.log_t < 0:
            fnr = self.t * (1 - self.delta_low - fpr + ROUNDING)
            return max(1 - fnr - ROUNDING, 0.0), min(fnr, 1.0)
        tpr = (self.t * fpr + self.delta_low) * (1 - ROUNDING)
        return min(tpr, 1.0), min(max(1 - tpr + ROUNDING, 0.0), 1.0)

    def meets(self, other: Line) -> float:
        """About the false-positive rate at which this line meets one of larger t."""
        return self._chord(other, self.delta_high, other.delta_high)[0]

    def rates_between(self, other: Line) -> tuple[float, float]:
        """Bounds of the false-positive rate (f(t) - f(u)) / (u - t), u > t the other line's: the slope of a chord of f,
        which is between those of the best tests for t and for u."""
        least, error = self._chord(other, self.delta_low, other.delta_high)
        most, _ = self._chord(other, self.delta_high, other.delta_low)
        return least - error, most + error

    def _chord(self, other: Line, delta: float, other_delta: float) -> tuple[float, float]:
        """The slope of a chord of f for given values of delta, and a bound of its rounding error."""
        ratio = math.exp(self.log_t - other.log_t)
        size = -math.expm1(self.log_t - other.log_t)
        if other.log_t < 0:
            return ((1 - other_delta) - ratio * (1 - delta)) / size, ROUNDING / size
        value, other_value = self.profile(delta), other_delta
        return (value - other_value) / other.t / size, ROUNDING * (value + other_value) / other.t / size


class TradeOff:
    """Bounds of the trade-off function of one order of the neighbours, from the points of the profile computed so far.

    Attributes:
        lines: the points, by increasing t.
    """

    def __init__(self, forward: DeltaEnds, backward: DeltaEnds):
        """``forward`` gives delta of the pair (P, Q), ``backward`` that of (Q, P), each at eps >= 0."""
        self._forward, self._backward = forward, backward
        self.lines: list[Line] = []
        self._hull: list[Line] | None = None

    def evaluate_again(self) -> None:
        """Evaluate all points once more, of which more may be known by now."""
        self.lines, self._hull = [self._line(line.log_t) for line in self.lines], None

    def evaluate(self, log_t: Iterable[float]) -> None:
        """Add points of the profile at these ln t; those that are there or out of range are left out."""
        have = {line.log_t for line in self.lines}
        new = sorted({s for s in log_t if abs(s) <= MAX_LOG_T} - have)
        # the accountant keeps its last compositions, which serve neighbouring eps
        self.lines = sorted([*self.lines, *map(self._line, new)], key=lambda line: line.log_t)
        self._hull = None

    def _line(self, log_t: float) -> Line:
        low, high = (self._forward if log_t >= 0 else self._backward)(abs(log_t))
        return Line(log_t, max(low, 0.0) * (1 - PROFILE_ROUNDING), min(high * (1 + PROFILE_ROUNDING), 1.0))

    def raised(self) -> TradeOff:
        """The same points, as if the upper ends of delta were exact."""
        other = TradeOff(self._forward, self._backward)
        other.lines = [replace(line, delta_low=line.delta_high) for line in self.lines]
        return other

    @property
    def hull(self) -> list[Line]:
        """The lines that touch their upper envelope, by increasing t; any other line may be left out."""
        if self._hull is None:
            hull: list[Line] = []
            for line in self.lines:
                while len(hull) >= 2 and hull[-1].meets(line) >= hull[-2].meets(hull[-1]):
                    hull.pop()
                hull.append(line)
            self._hull = hull
        return self._hull

    def active(self, fpr: float) -> Line:
        """The line that is largest at this false-positive rate."""
        return next((left for left, right in pairwise(self.hull) if left.meets(right) < fpr), self.hull[-1])

    def cover(self, low: float, high: float, reach: float) -> None:
        """Add points, ever farther out, until the lines that are largest at the two false-positive rates have others on
        both sides; the first is ``reach`` in ln t beyond those that are there."""
        for at, end, sign in ((high, 0, -1), (low, -1, 1)):
            step = reach
            while self.active(at) is self.hull[end] and abs(self.lines[end].log_t) < MAX_LOG_T:
                farther = self.lines[end].log_t + sign * step
                self.evaluate([min(max(farther, -MAX_LOG_T), MAX_LOG_T)])
                step *= 2

    def around(self, line: Line, parts: int) -> set[float]:
        """Further ln t that divide both cells beside a line of the hull."""
        at = self.hull.index(line)
        first, last = self.hull[max(at - 1, 0)], self.hull[min(at + 1, len(self.hull) - 1)]
        return self.divide(first, line, parts) | self.divide(line, last, parts)

    @staticmethod
    def divide(left: Line, right: Line, parts: int) -> set[float]:
        """The ln t that divide a cell into equal parts."""
        width = right.log_t - left.log_t
        return {left.log_t + width * k / parts for k in range(1, parts)} if width > 0 else set()

    def tpr_upper(self, fpr: float) -> tuple[float, float]:
        """An upper bound of the largest true-positive rate at this false-positive rate, and a lower bound of the least
        false-negative rate."""
        pairs = [line.error_rates(fpr) for line in self.lines]
        return min(tpr for tpr, _ in pairs), max(fnr for _, fnr in pairs)

    def tpr_lower(self, fpr: float) -> float:
        """A lower bound of the largest true-positive rate at this false-positive rate.

        It is the least of fpr * t + g(t) over t > 0, where g is the largest of four lines below f between two points:
        the value at the right end, 1 - t, and the chords of both neighbouring cells, continued.
        """
        # points whose t are equal as doubles count once
        lines = self.lines[:1] + [line for left, line in pairwise(self.lines) if line.t > left.t]
        t = np.array([0.0, *(line.t for line in lines)])
        low = np.array([1.0, *(line.profile(line.delta_low) for line in lines)])
        high = np.array([1.0, *(line.profile(line.delta_high) for line in lines)])
        width = np.diff(t)
        chord = (low[1:] - high[:-1]) / width
        left_slope = np.concatenate([[-np.inf], chord[:-1]])
        chord_right = (high[1:] - low[:-1]) / width
        right_slope = np.concatenate([chord_right[1:], [-np.inf]])
        ends = [
            (low[1:], low[1:]),
            (1 - t[:-1], 1 - t[1:]),
            (low[:-1], low[:-1] + left_slope * width),
            (low[1:] - np.where(np.isfinite(right_slope), right_slope, 0.0) * width, low[1:]),
        ]
        inner = _least(fpr, t, ends)
        # beyond the last point f stays above its last chord, continued, and above zero
        slope = min(float(chord[-1]), 0.0)
        zero = float(t[-1] - low[-1] / slope) if slope < 0 else math.inf
        last = min(fpr * float(t[-1]) + float(low[-1]), fpr * zero) if fpr > 0 else 0.0
        return max(min(inner, last) * (1 - ROUNDING), fpr)


def atomic_points(pair: AtomicPair, fpr: float) -> list[float]:
    """ln t of points that give the trade-off function of a discrete pair at a false-positive rate to rounding.

    The profile is linear between the losses, so that the best line is the one at the loss of the likelihood-ratio test
    of this rate. That loss, two on either side of it, and a point between neighbours show the linear pieces.
    """
    loss = pair.losses
    if not loss.size:
        return []
    at = int(np.argmax(pair.tails(loss).sf_q <= math.log(fpr)))
    near = [float(loss[0]) - 1, *loss[max(at - 2, 0) : at + 3].tolist(), float(loss[-1]) + 1]
    return [*near, *((left + right) / 2 for left, right in pairwise(near))]


def _least(fpr: float, t: Array, ends: list[tuple[Array, Array]]) -> float:
    """The least of fpr * t plus the largest of some lines over all cells; each line is given by its values at both ends
    of a cell."""
    width = np.diff(t)
    shares = [np.zeros_like(width), np.ones_like(width)]
    with np.errstate(divide="ignore", invalid="ignore"):
        for k, (p, q) in enumerate(ends):
            for r, s in ends[k + 1 :]:
                share = (r - p) / ((q - p) - (s - r))
                shares.append(np.where((share > 0) & (share < 1), share, 0.0))
        least = math.inf
        for share in shares:
            values = [np.where(np.isfinite(p + q), p + share * (q - p), -np.inf) for p, q in ends]
            value = fpr * (t[:-1] + share * width) + np.max(values, axis=0)
            least = min(least, float(value.min()))
    return least
