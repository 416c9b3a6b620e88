"""The codes of two groups, whose distributions a fair representation should make equal."""

from __future__ import annotations

from typing import Any

from wpriv.figures import _draw


def draw(rows: list[dict[str, Any]], axes: Any) -> None:
    """Draw the codes (``x``, ``y``) of the test records of each ``group``.

    Source:
        Rodriguez-Vitores, Lalanne, Loubes (2025), Figures 3 and 11.
    """
    # many points are one picture in vector formats
    for group in sorted({row["group"] for row in rows}):
        points = [row for row in rows if row["group"] == group]
        style = {"s": 5, "color": _draw.COLOURS[int(group)], "alpha": 0.35, "linewidths": 0, "rasterized": True}
        axes.scatter([row["x"] for row in points], [row["y"] for row in points], label=f"A = {group:g}", **style)
    axes.set_xlabel("first number of the code")
    axes.set_ylabel("second number of the code")
    _draw.grid(axes)
    axes.legend(fontsize="small", framealpha=0.85, markerscale=2)
