"""The scores of a model in each group: their densities, or for two-dimensional scores the points."""

from __future__ import annotations

from typing import Any

from wpriv.figures import _draw

_DASHES = ("solid", (0, (2, 1.5)))


def draw(rows: list[dict[str, Any]], axes: Any) -> None:
    """Draw ``density`` over ``x`` as steps, or points ``x``, ``y``.

    The colour shows the ``group``, dashes (or a cross as the mark) the ``label``.

    Source:
        Rodriguez-Vitores, Lalanne, Loubes (2025), Figures 1, 2, 5, 7 and 9.
    """
    plane = "density" not in rows[0]
    for label in sorted({row.get("label") for row in rows}, key=str):
        for group in (0, 1):
            members = [row for row in rows if row["group"] == group and row.get("label") == label]
            if members:
                text = f"A = {group}" + ("" if label is None else f", Y = {label}")
                (_draw_plane if plane else _draw_density)(members, axes, _draw.COLOURS[group], label, text)
    if plane:
        axes.plot([0, 1], [1, 0], color=_draw.COLOURS[-2], linewidth=0.8, linestyle=(0, (5, 2)))
        axes.set_aspect("equal")
        axes.set_xlim(0, 1)
        axes.set_ylim(0, 1)
    axes.set_xlabel("predicted Y1" if plane else "score")
    axes.set_ylabel("predicted Y2" if plane else "density in the group (test records)")
    _draw.grid(axes)
    axes.legend(fontsize="small", framealpha=0.85, markerscale=2)


def _draw_plane(rows: list[dict[str, Any]], axes: Any, colour: str, label: Any, text: str) -> None:
    style = {"s": 5, "marker": "x" if label == 1 else "o", "color": colour, "alpha": 0.35, "linewidths": 0.4}
    style["rasterized"] = True  # many points are one picture in vector formats
    axes.scatter([row["x"] for row in rows], [row["y"] for row in rows], label=text, **style)


def _draw_density(rows: list[dict[str, Any]], axes: Any, colour: str, label: Any, text: str) -> None:
    edges = [*(row["x"] for row in rows), rows[-1]["x"] + 1 / len(rows)]
    heights = [row["density"] for row in rows]
    style = {"color": colour, "linestyle": _DASHES[label or 0], "linewidth": 1.5}
    axes.stairs(heights, edges, label=text, fill=False, **style)
    if label is None:
        axes.stairs(heights, edges, color=colour, alpha=0.2, fill=True)
