"""The growth of delta over the number of compositions, on a log2 axis; eps fixed, or in proportion to n."""

from __future__ import annotations

from typing import Any

from wpriv.figures import _draw


def draw(rows: list[dict[str, Any]], axes: Any) -> None:
    """Draws one curve for each accountant and case of a table of bounds; certified brackets are bands, approximate claims dashed."""
    _draw.curves(rows, axes, "n", "delta")
