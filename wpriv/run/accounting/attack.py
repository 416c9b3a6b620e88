"""Bounds on membership inference: advantage and true-positive rates from a privacy curve through its trade-off
function.

A curve delta(eps) that holds in both directions is, by duality, a bound on every test of "was this record in the data":
at false-positive rate a the true-positive rate is at most inf over t > 0 of a t + f(t), with t = e^eps and f(t) =
delta(ln t); for t < 1 the directions exchange, f(t) = 1 - t + t f(1/t). f is convex, so chords through lower bounds of
f bound that infimum from below.
"""

from __future__ import annotations

import math
import time
from typing import Any

from scipy.special import ndtri

from wpriv.core.guarantee import Bracket, Curve, Guarantee
from wpriv.errors import Unsupported

RATES = (1e-3, 1e-2)
# relative width at which a bound is narrow enough, and the number of points of the curve after which it is left
CLOSE, MAX_POINTS = 1e-3, 16
# CPU seconds after which points are taken from the coarse curve, and after which no further point is computed
FINE_CPU_SECONDS, MAX_CPU_SECONDS = 0.3, 2.0


def chance_of_right_guess(row: Guarantee) -> dict[str, Any] | None:
    """Return the chance of a right guess that Yang et al. (2024) derive from an eps, and what the notion really bounds.

    The neighbours are equally likely. 1/(1 + e^-eps) is the bound of pure DP. (eps, delta)-BDP bounds the mean over
    records by (e^eps + delta)/(1 + e^eps). WDP bounds nothing: a value released without noise has a finite WDP eps.
    None for notions to which the paper does not apply it.
    """
    eps, delta = row.epsilon.safe, row.delta.safe
    chance = 1 / (1 + math.exp(-min(eps, 700.0)))
    if row.notion == "wdp":
        return {
            "paper": chance,
            "bound": 1.0,
            "why": "a wdp eps does not bound the chance of a right guess: a release without noise has a finite one too",
        }
    if row.notion == "bdp":
        bound = min(1.0, chance + delta * math.exp(-min(eps, 700.0)) * chance)
        return {
            "paper": chance,
            "bound": bound,
            "why": "(e^eps + delta)/(1 + e^eps), on average over records distributed like the observed pairs",
        }
    return None


class Profile:
    """f(t) with a lower and an upper bound; each point of the curve is computed once.

    Where points take long they come from ``coarse``, a wider bracket of the same curve. Once ``MAX_CPU_SECONDS`` are
    spent, bounds at further points follow from those known: delta decreases in eps.
    """

    def __init__(self, curve: Curve, coarse: Curve | None = None):
        self.curve, self.coarse = curve, curve if coarse is None else coarse
        self.top = max(math.fsum(n * pair.support[1] for pair, n in run) for run in curve.process.directions())
        self.known: dict[float, tuple[float, float]] = {}
        self.start = time.process_time()

    def out_of_time(self) -> bool:
        """Tell whether no further point is computed."""
        return self._seconds() > MAX_CPU_SECONDS

    def _seconds(self) -> float:
        return time.process_time() - self.start

    def at(self, log_t: float) -> tuple[float, float]:
        eps = abs(log_t)
        if eps not in self.known and self.known and self.out_of_time():
            low, high = self._between(eps)
        elif eps not in self.known:
            try:
                curve = self.curve if self._seconds() <= FINE_CPU_SECONDS else self.coarse
                bracket: Bracket = curve.delta_bracket(eps)
                self.known[eps] = (float(bracket.lower or 0.0), float(bracket.safe))
            except Unsupported:
                # the curve has no answer here
                self.known[eps] = 0.0, 1.0
        if eps in self.known:
            low, high = self.known[eps]
        if log_t >= 0:
            return low, high
        t = math.exp(log_t)
        return -math.expm1(log_t) + t * low, -math.expm1(log_t) + t * high

    def _between(self, eps: float) -> tuple[float, float]:
        """Bounds of delta at eps from the known points on either side."""
        lows = [low for known, (low, _) in self.known.items() if known >= eps]
        highs = [high for known, (_, high) in self.known.items() if known <= eps]
        return max(lows, default=0.0), min(highs, default=1.0)


def attack_bounds(
    curve: Curve, rates: tuple[float, ...] = RATES, *, coarse: Curve | None = None
) -> dict[str, Any] | None:
    """Bound the advantage (largest TPR - FPR) and the TPR at each false-positive rate from both sides.

    The advantage is delta(0), the total variation distance. The bounds are those of the trade-off function that the
    curve stands for; where the two directions differ, that function is a mixture of theirs.

    Args:
        curve: a curve of notion approximate-dp and claim exact or certified; None is returned for any other.
        coarse: a wider bracket of the same curve, for points that take long.
    Source:
        Dong, Roth, Su (2019), Proposition 2.12 (f-DP and its dual); Wasserman and Zhou (2010).
    """
    if curve.notion != "approximate-dp" or curve.claim not in ("exact", "certified"):
        return None
    profile = Profile(curve, coarse)
    low, high = profile.at(0.0)
    rows = []
    for rate in rates:
        tpr = true_positive_rate(profile, rate)
        rows.append({"fpr": rate, "tpr_lower": tpr[0], "tpr_upper": tpr[1]})
    return {"advantage_lower": low, "advantage_upper": high, "tpr_at_fpr": rows}


