"""The figures by the name users type: functions, and tables that differ only in columns, scales and labels."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from wpriv.figures import _draw, _palette
from wpriv.figures._draw import Points, Rows

Drawing = Callable[[Any, Any], None]  # draws a table, or for ``samples`` arrays, on axes
Publishing = Callable[[Rows, Points, Any], None]
DOTTED = ":"


class Figure:
    """A figure of the registry: ``about``, ``draw``, and ``draw_published`` if a function was given for it."""

    draw_published: Publishing

    def __init__(self, about: str, draw: Drawing):
        self.about, self.draw = about, draw

    def published(self, function: Publishing) -> Publishing:
        """Draw published numbers by a function: a decorator."""
        self.draw_published = function
        return function


@dataclass(frozen=True)
class BoundsFigure:
    """A table of bounds: a curve for each accountant and case, certified brackets as bands, approximate claims dashed.

    Args:
        about: what the figure shows. x, y: columns; by default the swept quantity and the answer.
    """

    about: str
    x: str | None = None
    y: str | None = None

    def draw(self, rows: Rows, axes: Any) -> None:
        x, y = (self.x, self.y) if self.x and self.y else _draw.axis_of(rows)
        _draw.curves(rows, axes, x, y)

    def draw_published(self, rows: Rows, points: Points, axes: Any) -> None:
        """Draw published numbers, each given as its row, its column and the number."""
        x, y = (self.x, self.y) if self.x and self.y else _draw.axis_of(rows)
        colours = {id(row): colour for row, colour in _draw.curve_points(rows, axes, x, y)}
        drawn = [
            (row[x], value, colours[id(row)]) for row, column, value in points if column == y and id(row) in colours
        ]
        _draw.published(axes, drawn)


@dataclass(frozen=True)
class LineFigure:
    """A table without accountants: one line for each case, styled by its claim.

    Args:
        about: what the figure shows. x: candidate columns; the first that varies is drawn, a single one always.
        ylabel: instead of the name of column ``y``. x_log: make the x axis logarithmic whatever its values.
        from_zero: start a linear y axis at 0. omitted_case: a case that is not drawn.
        bracket: columns of the ends of a band around each line, drawn as ratios to x.
        reference: dash pattern of a level line at 1. reference_note: text below its right end.
    """

    about: str
    x: tuple[str, ...]
    y: str
    ylabel: str = ""
    x_log: bool = False
    from_zero: bool = False
    omitted_case: str = ""
    bracket: tuple[str, str] | None = None
    reference: Any = None
    reference_note: str = ""

    def draw(self, rows: Rows, axes: Any) -> None:
        varying = [name for name in self.x if len(self.x) == 1 or len({row.get(name) for row in rows}) > 1]
        if not varying:
            raise KeyError(f"a swept column ({', '.join(self.x)})")
        rows = [row for row in rows if not self.omitted_case or row["case"] != self.omitted_case]
        # a case that is left out here keeps its colour, which it has in other panels
        _palette.of(axes).colour(self.omitted_case or rows[0]["case"])
        _draw.lines(rows, axes, varying[0], self.y)
        if self.bracket:
            self._draw_brackets(rows, axes, varying[0], self.bracket)
        if self.reference is not None:
            axes.axhline(1, color="#000000", linewidth=0.9, linestyle=self.reference)
        if self.reference_note:
            place = {"xy": (0.98, 1), "xycoords": ("axes fraction", "data"), "ha": "right"}
            offset = {"xytext": (0, -11), "textcoords": "offset points"}
            axes.annotate(self.reference_note, **place, **offset, fontsize="x-small")
        if self.x_log and axes.get_xscale() == "linear":
            axes.set_xscale("log")
        if self.from_zero and axes.get_yscale() == "linear":
            axes.set_ylim(bottom=0)
        if self.ylabel:
            axes.set_ylabel(self.ylabel)

    @staticmethod
    def _draw_brackets(rows: Rows, axes: Any, x: str, columns: tuple[str, str]) -> None:
        for case in dict.fromkeys(row["case"] for row in rows):
            line = sorted((row for row in rows if row["case"] == case), key=lambda row: float(row[x]))
            ends = [[row[column] / row[x] for row in line] for column in columns]
            colour = _palette.of(axes).colour(case)
            axes.fill_between([row[x] for row in line], *ends, color=colour, alpha=0.2, linewidth=0)


DECLARED: dict[str, Figure | BoundsFigure | LineFigure] = {
    "curves": BoundsFigure(
        "Eps or delta over the swept quantity; axes are logarithmic where values span 30-fold or more."
    ),
    "delta-over-eps": BoundsFigure(
        "The privacy profile of a process: delta, on a log axis, over eps.", "epsilon", "delta"
    ),
    "delta-over-n": BoundsFigure(
        "Delta over the number of compositions, on a log2 axis; eps is fixed or proportional to n.", "n", "delta"
    ),
    "eps-over-n": BoundsFigure("Eps at fixed delta over the number of compositions, on a log2 axis.", "n", "epsilon"),
    "limit-error": LineFigure(
        "Certified upper bound of eps over the eps that the central limit of Gaussian DP promises, with its bracket; "
        "above 1 the run is less private than the limit claims.",
        ("target",),
        "ratio",
        ylabel="ε that holds / ε asked for\n(above 1: less private than said)",
        x_log=True,
        bracket=("epsilon_lower", "epsilon_upper"),
        reference=DOTTED,
    ),
    "sensitivity": LineFigure(
        "A sensitivity over the swept quantity, one line for each formula.",
        ("alpha", "lipschitz_z", "size_x", "bound", "clip"),
        "sensitivity",
        from_zero=True,
    ),
    "sigma-over-eps": LineFigure(
        "Sigma over eps by several formulas, the exact one first; both axes logarithmic.",
        ("target",),
        "sigma",
        ylabel="noise σ, in units of the clip radius",
    ),
    "sigma-ratio": LineFigure(
        "Sigma by several formulas divided by the exact one; below 1 a formula, used outside its proof, "
        "promises too much.",
        ("target",),
        "ratio",
        ylabel="σ / least sufficient σ",
        omitted_case="exact",
        reference="solid",
        reference_note="below: less private than said",
    ),
}


def figure(about: str) -> Callable[[Drawing], Figure]:
    """Add a function to the figures, under its name with dashes, with what it shows: a decorator."""

    def declare(draw: Drawing) -> Figure:
        DECLARED[draw.__name__.replace("_", "-")] = entry = Figure(about, draw)
        return entry

    return declare
