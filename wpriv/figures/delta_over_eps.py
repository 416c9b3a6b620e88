"""The privacy profile of a process, delta over eps, by several accountants; delta on a log axis."""

from __future__ import annotations

from typing import Any

from wpriv.figures import _draw


def draw(rows: list[dict[str, Any]], axes: Any) -> None:
    """Draws one curve for each accountant and case of a table of bounds; certified brackets are bands, approximate claims dashed."""
    _draw.curves(rows, axes, "epsilon", "delta")
