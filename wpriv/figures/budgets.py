"""A table without a sweep: one line a case, one mark an accountant."""

from __future__ import annotations

from typing import Any

from wpriv.figures import _draw


def draw(rows: list[dict[str, Any]], axes: Any) -> None:
    """Draws what each accountant answers for each case; those of one notion share a colour, for only they may be compared."""
    y = "delta" if rows[0].get("asked") == "epsilon" else "epsilon"
    cases = list(dict.fromkeys(str(row.get("case") or "") for row in rows))
    names = list(dict.fromkeys(row["accountant"] for row in rows))
    notions = list(dict.fromkeys(row.get("notion") for row in rows if row.get("notion")))
    for place, name in enumerate(names):
        own = [row for row in rows if row["accountant"] == name and row.get(y) is not None]
        if not own:
            axes.plot([], [], linestyle="none", label=f"{name} (no answer)")
            continue
        colour = _draw.COLOURS[notions.index(own[0]["notion"]) % len(_draw.COLOURS)]
        heights = [cases.index(str(row.get("case") or "")) + 0.7 * ((place + 0.5) / len(names) - 0.5) for row in own]
        mark = _draw.MARKS[1 + place % (len(_draw.MARKS) - 1)]
        label = f"{name} ({_draw.described(own[0], own[0].get('claim'))})"
        axes.plot(
            [row[y] for row in own], heights, color=colour, marker=mark, linestyle="none", markersize=6, label=label
        )
    axes.set_yticks(range(len(cases)), cases)
    axes.set_ylim(len(cases) - 0.4, -0.6)
    axes.set_xscale("log")
    axes.set_xlabel(_draw.NAMES[y])
    axes.set_ylabel("case")
    axes.grid(True, axis="x", alpha=0.25, linewidth=0.6)
    axes.legend(fontsize="x-small", loc="upper left", bbox_to_anchor=(0.0, -0.24), ncols=2, frameon=False)
    _draw.unit_note(axes, rows)
