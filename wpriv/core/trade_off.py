"""The trade-off function of one order of neighbours, and the least mu of Gaussian differential privacy.

T(a) is the least false-negative rate of a test at the false-positive rate a. The profile f(t) = H_t(P||Q) is its dual:
T(a) is the supremum over t >= 0 of the lines 1 - t a - f(t). docs/theory/trade-off.md has the proofs.
"""

from __future__ import annotations

import math
import sys
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import pairwise

import numpy as np
from scipy.special import log_ndtr, ndtr, ndtri

from wpriv.core.atomic_pair import AtomicPair
from wpriv.numerics import conversions
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
    """Bounds of the trade-off function of one order of the neighbours, from the points of the profile so far."""

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
        return Line(log_t, *outward((self._forward if log_t >= 0 else self._backward)(abs(log_t))))

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

        It is the least of fpr * t + g(t) over t > 0, with g of ``below``.
        """
        t, low, chord, lines = self.below()
        inner = -float(largest_excess((-fpr * t[:-1], -fpr * t[1:]), lines, (1.0, 1.0)).max())
        # beyond the last point f stays above its last chord, continued, and above zero
        slope = min(float(chord[-1]), 0.0)
        zero = float(t[-1] - low[-1] / slope) if slope < 0 else math.inf
        last = min(fpr * float(t[-1]) + float(low[-1]), fpr * zero) if fpr > 0 else 0.0
        return max(min(inner, last) * (1 - ROUNDING), fpr)

    def below(self) -> tuple[Array, Array, Array, list[tuple[Array, Array]]]:
        """The points t, from 0 on, lower bounds of f there, the chords of the cells between them, and ``lines_below``
        with 1 - t, of which g, the largest, is below f."""
        # points whose t are equal as doubles count once
        points = self.lines[:1] + [line for left, line in pairwise(self.lines) if line.t > left.t]
        t = np.array([0.0, *(line.t for line in points)])
        low = np.array([1.0, *(line.profile(line.delta_low) for line in points)])
        high = np.array([1.0, *(line.profile(line.delta_high) for line in points)])
        chord, lines = lines_below(low, high, np.diff(t))
        return t, low, chord, [*lines, (1 - t[:-1], 1 - t[1:])]


def lines_below(low: Array, high: Array, width: Array) -> tuple[Array, list[tuple[Array, Array]]]:
    """The chords of a falling convex function in cells of t, and lines below it there, by their values at both ends.

    They are the value at the right end, and the chords of both neighbouring cells, continued; where there is no such
    cell, one value is infinite.

    Args:
        low, high: [k] bounds of the function at increasing t. width: [k - 1] of the cells.
    """
    chord = (low[1:] - high[:-1]) / width
    left_slope = np.concatenate([[-np.inf], chord[:-1]])
    right_slope = np.concatenate([((high[1:] - low[:-1]) / width)[1:], [np.inf]])
    return chord, [
        (low[1:], low[1:]),
        (low[:-1], low[:-1] + left_slope * width),
        (low[1:] - right_slope * width, low[1:]),
    ]


def outward(ends: tuple[float, float]) -> tuple[float, float]:
    """Both ends of a delta, moved outwards by the rounding of a profile in closed form."""
    return max(ends[0], 0.0) * (1 - PROFILE_ROUNDING), min(ends[1] * (1 + PROFILE_ROUNDING), 1.0)


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


def largest_excess(
    above: tuple[Array, Array], lines: list[tuple[Array, Array]], weight: tuple[Array | float, Array | float]
) -> Array:
    """The largest of (a - the largest of some lines) / w in each cell; a, w and the lines are linear in a cell and are
    given by their values at both ends. It lies at an end, or where two lines meet."""
    shares = [np.zeros_like(above[0]), np.ones_like(above[0])]
    with np.errstate(divide="ignore", invalid="ignore"):
        for k, (p, q) in enumerate(lines):
            for r, s in lines[k + 1 :]:
                share = (r - p) / ((q - p) - (s - r))
                shares.append(np.where((share > 0) & (share < 1), share, 0.0))
        most = np.full_like(above[0], -np.inf)
        for share in shares:
            values = [np.where(np.isfinite(p + q), p + share * (q - p), -np.inf) for p, q in lines]
            a, w = (p + share * (q - p) for p, q in (above, weight))
            most = np.maximum(most, (a - np.max(values, axis=0)) / w)
    return most


# The least mu of Gaussian differential privacy on a range of false-positive rates, bounded from both sides.
#
# mu-GDP says that no test of "the record is in the data" does better than the best test of N(mu, 1) against N(0, 1):
# T(a) >= G_mu(a) = Phi(Phi^-1(1 - a) - mu). Subsampled processes meet this for all rates a > 0 only with a mu as if
# nothing were sampled, since a rare enough false alarm sees the sampled records alone. So mu is stated for the tests
# whose two error rates are both at least ``fpr``. docs/theory/trade-off.md has the proofs.

DEFAULT_FPR = 1e-9
# relative width of the bracket of mu that is aimed at
MU_TOL = 2e-4
# the first points lie this many standard deviations apart; the number of points and of refinements of one order
FIRST_SPACING, MAX_LINES, MAX_ROUNDS = 0.25, 600, 40
# cells of ln t that are narrower, relative to mu, are not divided further
LEAST_CELL = 1e-7
# a refinement that leaves more than this share of the width is idle, and so many idle ones in a row are the last
STALLED, MAX_STALLS = 0.8, 4
# the share of the width that a refinement aims at, and the largest number of parts into which it divides a cell
AIM, MAX_PARTS = 0.7, 8
# how many points of the profile, those with the largest mu, are solved for a lower end
SOLVED_POINTS = 3
# relative error of a difference of two normal quantiles, with a margin
MU_ROUNDING = 1e-13


@dataclass(frozen=True)
class GaussianMu:
    """Both ends of the least mu for which mu-GDP holds for all tests with both error rates at least ``fpr``.

    ``float(mu)`` is the upper end, which may be promised.

    Args:
        fpr: the smallest false-positive rate, and the smallest false-negative rate, for which it holds.
        lower, upper: both ends, of the worst order of the neighbours; ``upper`` is inf where no finite mu was proven.
        orders: the ends for tests whose null hypothesis is the neighbour without the record ("remove") and with it
            ("add"), at false-positive rates from ``fpr`` to 1/2; one entry, "both", where they agree.
        exact: whether mu is exact, and holds for every false-positive rate.
        regret: how much mu-GDP exaggerates: some test has error rates that exceed those that mu-GDP allows by no more
            than this, both of them, at any point of the trade-off curve. 0 for a Gaussian curve; rounded up.
    """

    fpr: float
    lower: float
    upper: float
    orders: tuple[tuple[str, float, float], ...]
    exact: bool = False
    regret: float = 0.0

    def __float__(self) -> float:
        return self.upper


def least_mu(trade_off: TradeOff, advantage: float, fpr: float, tol: float = MU_TOL) -> tuple[float, float]:
    """The least mu with T(a) >= G_mu(a) for all a from ``fpr`` to 1/2, as a lower and an upper end.

    Args:
        trade_off: bounds of T; points are added to it. advantage: delta at eps = 0, about; it sets the first points.
        tol: relative width at which the refinement ends.
    """
    scale = gaussian_mu_of_advantage(advantage)
    deepest = -float(ndtri(fpr))
    count = math.ceil((deepest + 1) / FIRST_SPACING)
    trade_off.evaluate(scale * (-0.5 + k * (deepest + 1) / count - scale / 2) for k in range(count + 1))
    trade_off.cover(fpr, 0.5, scale)
    width, stalls = math.inf, 0
    for _ in range(MAX_ROUNDS):
        upper, pieces = _upper(trade_off, fpr)
        # more points make up for the distance between points, and not for the width of the brackets of delta
        reference = _lower(trade_off.raised(), fpr)
        points = _refinements(trade_off, pieces, reference, tol, scale)
        stalls = stalls + 1 if upper - reference > STALLED * width else 0
        if not points or stalls == MAX_STALLS or len(trade_off.lines) >= MAX_LINES:
            break
        width = upper - reference
        trade_off.evaluate(points[: MAX_LINES - len(trade_off.lines)])
    return min(_lower(trade_off, fpr), upper), upper


def gaussian_mu_of_advantage(advantage: float) -> float:
    """mu of two normal distributions with this total variation distance, within [1e-12, 30]."""
    return min(max(2 * float(ndtri((1 + min(max(advantage, 0.0), 1.0)) / 2)), 1e-12), 30.0)


def _mu_of_tpr(tpr: float, fnr: float, fpr: float) -> float:
    """mu of the Gaussian test with these error rates, without a loss of digits where one of them is small."""
    quantile = -float(ndtri(fnr)) if fnr < 0.5 else float(ndtri(tpr))
    return quantile - float(ndtri(fpr))


def _upper(trade_off: TradeOff, fpr: float) -> tuple[float, list[tuple[float, Line, Line]]]:
    """The largest mu over the vertices of the envelope of the lines, rounded up; and each vertex with its two lines.

    The vertices divide [fpr, 1/2] into pieces on which one line is below T. G_mu is convex, so that it is below the
    line where it is at both ends.
    """
    hull = trade_off.hull
    vertices = [(left.meets(right), left, right) for left, right in pairwise(hull)]
    inside = [vertex for vertex in vertices if fpr < vertex[0] < 0.5]
    first, last = trade_off.active(0.5), trade_off.active(fpr)
    pieces = []
    for a, left, right in [(0.5, first, first), *inside, (fpr, last, last)]:
        mus = []
        for line in {left, right}:
            tpr, fnr = line.error_rates(a)
            mu = _mu_of_tpr(tpr, fnr, a) if fnr > 0 else math.inf
            mus.append(mu + MU_ROUNDING * (abs(mu) + abs(float(ndtri(a)))))
        pieces.append((max(mus), left, right))
    return max(mu for mu, _, _ in pieces), pieces


def _lower(trade_off: TradeOff, fpr: float) -> float:
    """A lower end of mu: from both ends of the range, and from the points of the profile."""
    ends = [_mu_of_tpr(tpr := trade_off.tpr_lower(a), 1 - tpr, a) * (1 - MU_ROUNDING) for a in (fpr, 0.5)]
    return max(0.0, *ends, _lower_at_points(trade_off, fpr))


def _refinements(
    trade_off: TradeOff, pieces: list[tuple[float, Line, Line]], reference: float, tol: float, scale: float
) -> list[float]:
    """Further ln t, where the mu of a vertex is above what the refinement aims at."""
    points: set[float] = set()
    upper = max(mu for mu, _, _ in pieces)
    # the best vertices first: closer bounds there may settle that the others do not matter
    limit = max(reference * (1 + tol), (reference + upper) / 2 if math.isfinite(upper) else sys.float_info.max)
    for mu, left, right in pieces:
        if mu <= limit:
            continue
        # the distance of a vertex from T is of second order in the width of its cell
        excess = (mu - reference) / (AIM * tol * reference) if reference > 0 else math.inf
        parts = min(max(2, math.ceil(math.sqrt(min(excess, 100.0)))), MAX_PARTS)
        if left is right:
            points |= trade_off.around(left, parts)
        elif right.log_t - left.log_t > LEAST_CELL * scale:
            points |= trade_off.divide(left, right, parts)
    return sorted(points)


def _lower_at_points(trade_off: TradeOff, fpr: float) -> float:
    """A lower end of mu from the points whose best test certainly has a false-positive rate in the range, rounded down.

    Where that rate is known closely, as at a kink of T, the test itself gives mu; elsewhere the mu with f_mu(t) = f(t)
    is closer.
    """
    best, certain = 0.0, []
    lines = trade_off.lines
    for left, line, right in zip(lines, lines[1:], lines[2:], strict=False):
        # minus the slope of f at t is the false-positive rate of the test that attains f(t)
        least, most = line.rates_between(right)[0], left.rates_between(line)[1]
        if fpr <= least <= most <= 0.5:
            tpr, fnr = line.error_rates((most + least) / 2)
            certain.append((_mu_of_tpr(tpr, fnr, (most + least) / 2) if fnr > 0 else math.inf, line))
            tpr, fnr = line.attained(least)
            best = max(best, _mu_of_tpr(tpr, fnr, most) * (1 - MU_ROUNDING) - MU_ROUNDING * abs(float(ndtri(most))))
    certain.sort(key=lambda point: -point[0])
    return max([best, *(_mu_of_line(line) for _, line in certain[:SOLVED_POINTS])])


def _mu_of_line(line: Line) -> float:
    """The mu with delta_mu(eps) = delta at the lower end of delta, rounded down."""
    if not 0 < line.delta_low < 1:
        return 0.0
    return 1 / conversions.exact(abs(line.log_t), line.delta_low) * (1 - MU_ROUNDING)


# The regret of mu: how far the trade-off function of N(mu, 1) against N(0, 1) lies below that of the process, along the
# diagonal: the least kappa >= 0 with T(a + kappa) - kappa <= G_mu(a) at every a. By duality it is the largest of
# (f_mu(t) - f(t)) / (1 + t) over t > 0. docs/theory/trade-off.md has the proof.

# relative width at which the refinement ends, and the least regret that is told from zero
REGRET_TOL, LEAST_REGRET = 0.01, 1e-5
# the first points lie this many standard deviations apart, and reach this far beyond the middle
REGRET_SPACING, REGRET_REACH = 0.5, 5.0


def regret(trade_off: TradeOff, mu: float) -> float:
    """Bound the regret of mu from above: the largest distance, in both error rates, of G_mu from T where it is below.

    Args:
        trade_off: bounds of T, of which both orders of the neighbours have the same profile; points are added to it.
        mu: of the claim, finite and above 0.
    Returns:
        A number in [0, 1/2], rounded up.
    Source: Gomez, Kulynych et al. 2025 (arXiv 2503.10945); Kaissis et al. 2024, the Delta-divergence.
    """
    largest = _gaussian_profile(0.0, mu) / 2
    if largest <= LEAST_REGRET:
        return largest
    top = min(mu * (mu / 2 + REGRET_REACH), MAX_LOG_T)
    count = math.ceil(top / (mu * REGRET_SPACING))
    trade_off.evaluate(top * k / count for k in range(-1, count + 1))
    for _ in range(MAX_ROUNDS):
        # the same profile below t = 1 has no more to say
        lines = [line for line in trade_off.lines if line.log_t >= 0]
        gauss = np.array([_gaussian_profile(line.log_t, mu) for line in lines])
        t, _, _, below = trade_off.below()
        start = len(t) - len(lines)
        cells = [(left[start:], right[start:]) for left, right in below]
        weights = 1 + t[start:]
        most = largest_excess((gauss[:-1], gauss[1:]), cells, (weights[:-1], weights[1:]))
        at_points = (gauss - np.array([line.delta_low for line in lines])) / weights
        limit = max(float(at_points.max()), 0.0) * (1 + REGRET_TOL) + LEAST_REGRET
        wide = [pair for pair, each in zip(pairwise(lines), most, strict=True) if each > limit]
        if not wide or len(lines) > MAX_LINES:
            break
        trade_off.evaluate((left.log_t + right.log_t) / 2 for left, right in wide)
    # beyond the last point the profile is at least zero
    return min(max(float(most.max()), float(gauss[-1] / weights[-1]), 0.0) + PROFILE_ROUNDING, 0.5)


def _gaussian_profile(log_t: float, mu: float) -> float:
    """delta at eps = log_t >= 0 of N(mu, 1) against N(0, 1)."""
    with np.errstate(under="ignore"):
        return float(ndtr(mu / 2 - log_t / mu) - np.exp(log_t + log_ndtr(-mu / 2 - log_t / mu)))
