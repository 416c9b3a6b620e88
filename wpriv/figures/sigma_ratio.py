"""Sigma by several formulas over the exact one: below 1 a formula does not keep its promise."""

from __future__ import annotations

from typing import Any

from wpriv.figures import _draw


def draw(rows: list[dict[str, Any]], axes: Any) -> None:
    """Draws the ratio over eps; a line may dip below 1 where the formula is used beyond its proof."""
    _draw.lines([row for row in rows if row["case"] != "exact"], axes, "target", "ratio")
    axes.axhline(1, color="#000000", linewidth=0.9)
    axes.annotate("below: less private than said", (0.98, 1), xycoords=("axes fraction", "data"), xytext=(0, -11), ha="right",
                  textcoords="offset points", fontsize="x-small")  # fmt: skip
    axes.set_ylabel("σ / least sufficient σ")
