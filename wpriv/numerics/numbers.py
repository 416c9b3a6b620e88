"""Numbers as text: how users write them, and how they are printed, towards the safe side."""

from __future__ import annotations

import math
import re
import reprlib
from collections.abc import Callable, Iterable, Set
from decimal import ROUND_CEILING, ROUND_FLOOR, Decimal
from fractions import Fraction
from numbers import Integral, Real
from typing import Any

from wpriv.errors import UsageError

# below this size a count is exact as a float and neither nan nor inf
EXACT = 2**40
_POWER = re.compile(r"\s*(\d{1,9})\s*(?:\^|\*\*)\s*(-?)(\d{1,4})\s*")
_INTEGER = re.compile(r"\s*[+-]?\d{1,40}\s*")
# groups of three digits: 60_000, 1,234,567.5
_GROUPED = re.compile(r"\s*[+-]?[1-9]\d{0,2}(?:(?:_\d{3})+|(?:,\d{3})+)(?:\.\d*)?\s*")
_PERCENT = re.compile(r"\s*([+-]?(?:\d+\.?\d*|\.\d+)(?:[eE][+-]?\d{1,3})?)\s*%\s*")
# 60.000, which is 60 to some and 60000 to others; no count is written with three decimals
_DOTTED = re.compile(r"\s*[+-]?[1-9]\d{0,2}(?:\.\d{3})+\s*")
_ONE_COMMA = re.compile(r"\s*([+-]?\d+),(\d+)\s*")


def number(value: object, name: str) -> float:
    """Convert a number, or text such as ``1e-5``, ``2^-20``, ``256/60000``, ``60_000`` or ``10%``, to a finite float.

    A single comma is refused, since ``1,234`` is 1234 to some and 1.234 to others; ``whole`` reads it.
    """
    if isinstance(value, str) and (comma := _ONE_COMMA.fullmatch(value)) is not None:
        decimal, thousands = f"{comma[1]}.{comma[2]}", "" if comma[1].startswith("0") else f" or {comma[1]}{comma[2]}"
        fault = f"{name} has a comma, that of decimals or of thousands"
        raise UsageError(f"{fault}: write {decimal}{thousands}; found {shown(value)}")
    try:
        value = _without_separators(value) if isinstance(value, str) and "/" not in value else value
        power = _power(value)
        if power is not None:
            return float(power)  # of a Fraction the nearest double, as of 1e-5
        if isinstance(value, str) and value.count("/") == 1:
            numerator, denominator = value.split("/")
            if "%" in value or (_ONE_COMMA.fullmatch(numerator) and not _ONE_COMMA.fullmatch(denominator)):
                raise ValueError
            result = float(_without_separators(numerator)) / float(_without_separators(denominator))
        else:
            result = float(value) if not isinstance(value, (bool, bytes)) else math.nan  # type: ignore[arg-type]
    except _TooLargeError:
        raise UsageError(f"{name} has too large an exponent; found {shown(value)}") from None
    except (TypeError, ValueError, ZeroDivisionError, OverflowError):
        raise UsageError(f"{name} must be a number, as in 0.5, 1e-5 or 2^20; found {shown(value)}") from None
    if not math.isfinite(result):
        raise UsageError(f"{name} must be a finite number; found {shown(value)}")
    return result


def whole(value: object, name: str) -> int:
    """Convert a number, or text such as ``1000``, ``60,000``, ``1e4`` or ``2^20``, to an int."""
    if isinstance(value, str) and "%" in value:
        raise UsageError(f"{name} is a count, and no percentage; found {shown(value)}")
    refuse_dots(value, name)
    if isinstance(value, str) and _GROUPED.fullmatch(value):
        value = _without_separators(value)
    if isinstance(value, str) and _INTEGER.fullmatch(value):
        return int(value.strip())  # some separators are white space to a pattern and none to int
    result = number(value, name)
    if isinstance(exact := value if isinstance(value, int) else _power(value), int):
        return exact
    if result != math.floor(result):
        raise UsageError(f"{name} must be a whole number, as in 1000 or 2^20; found {shown(value)}")
    return int(result)


def refuse_dots(value: object, name: str) -> None:
    """Refuse the text of a count with dots of thousands, such as ``60.000``."""
    if isinstance(value, str) and _DOTTED.fullmatch(value):
        all_digits, digits = value.strip().replace(".", ""), value.strip().partition(".")[0]
        other = f", or {digits}" if float("0." + all_digits[len(digits) :]) == 0 else ""
        fault = f"{name} is a count, and has a dot of decimals or of thousands"
        raise UsageError(f"{fault}: write {all_digits}{other}; found {shown(value)}")


def finite_number(value: object, name: str, *, whole: bool = False) -> Any:
    """Convert a finite real number of any library, but no text, to a Python float (an int if ``whole``)."""
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


def positive_number(value: object, name: str, *, whole: bool = False) -> Any:
    """Convert a number above 0, as ``finite_number`` does."""
    result = finite_number(value, name, whole=whole)
    if result <= 0:
        raise UsageError(f"{name} must be above 0; found {shown(value)}")
    return result


