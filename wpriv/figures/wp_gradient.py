"""W_p before and after one record is replaced, over the shift of the trained sample, or its sensitivity over n."""

from __future__ import annotations

from typing import Any

from wpriv.figures import _draw

CURVES = (
    ("value", "slope", "x_i = i/n", _draw.COLOURS[0]),
    ("value_replaced", "slope_replaced", "one record replaced", _draw.COLOURS[1]),
)


def draw(rows: list[dict[str, Any]], axes: Any) -> None:
    """Draw values of W_p over theta if theta varies, else sensitivities of W_p and W_p^p over n, a line for each p."""
    if len({row.get("theta") for row in rows}) > 1:
        _draw_values([row for row in rows if row["case"] == "W_p"], axes)
        return
    _draw.lines([{**row, "case": _name(row)} for row in rows], axes, "records", "sensitivity")
    axes.set_ylabel("change of the gradient by one record")


def _name(row: dict[str, Any]) -> str:
    """Return the loss with its order; the sensitivity of W_p is the same for every p."""
    if row["case"] == "W_p":
        return "W_p, every p"
    return f"W_p^p, p = {row['order']:g}" if row["case"] == "W_p^p" else str(row["case"])


def _draw_values(rows: list[dict[str, Any]], axes: Any) -> None:
    theta = [row["theta"] for row in rows]
    centre = next((row for row in rows if row["theta"] == 0), None)
    for column, slope, label, colour in CURVES:
        if centre is not None and centre[slope] is not None:
            label = f"{label}: slope {centre[slope]:+.3g} at θ = 0"
        axes.plot(theta, [row[column] for row in rows], color=colour, linewidth=1.8, label=label)
        if centre is not None:
            axes.plot([0], [centre[column]], color=colour, marker="o", markersize=6)
    axes.set_xlabel("shift θ of the sample that trains")
    axes.set_ylabel("W_p")
    _draw.grid(axes)
    axes.legend(fontsize="small")
