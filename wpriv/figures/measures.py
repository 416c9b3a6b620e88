"""Several figures of merit over the epochs, of whatever units: on one logarithmic axis, each with a mark of its own."""

from __future__ import annotations

from typing import Any

from wpriv.figures import _draw
from wpriv.figures.training import OTHER

MARKS = "osDv^<>P"


def draw(rows: list[dict[str, Any]], axes: Any) -> None:
    """Draws every measured number over the epochs; what is 0 or less has no place on the axis."""
    names = [key for key in rows[0] if key not in OTHER and isinstance(rows[0][key], (int, float))]
    if not names:
        raise KeyError("w2")
    axes.set_yscale("log")
    for place, name in enumerate(names):
        points = [
            (row["epoch"], row[name]) for row in rows if isinstance(row.get(name), (int, float)) and row[name] > 0
        ]
        style = {
            "color": _draw.COLOURS[place % len(_draw.COLOURS)],
            "marker": MARKS[place % len(MARKS)],
            "markersize": 3.5,
        }
        axes.plot([x for x, _ in points], [y for _, y in points], label=name, **style)
    axes.set_xlabel("epoch")
    axes.set_ylabel("measured on generated and test records")
    axes.grid(True, which="both", alpha=0.2, linewidth=0.5)
    axes.xaxis.get_major_locator().set_params(integer=True)
    axes.legend(fontsize="small")
