"""Rounding of normal numbers that float64 cannot decide: interval arithmetic on uniform numbers drawn bit by bit.

A uniform number on [0, 1) of which n bits are drawn lies in [a, a+1] / 2^n. Box and Muller's rule on such intervals
encloses the normal number; where the enclosure contains the midpoint of two integers, 64 more bits of each uniform
number are drawn.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any, NamedTuple

BITS = 64
"""Bits of each uniform number that are drawn at a time."""


class Dyadic(NamedTuple):
    """The interval [numerator, numerator + 1] / 2^bits; of an angle, in turns, modulo 1."""

    numerator: int
    bits: int

    def refined(self, word: int) -> Dyadic:
        """Return the part of this interval that the next 64 bits select."""
        return Dyadic((self.numerator << BITS) + word, self.bits + BITS)


More = Callable[[int], tuple[int, int]]


def nearest(share: Dyadic, angle: Dyadic, more: More, deviation: float, *, second: bool) -> int:
    """Return round(deviation * sqrt(-2 ln U) * cos(2 pi T)), or with ``second`` that of the sine.

    Args:
        share, angle: the intervals of U and of T, in turns. deviation: above 0.
        more: (1, 2, ...) -> the next 64 bits of U and of T, the same at every call.
    """
    level = 0
    while True:
        low, high = _rounded(share, angle, deviation, second)
        if low is not None and low == high:
            return low
        level += 1
        words = more(level)
        share, angle = share.refined(words[0]), angle.refined(words[1])


def _rounded(share: Dyadic, angle: Dyadic, deviation: float, second: bool) -> tuple[int | None, int | None]:
    """Return the integers nearest to both ends of the enclosure; None where U may be 0 and there is no enclosure."""
    from mpmath.libmp import mpf_floor, to_int

    if share.numerator == 0:
        return None, None
    iv = _intervals()
    # twice the bits that are drawn: the rounding of the functions is far below the width of the intervals
    iv.prec = 2 * max(share.bits, angle.bits)
    length = iv.sqrt(-2 * iv.log(_interval(iv, share)))
    turn = 2 * iv.pi * _interval(iv, angle)
    value = (iv.sin(turn) if second else iv.cos(turn)) * length * iv.mpf(deviation) + iv.mpf(0.5)
    low, high = (int(to_int(mpf_floor(end))) for end in value._mpi_)
    return low, high


@functools.cache
def _intervals() -> Any:
    """Return a context of mpmath's interval arithmetic whose precision no other code sets."""
    from mpmath.ctx_iv import MPIntervalContext

    return MPIntervalContext()


def _interval(iv: Any, number: Dyadic) -> Any:
    return iv.mpf([number.numerator, number.numerator + 1]) / iv.mpf(2) ** number.bits
