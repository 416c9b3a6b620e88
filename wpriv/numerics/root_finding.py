"""One-dimensional searches: monotone roots that end on the safe side, and minima of quasi-convex functions."""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np

from wpriv.errors import Unsupported
from wpriv.numerics.arrays import Array

Point = tuple[float, float]


def smallest_meeting(
    shortfall: Callable[[float], float], guess: float, *, low: float = 0.0, high: float = math.inf, rtol: float = 1e-12
) -> float:
    """Find the smallest x in [low, high] with ``shortfall(x) <= 0``; the answer itself meets the target.

    Brackets the root from ``guess`` with growing steps, then uses false position (the Illinois rule), with a bisection
    wherever three steps together did not halve the bracket.

    Args:
        shortfall: decreasing function of x that is negative or zero where the target is met; +-inf allowed.
        guess: a first x near the answer; it affects the speed only. low, high: the range that is searched.
        rtol: relative width of the final bracket.
    Returns:
        The safe end of the final bracket; ``low`` itself where that already meets the target.
    Raises:
        Unsupported: no x up to ``high`` meets the target. ArithmeticError: ``shortfall`` returned nan.
    """

    def checked(x: float) -> float:
        f = shortfall(x)
        if math.isnan(f):
            raise ArithmeticError(f"a root search evaluated its function to nan at {x!r}")
        return f

    (x_good, f_good), (x_bad, f_bad) = _bracket(checked, guess, low, high)
    side, earlier_width, age = 0, abs(x_good - x_bad), 0
    while x_good - x_bad > rtol * abs(x_good):
        age += 1
        slow = age == 3 and x_good - x_bad > earlier_width / 2
        if age == 3:
            earlier_width, age = x_good - x_bad, 0
        x = _middle(x_good, x_bad) if slow else _false_position(x_good, f_good, x_bad, f_bad)
        if not x_bad < x < x_good:
            break  # the bracket is as narrow as doubles allow
        f = checked(x)
        if f <= 0:
            x_good, f_good = x, f
            f_bad, side = (f_bad / 2 if side == 1 else f_bad), 1
        else:
            x_bad, f_bad = x, f
            f_good, side = (f_good / 2 if side == -1 else f_good), -1
    return x_good


def _bracket(shortfall: Callable[[float], float], guess: float, low: float, high: float) -> tuple[Point, Point]:
    """A point that meets the target and, below it, one that does not (the same point twice where ``low`` meets it)."""
    x = min(max(guess, low), high)
    f = shortfall(x)
    step = max(abs(x) * 0.02, 1e-12)
    good = bad = (x, f)
    if f <= 0:
        while good[0] > low:
            # towards a lower end of 0 the steps shrink with x, so that answers of any magnitude are reached
            x = max(low, good[0] / 10 if low == 0 and step >= good[0] > 1e-300 else good[0] - step)
            f = shortfall(x)
            if f > 0:
                return good, (x, f)
            good, step = (x, f), step * 4
        return good, good
    while bad[0] < high and step < 1e300:
        x = min(high, bad[0] + step)
        f = shortfall(x)
        if f <= 0:
            return (x, f), bad
        bad, step = (x, f), step * 4
    raise Unsupported(f"no value up to {high:g} meets the target; at {bad[0]:g} it is missed by {bad[1]:g}")


def _middle(x_good: float, x_bad: float) -> float:
    """Midpoint of a bracket; the geometric one where it spans orders of magnitude."""
    if 0 < x_bad < x_good / 4:
        return math.sqrt(x_bad) * math.sqrt(x_good)
    return x_bad + 0.5 * (x_good - x_bad)


def _false_position(x_good: float, f_good: float, x_bad: float, f_bad: float) -> float:
    """Root of the chord, kept a little inside the bracket so that neither end can stall."""
    width = x_good - x_bad
    if not (math.isfinite(f_good) and math.isfinite(f_bad)) or f_bad <= f_good:
        return _middle(x_good, x_bad)
    x = x_bad + width * (f_bad / (f_bad - f_good))
    return min(max(x, x_bad + 1e-3 * width), x_good - 1e-3 * width)


def minimize_quasiconvex(
    objective: Callable[[Array], Array], low: float, high: float, *, rounds: int = 9
) -> tuple[float, float]:
    """Minimise a quasi-convex function of ln x on [low, high] by refining a grid around the smallest value.

    Args:
        objective: maps a [k] array of x > 0 to [k] values; +inf where it has none.
        low, high: the range that is searched, 0 < low < high.
        rounds: number of calls, each on about 16 points. With 9, x is right to about 1e-7 relative, the value to
            rounding.
    Returns:
        (x, value) of the best point that was evaluated; (low, inf) where all values are inf.
    """
    grid = np.geomspace(low, high, max(17, int(2 * math.log10(high / low))))
    best = (low, math.inf)
    for _ in range(rounds):
        values = objective(grid)
        at = int(np.argmin(values))
        if values[at] < best[1]:
            best = (float(grid[at]), float(values[at]))
        if math.isinf(values[at]):
            return best
        grid = np.geomspace(grid[max(at - 1, 0)], grid[min(at + 1, grid.size - 1)], 16)
    return best
