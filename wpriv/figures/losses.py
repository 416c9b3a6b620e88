"""The loss of a training over its steps, one line a case: computed from training records without noise, and not to be published."""

from __future__ import annotations

from typing import Any

from wpriv.figures import _draw


def draw(rows: list[dict[str, Any]], axes: Any) -> None:
    """Draws ``loss`` over ``step``, a line for each ``case`` where there are several trainings.

    Source:
        Rodriguez-Vitores, Lalanne, Loubes (2025), Figures 4, 6, 8 and 10.
    """
    cases = list(dict.fromkeys(row.get("case") for row in rows))
    for place, case in enumerate(cases):
        own = [row for row in rows if row.get("case") == case and row["loss"] is not None]
        style = {"color": _draw.COLOURS[place % len(_draw.COLOURS)], "linewidth": 1.2}
        # a single point is no line
        style |= {"marker": "o"} if len(own) == 1 else {}
        axes.plot(
            [row["step"] for row in own], [row["loss"] for row in own], label="" if case is None else str(case), **style
        )
    axes.set_xlabel("step")
    axes.set_ylabel("loss on training records (no noise: do not publish)")
    axes.grid(True, alpha=0.25, linewidth=0.6)
    if cases != [None]:
        axes.legend(fontsize="small", framealpha=0.85)
