"""A training over its epochs: what was measured, without noise, and the eps spent."""

from __future__ import annotations

from typing import Any

from wpriv.figures import _draw, _names

# not drawn: positions, and what is computed from training records without noise
OTHER = {"epoch", "step", "epsilon", "seconds", "loss", "clipped", "clip_norm", "seeds", "run"}
MOST_MARKED = 40  # points of a line with marks


def measured(rows: list[dict[str, Any]]) -> list[str]:
    """Return the columns of what was measured on test or generated records, at one epoch at least."""
    numbers = dict.fromkeys(key for row in rows for key, value in row.items() if isinstance(value, (int, float)))
    return [key for key in numbers if key not in OTHER and "." not in key and not key.endswith("_sd")]


def require_course(rows: list[dict[str, Any]]) -> None:
    """Raise ValueError where rows are those of several trainings, so that an epoch has more than one."""
    if len({row["epoch"] for row in rows}) < len(rows):
        raise ValueError("it draws one training over its epochs, and here some epoch has several rows")


def draw(rows: list[dict[str, Any]], axes: Any) -> None:
    """Draw every measured quantity over the epochs, and eps on a second axis at the right.

    Raises:
        KeyError: nothing was measured. ValueError: the rows are of several trainings.
    """
    require_course(rows)
    names = measured(rows)
    if not names:
        raise KeyError("accuracy")
    epochs = [row["epoch"] for row in rows]
    for index, name in enumerate(names):
        dashes = "-" if index < len(_draw.COLOURS) else "--"  # distinguishes lines that share a colour
        colour = _draw.COLOURS[index % len(_draw.COLOURS)]
        # a quantity may be missing at an epoch, or be measured at the last one alone
        present = [row for row in rows if row.get(name) is not None]
        mark = {"marker": "o", "markersize": 3.5} if len(present) <= MOST_MARKED else {}
        axes.plot(epochs, [row.get(name) for row in rows], dashes, color=colour, label=_names.measure(name), **mark)
        _draw.band(axes, [row["epoch"] for row in present], present, name, colour)
    axes.set_xlabel(f"epoch (means of {rows[0]['seeds']} runs ± one deviation)" if rows[0].get("seeds") else "epoch")
    axes.set_ylabel(_names.measure(names[0]) if len(names) == 1 else "measured without noise")
    _draw.grid(axes)
    axes.xaxis.get_major_locator().set_params(integer=True)
    if len(rows) == 1:
        _write_values(rows[0], names, axes)
    if any(row.get("epsilon") is not None for row in rows):
        right = axes.twinx()
        style = {"color": _draw.COLOURS[-2], "linestyle": (0, (5, 2))}
        label = "ε of one run so far (right)" if rows[0].get("seeds") else "ε so far (right)"
        right.plot(epochs, [row.get("epsilon") for row in rows], label=label, **style)
        right.set_ylabel(_draw.NAMES["epsilon"])
        right.set_ylim(bottom=0)
        handles = [*axes.get_legend_handles_labels()[0], *right.get_legend_handles_labels()[0]]
        _draw.legend(axes, handles, [handle.get_label() for handle in handles])
    elif len(names) > 1:
        axes.legend(fontsize="small")


def _write_values(row: dict[str, Any], names: list[str], axes: Any) -> None:
    """Write the numbers beside the points of a training of one epoch, which have no course."""
    axes.set_xticks([row["epoch"]])
    for name in names:
        place = {"xytext": (6, 0), "textcoords": "offset points", "va": "center"}
        axes.annotate(f"{row[name]:.4g}", (row["epoch"], row[name]), fontsize="small", **place)


def draw_published(rows: list[dict[str, Any]], points: list[tuple[dict[str, Any], str, float]], axes: Any) -> None:
    """Draw published measurements, each given as its row, its column and the number, at the epoch of the row."""
    names = measured(rows)
    drawn = [
        (row["epoch"], value, _draw.COLOURS[names.index(column) % len(_draw.COLOURS)])
        for row, column, value in points
        if column in names
    ]
    _draw.published(axes, drawn)
