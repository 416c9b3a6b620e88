"""The law of the privacy loss after n compositions, beside the normal law of its privacy loss class."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

from wpriv.errors import UsageError
from wpriv.figures import _draw

Row = dict[str, Any]


def draw(rows: list[Row], axes: Any) -> None:
    """Draws a loss table: cells as steps of density, atoms as stems of mass, the distinguishing events at the right edge.

    Source:
        Sommer, Meiser, Mohammadi (2019), Figures 1 and 3.
    """
    finite = [row for row in rows if row["part"] == "finite"]
    losses = [row["loss"] for row in finite]
    if not finite or any(b <= a for a, b in pairwise(losses)):
        raise UsageError("loss-law draws one law of the loss, its losses increasing; give every n a panel of its own")
    infinity = next((row["mass"] for row in rows if row["part"] == "infinity"), 0.0)
    if any(row["width"] for row in finite):
        _cells(finite, axes)
        axes.set_ylabel("density")
    else:
        axes.vlines([row["loss"] for row in finite], 0, [row["mass"] for row in finite], color="#0072B2", linewidth=6)
        axes.set_ylabel("probability")
        axes.set_ylim(0, 1.1)
        for row in finite:
            axes.annotate(
                f"{row['mass']:.4g}", (row["loss"], row["mass"]), xytext=(0, 3), textcoords="offset points", ha="center"
            )
    if infinity:
        _infinity(finite, infinity, axes)
    axes.set_xlabel("privacy loss")
    axes.grid(True, alpha=0.25, linewidth=0.6)


def _cells(finite: list[Row], axes: Any) -> None:
    edges = [row["loss"] - row["width"] / 2 for row in finite] + [finite[-1]["loss"] + finite[-1]["width"] / 2]
    heights = [row["density"] for row in finite]
    law = axes.stairs(heights, edges, fill=True, color="#56B4E9", label="privacy loss distribution")
    (normal,) = axes.plot(
        [row["loss"] for row in finite],
        [row["class_density"] for row in finite],
        color="#D55E00",
        linewidth=1.6,
        linestyle=(0, (5, 2)),
    )
    # an atom is a cell far above the rest: the axis shows the rest, and the atom's mass is written beside it
    usual = sorted(heights)[int(0.95 * (len(heights) - 1))]
    top = 1.35 * max(usual, max(row["class_density"] for row in finite))
    high = [row for row in finite if row["density"] > top]
    for place, row in enumerate(high):
        last = row["loss"] > edges[0] + 0.9 * (edges[-1] - edges[0])
        where = (row["loss"], (0.98 - 0.06 * (place % 2)) * top)
        axes.annotate(f" {row['mass']:.2g} ", where, ha="right" if last else "left", va="top", fontsize="small")
    axes.set_ylim(0, top)
    _draw.legend(axes, [law, normal], ["privacy loss distribution", "its class (normal law)"])


def _infinity(finite: list[Row], mass: float, axes: Any) -> None:
    """The mass at infinity as a bar of its own, right of every finite loss."""
    losses = [row["loss"] for row in finite]
    span = max(losses) - min(losses) or 1.0
    place = max(losses) + 0.5 * span
    bar = axes.vlines([place], 0, [mass], color="#D55E00", linewidth=6)
    axes.annotate(f"{mass:.4g}", (place, mass), xytext=(0, 3), textcoords="offset points", ha="center")
    axes.set_xlim(min(losses) - 0.5 * span, place + 0.5 * span)
    if span == 1.0 and len(losses) == 1:
        axes.set_xticks([losses[0], place], [f"{losses[0]:g}", "∞"])
    _draw.legend(axes, [bar], ["distinguishing events (loss ∞)"])