def to_int(value: object) -> Any:
    """Convert 2^16, 60,000 and 1e6 to an int, and return anything else as it is, for a validator to refuse."""
    try:
        refuse_dots(value, "the number")
    except UsageError as error:
        raise ValueError(str(error)) from None
    try:
        if isinstance(value, str) and _GROUPED.fullmatch(value):
            return whole(value, "")
        if isinstance(power := _power(value), int):
            return power
    except (_TooLargeError, UsageError, ZeroDivisionError):
        return value
    return int(value) if isinstance(value, float) and value.is_integer() and abs(value) < 2**53 else value


def typed(value: object, words: Set[str], name: str) -> Any:
    """Convert text to the type of a parameter, given by the words of its annotation; leave other types as they are."""
    if words == {"bool"} and str(value).lower() in ("true", "false"):
        return str(value).lower() == "true"
    return number(value, name) if words & {"int", "float"} else value


def shown(value: object) -> str:
    """The representation of a value for an error message, of at most 60 characters."""
    text = repr(value)
    return text if len(text) <= 60 else text[:57] + "..."


def _without_separators(text: str) -> str:
    """The text without separators of thousands, and with a percentage as a decimal; other underscores are refused."""
    if _GROUPED.fullmatch(text):
        return text.replace(",", "").replace("_", "")
    if "_" in text:  # Python reads 6_0 as 60
        raise ValueError
    percent = _PERCENT.fullmatch(text)
    return text if percent is None else str(Decimal(percent[1]).scaleb(-2))


class _TooLargeError(Exception):
    """A power of more than 1000 bits."""


def _power(value: object) -> int | Fraction | None:
    """The value of text such as ``2^20``, ``2**20`` or ``10^-5``; None for anything else."""
    match = _POWER.fullmatch(value) if isinstance(value, str) else None
    if not match:
        return None
    base, exponent = int(match[1]), int(match[3])
    if exponent * math.log2(max(base, 2)) > 1000:
        raise _TooLargeError
    return Fraction(1, base**exponent) if match[2] else int(base**exponent)


# Decimal rounding and formatting of numbers, always towards the safe side.

DIGITS = 6
MAX_DIGITS = 17  # enough to distinguish any two doubles


def raised(x: float) -> float:
    """Return x plus more than the rounding of a logarithm or an exponential by which it was computed."""
    return x + abs(x) * 2.0**-50


def quotient_up(a: float, b: float) -> float:
    """Return a / b for positive numbers, rounded up: a / b itself where it is a double.

    Raises:
        UsageError: it is beyond the largest double.
    """
    if not math.isfinite(a / b):
        raise UsageError(f"{a:g} / {b:g} is beyond the largest number that a computer holds (1.8e308)")
    return _up(a / b, lambda x: Fraction(x) * Fraction(b) >= Fraction(a))


def total_up(terms: Iterable[tuple[int, float | Fraction]]) -> float:
    """Return the sum of n x over finite or infinite numbers x, rounded up; exact where it is a double."""
    parts = list(terms)
    total = math.fsum(n * x for n, x in parts)
    if not math.isfinite(total):
        return total
    exact = sum(n * Fraction(x) for n, x in parts)
    return _up(total, lambda x: Fraction(x) >= exact)


def decimal(x: float) -> Fraction:
    """The decimal number that a double is written as, by its shortest text."""
    return Fraction(repr(float(x)))


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
    place = Decimal(1).scaleb(exact.adjusted() - digits + 1)
    return float(exact.quantize(place, rounding=ROUND_CEILING if up else ROUND_FLOOR))


# the exponent of a number that stands in a sentence, and in no name of a file and no quoted text
_EXPONENT = re.compile(r"(?<!\w-)(?<![\w./'\"])(\d+(?:\.\d+)?e)(?:\+0*|(-)0+)(\d+)(?![\w/]|\.\w)")


def exponents(text: str) -> str:
    """Rewrite the exponents of the numbers in a text as people write them: 1e-5 for 1e-05, 2.5e6 for 2.5e+06.

    >>> exponents("delta(1) is at most 1e-05, and not 2.5e+06; see run/1e-05")
    'delta(1) is at most 1e-5, and not 2.5e6; see run/1e-05'
    """
    return _EXPONENT.sub(r"\1\2\3", text)


def echo(x: float) -> str:
    """Format an input number with exactly its own digits: 1, 0.1, 1.0000001, 1e-5."""
    return exponents(repr(float(x)).removesuffix(".0"))


def short(x: float) -> str:
    """``echo``, with small numbers as people write them.

    >>> short(0.0001), short(1e-05), short(0.01), short(4.0)
    ('1e-4', '1e-5', '0.01', '4')
    """
    return f"{Decimal(repr(float(x))).normalize():e}" if 0 < abs(x) < 1e-3 else echo(x)


def text(x: float, *, up: bool, digits: int = DIGITS, limit: float | None = None) -> str:
    """Format ``rounded(x)`` as short text that reads back as the same number: 2.30168, 1e-5, 1048576.

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
    return exponents(f"{value:.{digits}g}")


_TIMES = ((3600.0, "h"), (60.0, "min"))


def duration(seconds: float) -> str:
    """Format a time to the two digits that are known: ``65 s``, ``4.5 min`` or ``2.7 h``.

    >>> duration(5.4), duration(125), duration(9700)
    ('5.4 s', '2.1 min', '2.7 h')
    """
    value, unit = next(((seconds / size, unit) for size, unit in _TIMES if seconds >= 2 * size), (seconds, "s"))
    return f"{value:.3g} {unit}" if value >= 100 else f"{value:.2g} {unit}"
