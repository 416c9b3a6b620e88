"""A comparison as tables of text: the grid downwards and accountants across, or the other way round."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from wpriv.config.schema import Panel
from wpriv.core.guarantee import CLAIM_WORDS
from wpriv.core.process import SAMPLING_WORDS, UNSAMPLED_WORDS, sampling_words
from wpriv.numerics.numbers import short, text
from wpriv.results.model import Row

NAMES = {"epsilon": "eps", "delta": "delta"}  # columns as headers show them
COLUMNS = {"eps": "epsilon"}  # axes of a sweep as columns of the rows
FIXED = ("sigma", "scale", "n", "group")


@dataclass(frozen=True)
class BoundsTable:
    """The numbers of a panel, rounded up: rows of the grid, each with the text of its cells.

    Args:
        axes: the names of the swept quantities, none without a sweep.
        series: case, accountant and notion of each column. claims: those of its numbers.
        points: the values of the axes of each line. cells: a line for each point, a cell for each series.
        lower: as ``cells``, the lower ends where there are any. heading: what ``series`` names.
    """

    axes: list[str]
    series: list[str]
    claims: list[str]
    points: list[list[str]]
    cells: list[list[str]]
    lower: list[list[str]]
    heading: str

    def wide(self) -> tuple[list[str], list[list[str]]]:
        """Header and lines with the grid downwards and the series across."""
        return [*self.axes, *self.series], [
            [*point, *cells] for point, cells in zip(self.points, self.cells, strict=True)
        ]

    def tall(self, answer: str) -> tuple[list[str], list[list[str]]]:
        """Header and lines with a series downwards, and its claim and its figures across."""
        if not self.axes:
            ends = [self.cells[0], *([self.lower[0]] if any(self.lower[0]) else [])]
            values = [list(row) for row in zip(*ends, strict=True)]
            heads = [answer, "at least"][: len(ends)]
        else:
            values = [list(cells) for cells in zip(*self.cells, strict=True)]
            heads = [", ".join(map(" ".join, zip(self.axes, point, strict=True))) for point in self.points]
        lines = zip(self.series, self.claims, values, strict=True)
        return [self.heading, "claim", *heads], [[name, claim, *row] for name, claim, row in lines]

    def grid(self) -> tuple[list[str], list[list[str]]] | None:
        """Header and lines of a single series over two axes: the first downwards, the second across."""
        if len(self.axes) != 2 or len(self.series) != 1:
            return None
        down, across = (list(dict.fromkeys(point[k] for point in self.points)) for k in (0, 1))
        known = {tuple(point): cells[0] for point, cells in zip(self.points, self.cells, strict=True)}
        header = [self.axes[0], *(f"{self.axes[1]} {value}" for value in across)]
        return header, [[value, *(known.get((value, other), "") for other in across)] for value in down]


def bounds_table(panel: Panel, rows: Sequence[Row]) -> BoundsTable:
    """The table of a panel whose rows are points of privacy curves; series without any answer are left out."""
    axes = [COLUMNS.get(axis.over, axis.over) for axis in panel.sweep or []]
    answer = answer_of(rows)
    known: dict[tuple[object, ...], dict[str, Row]] = {}
    for row in rows:
        known.setdefault(tuple(row[axis] for axis in axes), {})[series_of(row)] = row
    series = list(dict.fromkeys(series_of(row) for row in rows if row.get(answer) is not None))
    claims = [_claims([row for row in rows if series_of(row) == name]) for name in series]
    none: Row = {}
    cells = [[_safe(line.get(name, none).get(answer)) for name in series] for line in known.values()]
    lower = [[_lower(line.get(name, none), answer) for name in series] for line in known.values()]
    points = [[_value(value) for value in point] for point in known]
    heading = "case and accountant" if "case" in rows[0] else "accountant"
    return BoundsTable([NAMES.get(axis, axis) for axis in axes], series, claims, points, cells, lower, heading)


def answer_of(rows: Sequence[Row]) -> str:
    """The column of the quantity that was computed."""
    return "epsilon" if rows[0]["given"] == "delta" else "delta"


def about(rows: Sequence[Row]) -> list[tuple[str, str]]:
    """Return the question, the neighbours and the claims that all numbers of a panel share, each with its label."""
    given = str(rows[0]["given"])
    values = list(dict.fromkeys(row[given] for row in rows if row[given] is not None))
    at = f" at {NAMES.get(given, given)} {short(values[0])}" if len(values) == 1 else ""
    answer = answer_of(rows)
    facts = [("values", f"{NAMES[answer]}{at}, rounded up")]
    neighbours = dict.fromkeys(str(row["adjacency"]) for row in rows if row.get("adjacency"))
    by_claim: dict[str, list[str]] = {}
    for name in dict.fromkeys(series_of(row) for row in rows if row.get("claim")):
        by_claim.setdefault(_claims([row for row in rows if series_of(row) == name]), []).append(name)
    words = "; ".join(f"{claim}: {', '.join(names)}" for claim, names in by_claim.items())
    return [*facts, ("neighbours", ", ".join(neighbours)), ("claims", words)]


def title(rows: Sequence[Row]) -> str:
    """A title where the recipe gives none: the mechanism, and those of its parameters that are the same in all rows."""
    kinds = dict.fromkeys(str(row["mech"]) for row in rows if row.get("mech"))
    fixed = [name for name in FIXED if rows[0].get(name) and len({row.get(name) for row in rows}) == 1]
    words = [f"{name} {_value(rows[0][name])}" for name in fixed]
    sampled = {(str(row["sampling"]), row.get("rate")): row for row in rows if row.get("sampling")}
    # a rate that is not the same in all rows stands in them
    kinds_of_sampling = dict.fromkeys(SAMPLING_WORDS.get(kind, UNSAMPLED_WORDS) for kind, _ in sampled)
    is_one = len(sampled) == 1 and all(kind == "none" or rate for kind, rate in sampled)
    words += [sampling_words(row) for row in sampled.values()] if is_one else [" or ".join(kinds_of_sampling)]
    return ", ".join([", ".join(kinds) or f"{rows[0].get('steps')} kinds of step", *filter(None, words)])


def series_of(row: Row) -> str:
    """Case and accountant, and the notion unless it is approximate DP, whose figures others cannot be compared with."""
    notion = row.get("notion") or "approximate-dp"
    words = [str(row[name]) for name in ("case", "accountant") if name in row]
    return " ".join(words if notion == "approximate-dp" else [*words, f"[{notion}]"])


def _claims(rows: Sequence[Row]) -> str:
    claims = dict.fromkeys(str(row["claim"]) for row in rows if row.get("claim"))
    return "/".join(CLAIM_WORDS.get(claim, claim).partition(",")[0] for claim in claims)


def _safe(bound: float | None) -> str:
    return "" if bound is None else text(bound, up=True)


def _lower(row: Row, answer: str) -> str:
    low = row.get(f"{answer}_lower")
    return "" if not low or row.get("claim") == "exact" else text(low, up=False)


def _value(value: object) -> str:
    return short(float(f"{value:.6g}")) if isinstance(value, float) else str(value)
