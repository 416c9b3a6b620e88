"""Several measured quantities, of any units, over the epochs: on one logarithmic axis, each with its own mark."""

from __future__ import annotations

from typing import Any

from wpriv.figures import _draw, _names, _palette, training

MARKS = "osDv^<>P"


def draw(rows: list[dict[str, Any]], axes: Any) -> None:
    """Draw every measured number over the epochs; values of 0 or less are omitted.

    Raises:
        KeyError: nothing was measured. ValueError: the rows are of several trainings.
    """
    training.require_course(rows)
    names = training.measured(rows)
    if not names:
        raise KeyError("w2")
    axes.set_yscale("log")
    for index, name in enumerate(names):
        positive = [row for row in rows if isinstance(row.get(name), (int, float)) and row[name] > 0]
        style = {"color": _palette.of(axes).colour(name), "marker": MARKS[index % len(MARKS)]}
        axes.plot(
            [r["epoch"] for r in positive],
            [r[name] for r in positive],
            markersize=3.5,
            label=_names.measure(name),
            **style,
        )
    axes.set_xlabel("epoch")
    axes.set_ylabel("measured on generated and test records")
    _draw.grid(axes, which="both", alpha=0.2, linewidth=0.5)
    axes.xaxis.get_major_locator().set_params(integer=True)
    axes.legend(fontsize="small")
