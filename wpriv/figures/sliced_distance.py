"""Sliced distances over the distance of two means: samples with their spread over the draws, and the closed form."""

from __future__ import annotations

from typing import Any

from wpriv.figures import _draw

LIMIT = "closed form"
_COLOURS = {"SWD": _draw.COLOURS[0], "DP-SWD": _draw.COLOURS[1], LIMIT: _draw.COLOURS[6]}


def draw(rows: list[dict[str, Any]], axes: Any) -> None:
    """Draw the distance over c, one curve for each case and number of records, with a band of one standard deviation.

    Source:
        Rakotomamonjy, Ralaivola (2021), Figure 2.
    """
    counts = sorted({row["records"] for row in rows})
    for case, colour in _COLOURS.items():
        # the limit is the same for every number of records
        for index, count in enumerate(counts[-1:] if case == LIMIT else counts):
            curve = sorted(
                (row for row in rows if row["case"] == case and row["records"] == count),
                key=lambda row: float(row["c"]),
            )
            xs, ys, spreads = ([float(row[key]) for row in curve] for key in ("c", "distance", "spread"))
            if case == LIMIT:
                label = "limit of many records (closed form)"
                style = {"marker": "", "linestyle": (0, (5, 2)), "zorder": 3}
            else:
                label = f"{case}, {count:g} records"
                mark = _draw.MARKS[1 + index % (len(_draw.MARKS) - 1)]
                style = {"marker": mark, "linestyle": "solid", "zorder": 2}
            spacing = max(1, len(curve) // 10)
            axes.plot(xs, ys, color=colour, linewidth=1.5, markersize=4, markevery=spacing, label=label, **style)
            low, high = ([y + sign * s for y, s in zip(ys, spreads, strict=True)] for sign in (-1, 1))
            axes.fill_between(xs, low, high, color=colour, alpha=0.12, linewidth=0)
    axes.set_ylim(bottom=0)
    axes.set_xlabel("c: every coordinate of the second mean")
    axes.set_ylabel("sliced distance SW₂")
    _draw.grid(axes)
    axes.legend(fontsize="small", framealpha=0.85, loc="best")
