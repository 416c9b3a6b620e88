"""Points of the plane that were moved, beside those that they were to meet."""

from __future__ import annotations

from typing import Any

from wpriv.figures import _draw

COLOURS = {"target": _draw.COLOURS[1], "moved": _draw.COLOURS[0]}


def draw(rows: list[dict[str, Any]], axes: Any) -> None:
    """Draws the points (``x``, ``y``) of each ``kind``, target or moved.

    Source:
        Rodriguez-Vitores, Lalanne, Loubes (2025), Figure 13.
    """
    for kind, colour in COLOURS.items():
        own = [row for row in rows if row["kind"] == kind]
        axes.scatter(
            [row["x"] for row in own], [row["y"] for row in own], s=5, color=colour, alpha=0.4, linewidths=0, label=kind
        )
    axes.set_aspect("equal")
    axes.grid(True, alpha=0.25, linewidth=0.6)
    axes.legend(fontsize="small", framealpha=0.85, markerscale=2, loc="upper right")
