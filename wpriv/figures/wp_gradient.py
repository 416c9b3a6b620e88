"""A loss over the shift that trains, before and after one record is replaced, or how far its slope moves over the number of records."""

from __future__ import annotations

from typing import Any

from wpriv.figures import _draw


def draw(rows: list[dict[str, Any]], axes: Any) -> None:
    """Draws values of W_p over theta where theta is swept, else sensitivities of W_p and W_p^p over n, a line for each p."""
    if len({row.get("theta") for row in rows}) > 1:
        _over_theta([row for row in rows if row["case"] == "W_p"], axes)
        return
    told = [{**row, "case": _name(row)} for row in rows]
    _draw.lines(told, axes, "records", "sensitivity")
    axes.set_ylabel("change of the gradient by one record")


def _name(row: dict[str, Any]) -> str:
    """The loss with its order; W_p moves alike for every p."""
    if row["case"] == "W_p":
        return "W_p, every p"
    return f"W_p^p, p = {row['order']:g}" if row["case"] == "W_p^p" else str(row["case"])


def _over_theta(rows: list[dict[str, Any]], axes: Any) -> None:
    theta = [row["theta"] for row in rows]
    for column, slope, label, colour in (
        ("value", "slope", "x_i = i/n", _draw.COLOURS[0]),
        ("value_replaced", "slope_replaced", "one record replaced", _draw.COLOURS[1]),
    ):
        at = next((row for row in rows if row["theta"] == 0), None)
        told = "" if at is None or at[slope] is None else f": slope {at[slope]:+.3g} at θ = 0"
        axes.plot(theta, [row[column] for row in rows], color=colour, linewidth=1.8, label=f"{label}{told}")
        if at is not None:
            axes.plot([0], [at[column]], color=colour, marker="o", markersize=6)
    axes.set_xlabel("shift θ of the sample that trains")
    axes.set_ylabel("W_p")
    axes.grid(True, alpha=0.25, linewidth=0.6)
    axes.legend(fontsize="small")
