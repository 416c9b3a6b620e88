"""How far a generator is from the law of the data, over the number of records it learned from."""

from __future__ import annotations

import math
from typing import Any

from wpriv.figures import _draw

LINES = (("w2", "distance W₂ to the data (r.m.s.)", -0.5), ("excess", "cost above its least (mean)", -1.0))


def draw(rows: list[dict[str, Any]], axes: Any) -> None:
    """Draws ``w2`` with its standard error and, where it is known, ``excess``, both beside a dashed line of the power of n expected.

    Source:
        Reshetova, Chen, Ozgur (2023), Theorem 2.
    """
    ordered = sorted(rows, key=lambda row: float(row["records"]))
    n = [float(row["records"]) for row in ordered]
    for colour, (column, label, power) in zip(_draw.COLOURS, LINES, strict=False):
        if any(row.get(column) is None for row in ordered):
            continue
        values = [float(row[column]) for row in ordered]
        width = [2 * row["spread"] * row[column] for row in ordered] if column == "w2" else None
        axes.errorbar(n, values, yerr=width, color=colour, marker="o", markersize=4, capsize=2, label=label)
        # through the geometric middle of the points
        middle = math.exp(math.fsum(math.log(v) - power * math.log(k) for v, k in zip(values, n, strict=True)) / len(n))
        axes.plot(
            n,
            [middle * k**power for k in n],
            color=colour,
            linewidth=0.9,
            linestyle=(0, (4, 3)),
            label=f"n^({power:g})",
        )
    axes.set_xscale("log")
    axes.set_yscale("log")
    axes.set_xlabel(_draw.NAMES["records"])
    axes.set_ylabel("error")
    axes.grid(True, alpha=0.25, linewidth=0.6)
    axes.legend(fontsize="small")