def true_positive_rate(profile: Profile, rate: float) -> tuple[float, float]:
    """Lower and upper bound of inf over t of rate * t + f(t)."""
    centre, width = _gaussian_guess(profile, rate)
    logs = sorted(
        {
            0.0,
            *(x for x in (profile.top, -profile.top) if abs(x) < 50),
            *(centre + width * k for k in (-1.5, -0.5, 0.5, 1.5)),
        }
    )
    while True:
        floors, heights = _bounds(profile, logs, rate)
        high = min(*heights, 1.0)
        low = min(max(min(floors), rate), high)
        if high - low <= CLOSE * high or len(logs) >= MAX_POINTS or profile.out_of_time():
            return low, high
        logs = sorted([*logs, _next(logs, floors, heights, width / 4)])


def _gaussian_guess(profile: Profile, rate: float) -> tuple[float, float]:
    """ln t of the test at this rate between two normal distributions of the same advantage, and a small distance."""
    advantage = min(sum(profile.at(0.0)) / 2, 1 - 1e-12)
    mu = 2 * float(ndtri((1 + advantage) / 2))
    return -mu * float(ndtri(rate)) - mu * mu / 2, min(0.1, max(0.3 * mu, 1e-6))


def _bounds(profile: Profile, logs: list[float], rate: float) -> tuple[list[float], list[float]]:
    """Lower bounds of the objective on (0, t1), (t1, t2) ... and beyond the last point; upper bounds at the points."""
    t = [0.0, *(math.exp(x) for x in logs)]
    ends = [(1.0, 1.0), *(profile.at(x) for x in logs)]
    low, high = [e[0] for e in ends], [e[1] for e in ends]
    floors = [*(_floor(t, low, high, i, rate) for i in range(len(logs))), _last_floor(t, low, high, rate)]
    return floors, [rate * a + h for a, h in zip(t[1:], high[1:], strict=True)]


def _floor(t: list[float], low: list[float], high: list[float], i: int, rate: float) -> float:
    """Lower bound of rate * t + f(t) between points i and i + 1, given that f is convex and decreasing."""
    a, b = t[i], t[i + 1]
    # lines below f on [a, b], as (value at a, value at b): its value at b, 1 - t, and the extended chords on both sides
    lines = [(low[i + 1], low[i + 1]), (1 - a, 1 - b)]
    if i > 0:
        slope = (low[i] - high[i - 1]) / (a - t[i - 1])
        lines.append((low[i], low[i] + slope * (b - a)))
    if i + 2 < len(t):
        slope = (high[i + 2] - low[i + 1]) / (t[i + 2] - b)
        lines.append((low[i + 1] - slope * (b - a), low[i + 1]))
    shares = [0.0, 1.0]
    for k, (p, q) in enumerate(lines):
        for r, s in lines[k + 1 :]:
            turn = (q - p) - (s - r)
            if turn and 0 < (r - p) / turn < 1:
                shares.append((r - p) / turn)
    return min(rate * (a + x * (b - a)) + max(p + x * (q - p) for p, q in lines) for x in shares)


def _last_floor(t: list[float], low: list[float], high: list[float], rate: float) -> float:
    """Lower bound beyond the last point: f stays above its extended last chord, and above zero."""
    slope = (low[-1] - high[-2]) / (t[-1] - t[-2])
    end = t[-1] - low[-1] / slope if slope < 0 else math.inf
    return min(rate * t[-1] + low[-1], rate * end)


def _next(logs: list[float], floors: list[float], heights: list[float], apart: float) -> float:
    """The next point: the minimum of the parabola through the best three points, else the least certain gap."""
    best = heights.index(min(heights))
    if best == len(logs) - 1:
        return logs[-1] + 2 * (logs[-1] - logs[-2])
    if best > 0:
        x, y = logs[best - 1 : best + 2], heights[best - 1 : best + 2]
        left, right = (y[1] - y[0]) / (x[1] - x[0]), (y[2] - y[1]) / (x[2] - x[1])
        if right > left:
            minimum = (x[0] + x[1]) / 2 - left * (x[2] - x[0]) / 2 / (right - left)
            if min(abs(minimum - known) for known in logs) > apart:
                return minimum
    gap = floors.index(min(floors))
    if gap == 0:
        return logs[0] - 2 * (logs[1] - logs[0])
    return (logs[gap - 1] + logs[gap]) / 2 if gap < len(logs) else 2 * logs[-1] - logs[-2]
