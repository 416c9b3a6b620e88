"""CSV files of points and densities that tasks leave for figures."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from wpriv.files import csv_tables


def xy(point: Sequence[float]) -> dict[str, float]:
    """Return the first two coordinates of a point as columns; y is 0 if there is only one."""
    x, y = (*point, 0.0)[:2]
    return {"x": round(float(x), 5), "y": round(float(y), 5)}


def write(path: Path, rows: list[dict[str, Any]]) -> None:
    """Write at least one row; all rows have the columns of the first."""
    path.write_text(csv_tables.to_text(list(rows[0]), rows), encoding="utf-8", newline="")
