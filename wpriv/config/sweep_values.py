"""The points of a sweep, as a recipe or a flag writes them."""

from __future__ import annotations

from typing import Any

from wpriv.numerics.parse_numbers import to_int

MAX_POINTS = 10_000


def expand_values(values: Any) -> list[float]:
    """The grid of a sweep: a list of numbers, or {linspace: [a, b, k]}, {geomspace: [a, b, k]}, {powers: [base, low, high]}.

    Raises:
        ValueError: it is none of these, is empty, or has more than 10,000 points.
    """
    if isinstance(values, list):
        points = [to_int(v) for v in values]
        if not all(isinstance(v, (int, float)) and not isinstance(v, bool) for v in points):
            raise ValueError("a sweep's values must be numbers")
    elif isinstance(values, dict) and len(values) == 1 and next(iter(values)) in _SPREADS:
        (kind, given), *_ = values.items()
        if not (isinstance(given, list) and len(given) == 3 and all(type(v) in (int, float) for v in given)):
            raise ValueError(f"{kind} takes three numbers, as in {{{kind}: {_SPREADS[kind]}}}")
        points = _points(kind, *given)
    else:
        raise ValueError(
            f"a sweep's values are a list of numbers, or one of {', '.join(f'{{{k}: {v}}}' for k, v in _SPREADS.items())}"
        )
    if not 1 <= len(points) <= MAX_POINTS:
        raise ValueError(f"a sweep has from 1 to {MAX_POINTS:,} values; found {len(points):,}")
    return points


def spread_whole(values: Any) -> list[float]:
    """``spread`` for a quantity that takes whole numbers alone, such as n: the points of a linspace or geomspace are rounded.

    Points that fall together are one point; numbers that are listed stay as they are.

    Raises:
        ValueError: as ``spread``.
    """
    points = expand_values(values)
    if not isinstance(values, dict) or "powers" in values:
        return points
    return list(dict.fromkeys(round(point) for point in points))


_SPREADS = {"linspace": "[0, 4, 81]", "geomspace": "[0.1, 10, 41]", "powers": "[2, 0, 16]"}


def _points(kind: str, low: float, high: float, count: float) -> list[float]:
    if kind == "powers":
        base, first, last = low, high, count
        if not (
            0 < base <= 1e6
            and first == int(first)
            and last == int(last)
            and abs(first) <= 60
            and abs(last) <= 60
            and first <= last
        ):
            raise ValueError("powers takes a base > 0 and two whole exponents from -60 to 60, the lower first")
        return [base**k for k in range(int(first), int(last) + 1)]
    k = to_int(count)
    if not isinstance(k, int) or not 2 <= k <= MAX_POINTS:
        raise ValueError(f"{kind} needs from 2 to {MAX_POINTS:,} points; found {count}")
    if kind == "linspace":
        return [low + (high - low) * i / (k - 1) for i in range(k)]
    if not (low > 0 and high > 0):
        raise ValueError("geomspace needs ends greater than 0")
    return [low ** (1 - i / (k - 1)) * high ** (i / (k - 1)) for i in range(k)]
