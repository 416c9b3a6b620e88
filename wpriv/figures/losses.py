"""Training losses over the steps, one line for each case. Computed from training records without noise: not public."""

from __future__ import annotations

from typing import Any

from wpriv.figures import _draw, _names, _palette


def draw(rows: list[dict[str, Any]], axes: Any) -> None:
    """Draw ``loss`` over ``step``, a line for each ``case`` if there are several trainings.

    Source:
        Rodriguez-Vitores, Lalanne, Loubes (2025), Figures 4, 6, 8 and 10.
    """
    cases = list(dict.fromkeys(row.get("case") for row in rows))
    for case in cases:
        case_rows = [row for row in rows if row.get("case") == case and row["loss"] is not None]
        points = [(row["step"], row["loss"]) for row in case_rows]
        style: dict[str, Any] = {"color": _palette.of(axes).colour(_names.key(str(case))), "linewidth": 1.2}
        style |= {"marker": "o"} if len(points) == 1 else {}  # a line through one point is invisible
        label = "" if case is None else _names.method(str(case))
        axes.plot([step for step, _ in points], [loss for _, loss in points], label=label, **style)
        _draw.band(axes, [step for step, _ in points], case_rows, "loss", style["color"])
    axes.set_xlabel("step")
    axes.set_ylabel("training loss, no noise added")
    _draw.grid(axes)
    if cases != [None]:
        axes.legend(fontsize="small", framealpha=0.85)
