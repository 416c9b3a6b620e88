"""Solving for a parameter: few evaluations, and the answer has been evaluated itself and meets the target."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, field

from wpriv.core.digits import DIGITS, rounded
from wpriv.errors import Unsupported

MOST_EVALUATIONS = 120
# a move of half an e-fold or more that changes ln(found / wanted) by less than this has reached a limit
FLAT = 1e-6


@dataclass(frozen=True)
class Knob:
    """A parameter on the grid of numbers it may be printed as: 6 significant digits, or whole numbers.

    ``sign`` is +1 where a larger value is more private (noise) and -1 where a smaller one is (n, rate).
    """

    name: str
    sign: int
    low: float
    high: float
    whole: bool = False

    def snap(self, log_x: float, toward: int) -> float:
        """The grid value at exp(log_x) or next to it, on the more private (toward=+1) or the less private side."""
        x = math.exp(min(max(log_x, math.log(self.low)), math.log(self.high)))
        up = toward * self.sign > 0
        found = (math.ceil(x - 1e-9) if up else math.floor(x + 1e-9)) if self.whole else rounded(x, up=up)
        return float(min(max(found, self.low), self.high))

    def beside(self, x: float, toward: int) -> float:
        """The next grid value after x, which is on the grid itself."""
        step = 1.0 if self.whole else 10.0 ** (math.floor(math.log10(x) + 1e-12) + 1 - DIGITS)
        moved = x + toward * self.sign * step
        if not self.whole:
            moved = float(f"{moved:.{DIGITS - 1}e}")
        return float(min(max(moved, self.low), self.high))

    def at_end(self, x: float, toward: int) -> bool:
        return x == (self.high if toward * self.sign > 0 else self.low)


class Unreachable(Exception):
    """Nothing meets the target; the best value seen and how far it is."""

    def __init__(self, best: float, miss: float):
        super().__init__(f"best value {best:g}, {miss:g} short of the target")
        self.best, self.miss = best, miss


@dataclass
class Search:
    """A bracket in u = sign * ln x between the least private value that meets the target and the most private that does not."""

    knob: Knob
    miss: Callable[[float], float]
    seen: dict[float, float] = field(default_factory=dict)

    def at(self, x: float) -> float:
        """How far x is from the target (negative or zero where met), asked once for each x."""
        if x not in self.seen:
            if len(self.seen) >= MOST_EVALUATIONS:
                raise Unsupported(f"no {self.knob.name} found within {MOST_EVALUATIONS} evaluations of the accountant")
            self.seen[x] = self.miss(x)
        return self.seen[x]

    def unreachable(self) -> Unreachable:
        best = min(self.seen, key=lambda x: self.seen[x])
        return Unreachable(best, self.seen[best])

    def u(self, x: float) -> float:
        return self.knob.sign * math.log(x)

    def x(self, u: float, toward: int = +1) -> float:
        return self.knob.snap(self.knob.sign * u, toward)


def solve(knob: Knob, miss: Callable[[float], float], guess: float, slope: float, rtol: float) -> float:
    """The least private grid value that meets the target, to within ``rtol`` relative; it was evaluated and meets it.

    Args:
        miss: at a grid value, ln(found / wanted): negative or zero where the target is met; +-inf allowed.
        guess: a value near the answer. slope: a rough d miss / d ln x towards privacy (negative).
    Raises:
        Unsupported: nothing in [low, high] meets it; the message names the best value seen.
    """
    search = Search(knob, miss)
    good, bad = _bracket(search, guess, slope, rtol)
    if bad is None:
        return good
    weight = {good: search.at(good), bad: search.at(bad)}
    last = 0
    while not _close(search, good, bad, rtol):
        x = _between(search, good, bad, weight, rtol)
        f = search.at(x)
        if f <= 0:
            # a side that stays put is given half its weight (the Illinois rule), so that both sides close in
            weight = {x: f, bad: weight[bad] / 2 if last == 1 else weight[bad]}
            good, last = x, 1
        else:
            weight = {x: f, good: weight[good] / 2 if last == -1 else weight[good]}
            bad, last = x, -1
    return good


def _bracket(search: Search, guess: float, slope: float, rtol: float) -> tuple[float, float | None]:
    """A value that meets the target and a less private one that does not; None in its place where every less private one meets it."""
    knob = search.knob
    x = search.x(search.u(guess))
    f, step = search.at(x), 0.0
    toward = 1 if f > 0 else -1
    while True:
        if knob.at_end(x, toward):
            if f <= 0:
                return x, None
            if knob.whole:  # a count: more of it is never more private
                raise search.unreachable()
            return _scan(search, guess)
        # aim a little beyond the root that the slope promises, so that the root ends up between the two
        aim = abs(f / slope) * 1.03 + rtol if math.isfinite(f) else 0.0
        step = max(min(aim, 3.0), 2 * step if step else 0.0) or 1.0
        before, f_before = x, f
        x = search.x(search.u(before) + toward * step, toward)
        if x == before:
            x = knob.beside(before, toward)
        f = search.at(x)
        if (f > 0) != (toward > 0):
            return (x, before) if toward > 0 else (before, x)
        if toward > 0 and step > 0.5 and math.isfinite(f) and f > f_before - FLAT:
            if f < f_before + FLAT:
                raise search.unreachable()
            return _scan(search, guess)
        if math.isfinite(f) and math.isfinite(f_before) and f != f_before:
            slope = min((f - f_before) / (search.u(x) - search.u(before)), slope / 4)


def _scan(search: Search, guess: float) -> tuple[float, float | None]:
    """Looks everywhere once: more noise may also mean less privacy (a truncated law), so the good values may lie in a valley."""
    knob = search.knob
    centre = search.u(guess)
    values = {search.x(centre + k * 0.5) for k in range(-24, 25)}
    if knob.whole or knob.high <= 1:
        values |= {search.x(math.inf), search.x(-math.inf)}
    ordered = sorted(values, key=search.u)
    for i, x in enumerate(ordered):
        if search.at(x) <= 0:
            return (x, ordered[i - 1]) if i else (x, None)
    raise search.unreachable()


def _close(search: Search, good: float, bad: float, rtol: float) -> bool:
    knob = search.knob
    if knob.beside(good, -1) == bad or good == bad:
        return True
    width = search.u(good) - search.u(bad)
    if knob.whole and good * rtol < 1:
        return False
    f_good, f_bad = search.at(good), search.at(bad)
    if math.isfinite(f_good) and math.isfinite(f_bad) and width < 0.1:
        # the chord of so short a bracket tells how far the root is
        return width * f_good / (f_good - f_bad) <= rtol
    return width <= rtol


def _between(search: Search, good: float, bad: float, weight: dict[float, float], rtol: float) -> float:
    """A grid value strictly between: a hair on the private side of where the chord meets zero, else the middle."""
    u_good, u_bad = search.u(good), search.u(bad)
    f_good, f_bad = weight[good], weight[bad]
    if math.isfinite(f_good) and math.isfinite(f_bad) and f_good < f_bad:
        u = u_bad + (u_good - u_bad) * f_bad / (f_bad - f_good) + 0.4 * rtol
    else:
        u = (u_good + u_bad) / 2
    x = search.x(u)
    inner = sorted((search.knob.beside(good, -1), search.knob.beside(bad, +1)))
    return min(max(x, inner[0]), inner[1])
