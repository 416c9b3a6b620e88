"""Sigma over eps by several formulas, the exact one first."""

from __future__ import annotations

from typing import Any

from wpriv.figures import _draw


def draw(rows: list[dict[str, Any]], axes: Any) -> None:
    """Draws sigma over eps, both logarithmic."""
    _draw.lines(rows, axes, "target", "sigma")
    axes.set_ylabel("noise σ, in units of the clip radius")
