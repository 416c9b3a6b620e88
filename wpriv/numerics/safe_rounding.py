"""Decimal rounding and formatting of numbers, always towards the safe side."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from decimal import ROUND_CEILING, ROUND_FLOOR, Decimal
from fractions import Fraction

DIGITS = 6
MAX_DIGITS = 17  # enough to distinguish any two doubles


def raised(x: float) -> float:
    """Return x plus more than the rounding of a logarithm or an exponential by which it was computed."""
    return x + abs(x) * 2.0**-50


def quotient_up(a: float, b: float) -> float:
    """Return a / b for positive numbers, rounded up: a / b itself where it is a double."""
    return _up(a / b, lambda x: Fraction(x) * Fraction(b) >= Fraction(a))


def total_up(terms: Iterable[tuple[int, float]]) -> float:
    """Return the sum of n x over finite or infinite numbers x, rounded up; exact where it is a double."""
    parts = list(terms)
    total = math.fsum(n * x for n, x in parts)
    if not math.isfinite(total):
        return total
    exact = sum(n * Fraction(x) for n, x in parts)
    return _up(total, lambda x: Fraction(x) >= exact)


def _up(x: float, is_enough: Callable[[float], bool]) -> float:
    while not is_enough(x):
        x = math.nextafter(x, math.inf)
    return x


def rounded(x: float, *, up: bool, digits: int = DIGITS) -> float:
    """Round to ``digits`` significant digits, never below x (``up``) or never above it; infinities are unchanged."""
    if math.isinf(x) or x == 0:
        return float(x)
    # from the shortest text, so that the float nearest to 1e-5, which lies slightly above 1e-5, stays 1e-5
    exact = Decimal(repr(float(x)))
    decimal = exact.quantize(
        Decimal(1).scaleb(exact.adjusted() - digits + 1), rounding=ROUND_CEILING if up else ROUND_FLOOR
    )
    return float(decimal)


def echo(x: float) -> str:
    """Format an input number with exactly its own digits: 1, 0.1, 1.0000001, 1e-05."""
    return repr(float(x)).removesuffix(".0")


def text(x: float, *, up: bool, digits: int = DIGITS, limit: float | None = None) -> str:
    """Format ``rounded(x)`` as short text that reads back as the same number: 2.30168, 1e-05, 1048576.

    Args:
        limit: a threshold that x is compared with; digits are added until the text lies on the same side of it as x.
    """
    value = rounded(x, up=up, digits=digits)
    while limit is not None and digits < MAX_DIGITS and (value <= limit) != (x <= limit):
        digits += 1
        value = rounded(x, up=up, digits=digits)
    if digits > 15:
        return echo(value)  # beyond 15 digits the format below would show digits that are not in the number
    if value.is_integer() and abs(value) < 1e15:
        return str(int(value))
    return f"{value:.{digits}g}"
