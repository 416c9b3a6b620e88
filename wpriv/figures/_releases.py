"""The figure of released numbers: how large their noise is beside what they count, add up or average."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from wpriv.errors import UsageError
from wpriv.figures import _draw, _palette
from wpriv.figures._figure import Row, Rows, figure
from wpriv.numerics.arrays import Array

Z = 1.959963984540054  # the .975 quantile of the normal distribution
MOST_LABELS = 8
DASHES = ("-", "--")  # of numbers by key, and of one of all rows
ROWS = "rows that are counted"


@figure("Released numbers of one output: the noise beside the size of the number, with a mark for each that was shown.")
def release_noise(rows: Rows, axes: Any) -> None:
    """Draw the half-width of the 95% interval over the size of the number, as a share of it, or of a mean by rows.

    Raises:
        ValueError: the rows are of several outputs. KeyError: they are no released numbers.
    """
    kind = rows[0]["kind"]
    if any((row["kind"], row["name"]) != (kind, rows[0]["name"]) for row in rows):
        raise ValueError("the rows are of several outputs")
    draw = {"mean": _mean, "quantile": _quantile}.get(kind, _share)
    points = draw(rows, axes)
    axes.set_xscale("log")
    colour = _palette.of(axes).colour("release")
    shown = [(x, y, label) for x, y, label in points if x > 0 and y > 0]
    if shown:
        xs, ys = [x for x, _, _ in shown], [y for _, y, _ in shown]
        axes.plot(xs, ys, "o", color=colour, markersize=5, label="released", zorder=3)
    for x, y, label in shown if len(shown) <= MOST_LABELS else ():
        axes.annotate(label, (x, y), xytext=(5, 4), textcoords="offset points", fontsize="x-small")
    axes.legend(fontsize="x-small")


def _reach(low: float, points: list[float]) -> Array:
    """Sizes from a tenth of the noise up to the largest released number, or a thousand times the noise."""
    return np.geomspace(max(low / 10, 1e-9), max([1000 * low, *points]), 200)


Points = list[tuple[float, float, str]]


def _share(rows: Rows, axes: Any) -> Points:
    """Counts and sums: the half-width as a share of the number, which falls as 1 / size."""
    points = [
        (abs(float(row["value"])), float(row["half_width"]), _label(row)) for row in rows if row["value"] is not None
    ]
    for half, dashes in zip(sorted({float(row["half_width"]) for row in rows}, reverse=True), DASHES, strict=False):
        x = _reach(half, [size for size, _, _ in points])
        style = {"color": _palette.of(axes).colour("release"), "linestyle": dashes}
        axes.plot(x, 100 * half / x, **style, label=f"noise +- {half:g} (95%, exact)")
    axes.set_yscale("log")
    unit = rows[0]["column"] if rows[0]["kind"] == "sum" else "persons or rows"
    _draw.frame(axes, f"size of the number ({unit})", "noise, % of the number")
    return [(size, 100 * half / size, label) for size, half, label in points if size > 0]


def _mean(rows: Rows, axes: Any) -> Points:
    """Means: the half-width over the number of rows, for means in the middle of the bounds and at their ends."""
    of_count, of_sum = rows[0]["noise"]
    step = float(rows[0]["grid"])
    spreads = [_deviation(noise) for noise in (of_count, of_sum)]
    farthest = of_sum["sensitivity"] / of_count["sensitivity"]  # from the middle, in steps
    counts = [(row["parts"]["count"], row) for row in rows if row.get("parts")]
    x = _reach(10 * spreads[0], [count for count, _ in counts])
    ends = [Z * step * np.hypot(spreads[1], t * spreads[0]) / x for t in (0.0, farthest)]
    colour = _palette.of(axes).colour("release")
    axes.fill_between(
        x, *ends, color=colour, alpha=0.25, label="noise, about 95%: mean in the middle to mean at a bound"
    )
    axes.plot(x, ends[0], color=colour)
    axes.set_yscale("log")
    _draw.frame(axes, ROWS, f"noise of the mean ({rows[0]['column']})")
    return [(count, _half(row), _label(row)) for count, row in counts if row["interval"]]


def _half(row: Row) -> float:
    try:
        low, high = (float(end) for end in row["interval"])
    except ValueError:  # dates
        return 0.0
    return (high - low) / 2


def _deviation(noise: Row) -> float:
    """The standard deviation of noise, in steps."""
    if "sigma" in noise:
        return float(noise["sigma"])
    r = math.exp(-1 / noise["scale"])
    return math.sqrt(2 * r) / (1 - r)


def _quantile(rows: Rows, axes: Any) -> Points:
    """Quantiles: the error in ranks as a share of the rows, for each share that was asked for."""
    for row in {row["bin"]: row for row in rows}.values():
        if "ranks" not in row:
            raise UsageError("this release was made by an earlier version of wpriv, without errors in ranks")
        x = _reach(10 * row["ranks"], [])
        axes.plot(
            x, 100 * row["ranks"] / x, label=f"quantile {row['bin']}: {row['ranks']:.3g} ranks (95%, upper bound)"
        )
    axes.set_yscale("log")
    _draw.frame(axes, ROWS, "error, % of the rows")
    return []


def _label(row: Row) -> str:
    return " ".join(str(row[name]) for name in ("key", "bin") if row.get(name) is not None)
