"""Numbers as text, rounded to the side that keeps a promise."""

from __future__ import annotations

import math
from decimal import ROUND_CEILING, ROUND_FLOOR, Decimal

DIGITS = 6
# as many as tell every double from every other
MOST_DIGITS = 17


def rounded(x: float, *, up: bool, digits: int = DIGITS) -> float:
    """x in ``digits`` significant decimal digits, never below x (``up``) or never above it; infinities stay as they are."""
    if math.isinf(x) or x == 0:
        return float(x)
    # by its shortest text, so that the float nearest to 1e-5, which lies a hair above it, stays 1e-5
    exact = Decimal(repr(float(x)))
    kept = exact.quantize(
        Decimal(1).scaleb(exact.adjusted() - digits + 1), rounding=ROUND_CEILING if up else ROUND_FLOOR
    )
    return float(kept)


def echo(x: float) -> str:
    """A number that was given, in all of its digits and no more than those: 1, 0.1, 1.0000001, 1e-05."""
    return repr(float(x)).removesuffix(".0")


def text(x: float, *, up: bool, digits: int = DIGITS, limit: float | None = None) -> str:
    """``rounded`` as short text that reads back as the same number: 2.30168, 1e-05, 1048576.

    Args:
        limit: a number that x is held against; more digits are shown where fewer would lie on the other side of it.
    """
    value = rounded(x, up=up, digits=digits)
    while limit is not None and digits < MOST_DIGITS and (value <= limit) != (x <= limit):
        digits += 1
        value = rounded(x, up=up, digits=digits)
    if digits > 15:
        return echo(value)  # so many digits of a double are not all of them its own
    if value.is_integer() and abs(value) < 1e15:
        return str(int(value))
    return f"{value:.{digits}g}"
