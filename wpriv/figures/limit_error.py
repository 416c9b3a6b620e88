"""The eps that holds over the eps that a limit was asked for: above 1 the run is less private than the limit says."""

from __future__ import annotations

from typing import Any

from wpriv.figures import _draw


def draw(rows: list[dict[str, Any]], axes: Any) -> None:
    """Draws the upper end of the certified bracket over the target, the bracket as a band, and the line where both agree."""
    _draw.lines(rows, axes, "target", "ratio")
    for place, case in enumerate(dict.fromkeys(row["case"] for row in rows)):
        own = sorted((row for row in rows if row["case"] == case), key=lambda row: float(row["target"]))
        ends = [[row[end] / row["target"] for row in own] for end in ("epsilon_lower", "epsilon_upper")]
        axes.fill_between([row["target"] for row in own], *ends, color=_draw.COLOURS[place], alpha=0.2, linewidth=0)
    axes.axhline(1, color="#000000", linewidth=0.9, linestyle=(0, (1, 1.5)))
    axes.set_xscale("log")
    axes.set_ylabel("ε that holds / ε asked for\n(above 1: less private than said)")
