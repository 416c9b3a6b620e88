"""The variance that a linear generator learns from privatised data, over lambda or over batch size."""

from __future__ import annotations

from typing import Any

from wpriv.figures import _draw

LINES: dict[str, tuple[str, dict[str, Any]]] = {
    "exact": ("population loss, closed form", {"linewidth": 2.6}),
    "grid": ("population loss, by Sinkhorn", {"marker": "o", "linestyle": "none", "markersize": 6}),
    "sampled": ("mean loss of batches", {"marker": "s", "linewidth": 1.2, "markersize": 4.5}),
}


def draw(rows: list[dict[str, Any]], axes: Any) -> None:
    """Draw every column of LINES over the swept parameter, beside the variance of the data that the theorem recovers.

    Source:
        Reshetova, Chen, Ozgur (2023), Theorem 1.
    """
    x = max(("lam", "batch"), key=lambda name: len({row[name] for row in rows if name in row}))
    rows = sorted(rows, key=lambda row: float(row[x]))
    handles, labels = [], []
    for colour, (column, (label, style)) in zip(_draw.COLOURS, LINES.items(), strict=False):
        points = [(row[x], row[column]) for row in rows if row.get(column) is not None]
        if len(points) > 1 or (points and "marker" in style):
            handles += axes.plot(*zip(*points, strict=True), color=colour, **style)
            labels.append(label)
    variance = next((row["data"] for row in rows), None)
    handles.append(axes.axhline(variance, color="#000000", linewidth=0.9, linestyle=(0, (4, 3)), zorder=1))
    labels.append("variance of the data")
    axes.set_xlabel("λ, as a multiple of the theorem's" if x == "lam" else "batch size")
    axes.set_ylabel("variance learned")
    if x == "batch":
        axes.set_xscale("log")
        axes.set_xticks([row[x] for row in rows], [f"{row[x]:g}" for row in rows])
        axes.minorticks_off()
    _draw.grid(axes)
    _draw.legend(axes, handles, labels)
