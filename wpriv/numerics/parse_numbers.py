"""Numbers as users write them: 1e-5, 2^20 and 256/60000 as text, or numbers of any library."""

from __future__ import annotations

import math
import re
import reprlib
from collections.abc import Set
from numbers import Integral, Real
from typing import Any

from wpriv.errors import UsageError

# below this size a count is exact as a float and neither nan nor inf
EXACT = 2**40
_POWER = re.compile(r"\s*(\d{1,9})\s*(?:\^|\*\*)\s*(\d{1,4})\s*")
_INTEGER = re.compile(r"\s*[+-]?\d{1,40}\s*")


def number(value: Any, name: str) -> float:
    """Convert a number, or text such as ``1e-5``, ``2^20`` or ``256/60000``, to a finite float.

    Raises:
        UsageError: the value is no finite number; the message names it by ``name``.
    """
    try:
        power = _power(value)
        if power is not None:
            return float(power)
        if isinstance(value, str) and value.count("/") == 1:
            numerator, denominator = value.split("/")
            result = float(numerator) / float(denominator)
        else:
            result = float(value) if not isinstance(value, (bool, bytes)) else math.nan
    except _TooLargeError:
        raise UsageError(f"{name} is too large; found {shown(value)}") from None
    except (TypeError, ValueError, ZeroDivisionError, OverflowError):
        raise UsageError(f"{name} must be a number, as in 0.5, 1e-5 or 2^20; found {shown(value)}") from None
    if not math.isfinite(result):
        raise UsageError(f"{name} must be a finite number; found {shown(value)}")
    return result


def whole(value: Any, name: str) -> int:
    """Convert a number, or text such as ``1000``, ``1e4`` or ``2^20``, to an int.

    Raises:
        UsageError: the value is no whole number; the message names it by ``name``.
    """
    if isinstance(value, str) and _INTEGER.fullmatch(value):
        return int(value.strip())  # some separators are white space to a pattern and none to int
    result = number(value, name)
    if (exact := value if isinstance(value, int) else _power(value)) is not None:
        return exact
    if result != math.floor(result):
        raise UsageError(f"{name} must be a whole number, as in 1000 or 2^20; found {shown(value)}")
    return int(result)


def finite_number(value: Any, name: str, *, whole: bool = False) -> Any:
    """Convert a finite real number of any library, but no text, to a Python float (an int if ``whole``).

    Raises:
        UsageError: the value is no such number; the message names it by ``name``.
    """
    # by far the most frequent case, and the cheap one
    if type(value) is (int if whole else float) and -EXACT <= value <= EXACT:
        return value
    if isinstance(value, bool) or not isinstance(value, Real):
        raise UsageError(f"{name} must be a number; found {reprlib.repr(value)}")
    try:
        result = int(value) if isinstance(value, Integral) else float(value)
        if not math.isfinite(result):
            raise UsageError(f"{name} must be a finite number; found {result}")
    except OverflowError:
        raise UsageError(f"{name} is beyond the largest number that a computer holds (1.8e308)") from None
    if whole and result != math.floor(result):
        raise UsageError(f"{name} must be a whole number; found {result}")
    return int(result) if whole else float(result)


def to_int(value: Any) -> Any:
    """Convert 2^16 and 1e6 to an int, and return anything else as it is, for a validator to refuse."""
    try:
        if (power := _power(value)) is not None:
            return power
    except _TooLargeError:
        return value
    return int(value) if isinstance(value, float) and value.is_integer() and abs(value) < 2**53 else value


def typed(value: Any, words: Set[str], name: str) -> Any:
    """Convert text to the type of a parameter, given by the words of its annotation; leave other types as they are.

    Raises:
        UsageError: the parameter is a number and the text is none.
    """
    if words == {"bool"} and str(value).lower() in ("true", "false"):
        return str(value).lower() == "true"
    return number(value, name) if words & {"int", "float"} else value


def shown(value: Any) -> str:
    """The representation of a value for an error message, of at most 60 characters."""
    text = repr(value)
    return text if len(text) <= 60 else text[:57] + "..."


class _TooLargeError(Exception):
    """A power of more than 1000 bits."""


def _power(value: Any) -> int | None:
    """The value of text such as ``2^20`` or ``2**20``; None for anything else."""
    match = _POWER.fullmatch(value) if isinstance(value, str) else None
    if not match:
        return None
    base, exponent = int(match[1]), int(match[2])
    if exponent * math.log2(max(base, 2)) > 1000:
        raise _TooLargeError
    return int(base**exponent)
