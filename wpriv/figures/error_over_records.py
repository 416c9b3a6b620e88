"""The error of a generator over the number of records it was trained on."""

from __future__ import annotations

import math
from typing import Any

from wpriv.figures import _draw

DASHED = (0, (4, 3))
LINES = (
    ("w2", "distance W₂ to the data (r.m.s. ± 2 standard errors)", -0.5),
    ("excess", "cost above its least (mean)", -1.0),
)


def draw(rows: list[dict[str, Any]], axes: Any) -> None:
    """Draw ``w2`` with two standard errors and, if present, ``excess``, each beside the expected power of n (dashed).

    Source:
        Reshetova, Chen, Ozgur (2023), Theorem 2.
    """
    rows = sorted(rows, key=lambda row: float(row["records"]))
    n = [float(row["records"]) for row in rows]
    for colour, (column, label, power) in zip(_draw.COLOURS, LINES, strict=False):
        if any(row.get(column) is None for row in rows):
            continue
        values = [float(row[column]) for row in rows]
        errors = [2 * row["spread"] * row[column] for row in rows] if column == "w2" else None
        axes.errorbar(n, values, yerr=errors, color=colour, marker="o", markersize=4, capsize=2, label=label)
        # the line of the expected power passes through the geometric mean of the points
        middle = math.exp(math.fsum(math.log(v) - power * math.log(k) for v, k in zip(values, n, strict=True)) / len(n))
        heights = [middle * k**power for k in n]
        axes.plot(n, heights, color=colour, linewidth=0.9, linestyle=DASHED, label=f"n^({power:g})")
    axes.set_xscale("log")
    axes.set_yscale("log")
    axes.set_xlabel(_draw.NAMES["records"])
    axes.set_ylabel("error")
    _draw.grid(axes)
    axes.legend(fontsize="small")
