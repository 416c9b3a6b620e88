"""The variance that a linear generator learns from privatised data, over lambda or over batch size, beside that of the data."""

from __future__ import annotations

from typing import Any

from wpriv.figures import _draw

LINES: dict[str, tuple[str, dict[str, Any]]] = {
    "exact": ("population loss, closed form", {"linewidth": 2.6}),
    "grid": ("population loss, by Sinkhorn", {"marker": "o", "linestyle": "none", "markersize": 6}),
    "sampled": ("mean loss of batches", {"marker": "s", "linewidth": 1.2, "markersize": 4.5}),
}


def draw(rows: list[dict[str, Any]], axes: Any) -> None:
    """Draws every column of LINES over the swept parameter, and the variance that the theorem is to recover.

    Source:
        Reshetova, Chen, Ozgur (2023), Theorem 1.
    """
    x = max(("lam", "batch"), key=lambda name: len({row[name] for row in rows if name in row}))
    ordered = sorted(rows, key=lambda row: float(row[x]))
    handles, labels = [], []
    for colour, (column, (label, style)) in zip(_draw.COLOURS, LINES.items(), strict=False):
        told = [row for row in ordered if row.get(column) is not None]
        if len(told) > 1 or (told and "marker" in style):
            handles += axes.plot([row[x] for row in told], [row[column] for row in told], color=colour, **style)
            labels.append(label)
    data = next((row["data"] for row in rows), None)
    handles.append(axes.axhline(data, color="#000000", linewidth=0.9, linestyle=(0, (4, 3)), zorder=1))
    labels.append("variance of the data")
    axes.set_xlabel("λ, as a multiple of the theorem's" if x == "lam" else "batch size")
    axes.set_ylabel("variance learned")
    if x == "batch":
        axes.set_xscale("log")
        axes.set_xticks([row[x] for row in ordered], [f"{row[x]:g}" for row in ordered])
        axes.minorticks_off()
    axes.grid(True, alpha=0.25, linewidth=0.6)
    _draw.legend(axes, handles, labels)
