"""The noise of each experiment by several ways of accounting, a line for each experiment and a mark for each way."""

from __future__ import annotations

from typing import Any

from wpriv.figures import _draw

WAYS = {
    "printed": ("as printed", "X", "#000000"),
    "program": ("Bernstein, as in the program", "o", _draw.COLOURS[1]),
    "lemma": ("Bernstein, Lemma 2", "s", _draw.COLOURS[4]),
    "clt": ("central limit (no bound)", "^", _draw.COLOURS[3]),
    "certified": ("certified", "D", _draw.COLOURS[0]),
}
PAPER_EPS = 10.0
"""The eps of tables that do not state theirs."""
TICKS = (0.2, 0.5, 1, 2, 5, 10)


def draw(rows: list[dict[str, Any]], axes: Any) -> None:
    """Draw the columns of noise over a log axis, a line for each row of ``data``, the first on top.

    Source:
        Rakotomamonjy, Ralaivola (2021), Table 4.
    """
    places = range(len(rows))
    for place, row in zip(places, rows, strict=True):
        values = [row[column] for column in WAYS]
        axes.plot([min(values), max(values)], [place, place], color="#999999", linewidth=1, zorder=1)
    for column, (label, mark, colour) in WAYS.items():
        size = {"markersize": 8 if column == "printed" else 6, "zorder": 3 if column == "printed" else 2}
        axes.plot(
            [row[column] for row in rows], places, marker=mark, color=colour, linestyle="none", label=label, **size
        )
    axes.set_xscale("log")
    axes.set_xticks(TICKS, [f"{tick:g}" for tick in TICKS])
    axes.set_xticks([], minor=True)
    axes.set_yticks(places, [row["data"] for row in rows])
    axes.set_ylabel("row of Table 4")
    axes.set_ylim(len(rows) - 0.5, -0.5)
    axes.set_xlabel(f"noise σ for ε = {rows[0].get('eps', PAPER_EPS):g}, records at most 1 apart")
    _draw.grid(axes, axis="x")
    axes.legend(fontsize="x-small", framealpha=0.85, loc="upper center", bbox_to_anchor=(0.5, -0.14), ncols=3)
