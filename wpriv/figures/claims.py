"""Claims of a paper: each published figure over the exact one, with the inputs at which it fails or is tightest."""

from __future__ import annotations

from typing import Any

COLOURS = {"holds": "#009E73", "fails": "#D55E00"}


def draw(rows: list[dict[str, Any]], axes: Any) -> None:
    """Draws one line a claim: the ratio published / exact on a log axis; left of 1 an upper bound lies below the truth."""
    ratios = [row["ratio"] for row in rows if row.get("ratio")]
    if not ratios:
        raise KeyError("rows with a ratio of published to exact figures")
    low, high = min(*ratios, 0.5), max(*ratios, 1.2)
    for place, row in enumerate(rows):
        colour = COLOURS[row["verdict"]]
        ratio = row.get("ratio") or high
        axes.plot([1, ratio], [place, place], color=colour, linewidth=1.4, zorder=2)
        axes.plot([ratio], [place], color=colour, marker="o" if row["verdict"] == "holds" else "X", markersize=6, zorder=3)
        shown = f"{row['published']:.4g} against {row['exact']:.4g}:  {row['at']}"
        axes.annotate(shown, (1.0, place), xycoords=("axes fraction", "data"), xytext=(6, 0), textcoords="offset points", va="center",
                      fontsize="x-small", color="#333333", annotation_clip=False)  # fmt: skip
    axes.axvline(1, color="#000000", linewidth=0.8, zorder=1)
    axes.set_xscale("log")
    axes.set_xlim(low / 1.3, high * 1.3)
    axes.set_yticks(range(len(rows)), [row["proposition"] for row in rows], fontsize="small")
    axes.set_ylim(len(rows) - 0.4, -0.6)
    axes.set_xlabel("published / exact")
    axes.set_ylabel("statement")
    axes.grid(True, axis="x", alpha=0.25, linewidth=0.6)
    handles = [axes.plot([], [], color=c, marker="o" if name == "holds" else "X", linestyle="none")[0] for name, c in COLOURS.items()]
    axes.legend(handles, ["holds", "fails (smallest counterexample)"], fontsize="x-small", loc="lower left")
