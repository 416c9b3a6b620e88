"""A training over its epochs: what it measured on test records, and what it had cost by then."""

from __future__ import annotations

from typing import Any

from wpriv.figures import _draw

# not drawn: where it was, and what is computed from training records without noise
OTHER = {"epoch", "step", "epsilon", "seconds", "loss", "clipped"}


def draw(rows: list[dict[str, Any]], axes: Any) -> None:
    """Draws every measured share over the epochs, and eps on an axis of its own at the right."""
    names = [key for key in rows[0] if key not in OTHER and isinstance(rows[0][key], (int, float))]
    if not names:
        raise KeyError("accuracy")
    x = [row["epoch"] for row in rows]
    mark = {"marker": "o", "markersize": 3.5} if len(rows) <= 40 else {}
    for place, name in enumerate(names):
        # a figure may be missing at the first look, and there may be more of them than colours
        line = "-" if place < len(_draw.COLOURS) else "--"
        axes.plot(
            x,
            [row.get(name) for row in rows],
            line,
            color=_draw.COLOURS[place % len(_draw.COLOURS)],
            label=name,
            **mark,
        )
    axes.set_xlabel("epoch")
    axes.set_ylabel(names[0] if len(names) == 1 else "measured on test records")
    axes.grid(True, alpha=0.25, linewidth=0.6)
    axes.xaxis.get_major_locator().set_params(integer=True)
    if any(row.get("epsilon") is not None for row in rows):
        right = axes.twinx()
        right.plot(
            x,
            [row.get("epsilon") for row in rows],
            color=_draw.COLOURS[-2],
            linestyle=(0, (5, 2)),
            label="ε so far (right)",
        )
        right.set_ylabel(_draw.NAMES["epsilon"])
        right.set_ylim(bottom=0)
        handles = [*axes.get_legend_handles_labels()[0], *right.get_legend_handles_labels()[0]]
        _draw.legend(axes, handles, [h.get_label() for h in handles])
    elif len(names) > 1:
        axes.legend(fontsize="small")
