"""The trade-off curve of membership attacks: certified band, the best Gaussian bound, and a test that only guesses."""

from __future__ import annotations

from typing import Any

import numpy as np
from scipy.special import ndtr, ndtri

from wpriv.errors import UsageError
from wpriv.figures import _draw, _palette
from wpriv.numerics.safe_rounding import echo, text

Row = dict[str, Any]
# below this smallest false-positive rate both axes are logarithmic, and the true-positive rate is drawn
LOGARITHMIC = 5e-3


def draw(rows: list[Row], axes: Any) -> None:
    """Draw a trade-off table: for each case the band of the best attack and the curve of mu-GDP at the upper end of mu.

    Rates from 0.005 on are drawn as false-negative over false-positive rate; with smaller ones the figure has
    logarithmic axes and shows the true-positive rate, 1 - FNR, which is what differs there.

    Raises:
        UsageError: the rows have fewer than two false-positive rates.
    Source:
        Dong, Roth, Su (2019), Figure 1; logarithmic axes as in Carlini et al. (2022).
    """
    rates = [row["fpr"] for row in rows]
    if len(set(rates)) < 2:
        raise UsageError("trade-off draws a curve; give the sweep over fpr at least two values")
    log = min(rates) < LOGARITHMIC
    name = "tpr" if log else "fnr"
    handles, labels = [], []
    for case in dict.fromkeys(row.get("case") for row in rows):
        line = sorted((row for row in rows if row.get("case") == case), key=lambda row: float(row["fpr"]))
        colour = _palette.of(axes).colour(str(case or "pld"))
        x = [row["fpr"] for row in line]
        ends = [[row[f"{name}_{end}"] for row in line] for end in ("lower", "upper")]
        axes.fill_between(x, *ends, color=colour, alpha=0.35, linewidth=0)
        (curve,) = axes.plot(x, ends[1] if log else ends[0], color=colour, linewidth=2.2)
        handles.append(curve)
        labels.append(f"{case}: best attack (certified band)" if case else "best attack (certified band)")
        if line[0].get("mu_upper") is not None:
            mu = float(line[0]["mu_upper"])
            handles.append(_gaussian(axes, x, mu, log))
            labels.append(f"μ-GDP, μ = {text(mu, up=True, digits=4)} from FPR {echo(min(x))}")
    grid = np.geomspace(min(rates), 1, 200) if log else np.linspace(0, 1, 200)
    (guess,) = axes.plot(grid, grid if log else 1 - grid, color="#000000", linewidth=1.0, linestyle=(0, (1, 1.5)))
    if log:
        axes.set_xscale("log")
        axes.set_yscale("log")
    axes.set_xlabel("false-positive rate")
    axes.set_ylabel("true-positive rate" if log else "false-negative rate")
    _draw.grid(axes)
    _draw.legend(axes, [*handles, guess], [*labels, "guessing (nothing leaks)"])


def _gaussian(axes: Any, x: list[float], mu: float, log: bool) -> Any:
    """The error rates of the best test between two normal distributions at distance mu."""
    grid = np.geomspace(min(x), max(x), 400)
    tpr = ndtr(ndtri(grid) + mu)
    (curve,) = axes.plot(grid, tpr if log else 1 - tpr, color="#000000", linewidth=1.0, linestyle=(0, (5, 3)), zorder=3)
    return curve
