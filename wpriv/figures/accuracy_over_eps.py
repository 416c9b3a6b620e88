"""What trainings of a sweep got right over the eps that they kept: a line for each method and each share that is measured of it."""

from __future__ import annotations

import math
from typing import Any

from wpriv.figures import _draw

DASHED = (0, (4, 2))
SHARES = {
    "accuracy": ("held out", "-"),
    "transductive": ("adapted to", DASHED),
    "mlp": ("MLP", "-"),
    "logistic": ("LogReg", DASHED),
}


def draw(rows: list[dict[str, Any]], axes: Any) -> None:
    """Draws every share in [0, 1] over ``privacy.eps`` (or the eps that was proven); methods without privacy are level lines."""
    if not any(share in row for row in rows for share in SHARES):
        raise KeyError("accuracy")
    methods = list(dict.fromkeys(str(row.get("method", "")) for row in rows))
    for place, method in enumerate(methods):
        own = [row for row in rows if str(row.get("method", "")) == method]
        colour = _draw.COLOURS[place % len(_draw.COLOURS)]
        for share, (words, dashes) in SHARES.items():
            points = sorted(
                (eps, float(row[share])) for row in own if row.get(share) is not None and (eps := _eps(row)) is not None
            )
            label = ", ".join(part for part in (method, words) if part)
            if points:
                marks = _draw.MARKS[1 + place % (len(_draw.MARKS) - 1)]
                axes.plot(
                    *zip(*points, strict=True), color=colour, linestyle=dashes, marker=marks, markersize=4, label=label
                )
            level = [float(row[share]) for row in own if row.get(share) is not None and _eps(row) is None]
            for value in level[:1]:
                axes.axhline(value, color=colour, linestyle=dashes, linewidth=1, label=label)
    axes.set_xlabel(_draw.NAMES["epsilon"])
    axes.set_ylabel("share labelled rightly")
    axes.grid(True, alpha=0.25, linewidth=0.6)
    axes.legend(fontsize="small")


def _eps(row: dict[str, Any]) -> float | None:
    """The eps that was asked for, or else proven; None where there is no finite one."""
    found = row.get("privacy.eps", row.get("epsilon"))
    return float(found) if isinstance(found, (int, float)) and math.isfinite(found) else None
