"""Numbers as users write them: 1e-5, 2^20, 256/60000."""

from __future__ import annotations

import math
import re
from typing import Any

from wpriv.errors import UsageError

_POWER = re.compile(r"\s*(\d{1,9})\s*(?:\^|\*\*)\s*(\d{1,4})\s*")


def number(value: Any, name: str) -> float:
    """A finite number from a number or from text such as ``1e-5``, ``2^20`` or ``256/60000``; UsageError names the flag."""
    exact = _power(value, name)
    try:
        if exact is not None:
            return float(exact)
        if isinstance(value, str) and value.count("/") == 1:
            above, below = value.split("/")
            found = float(above) / float(below)
        else:
            found = float(value) if not isinstance(value, (bool, bytes)) else math.nan
    except (TypeError, ValueError, ZeroDivisionError, OverflowError):
        raise UsageError(f"{name} must be a number, as in 0.5, 1e-5 or 2^20; found {shown(value)}") from None
    if not math.isfinite(found):
        raise UsageError(f"{name} must be a finite number; found {shown(value)}")
    return found


def whole(value: Any, name: str) -> int:
    """A whole number from a number or from text such as ``1000``, ``1e4``, ``2^20``; UsageError names the flag."""
    exact = _power(value, name)
    if exact is not None:
        return exact
    if isinstance(value, str) and re.fullmatch(r"\s*[+-]?\d{1,40}\s*", value):
        return int(value.strip())  # some separators are white space to a pattern and none to int
    found = number(value, name)
    if isinstance(value, int):
        return value
    if found != math.floor(found):
        raise UsageError(f"{name} must be a whole number, as in 1000 or 2^20; found {shown(value)}")
    return int(found)


def _power(value: Any, name: str) -> int | None:
    match = _POWER.fullmatch(value) if isinstance(value, str) else None
    if not match:
        return None
    base, exponent = int(match[1]), int(match[2])
    if exponent * math.log2(max(base, 2)) > 1000:
        raise UsageError(f"{name} is too large; found {shown(value)}")
    return int(base**exponent)


def shown(value: Any) -> str:
    """A value as an error shows it, cut to 60 characters."""
    text = repr(value)
    return text if len(text) <= 60 else text[:57] + "..."
