"""A sensitivity over whatever is swept, one line for each formula."""

from __future__ import annotations

from typing import Any

from wpriv.figures import _draw

SWEPT = ("alpha", "lipschitz_z", "size_x", "bound", "clip")


def draw(rows: list[dict[str, Any]], axes: Any) -> None:
    """Draws the sensitivity from 0 up, so that the distance of the lines is what they differ by."""
    x = next((name for name in SWEPT if len({row.get(name) for row in rows}) > 1), None)
    if x is None:
        raise KeyError(f"a swept column ({', '.join(SWEPT)})")
    _draw.lines(rows, axes, x, "sensitivity")
    if axes.get_yscale() == "linear":
        axes.set_ylim(bottom=0)
