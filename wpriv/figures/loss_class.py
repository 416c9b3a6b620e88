"""Mean and variance of privacy loss classes over the quantity that is swept."""

from __future__ import annotations

from typing import Any

from wpriv.figures import _draw

_COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7")


def draw(rows: list[dict[str, Any]], axes: Any) -> None:
    """Draws a class table: for each case its mean (solid) and its variance (dashed).

    Source:
        Sommer, Meiser, Mohammadi (2019), Section 6.2.1 (with errata E-002-14).
    """
    x = next(
        iter(
            name for name in ("sensitivity", "sigma", "scale", "rate", "n") if len({row.get(name) for row in rows}) > 1
        ),
        None,
    )
    if x is None:
        raise KeyError("a swept column (sensitivity, sigma, scale, rate or n)")
    handles = []
    for y, style in (("mean", "solid"), ("variance", (0, (5, 2)))):
        for place, (label, own) in enumerate(_draw.series([row for row in rows if row.get(y) is not None], x, y)):
            heights = [row[y] for row in own]
            line = axes.plot(
                [row[x] for row in own], heights, color=_COLOURS[place % 4], linestyle=style, linewidth=1.6
            )[0]
            handles.append((heights[-1], line, f"{y}, {label}" if label else y))
    handles.sort(key=lambda h: -h[0])
    axes.set_xlabel(_draw.NAMES[x])
    axes.set_ylabel("privacy loss: mean (nats), variance (nats²)")
    axes.grid(True, alpha=0.25, linewidth=0.6)
    _draw.legend(axes, [h[1] for h in handles], [h[2] for h in handles])
