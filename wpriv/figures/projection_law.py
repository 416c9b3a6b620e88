"""The distribution of the squared projected length: a histogram, the exact and the normal density, and tail bounds."""

from __future__ import annotations

from typing import Any

from wpriv.errors import UsageError
from wpriv.figures import _draw

Row = dict[str, Any]
BOUNDS = {
    "bernstein": ("Bernstein", "#CC79A7"),
    "clt": ("CLT quantile", "#D55E00"),
    "quantile": ("true quantile", "#009E73"),
}


def draw(rows: list[Row], axes: Any) -> None:
    """Draw a projection-law table; a bound far outside is not drawn to scale but named at the right edge.

    Raises:
        UsageError: the rows hold fewer than two bins.
    Source:
        Rakotomamonjy and Ralaivola (2021), Figures 1 and 7.
    """
    bins = [row for row in rows if row["part"] == "bin"]
    if len(bins) < 2:
        raise UsageError("projection-law draws the histogram of one distribution; give each distribution its own panel")
    x, drawn, density, normal_density = ([row[key] for row in bins] for key in ("x", "drawn", "density", "normal"))
    half = (x[1] - x[0]) / 2
    edges = [x[0] - half, *(v + half for v in x)]
    histogram = axes.stairs(drawn, edges, fill=True, color="#BBD7EA", label="draws of H")
    (exact,) = axes.plot(x, density, color="#0072B2", linewidth=1.8)
    (normal,) = axes.plot(x, normal_density, color="#D55E00", linewidth=1.4, linestyle=(0, (5, 2)))
    bounds = {row["name"]: row["x"] for row in rows if row["part"] == "bound"}
    right = max(x[-1], bounds.get("quantile", 0.0), bounds.get("clt", 0.0)) * 1.12
    marks = _mark_bounds(bounds, right, axes)
    axes.set_xlim(0 if edges[0] < 0.2 * right else edges[0], right)
    axes.set_ylim(0, 1.1 * max(*drawn, *normal_density))
    axes.set_xlabel("squared length H of the projected difference")
    axes.set_ylabel("density")
    _draw.grid(axes)
    labels = ["draws of H", "exact density", "normal density", *marks]
    _draw.legend(axes, [histogram, exact, normal, *marks.values()], labels)


def _mark_bounds(bounds: dict[str, float], right: float, axes: Any) -> dict[str, Any]:
    """Mark each bound by a vertical line, or at the right edge if it lies beyond; returns the lines by label."""
    marks = {}
    for name, (label, colour) in BOUNDS.items():
        if name not in bounds:
            continue
        text = f"{label} {bounds[name]:.3g}"
        if bounds[name] <= right:
            dashes = ":" if name == "clt" else "-"
            marks[text] = axes.axvline(bounds[name], color=colour, linewidth=1.4, linestyle=dashes)
        else:
            place = {"xy": (0.985, 0.5), "xycoords": "axes fraction", "ha": "right"}
            axes.annotate(f"{text} →", **place, color=colour, fontsize="small", backgroundcolor="white")
    return marks
