"""Figures of records and of numbers released of them: samples, codes, points, scores, and the noise of numbers."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import numpy as np

from wpriv.errors import UsageError
from wpriv.figures import _draw, _palette
from wpriv.figures._declared import figure
from wpriv.figures._draw import Row, Rows
from wpriv.numerics.arrays import Array

# the names of rows beside generated images, whatever a task calls them
GENERATED = "generated"
ROWS = {"original": "test images", "privatised": "reports", "wavelets": "denoised reports"}
GAP = 1  # pixels between images
MAX_POINTS = 2000
MANY = 200  # points from which they are drawn as pixels in vector files
POINT_COLOURS = {"target": _draw.COLOURS[1], "moved": _draw.COLOURS[0]}
SCORE_DASHES = ("solid", "--")


@figure("Samples of a generator: a grid of images, or points of the plane beside their target.")
def samples(arrays: Mapping[str, Any], axes: Any) -> None:
    """Draw ``samples``: images [N, C, H, W] in [0, 1] (C = 1 or 3), or points [N, 2].

    ``names`` splits the images into that many equal rows of the grid, such as original, privatised and generated.
    ``target`` [M, 2] is drawn below the points.

    Raises:
        KeyError: there are no samples.
        ValueError: they have another shape, or their number is not a multiple of the number of names.
    """
    samples = np.asarray(arrays["samples"], dtype=float)
    if samples.ndim == 2 and samples.shape[1] == 2:
        _draw_points(samples, arrays.get("target"), axes)
        return
    if samples.ndim != 4 or samples.shape[1] not in (1, 3) or len(samples) == 0:
        raise ValueError(f"samples must be images [N, 1 or 3, H, W] or points [N, 2]; found {list(samples.shape)}")
    names = [str(name) for name in arrays["names"]] if "names" in arrays else []
    names = [ROWS.get(name, name) for name in names] if GENERATED in names else names
    if names and len(samples) % len(names):
        raise ValueError(f"{len(samples)} images cannot be split into {len(names)} equal rows")
    columns = len(samples) // len(names) if names else math.ceil(math.sqrt(len(samples)))
    picture = _mosaic(np.clip(samples, 0, 1), columns)
    axes.imshow(picture, cmap="gray", vmin=0, vmax=1, interpolation="nearest")
    axes.set_xticks([])
    height = samples.shape[2] + GAP
    axes.set_yticks([(row + 0.5) * height - GAP for row in range(len(names))], names)
    axes.tick_params(left=False)
    for spine in axes.spines.values():
        spine.set_visible(False)


def _mosaic(images: Any, columns: int) -> Any:
    """Arrange images [N, C, H, W] row by row into one picture [H', W'] or [H', W', 3], with white between them."""
    n, channels, height, width = images.shape
    rows = math.ceil(n / columns)
    picture = np.ones((rows * (height + GAP) - GAP, columns * (width + GAP) - GAP, channels))
    for index, image in enumerate(images):
        top, left = index // columns * (height + GAP), index % columns * (width + GAP)
        picture[top : top + height, left : left + width] = image.transpose(1, 2, 0)
    return picture[..., 0] if channels == 1 else picture


def _draw_points(samples: Any, target: Any, axes: Any) -> None:
    # many points are one picture in vector formats
    style = {"s": 4, "alpha": 0.5, "linewidths": 0, "rasterized": True}
    if target is not None:
        axes.scatter(*np.asarray(target)[:MAX_POINTS].T, color=_draw.COLOURS[-2], label="target", **style)
    axes.scatter(*samples[:MAX_POINTS].T, color=_draw.COLOURS[0], label="generated", **style)
    axes.set_aspect("equal")
    _draw.grid(axes)
    axes.legend(fontsize="small", markerscale=3)


@figure("The codes of two groups, whose distributions a fair representation should make equal.")
def codes(rows: Rows, axes: Any) -> None:
    """Draw the codes of test records by ``group`` (Rodriguez-Vitores, Lalanne, Loubes 2025, Figures 3, 11)."""
    for group in sorted({row["group"] for row in rows}):
        members = [row for row in rows if row["group"] == group]
        _scatter(axes, members, _draw.COLOURS[int(group)], f"group {group:g}", alpha=0.35, linewidths=0)
    _draw.frame(axes, "first number of the code", "second number of the code")
    axes.legend(fontsize="small", framealpha=0.85, markerscale=2)


@figure("Points of the plane that a training moved, beside their targets.")
def points(rows: Rows, axes: Any) -> None:
    """Draw the points of each ``kind``, target or moved (Rodriguez-Vitores, Lalanne, Loubes 2025, Figure 13)."""
    for kind, colour in POINT_COLOURS.items():
        members = [row for row in rows if row["kind"] == kind]
        _scatter(axes, members, colour, kind, alpha=0.4, linewidths=0, rasterized=len(members) > MANY)
    axes.set_aspect("equal")
    _draw.grid(axes)
    axes.legend(fontsize="small", framealpha=0.85, markerscale=2, loc="upper right")


@figure("The scores of a model in each group: their densities, or for two-dimensional scores the points.")
def scores(rows: Rows, axes: Any) -> None:
    """Draw ``density`` over ``x`` as steps, or points ``x``, ``y``.

    The colour shows the ``group``, dashes (or a cross as the mark) the ``label``.

    Source: Rodriguez-Vitores, Lalanne, Loubes (2025), Figures 1, 2, 5, 7 and 9.
    """
    plane = "density" not in rows[0]
    for label in sorted({row.get("label") for row in rows}, key=str):
        for group in (0, 1):
            members = [row for row in rows if row["group"] == group and row.get("label") == label]
            text, colour = f"group {group}" + ("" if label is None else f", label {label}"), _draw.COLOURS[group]
            if members and plane:
                _scatter(axes, members, colour, text, marker="x" if label == 1 else "o", alpha=0.35, linewidths=0.4)
            elif members:
                _draw_density(members, axes, colour, label, text)
    if plane:
        axes.plot([0, 1], [1, 0], color=_draw.COLOURS[-2], linewidth=0.8, linestyle="--")
        axes.set_aspect("equal")
        axes.set_xlim(0, 1)
        axes.set_ylim(0, 1)
    labels = (
        ("first predicted number", "second predicted number")
        if plane
        else ("score", "density in the group (test records)")
    )
    _draw.frame(axes, *labels)
    axes.legend(fontsize="small", framealpha=0.85, markerscale=2)


def _scatter(axes: Any, rows: Rows, colour: str, label: str, **style: Any) -> None:
    style = {"rasterized": True, **style}  # many points are one picture in vector formats
    axes.scatter([row["x"] for row in rows], [row["y"] for row in rows], s=5, color=colour, label=label, **style)


def _draw_density(rows: Rows, axes: Any, colour: str, label: Any, text: str) -> None:
    edges = [*(row["x"] for row in rows), rows[-1]["x"] + 1 / len(rows)]
    heights = [row["density"] for row in rows]
    style = {"color": colour, "linestyle": SCORE_DASHES[label or 0], "linewidth": 1.5}
    axes.stairs(heights, edges, label=text, fill=False, **style)
    if label is None:
        axes.stairs(heights, edges, color=colour, alpha=0.2, fill=True)


# Released numbers: how large their noise is beside what they count, add up or average.

Z = 1.959963984540054  # the .975 quantile of the normal distribution
MOST_LABELS = 8
Marks = list[tuple[float, float, str]]  # size, noise and name of released numbers
DASHES = ("-", "--")  # of numbers by key, and of one of all rows
ROWS_COUNTED = "rows that are counted"


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


def _share(rows: Rows, axes: Any) -> Marks:
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


def _mean(rows: Rows, axes: Any) -> Marks:
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
    _draw.frame(axes, ROWS_COUNTED, f"noise of the mean ({rows[0]['column']})")
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


def _quantile(rows: Rows, axes: Any) -> Marks:
    """Quantiles: the error in ranks as a share of the rows, for each share that was asked for."""
    for row in {row["bin"]: row for row in rows}.values():
        if "ranks" not in row:
            raise UsageError("this release was made by an earlier version of wpriv, without errors in ranks")
        x = _reach(10 * row["ranks"], [])
        axes.plot(
            x, 100 * row["ranks"] / x, label=f"quantile {row['bin']}: {row['ranks']:.3g} ranks (95%, upper bound)"
        )
    axes.set_yscale("log")
    _draw.frame(axes, ROWS_COUNTED, "error, % of the rows")
    return []


def _label(row: Row) -> str:
    return " ".join(str(row[name]) for name in ("key", "bin") if row.get(name) is not None)
