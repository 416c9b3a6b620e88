"""Accuracy beside a measure of fairness over a sweep: what the figures ``parity`` and ``odds`` share."""

from __future__ import annotations

import math
from typing import Any

from wpriv.figures import _draw

ALPHA, EPS, FORMULA = "options.alpha", "privacy.eps", "options.sensitivity"
_DASHES = ("solid", (0, (5, 2)), (0, (1, 1.5)))
_MARKS = ("o", "s", "^")


def draw(rows: list[dict[str, Any]], axes: Any, measures: dict[str, str]) -> None:
    """Draws each measure (column: its words) over alpha, or over eps where alpha is one: a colour for each eps and formula.

    Over several seeds it is the mean, with a band from the least to the most.

    Raises:
        KeyError: no column of alpha or eps, or none of the measures.
    """
    shown = {column: words for column, words in measures.items() if any(_number(row.get(column)) for row in rows)}
    if not shown or not any(key in rows[0] for key in (ALPHA, EPS)):
        raise KeyError(" or ".join([*measures] if not shown else [ALPHA, EPS]))
    x = ALPHA if len({row.get(ALPHA) for row in rows}) > 1 else EPS
    ticks: list[Any] = sorted({row[x] for row in rows}, key=float)
    others = [key for key in (ALPHA, EPS, FORMULA) if key != x and len({row.get(key) for row in rows}) > 1]
    cases = list(dict.fromkeys(tuple(row.get(key) for key in others) for row in rows))
    for place, case in enumerate(cases):
        own = [row for row in rows if tuple(row.get(key) for key in others) == case]
        for number, (column, words) in enumerate(shown.items()):
            means, low, high = [], [], []
            for tick in ticks:
                found = [v for row in own if row.get(x) == tick and (v := _number(row.get(column))) is not None] or [
                    math.nan
                ]
                means.append(sum(found) / len(found))
                low.append(min(found))
                high.append(max(found))
            places = ticks if x == ALPHA else range(len(ticks))
            named = ", ".join(
                [words, *(f"{_NAMES[key]}{_told(value)}" for key, value in zip(others, case, strict=True))]
            )
            style = {
                "color": _draw.COLOURS[place % len(_draw.COLOURS)],
                "linestyle": _DASHES[number % 3],
                "marker": _MARKS[number % 3],
            }
            axes.plot(places, means, linewidth=1.5, markersize=4, label=named, **style)
            axes.fill_between(places, low, high, color=style["color"], alpha=0.12, linewidth=0)
    if x == EPS:
        axes.set_xticks(range(len(ticks)), [_told(tick) for tick in ticks])
    axes.set_xlabel(_draw.NAMES["alpha"] if x == ALPHA else _draw.NAMES["epsilon"])
    axes.set_ylabel("measured on test records")
    axes.grid(True, alpha=0.25, linewidth=0.6)
    axes.legend(
        fontsize="x-small" if len(cases) * len(shown) > 6 else "small",
        framealpha=0.85,
        ncols=2 if len(cases) > 2 else 1,
    )


_NAMES = {ALPHA: "α = ", EPS: "ε = ", FORMULA: ""}


def _told(value: Any) -> str:
    return "∞" if value == math.inf else f"{value:g}" if isinstance(value, (int, float)) else str(value)


def _number(value: Any) -> float | None:
    return float(value) if isinstance(value, (int, float)) and math.isfinite(value) else None
