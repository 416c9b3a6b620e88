"""One-dimensional searches: monotone ones that end on the safe side, and the lowest point of a quasi-convex function."""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np

from wpriv.errors import Unsupported
from wpriv.numerics.arrays import Array


def smallest_meeting(
    meets: Callable[[float], float], guess: float, *, low: float = 0.0, high: float = math.inf, rtol: float = 1e-12
) -> float:
    """The least x in [low, high] with ``meets(x) <= 0``, for a decreasing function; the answer itself meets it.

    Brackets from ``guess`` with growing steps, then false position kept in the bracket (the Illinois rule) with a bisection
    wherever three steps together did not halve it; returns the safe end once the bracket is narrower than ``rtol`` relative.

    Args:
        meets: how far x is from meeting the target, decreasing in x, negative or zero where met; +-inf allowed.
        guess: a first x near the answer; it only sets the speed.
    Returns:
        The safe end of the final bracket; ``low`` itself where that already meets the target.
    Raises:
        Unsupported: no x up to ``high`` meets it.
        ArithmeticError: ``meets`` answered nan.
    """

    def checked(x: float) -> float:
        f = meets(x)
        if math.isnan(f):
            raise ArithmeticError(f"a search met nan at {x!r}")
        return f

    (x_good, f_good), (x_bad, f_bad) = _bracket(checked, guess, low, high)
    side, mark, age = 0, abs(x_good - x_bad), 0
    while x_good - x_bad > rtol * abs(x_good):
        age += 1
        slow = age == 3 and x_good - x_bad > mark / 2
        if age == 3:
            mark, age = x_good - x_bad, 0
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


Point = tuple[float, float]


def _bracket(meets: Callable[[float], float], guess: float, low: float, high: float) -> tuple[Point, Point]:
    """A point that meets the target and, below it, one that does not (the same point twice where ``low`` meets it)."""
    x = min(max(guess, low), high)
    f = meets(x)
    step = max(abs(x) * 0.02, 1e-12)
    good = bad = (x, f)
    if f <= 0:
        while good[0] > low:
            # towards a low end of 0 the steps shrink with x, so that answers of any magnitude are met
            x = max(low, good[0] / 10 if low == 0 and step >= good[0] > 1e-300 else good[0] - step)
            f = meets(x)
            if f > 0:
                return good, (x, f)
            good, step = (x, f), step * 4
        return good, good
    while bad[0] < high and step < 1e300:
        x = min(high, bad[0] + step)
        f = meets(x)
        if f <= 0:
            return (x, f), bad
        bad, step = (x, f), step * 4
    raise Unsupported(f"no value up to {high:g} meets the target; found {bad[1]:g} short of it at {bad[0]:g}")


def _middle(x_good: float, x_bad: float) -> float:
    """The middle of a bracket: of its logarithms where it spans orders of magnitude."""
    if 0 < x_bad < x_good / 4:
        return math.sqrt(x_bad) * math.sqrt(x_good)
    return x_bad + 0.5 * (x_good - x_bad)


def _false_position(x_good: float, f_good: float, x_bad: float, f_bad: float) -> float:
    """The root of the chord, kept a little inside the bracket so that neither end can stall."""
    width = x_good - x_bad
    if not (math.isfinite(f_good) and math.isfinite(f_bad)) or f_bad <= f_good:
        return _middle(x_good, x_bad)
    x = x_bad + width * (f_bad / (f_bad - f_good))
    return min(max(x, x_bad + 1e-3 * width), x_good - 1e-3 * width)


def minimize_quasiconvex(
    objective: Callable[[Array], Array], low: float, high: float, *, rounds: int = 9
) -> tuple[float, float]:
    """(x, value) at the lowest point of a quasi-convex function of ln x on [low, high], by zooming in on a grid.

    Args:
        objective: maps a [k] array of x > 0 to [k] values; +inf where it has none.
        rounds: how often it is called, on some 16 points at a time. With 9, x is right to about 1e-7 relative, the value to rounding.
    Returns:
        The best point that was evaluated; (low, inf) where all are inf.
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
