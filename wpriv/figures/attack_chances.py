"""Printed chances of a successful attack over their eps, beside the formula from which they are said to come."""

from __future__ import annotations

import math
from typing import Any

from wpriv.figures import _draw

MARKS = ("o", "s", "^", "D", "v")
WRONG = 2e-3  # of a chance printed with three digits


def draw(rows: list[dict[str, Any]], axes: Any) -> None:
    """Draw ``printed`` over ``eps_printed``, a mark for each ``framework``, and the curve 1 / (1 + e^-eps).

    A printed chance that is off by more than two units of its last digit is joined to the curve and named.

    Source:
        Yang, Qi, Zhou (2024), Table 2.
    """
    top = 1.08 * max(row["eps_printed"] for row in rows)
    grid = [top * k / 400 for k in range(401)]
    (curve,) = axes.plot(grid, [1 / (1 + math.exp(-eps)) for eps in grid], color="#000000", linewidth=1.2)
    handles, labels = [curve], [r"$1/(1+e^{-\varepsilon})$"]
    for index, framework in enumerate(dict.fromkeys(row["framework"] for row in rows)):
        points = [(row["eps_printed"], row["printed"]) for row in rows if row["framework"] == framework]
        style = {"color": _draw.COLOURS[index], "marker": MARKS[index % len(MARKS)], "linestyle": "none"}
        handles += axes.plot(*zip(*points, strict=True), **style)
        labels.append(f"{framework}, as printed")
    for row in rows:
        if abs(row["difference"]) > WRONG:
            x, printed, computed = row["eps_printed"], row["printed"], row["computed"]
            axes.plot([x, x], [printed, computed], color="#D55E00", linewidth=1, linestyle=(0, (2, 2)))
            text = f"{row['data']}: {printed:g},\ncomputed {computed:.3f}"
            axes.annotate(text, (x, min(printed, computed)), xytext=(6, -3), textcoords="offset points", va="top")
    axes.set_xlabel("ε as printed (of three notions, which share no unit)")
    axes.set_ylabel("chance of a successful attack")
    _draw.grid(axes)
    _draw.legend(axes, handles, labels)
