"""Mean and variance of privacy loss classes over a swept quantity."""

from __future__ import annotations

from typing import Any

from wpriv.figures import _draw, _palette

X = ("sensitivity", "sigma", "scale", "rate", "n")
STYLES = {"mean": "solid", "variance": (0, (5, 2))}


def draw(rows: list[dict[str, Any]], axes: Any) -> None:
    """Draw the mean (solid) and the variance (dashed) of each case of a class table.

    Raises:
        KeyError: no column of X varies.
    Source:
        Sommer, Meiser, Mohammadi (2019), Section 6.2.1 (corrected).
    """
    x = next((name for name in X if len({row.get(name) for row in rows}) > 1), None)
    if x is None:
        raise KeyError(f"a swept column ({', '.join(X[:-1])} or {X[-1]})")
    entries = []
    for y, dashes in STYLES.items():
        for group in _draw.series([row for row in rows if row.get(y) is not None], x, y):
            points = [row[x] for row in group.rows], [row[y] for row in group.rows]
            colour = _palette.of(axes).colour(group.key)
            line = axes.plot(*points, color=colour, linestyle=dashes, linewidth=1.6)[0]
            entries.append((group.rows[-1][y], line, f"{y}, {group.label}" if group.label else y))
    axes.set_xlabel(_draw.NAMES[x])
    axes.set_ylabel("privacy loss: mean (nats), variance (nats²)")
    _draw.grid(axes)
    _draw.sorted_legend(axes, entries)
