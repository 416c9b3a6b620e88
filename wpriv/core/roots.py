"""Monotone search that ends on the safe side."""

from __future__ import annotations

import math
from collections.abc import Callable

from wpriv.errors import Unsupported


def least(meets: Callable[[float], float], guess: float, *, low: float = 0.0, high: float = math.inf, rtol: float = 1e-12) -> float:
    """The least x in [low, high] with ``meets(x) <= 0``, for a decreasing function; the answer itself meets it.

    Brackets by doubling from ``guess``, then false position kept in the bracket (the Illinois rule), falling back to
    bisection; returns the safe end once the bracket is narrower than ``rtol`` relative.

    Args:
        meets: how far x is from meeting the target, decreasing in x, negative or zero where met; +-inf allowed, nan not.
        guess: a first x > 0 near the answer; it only sets the speed.
    Returns:
        The safe end of the final bracket; ``low`` itself where that already meets the target.
    Raises:
        Unsupported: no x up to ``high`` meets it.
    """
    good, bad = _bracket(meets, guess, low, high)
    (x_good, f_good), (x_bad, f_bad) = good, bad
    if x_good == x_bad:
        return x_good
    side = 0
    for _ in range(200):
        if x_good - x_bad <= rtol * abs(x_good):
            break
        x = _false_position(x_good, f_good, x_bad, f_bad)
        f = meets(x)
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
    if f <= 0:
        good = (x, f)
        while good[0] > low:
            x = max(low, good[0] - step)
            f = meets(x)
            if f > 0:
                return good, (x, f)
            good, step = (x, f), step * 4
            if step > good[0] and low == 0.0 and good[0] > 1e-300:
                step = good[0] * 0.9 if good[0] > 1e-12 else good[0]
        return good, good
    bad = (x, f)
    while bad[0] < high:
        x = min(high, bad[0] + step)
        f = meets(x)
        if f <= 0:
            return (x, f), bad
        bad, step = (x, f), step * 4
        if step > 1e300:
            break
    raise Unsupported(f"no value up to {high:g} meets the target; found {bad[1]:g} short of it at {bad[0]:g}")


def _false_position(x_good: float, f_good: float, x_bad: float, f_bad: float) -> float:
    """A point strictly inside the bracket, a hair past the estimated root so that the safe end also closes in."""
    width = x_good - x_bad
    if not (math.isfinite(f_good) and math.isfinite(f_bad)) or f_bad <= f_good:
        return x_bad + 0.5 * width
    x = x_bad + width * f_bad / (f_bad - f_good)
    return min(max(x, x_bad + 1e-3 * width), x_good - 1e-3 * width)
