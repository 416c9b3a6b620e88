"""What statistical parity costs: accuracy and disparate impact over alpha or eps."""

from __future__ import annotations

from typing import Any

from wpriv.figures import _fairness

MEASURES = {"accuracy": "accuracy", "disparate_impact": "disparate impact", "od0": "OD0", "od1": "OD1"}


def draw(rows: list[dict[str, Any]], axes: Any) -> None:
    """Draws accuracy beside disparate impact (1 is parity), or for a regression beside OD0 and OD1 (which parity makes equal).

    Source:
        Rodriguez-Vitores, Lalanne, Loubes (2025), Figures 5 and 9, which give both above each panel.
    """
    _fairness.draw(rows, axes, MEASURES)
