"""The law of the squared projected length: a histogram of draws, the exact density, the normal one, and tail bounds as marks."""

from __future__ import annotations

from typing import Any

from wpriv.errors import UsageError
from wpriv.figures import _draw

Row = dict[str, Any]
MARKS = {
    "bernstein": ("Bernstein", "#CC79A7"),
    "clt": ("CLT quantile", "#D55E00"),
    "quantile": ("true quantile", "#009E73"),
}


def draw(rows: list[Row], axes: Any) -> None:
    """Draws a projection-law table; the axis breaks off before a bound that lies far outside, which is named at the edge.

    Source:
        Rakotomamonjy and Ralaivola (2021), Figures 1 and 7.
    """
    bins = [row for row in rows if row["part"] == "bin"]
    bounds = {row["name"]: row["x"] for row in rows if row["part"] == "bound"}
    if len(bins) < 2:
        raise UsageError("projection-law draws one law; give each a panel of its own")
    x = [row["x"] for row in bins]
    half = (x[1] - x[0]) / 2
    law = axes.stairs(
        [row["drawn"] for row in bins],
        [x[0] - half, *(v + half for v in x)],
        fill=True,
        color="#BBD7EA",
        label="draws of H",
    )
    (exact,) = axes.plot(x, [row["density"] for row in bins], color="#0072B2", linewidth=1.8)
    (normal,) = axes.plot(x, [row["normal"] for row in bins], color="#D55E00", linewidth=1.4, linestyle=(0, (5, 2)))
    handles, labels = [law, exact, normal], ["draws of H", "exact density", "normal density"]
    right = max(x[-1], bounds.get("quantile", 0.0), bounds.get("clt", 0.0)) * 1.12
    top = 1.1 * max(max(row["drawn"] for row in bins), max(row["normal"] for row in bins))
    for name, (label, colour) in MARKS.items():
        if name in bounds and bounds[name] <= right:
            handles.append(
                axes.axvline(bounds[name], color=colour, linewidth=1.4, linestyle=":" if name == "clt" else "-")
            )
            labels.append(f"{label} {bounds[name]:.3g}")
        elif name in bounds:
            axes.annotate(
                f"{label} {bounds[name]:.3g} →",
                (0.985, 0.5),
                xycoords="axes fraction",
                ha="right",
                color=colour,
                fontsize="small",
                backgroundcolor="white",
            )
    axes.set_xlim(0 if x[0] - half < 0.2 * right else x[0] - half, right)
    axes.set_ylim(0, top)
    axes.set_xlabel("squared length H of the projected difference")
    axes.set_ylabel("density")
    axes.grid(True, alpha=0.25, linewidth=0.6)
    _draw.legend(axes, handles, labels)
