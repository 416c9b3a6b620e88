"""Sliced distances over how far two means are apart: samples with their spread over the draws, and the closed form."""

from __future__ import annotations

from typing import Any

from wpriv.figures import _draw

_COLOURS = {"SWD": _draw.COLOURS[0], "DP-SWD": _draw.COLOURS[1], "closed form": _draw.COLOURS[6]}


def draw(rows: list[dict[str, Any]], axes: Any) -> None:
    """Draws the distance over c, one curve a case and number of records, with a band of one standard deviation over the draws.

    Source:
        Rakotomamonjy, Ralaivola (2021), Figure 2.
    """
    counts = sorted({row["records"] for row in rows})
    for case, colour in _COLOURS.items():
        # the limit is the same for every number of records
        for place, count in enumerate(counts if case != "closed form" else counts[-1:]):
            own = sorted(
                (row for row in rows if row["case"] == case and row["records"] == count),
                key=lambda row: float(row["c"]),
            )
            xs, ys, off = ([float(row[key]) for row in own] for key in ("c", "distance", "spread"))
            limit = case == "closed form"
            label = "limit of many records (closed form)" if limit else f"{case}, {count:g} records"
            style = {
                "marker": "" if limit else _draw.MARKS[1 + place % (len(_draw.MARKS) - 1)],
                "markersize": 4,
                "markevery": max(1, len(own) // 10),
            }
            dashes = (0, (5, 2)) if limit else "solid"
            axes.plot(
                xs, ys, color=colour, linestyle=dashes, linewidth=1.5, zorder=3 if limit else 2, label=label, **style
            )
            low, high = ([y + sign * o for y, o in zip(ys, off, strict=True)] for sign in (-1, 1))
            axes.fill_between(xs, low, high, color=colour, alpha=0.12, linewidth=0)
    axes.set_ylim(bottom=0)
    axes.set_xlabel("c: every coordinate of the second mean")
    axes.set_ylabel("sliced distance SW₂")
    axes.grid(True, alpha=0.25, linewidth=0.6)
    axes.legend(fontsize="small", framealpha=0.85, loc="best")
