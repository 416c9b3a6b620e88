"""Accuracy beside measures of fairness over a sweep of trainings; shared by the figures ``parity`` and ``odds``."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from wpriv.figures import _draw, _palette

ALPHA, EPS, FORMULA = "options.alpha", "privacy.eps", "options.sensitivity"
_DASHES = ("solid", (0, (5, 2)), (0, (1, 1.5)))
_MARKS = ("o", "s", "^")
_PREFIXES = {ALPHA: "α = ", EPS: "ε = ", FORMULA: ""}


def draw(rows: list[dict[str, Any]], axes: Any, measures: Mapping[str, str]) -> None:
    """Draw each measure (column -> label) over alpha, or over eps if alpha is constant.

    Each combination of eps and formula has a colour. The seeds of a sweep give one line, their mean, with a band from
    the minimum to the maximum; repeated runs (``seeds``) have a band of one standard deviation.

    Raises:
        KeyError: no column of alpha or eps, or none of the measures.
    """
    shown = {column: label for column, label in measures.items() if _is_measured(rows, column)}
    if not shown or not any(key in rows[0] for key in (ALPHA, EPS)):
        raise KeyError(" or ".join([*measures] if not shown else [ALPHA, EPS]))
    x = ALPHA if len({row.get(ALPHA) for row in rows}) > 1 else EPS
    ticks: list[Any] = sorted({row[x] for row in rows}, key=float)
    places = ticks if x == ALPHA else range(len(ticks))
    others = [key for key in (ALPHA, EPS, FORMULA) if key != x and len({row.get(key) for row in rows}) > 1]
    cases = list(dict.fromkeys(tuple(row.get(key) for key in others) for row in rows))
    for case in cases:
        colour = _palette.of(axes).colour(", ".join(map(str, case)))
        case_rows = [row for row in rows if tuple(row.get(key) for key in others) == case]
        suffix = [f"{_PREFIXES[key]}{_text(value)}" for key, value in zip(others, case, strict=True)]
        for number, (column, label) in enumerate(shown.items()):
            values = [finite_values(case_rows, x, tick, column) for tick in ticks]
            means = [sum(group) / len(group) for group in values]
            axes.plot(
                places,
                means,
                color=colour,
                linestyle=_DASHES[number % 3],
                linewidth=1.5,
                marker=_MARKS[number % 3],
                markersize=4,
                label=", ".join([label, *suffix]),
            )
            ends = [_ends(case_rows, x, tick, column, group) for tick, group in zip(ticks, values, strict=True)]
            axes.fill_between(places, *zip(*ends, strict=True), color=colour, alpha=0.12, linewidth=0)
    if x == EPS:
        axes.set_xticks(range(len(ticks)), [_text(tick) for tick in ticks])
    axes.set_xlabel(_draw.NAMES["alpha"] if x == ALPHA else _draw.NAMES["epsilon"])
    axes.set_ylabel("measured on test records")
    _draw.grid(axes)
    size = "x-small" if len(cases) * len(shown) > 6 else "small"
    axes.legend(fontsize=size, framealpha=0.85, ncols=2 if len(cases) > 2 else 1)


def _is_measured(rows: list[dict[str, Any]], column: str) -> bool:
    return any(_draw.finite(row.get(column)) is not None for row in rows)


def finite_values(rows: list[dict[str, Any]], x: str, tick: Any, column: str) -> list[float]:
    """Return the finite values of a column at one tick, or a single NaN if there are none."""
    values = [value for row in rows if row.get(x) == tick and (value := _draw.finite(row.get(column))) is not None]
    return values or [math.nan]


def _ends(rows: list[dict[str, Any]], x: str, tick: Any, column: str, values: list[float]) -> tuple[float, float]:
    """The ends of the band at one tick: mean and one deviation of repeated runs, else the least and largest value."""
    spreads = [float(row[f"{column}_sd"]) for row in rows if row.get(x) == tick and row.get(f"{column}_sd") is not None]
    if len(values) == 1 and spreads:
        return values[0] - spreads[0], values[0] + spreads[0]
    return min(values), max(values)


def _text(value: Any) -> str:
    return "∞" if value == math.inf else f"{value:g}" if isinstance(value, (int, float)) else str(value)
