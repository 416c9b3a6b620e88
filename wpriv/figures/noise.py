"""What another constant of the sensitivity costs: the noise of a step and the loss it leads to, over eps."""

from __future__ import annotations

from typing import Any

from wpriv.figures import _draw
from wpriv.figures._fairness import EPS, FORMULA

NOTION = "options.notion"
_DASHES = ("solid", (0, (5, 2)))


def draw(rows: list[dict[str, Any]], axes: Any) -> None:
    """Draws ``noise`` over eps (left, filled marks) and the mean ``loss`` over the seeds (right, hollow), a colour for each formula.

    Raises:
        KeyError: a column is missing.
    """
    rows = [row for row in rows if row[FORMULA] is not None and row["noise"] is not None]
    ticks = sorted({row[EPS] for row in rows}, reverse=True)
    right = axes.twinx()
    for place, formula in enumerate(dict.fromkeys(row[FORMULA] for row in rows)):
        for number, notion in enumerate(dict.fromkeys(row.get(NOTION) for row in rows)):
            own = [row for row in rows if row[FORMULA] == formula and row.get(NOTION) == notion]
            style = {
                "color": _draw.COLOURS[place],
                "linestyle": _DASHES[number % 2],
                "linewidth": 1.4,
                "markersize": 4.5,
            }
            named = formula if notion is None else f"{notion}, {formula}"
            for column, side, mark in (
                ("noise", axes, {"marker": "o"}),
                ("loss", right, {"marker": "s", "markerfacecolor": "white"}),
            ):
                values = [[row[column] for row in own if row[EPS] == tick] for tick in ticks]
                side.plot(
                    range(len(ticks)), [sum(v) / len(v) for v in values], label=f"{column}: {named}", **style, **mark
                )
    axes.set_xticks(range(len(ticks)), [f"{tick:g}" for tick in ticks])
    axes.set_xlabel(_draw.NAMES["epsilon"])
    axes.set_ylabel("noise of a step, standard deviation")
    axes.set_ylim(bottom=0)
    right.set_ylabel("loss on training records (no noise: do not publish)")
    axes.grid(True, alpha=0.25, linewidth=0.6)
    handles = [*axes.get_legend_handles_labels()[0], *right.get_legend_handles_labels()[0]]
    axes.legend(handles, [h.get_label() for h in handles], fontsize="x-small", framealpha=0.85)
