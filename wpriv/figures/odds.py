"""What equality of odds costs: accuracy and the gap between the groups' odds over alpha or eps."""

from __future__ import annotations

from typing import Any

from wpriv.figures import _fairness


def draw(rows: list[dict[str, Any]], axes: Any) -> None:
    """Draws accuracy beside the largest difference, over labels, between the groups' shares of decisions 1 (0 is equality of odds).

    Source:
        Rodriguez-Vitores, Lalanne, Loubes (2025), Figure 7, which gives the ratios EO0 and EO1 of the same shares.
    """
    _fairness.draw(rows, axes, {"accuracy": "accuracy", "odds_gap": "odds gap"})
