"""The csv files of points and densities that tasks leave for figures."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from wpriv.files import csv_tables


def xy(point: Sequence[float]) -> dict[str, float]:
    """The first two numbers of a point as columns; where there is only one, y is 0."""
    x, y = (*point, 0.0)[:2]
    return {"x": round(float(x), 5), "y": round(float(y), 5)}


def write(path: Path, rows: list[dict[str, Any]]) -> None:
    """One row or more, all of the same columns."""
    path.write_text(csv_tables.to_text(list(rows[0]), rows), encoding="utf-8", newline="")
