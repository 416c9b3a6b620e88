"""The rows of a comparison that are points of one curve, made to fall as the curve does."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from wpriv.core.guarantee import RIGOROUS, Bracket, monotone
from wpriv.run.accounting.evaluate import EPS_DELTA
from wpriv.run.comparison.grid import Cell

Row = dict[str, Any]


def monotone_rows(cells: Sequence[Cell], rows: Sequence[list[Row]]) -> list[Row]:
    """All rows in order, with the brackets of each rigorous curve made monotone in what was asked.

    Args:
        cells: the cells of a grid. rows: those of each cell. Rows that are no rigorous bounds of delta and eps stay as they are.
    """
    curves: dict[tuple[str, str], list[tuple[float, list[Row]]]] = {}
    kept = [list(own) for own in rows]
    for cell, own in zip(cells, kept, strict=True):
        if cell.table == "bounds" and all(_is_bound(row) for row in own):
            asked, argument = ("delta", cell.eps) if cell.eps is not None else ("epsilon", cell.delta)
            curves.setdefault((cell.curve_key(), asked), []).append((float(argument or 0.0), own))
    for (_, asked), points in curves.items():
        points.sort(key=lambda point: point[0])
        brackets = [Bracket(*(own[0][f"{asked}_{end}"] for end in ("estimate", "lower", "upper"))) for _, own in points]
        for (_, own), bracket in zip(points, monotone(brackets), strict=True):
            ends = {"": bracket.safe, "_estimate": bracket.estimate, "_lower": bracket.lower, "_upper": bracket.upper}
            own[0] = {**own[0], **{f"{asked}{end}": value for end, value in ends.items()}}
    return [row for own in kept for row in own]


def _is_bound(row: Row) -> bool:
    """Whether a row is a rigorous point of a curve of delta and eps."""
    return row.get("reason") is None and row.get("claim") in RIGOROUS and row.get("notion") in EPS_DELTA
