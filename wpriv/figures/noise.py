"""The cost of a larger sensitivity constant over eps: the noise of a step and the final loss."""

from __future__ import annotations

from typing import Any

from wpriv.figures import _draw, _names, _palette
from wpriv.figures._fairness import EPS, FORMULA, finite_values

NOTION = "options.notion"
_DASHES = ("solid", (0, (5, 2)))


def draw(rows: list[dict[str, Any]], axes: Any) -> None:
    """Draw ``noise`` (left axis, filled marks) and the mean ``loss`` of the seeds (right axis, hollow marks).

    Each formula of the sensitivity has a colour.

    Raises:
        KeyError: a column is missing.
    """
    rows = [row for row in rows if row[FORMULA] is not None and row["noise"] is not None]
    ticks = sorted({row[EPS] for row in rows}, reverse=True)
    right = axes.twinx()
    for formula in dict.fromkeys(row[FORMULA] for row in rows):
        for number, notion in enumerate(dict.fromkeys(row.get(NOTION) for row in rows)):
            group = [row for row in rows if row[FORMULA] == formula and row.get(NOTION) == notion]
            if not group:
                continue
            style = {
                "color": _palette.of(axes).colour(formula),
                "linestyle": _DASHES[number % 2],
                "linewidth": 1.4,
                "markersize": 4.5,
            }
            suffix = ", ".join(_names.method(word) for word in (notion, formula) if word is not None)
            noise, loss = (_means(group, ticks, column) for column in ("noise", "loss"))
            axes.plot(range(len(ticks)), noise, marker="o", label=f"noise: {suffix}", **style)
            hollow = {"marker": "s", "markerfacecolor": "white"}
            right.plot(range(len(ticks)), loss, label=f"loss: {suffix}", **style, **hollow)
    axes.set_xticks(range(len(ticks)), [f"{tick:g}" for tick in ticks])
    axes.set_xlabel(_draw.NAMES["epsilon"])
    axes.set_ylabel("noise of a step, standard deviation")
    axes.set_ylim(bottom=0)
    right.set_ylabel("training loss, no noise added")
    _draw.grid(axes)
    handles = [*axes.get_legend_handles_labels()[0], *right.get_legend_handles_labels()[0]]
    axes.legend(handles, [handle.get_label() for handle in handles], fontsize="x-small", framealpha=0.85)


def _means(rows: list[dict[str, Any]], ticks: list[float], column: str) -> list[float]:
    """Return the mean of a column over the seeds at each eps; NaN where an unfinished sweep has none."""
    values = [finite_values(rows, EPS, tick, column) for tick in ticks]
    return [sum(group) / len(group) for group in values]
