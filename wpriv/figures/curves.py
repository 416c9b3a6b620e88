"""Whatever a table of bounds answers, over whatever it sweeps."""

from __future__ import annotations

from typing import Any

from wpriv.figures import _draw


def draw(rows: list[dict[str, Any]], axes: Any) -> None:
    """Draws eps or delta over the swept quantity, one curve for each accountant and case; axes are logarithmic where that is needed."""
    x, y = _draw.axis_of(rows)
    _draw.curves(rows, axes, x, y)
