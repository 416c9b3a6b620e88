"""Claims of a paper: each published figure over the exact one, with the inputs at which it fails or is tightest."""

from __future__ import annotations

from typing import Any

from wpriv.figures import _draw

COLOURS = {"holds": "#007A5A", "fails": "#D55E00"}
MARKS = {"holds": "o", "fails": "X"}
LABELS = ["holds", "fails: smallest counterexample"]
WIDTH, ROW_HEIGHT, MARGIN = 9.0, 0.2, 1.1  # inches
LONGEST = 72  # characters of the inputs; the table has all of them


def draw(rows: list[dict[str, Any]], axes: Any) -> None:
    """Draw one line for each claim: published / exact on a log axis; left of 1 a published upper bound is too small.

    Raises:
        KeyError: no row has a ratio.
    """
    ratios = [row["ratio"] for row in rows if (row.get("ratio") or 0) > 0]
    if not ratios:
        raise KeyError("rows with a ratio of published to exact figures")
    if len(axes.figure.axes) == 1:
        axes.figure.set_size_inches(WIDTH, MARGIN + ROW_HEIGHT * len(rows))
    for index, row in enumerate(rows):
        colour, ratio = COLOURS[row["verdict"]], row.get("ratio")
        if ratio in ratios:
            axes.plot([1, ratio], [index, index], color=colour, linewidth=1.4, zorder=2)
            axes.plot([ratio], [index], color=colour, marker=MARKS[row["verdict"]], markersize=6, zorder=3)
        axes.annotate(
            f"{row['published']:.4g} against {row['exact']:.4g}:  {_shortened(row['at'])}",
            (1.0, index),
            xycoords=("axes fraction", "data"),
            xytext=(6, 0),
            textcoords="offset points",
            va="center",
            fontsize="x-small",
            color=colour,
            annotation_clip=False,
        )
    axes.axvline(1, color="#000000", linewidth=0.8, zorder=1)
    low, high = min(*ratios, 0.5) / 1.2, max(*ratios, 1.2) * 1.2
    ticks = [k * 10.0**e for e in range(-12, 13) for k in (1, 2, 5) if low <= k * 10.0**e <= high]
    axes.set_xscale("log")
    axes.set_xlim(low, high)
    axes.set_xticks(ticks, [f"{tick:g}" for tick in ticks])
    axes.minorticks_off()
    axes.set_yticks(range(len(rows)), [row["proposition"] for row in rows], fontsize="small")
    axes.set_ylim(len(rows) - 0.4, -0.6)
    axes.set_xlabel("published / exact")
    axes.set_ylabel("statement")
    _draw.grid(axes, axis="x")
    handles = [axes.plot([], [], color=COLOURS[name], marker=MARKS[name], linestyle="none")[0] for name in COLOURS]
    place = {"loc": "upper left", "bbox_to_anchor": (0.0, -0.14)}
    axes.legend(handles, LABELS, fontsize="x-small", ncols=2, frameon=False, **place)


def _shortened(text: str) -> str:
    return text if len(text) <= LONGEST else f"{text[: LONGEST - 3].rstrip(' ,')}..."
