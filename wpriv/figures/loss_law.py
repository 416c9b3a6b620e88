"""The privacy loss distribution after n compositions, beside the normal distribution of its privacy loss class."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

from wpriv.errors import UsageError
from wpriv.figures import _draw

Row = dict[str, Any]


def draw(rows: list[Row], axes: Any) -> None:
    """Draw a loss table: cells as steps of density, atoms as stems of mass, distinguishing events at the right edge.

    Raises:
        UsageError: the rows hold several distributions.
    Source:
        Sommer, Meiser, Mohammadi (2019), Figures 1 and 3.
    """
    finite = [row for row in rows if row["part"] == "finite"]
    losses = [row["loss"] for row in finite]
    if not finite or any(b <= a for a, b in pairwise(losses)):
        raise UsageError("loss-law draws one distribution, with increasing losses; give every n a panel of its own")
    infinity = next((row["mass"] for row in rows if row["part"] == "infinity"), 0.0)
    if any(row["width"] for row in finite):
        _draw_cells(finite, axes)
        axes.set_ylabel("density (1/nat)")
    else:
        axes.vlines(losses, 0, [row["mass"] for row in finite], color="#0072B2", linewidth=6)
        axes.set_ylabel("probability")
        axes.set_ylim(0, 1.1)
        for row in finite:
            _annotate_mass(axes, row["loss"], row["mass"])
    if infinity:
        _draw_infinity(losses, infinity, axes)
    axes.set_xlabel("privacy loss (nats)")
    _draw.grid(axes)


def _annotate_mass(axes: Any, loss: float, mass: float) -> None:
    axes.annotate(f"{mass:.4g}", (loss, mass), xytext=(0, 3), textcoords="offset points", ha="center")


def _draw_cells(finite: list[Row], axes: Any) -> None:
    edges = [row["loss"] - row["width"] / 2 for row in finite] + [finite[-1]["loss"] + finite[-1]["width"] / 2]
    densities, normal_densities = ([row[key] for row in finite] for key in ("density", "class_density"))
    stairs = axes.stairs(densities, edges, fill=True, color="#56B4E9", label="privacy loss distribution")
    style = {"color": "#D55E00", "linewidth": 1.6, "linestyle": (0, (5, 2))}
    (normal,) = axes.plot([row["loss"] for row in finite], normal_densities, **style)
    # an atom is a cell far above the others: the axis covers the others, and the mass of the atom is written beside it
    usual = sorted(densities)[int(0.95 * (len(densities) - 1))]
    top = 1.35 * max(usual, *normal_densities)
    for index, row in enumerate(row for row in finite if row["density"] > top):
        near_right_edge = row["loss"] > edges[0] + 0.9 * (edges[-1] - edges[0])
        place = (row["loss"], (0.98 - 0.08 * (index % 4)) * top)
        side = "right" if near_right_edge else "left"
        axes.annotate(f" {row['mass']:.2g} ", place, ha=side, va="top", fontsize="small")
    axes.set_ylim(0, top)
    _draw.legend(axes, [stairs, normal], ["privacy loss distribution", "normal distribution of its class"])


def _draw_infinity(losses: list[float], mass: float, axes: Any) -> None:
    """Draw the mass at infinity as a separate bar, right of every finite loss."""
    span = max(losses) - min(losses) or 1.0
    place = max(losses) + 0.5 * span
    bar = axes.vlines([place], 0, [mass], color="#D55E00", linewidth=6)
    # beside densities, which have another unit, the bar may be higher than the axes; its number stays within them
    axes.annotate(
        f"{mass:.4g}",
        (place, min(mass, 0.9 * axes.get_ylim()[1])),
        xytext=(0, 3),
        textcoords="offset points",
        ha="center",
    )
    axes.set_xlim(min(losses) - 0.5 * span, place + 0.5 * span)
    if span == 1.0 and len(losses) == 1:
        axes.set_xticks([losses[0], place], [f"{losses[0]:g}", "∞"])
    drawn = axes.get_legend()
    handles = [] if drawn is None else [*drawn.legend_handles]
    labels = [] if drawn is None else [text.get_text() for text in drawn.get_texts()]
    _draw.legend(axes, [*handles, bar], [*labels, "distinguishing events (loss ∞)"])
