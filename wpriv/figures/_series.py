"""The series of a table: which rows form a curve, under which label, and over which quantity."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Any

from wpriv.figures import _names

Row = dict[str, Any]

# columns of a table of bounds that are no numeric parameters of the process
_DESCRIPTIONS = {
    *("panel", "case", "accountant", "reason", "claim", "notion"),
    *("adjacency", "asked", "given", "mech", "sampling", "file", "steps"),
}
_ANSWERS = {f"{name}{end}" for name in ("epsilon", "delta") for end in ("", "_lower", "_upper", "_estimate")}
_ANSWERS |= {"mean", "variance", "third", "infinity"}


@dataclass(frozen=True)
class Series:
    """One curve.

    Attributes:
        label: in the legend. key: of its colour and mark. rows: sorted by x.
        mark: key of its mark where that is another one, because cases and accountants vary.
        names: the labels of the colour and of the mark alone, in that case.
        by_case: whether the colour is that of the case, and the mark that of the accountant.
    """

    label: str
    key: str
    rows: list[Row]
    mark: str | None = None
    names: tuple[str, str] = ("", "")
    by_case: bool = False


def series(rows: list[Row], x: str, y: str) -> list[Series]:
    """Group rows into labelled curves of y over x, each sorted by x.

    There is one curve for each accountant, case and value of any other quantity that varies; a quantity that is
    constant within every case is left out of the labels, since the case stands for it.
    """
    if not any(y in row or row.get("reason") for row in rows):
        raise KeyError(y)
    rows = [row for row in rows if finite(row.get(x)) is not None]
    keys = ["case", "accountant"] if y in ("epsilon", "delta") else ["case"]
    varied = swept(rows)
    constant = implied(rows, varied)
    others = [name for name in varied if name not in (x, y, *keys) and name not in constant]
    # the given one of eps and delta separates curves if it is swept beside x
    given = {"epsilon": "delta", "delta": "epsilon"}.get(y, x)
    points = {(r[x], r.get("case"), r.get("accountant"), *(r.get(k) for k in others)) for r in rows}
    others += [given] if given != x and len(points) < len(rows) else []
    varying = [name for name in [*keys, *others] if len({row.get(name) for row in rows}) > 1] or keys[-1:]
    groups: dict[tuple[Any, ...], list[Row]] = {}
    for row in rows:
        groups.setdefault(tuple(row.get(name) for name in varying), []).append(row)
    lines = [_labelled(varying, values, group, x) for values, group in groups.items()]
    if varying == ["case", "accountant"] and all(all(values) for values in groups):
        return [_crossed(line, values, list(groups)) for line, values in zip(lines, groups, strict=True)]
    return lines


def implied(rows: list[Row], names: list[str]) -> set[str]:
    """Return the quantities that are constant within every case."""
    cases = {row.get("case") for row in rows}
    return {name for name in names if all(len({r.get(name) for r in rows if r.get("case") == c}) == 1 for c in cases)}


def _labelled(names: list[str], values: tuple[Any, ...], group: list[Row], x: str) -> Series:
    """A series under its display names; an accountant without options has the colour that it has in every figure."""
    words = {"case": _names.method, "accountant": _names.accountant}
    given = [(name, value) for name, value in zip(names, values, strict=True) if value not in (None, "")]
    parts = [words[name](str(value)) if name in words else _names.value(name, value) for name, value in given]
    label = ", ".join(parts)
    key = str(given[0][1]) if len(given) == 1 and given[0][0] in words else label
    return Series(label, key, sorted(group, key=lambda row: float(row[x])))


def _crossed(line: Series, values: tuple[Any, ...], groups: list[tuple[Any, ...]]) -> Series:
    """The curve of a case and an accountant: one of them has a colour, that with more values, and the other a mark."""
    case, accountant = map(str, values)
    words = (_names.method(case), _names.accountant(accountant))
    if by_case := len({group[0] for group in groups}) > len({group[1] for group in groups}):
        return replace(line, key=case, mark=accountant, names=words, by_case=by_case)
    return replace(line, key=accountant, mark=case, names=words[::-1])


def swept(rows: list[Row]) -> list[str]:
    """Return the numeric parameters of the process that vary over the table."""
    names = [name for name in dict.fromkeys(k for row in rows for k in row) if name not in _DESCRIPTIONS | _ANSWERS]
    return [k for k in names if len({row.get(k) for row in rows if isinstance(row.get(k), (int, float))}) > 1]


def axis_of(rows: list[Row]) -> tuple[str, str]:
    """Return the columns (x, y) of a table of bounds: the given or swept quantity with most values, and the answer."""
    y = _answer(rows)
    given = "epsilon" if y == "delta" else "delta"
    varied = swept(rows)
    # a parameter that tells the cases apart is no axis, if another one varies within them
    varied = [name for name in varied if name not in implied(rows, varied)] or varied
    counts = {name: len({row[name] for row in rows if row.get(name) is not None}) for name in (given, *varied)}
    candidates = [given, *varied] if counts[given] > 1 and "n" not in varied else varied
    return max(candidates, key=counts.__getitem__, default=given), y


def _answer(rows: list[Row]) -> str:
    """Return the column of answers: delta in a comparison over eps, and in a privacy curve, which has even eps."""
    if "given" in rows[0]:
        return "delta" if rows[0]["given"] == "epsilon" else "epsilon"
    eps = [value for row in rows if (value := finite(row.get("epsilon"))) is not None]
    steps = [after - before for before, after in pairwise(eps)]
    even = len(eps) == len(rows) > 2 and max(steps) - min(steps) < 1e-6 * max(steps)
    return "delta" if even and any("delta" in row for row in rows) else "epsilon"


def finite(value: Any) -> float | None:
    """Return a finite number as a float, and None for anything else."""
    return float(value) if isinstance(value, (int, float)) and math.isfinite(value) else None


def geometric(xs: list[float]) -> bool:
    """Tell whether values are spaced by ratios: the middle is nearer the geometric mean of the ends."""
    values = sorted(set(xs))
    middle, low, high = values[len(values) // 2], values[0], values[-1]
    return abs(math.log(middle / math.sqrt(low * high))) < abs(math.log(middle / ((low + high) / 2)))


def wide(values: list[Any]) -> bool:
    """Tell whether the positive values span a factor of 30 or more: the axis is then logarithmic and omits zeros."""
    positive = [v for v in map(finite, values) if v is not None and v > 0]
    return len(positive) > 1 and max(positive) >= 30 * min(positive)
