"""An audit: the lower bound of eps of every test beside the certified bracket, and the gap between them."""

from __future__ import annotations

from typing import Any

from wpriv.figures import _draw


def draw(rows: list[dict[str, Any]], axes: Any) -> None:
    """Draw ``epsilon_at_least`` of every test as a point, and the certified bracket as a band across.

    Args:
        rows: with statistic, guesses, correct, epsilon_at_least, certified_lower and certified_upper.
    """
    lower, upper = rows[0].get("certified_lower") or 0.0, rows[0]["certified_upper"]
    bounds = [row["epsilon_at_least"] for row in rows]
    best = max(range(len(rows)), key=bounds.__getitem__)
    axes.axhspan(lower, upper, color=_draw.COLOURS[0], alpha=0.35, linewidth=0)
    axes.axhline(upper, color=_draw.COLOURS[0], label="certified upper end")
    axes.plot(range(len(rows)), bounds, "o", color=_draw.COLOURS[1], label="audit, at least (all together 95%)")
    word = "VIOLATED by" if bounds[best] > upper else "gap"
    axes.annotate("", (best, upper), (best, bounds[best]), arrowprops={"arrowstyle": "<->", "color": "0.4"})
    axes.annotate(
        f"{word} {abs(upper - bounds[best]):.3g}",
        (best, (upper + bounds[best]) / 2),
        (6, 0),
        textcoords="offset points",
        va="center",
    )
    axes.set_xticks(range(len(rows)), [f"{row['statistic']}\n{row['correct']}/{row['guesses']}" for row in rows])
    axes.tick_params(axis="x", labelsize="x-small")
    axes.set_xlabel("statistic, and right guesses of all")
    axes.set_ylabel(_draw.NAMES["epsilon"])
    axes.set_xlim(-0.6, len(rows) - 0.1)
    axes.set_ylim(0, 1.25 * max(upper, *bounds))
    _draw.grid(axes)
    axes.legend(fontsize="small", loc="upper right", ncols=2)
