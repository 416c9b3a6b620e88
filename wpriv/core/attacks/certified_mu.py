"""The least mu of Gaussian differential privacy on a range of false-positive rates, bounded from both sides.

mu-GDP says that no test of "the record is in the data" does better than the best test of N(mu, 1) against N(0, 1):
T(a) >= G_mu(a) = Phi(Phi^-1(1 - a) - mu). Subsampled processes meet this for all rates a > 0 only with a mu as if
nothing were sampled, since a rare enough false alarm sees the sampled records alone. So mu is stated for the tests
whose two error rates are both at least ``fpr``. docs/theory/trade-off.md has the proofs.
"""

from __future__ import annotations

import math
import sys
from dataclasses import dataclass
from itertools import pairwise

from scipy.special import ndtri

from wpriv.core.attacks.trade_off import Line, TradeOff
from wpriv.numerics import gaussian_calibration

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
ROUNDING = 1e-13


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
    """

    fpr: float
    lower: float
    upper: float
    orders: tuple[tuple[str, float, float], ...]
    exact: bool = False

    def __float__(self) -> float:
        return self.upper


def least_mu(trade_off: TradeOff, advantage: float, fpr: float, tol: float = MU_TOL) -> tuple[float, float]:
    """The least mu with T(a) >= G_mu(a) for all a from ``fpr`` to 1/2, as a lower and an upper end.

    Args:
        trade_off: bounds of T; points are added to it.
        advantage: delta at eps = 0, about; it sets the first points.
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
        mu = max(_rounded_up(line, a) for line in {left, right})
        pieces.append((mu, left, right))
    return max(mu for mu, _, _ in pieces), pieces


def _rounded_up(line: Line, fpr: float) -> float:
    tpr, fnr = line.error_rates(fpr)
    if fnr == 0:
        return math.inf
    mu = _mu_of_tpr(tpr, fnr, fpr)
    return mu + ROUNDING * (abs(mu) + abs(float(ndtri(fpr))))


def _lower(trade_off: TradeOff, fpr: float) -> float:
    """A lower end of mu: from both ends of the range, and from the points of the profile."""
    ends = [_mu_of_tpr(tpr := trade_off.tpr_lower(a), 1 - tpr, a) * (1 - ROUNDING) for a in (fpr, 0.5)]
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
            best = max(best, _mu_of_tpr(tpr, fnr, most) * (1 - ROUNDING) - ROUNDING * abs(float(ndtri(most))))
    certain.sort(key=lambda point: -point[0])
    return max([best, *(_mu_of_line(line) for _, line in certain[:SOLVED_POINTS])])


def _mu_of_line(line: Line) -> float:
    """The mu with delta_mu(eps) = delta at the lower end of delta, rounded down."""
    if not 0 < line.delta_low < 1:
        return 0.0
    return 1 / gaussian_calibration.exact(abs(line.log_t), line.delta_low) * (1 - ROUNDING)
