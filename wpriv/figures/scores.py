"""Where a model's scores lie in each group: their densities, or in the plane the points themselves."""

from __future__ import annotations

from typing import Any

from wpriv.figures import _draw

_DASHES = ("solid", (0, (2, 1.5)))


def draw(rows: list[dict[str, Any]], axes: Any) -> None:
    """Draws ``density`` over ``x`` as steps, or points ``x``, ``y``; colour tells the ``group``, dashes (or a cross) the ``label``.

    Source:
        Rodriguez-Vitores, Lalanne, Loubes (2025), Figures 1, 2, 5, 7 and 9.
    """
    plane = "density" not in rows[0]
    for label in sorted({row.get("label") for row in rows}, key=str):
        for group in (0, 1):
            own = [row for row in rows if row["group"] == group and row.get("label") == label]
            if not own:
                continue
            told = f"A = {group}" + ("" if label is None else f", Y = {label}")
            colour, xs = _draw.COLOURS[group], [row["x"] for row in own]
            if plane:
                mark = "x" if label == 1 else "o"
                axes.scatter(
                    xs,
                    [row["y"] for row in own],
                    s=5,
                    marker=mark,
                    color=colour,
                    alpha=0.35,
                    linewidths=0.4,
                    label=told,
                )
                continue
            step = 1 / len(xs)
            edges = [*xs, xs[-1] + step]
            style = {"color": colour, "linestyle": _DASHES[label or 0], "linewidth": 1.5}
            axes.stairs([row["density"] for row in own], edges, label=told, fill=False, **style)
            if label is None:
                axes.stairs([row["density"] for row in own], edges, color=colour, alpha=0.2, fill=True)
    if plane:
        axes.plot([0, 1], [1, 0], color=_draw.COLOURS[-2], linewidth=0.8, linestyle=(0, (5, 2)))
        axes.set_aspect("equal")
        axes.set_xlim(0, 1)
        axes.set_ylim(0, 1)
    axes.set_xlabel("predicted Y1" if plane else "score")
    axes.set_ylabel("predicted Y2" if plane else "density in the group (test records)")
    axes.grid(True, alpha=0.25, linewidth=0.6)
    axes.legend(fontsize="small", framealpha=0.85, markerscale=2)
