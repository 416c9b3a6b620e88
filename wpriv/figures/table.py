"""A table of bounds as a table: a line for each accountant, a column for each case or swept value."""

from __future__ import annotations

import textwrap
from typing import Any

from wpriv.figures import _draw, _names
from wpriv.figures._series import implied, swept
from wpriv.numerics.safe_rounding import text

Row = dict[str, Any]
LETTER, LINE = 0.55, 1.7  # width of a letter and height of a line, of the size of type
NAME_WIDTHS, MOST_COLUMNS = (48, 32, 24, 18), 8  # letters of a line of a name, the first that fits
SMALLEST = 6.5  # points of type
DIGITS = 4
GAP = 2.0  # letters between columns


def draw(rows: list[Row], axes: Any) -> None:
    """Draw the answers of a table of bounds, rounded to the safe side, to four digits.

    Raises:
        ValueError: there are more than eight cases or values, or two rows have the same accountant, case and values.
    """
    _draw_cells(rows, {}, axes)


def draw_published(rows: list[Row], points: list[tuple[Row, str, float]], axes: Any) -> None:
    """Draw the table again with published numbers in brackets, each given as its row, its column and the number."""
    axes.clear()
    y = _answer(rows)
    _draw_cells(rows, {id(row): value for row, column, value in points if column == y}, axes)


def _answer(rows: list[Row]) -> str:
    return "delta" if rows[0].get("asked") == "epsilon" else "epsilon"


def _draw_cells(rows: list[Row], published: dict[int, float], axes: Any) -> None:
    y = _answer(rows)
    names = _heading_columns(rows)
    columns = list(dict.fromkeys(tuple(row.get(name) for name in names) for row in rows))
    if len(columns) > MOST_COLUMNS:
        raise ValueError(f"table has up to {MOST_COLUMNS} columns; the table has {len(columns)} cases or values")
    accountants = list(dict.fromkeys(row["accountant"] for row in rows))
    cells = {(row["accountant"], tuple(row.get(name) for name in names)): row for row in rows}
    heads = [_head(names, column) for column in columns]
    lines = [(_line_name(name, [cells.get((name, column)) for column in columns]), name) for name in accountants]
    body = [[_cell(cells.get((name, column)), y, published) for column in columns] for _, name in lines]
    heading = f"{_names.axis(y)}, rounded up" + ("; in brackets: published" if published else "")
    _set(axes, heading, heads, [name for name, _ in lines], body)


def _heading_columns(rows: list[Row]) -> list[str]:
    """The fewest columns of the rows that tell the columns of the table apart: cases, swept values, eps or delta.

    Raises:
        ValueError: two rows agree in all of them, and would have one cell.
    """
    varied = swept(rows)
    # a case stands for what is constant within it
    inner = [name for name in varied if name not in implied(rows, varied)]
    given = "epsilon" if _answer(rows) == "delta" else "delta"
    for candidates in (("case",), ("case", *inner), ("case", *inner, given)):
        names = [name for name in candidates if len({row.get(name) for row in rows}) > 1]
        if len({tuple(row.get(name) for name in ("accountant", *names)) for row in rows}) == len(rows):
            return names
    raise ValueError("two rows of the table have the same accountant, case and values, and would have one cell")


def _head(names: list[str], values: tuple[Any, ...]) -> str:
    return ", ".join(
        _names.method(str(value)) if name == "case" else _names.value(name, value)
        for name, value in zip(names, values, strict=True)
    )


def _line_name(accountant: str, cells: list[Row | None]) -> str:
    return _draw.labelled(_names.accountant(accountant), [cell for cell in cells if cell is not None])


def _cell(row: Row | None, y: str, published: dict[int, float]) -> str:
    if row is None or row.get(y) is None:
        return "–"
    value = text(float(row[y]), up=True, digits=DIGITS)
    return f"{value} [{published[id(row)]:g}]" if id(row) in published else value


def _set(axes: Any, heading: str, heads: list[str], names: list[str], body: list[list[str]]) -> None:
    """Set cells between rules, in type as large as the width of the axes allows; a single panel becomes as high."""
    from matplotlib import rcParams

    figure = axes.figure
    axes.set_axis_off()
    tops = [head.split(", ") for head in heads]
    numbers = [max(*map(len, top), *(len(line[place]) for line in body)) + GAP for place, top in enumerate(tops)]
    span = figure.get_size_inches()[0] * 72 * 0.92 / axes.get_gridspec().ncols
    for letters in NAME_WIDTHS:
        wrapped = [textwrap.wrap(name, letters) for name in names]
        widths = [max(len(line) for lines in wrapped for line in lines) + GAP, *numbers]
        size = min(rcParams["font.size"], span / (LETTER * sum(widths)))
        if size >= SMALLEST:
            break
    height = sum(max(len(lines), 1) for lines in wrapped) + max(map(len, tops), default=0) + 2.5
    points = height * size * LINE
    if len(figure.axes) == 1:
        figure.set_size_inches(figure.get_size_inches()[0], points / 72 + 0.45)
    else:
        points = max(points, (figure.get_size_inches()[1] / axes.get_gridspec().nrows - 0.5) * 72)
    step = size * LINE / points
    total = max(sum(widths), span / (LETTER * size))
    ends = [sum(widths[: place + 1]) / total for place in range(len(widths))]
    style = {"transform": axes.transAxes, "fontsize": size, "va": "center"}
    rule = {"transform": axes.transAxes, "color": "#000000", "clip_on": False}
    at = 1 - step / 2
    axes.text(0, at, heading, style="italic", **style)
    at -= 0.7 * step
    axes.plot([0, ends[-1]], [at, at], linewidth=1.2, **rule)
    first = at - 0.6 * step
    for end, top in zip(ends[1:], tops, strict=True):
        for number, word in enumerate(top):
            axes.text(end, first - number * step, word, ha="right", **style)
    at = first - (max(map(len, tops), default=1) - 1) * step - 0.6 * step
    axes.plot([0, ends[-1]], [at, at], linewidth=0.6, **rule)
    at -= 0.7 * step
    for lines, line in zip(wrapped, body, strict=True):
        for end, word in zip(ends[1:], line, strict=True):
            axes.text(end, at, word, ha="right", **style)
        for part in lines:
            axes.text(0, at, part, ha="left", **style)
            at -= step
    at += 0.3 * step
    axes.plot([0, ends[-1]], [at, at], linewidth=1.2, **rule)
    axes.set_xlim(0, 1)
    axes.set_ylim(0, 1)
