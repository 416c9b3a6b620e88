"""Points of the plane that a training moved, beside their targets."""

from __future__ import annotations

from typing import Any

from wpriv.figures import _draw

MANY = 200
"""Points from which they are drawn as pixels in vector files."""
COLOURS = {"target": _draw.COLOURS[1], "moved": _draw.COLOURS[0]}


def draw(rows: list[dict[str, Any]], axes: Any) -> None:
    """Draw the points (``x``, ``y``) of each ``kind``, target or moved.

    Source:
        Rodriguez-Vitores, Lalanne, Loubes (2025), Figure 13.
    """
    for kind, colour in COLOURS.items():
        points = [row for row in rows if row["kind"] == kind]
        style = {"rasterized": len(points) > MANY, "s": 5, "color": colour, "alpha": 0.4, "linewidths": 0}
        axes.scatter([row["x"] for row in points], [row["y"] for row in points], label=kind, **style)
    axes.set_aspect("equal")
    _draw.grid(axes)
    axes.legend(fontsize="small", framealpha=0.85, markerscale=2, loc="upper right")
