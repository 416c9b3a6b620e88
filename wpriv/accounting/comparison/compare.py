"""The verb ``compare``: accountants over a grid, to a table, a figure and a verdict on expected numbers."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypedDict, Unpack

from wpriv.accounting import best_of_runs, evaluate, load_recipe, membership_figures
from wpriv.accounting.budget import Keywords
from wpriv.accounting.comparison import grid
from wpriv.accounting.comparison.grid import Cell
from wpriv.accounting.evaluate import EPS_DELTA
from wpriv.config.plain_words import in_plain_words, is_sentence
from wpriv.config.recipe import Recipe
from wpriv.config.schema import BOUND_COLUMNS, PROCESS_TABLES, Panel
from wpriv.core import registry
from wpriv.core.guarantee import CLAIM_WORDS, RIGOROUS, unit_notes
from wpriv.core.kinds import Sampling
from wpriv.core.mechanism import Mechanism
from wpriv.core.process import SAMPLING_WORDS, UNSAMPLED_WORDS, Process, sampling_words
from wpriv.core.repeats import parse
from wpriv.errors import Unsupported, UsageError
from wpriv.files.shown import Shown, html_of, html_table, latex_table
from wpriv.numerics.bracket import Bracket, monotone
from wpriv.numerics.numbers import short, text
from wpriv.results import expectations, storage
from wpriv.results.expectations import Verdict

Steps = Sequence[Mapping[str, object]]


class ComparisonKeys(TypedDict, total=False):
    """The keys of a recipe of kind compare, as keywords; a process may be a ``Process``."""

    process: Process | Steps | str
    cases: Mapping[str, Process | Steps]
    adjacency: str | None
    group: int | None
    accountants: Sequence[str]
    sweep: Mapping[str, object] | Sequence[Mapping[str, object]]
    eps: float | None
    eps_per_n: float | None
    delta: float | None
    tol: float | None
    repeats: str | None
    table: str
    params: Mapping[str, object]
    bins: int
    figure: str | None
    title: str | None
    limits: Mapping[str, Sequence[float]]
    expect: Sequence[Mapping[str, object]]
    panels: Sequence[Mapping[str, object]]
    claims: Sequence[Mapping[str, object]]


class ComparisonKeywords(ComparisonKeys, Keywords, total=False):
    """The same, and those keywords of ``budget`` that describe a process."""

    mech: str | Mechanism | Process
    accountant: str
    n: int
    sampling: str | Sampling
    rate: float
    batch: int
    records: int
    max_batch: int
    bands: int
    bins: int
    epochs: float
    history: str | Path
    observed: Any


Row = dict[str, Any]
Progress = Callable[[int, int], None]
MAX_CURVES = 64


@dataclass(frozen=True, repr=False)
class Comparison(Shown):
    """A finished comparison.

    Args:
        recipe: as it was understood.
        rows: of the table, one mapping for each cell of the grid.
        verdicts: on the expected numbers of the recipe.
        out: the folder of the results, if there is one.
        files: those that were written.
        reused: number of cells that an earlier run had finished.
        notes: what else happened, such as why no figure was drawn.
    """

    recipe: Recipe
    rows: list[Row]
    verdicts: list[Verdict] = field(default_factory=list)
    out: Path | None = None
    files: tuple[Path, ...] = ()
    reused: int = 0
    notes: tuple[str, ...] = ()

    def sentence(self) -> str:
        answered = [row for row in self.rows if not row.get("reason")]
        by = dict.fromkeys(str(row["accountant"]) for row in answered if row.get("accountant"))
        missed = sum(verdict.is_missed for verdict in self.verdicts)
        what = self.recipe.panels[0].title or self.recipe.source or table_title(self.rows)
        words = [f"{what}: {len(answered)} of {len(self.rows)} cells have an answer"]
        words += [f"by {', '.join(by)}"] if by else []
        words += [f"{missed} of {len(self.verdicts)} expected numbers are missed"] if self.verdicts else []
        return ", ".join(words)

    @property
    def warnings(self) -> tuple[str, ...]:
        """Those of all rows, each once."""
        return tuple(dict.fromkeys(str(line) for row in self.rows for line in row.get("warnings") or ()))

    def to_latex(self) -> str:
        """The table of each panel of privacy curves for LaTeX with booktabs, escaped, below a comment on its values."""
        lines = []
        for about, table in self._tables():
            lines += [*(f"% {name}: {words}" for name, words in about), latex_table(*table), ""]
        return "\n".join(lines)

    def _tables(self) -> Iterator[tuple[list[tuple[str, str]], tuple[list[str], list[list[str]]]]]:
        """Yield for each panel of privacy curves a description of its values, and the header and rows of its table."""
        for panel in self.recipe.panels:
            rows = [row for row in self.rows if row.get("panel", "") == panel.name]
            if panel.table == "bounds":
                table = bounds_table(panel, rows)
                answer = NAMES[answer_of(rows)]
                yield table_facts(rows), table.grid() or (table.wide() if table.axes else table.tall(answer))

    def _repr_html_(self) -> str:
        parts = [html_of(words, []) + html_table(*table) for about, table in self._tables() for _, words in about[:1]]
        return html_of(self.sentence(), self.warned()) + "".join(parts)

    def _repr_latex_(self) -> str:
        return self.to_latex()

    def require(self) -> None:
        """Raise CheckFailed if an expected number was missed."""
        expectations.require(self.verdicts)


@in_plain_words
def compare(
    recipe: str | Path | Mechanism | Process | None = None,
    *,
    out: str | Path | None = None,
    quick: bool = False,
    fresh: bool = False,
    **keys: Unpack[ComparisonKeywords],
) -> Comparison:
    """Put accountants side by side, from a recipe or from keywords.

    Args:
        recipe: a path, or the name of a shipped recipe (``plc/fig7-dpsgd``); or ``mech`` of ``budget``, with keywords.
        out: directory for table, figure, resolved recipe and provenance; a recipe's default is ``results/<name>``.
        quick: apply the recipe's ``quick`` overrides.
        fresh: discard what an earlier run left in ``out``.
        keys: instead of a recipe, the keys of one: ``process`` (a ``Process`` or a list of steps), ``accountants``,
            ``sweep``, ``eps`` or ``delta``; in place of ``process`` the keywords of ``budget`` (``mech="gauss",
            sigma=4, n=10``).
    Returns:
        The Comparison; its ``rows`` are one per cell of the grid, with ``reason`` where an accountant has no answer.
        ``Comparison.require()`` raises if an expected number was missed.
    Raises:
        UsageError: the recipe is faulty, or ``out`` holds other results.
        Unsupported: no cell of the grid has an answer.

    >>> from wpriv import Gauss, Process, Step
    >>> rows = compare(process=Process((Step(Gauss(sigma=1)),)), accountants=["gdp"], eps=1).rows
    >>> round(rows[0]["delta"], 6)
    0.126937
    """
    if not isinstance(out, (str, Path, type(None))):
        raise UsageError(f"out is the path of a directory; found {out!r:.60}")
    is_mech = not isinstance(recipe, str | Path | None) or is_sentence(recipe)
    if (recipe is None or is_mech) == (not keys):
        raise UsageError(
            "compare takes either a recipe, or its keys, as in compare('gauss sigma=4 n=10', delta=1e-5, "
            "accountants=['pld', 'rdp'])"
        )
    if recipe is None or is_mech:
        given = dict(keys) if recipe is None else {"mech": recipe, **keys}
        return run(load_recipe.from_keys(given), None if out is None else Path(out), fresh=fresh)
    assert isinstance(recipe, str | Path)
    loaded = load_recipe.read(recipe, quick=quick, kind="compare")
    return run(loaded, loaded.default_out if out is None else Path(out), fresh=fresh)


def run(
    recipe: Recipe, out: Path | None = None, *, fresh: bool = False, progress: Progress | None = None, draw: bool = True
) -> Comparison:
    """Compute a valid recipe cell by cell; with ``out``, finished cells are kept there and an interrupted run resumes.

    Raises:
        UsageError: ``out`` holds other results. Unsupported: no cell of the grid has an answer.
    """
    started = time.perf_counter()
    cells = grid.cells(recipe)
    keys = [cell.key() for cell in cells]
    grid.read_observations(cells)
    finished: dict[str, list[Row]] = {}
    if out is not None:
        storage.claim(out, recipe, fresh=fresh)
        finished = storage.finished(out)
    rows_by_cell, reused = _compute_all(cells, keys, finished, out, progress)
    rows = monotone_rows(cells, rows_by_cell)
    if all(row.get("reason") is not None for row in rows):
        raise Unsupported(f"no accountant has an answer anywhere on the grid; the first reason: {rows[0]['reason']}")
    verdicts = expectations.verdicts(recipe, rows)
    files: tuple[Path, ...] = ()
    notes: tuple[str, ...] = ()
    if out is not None:
        about = _provenance(recipe, rows, cells=len(cells), reused=reused)
        storage.results(out, rows, {**about, "wall_seconds": round(time.perf_counter() - started, 3)})
        files = (out / storage.TABLE, out / storage.RECIPE, out / storage.PROVENANCE)
        files += expectations.write(out, recipe, verdicts)
        if draw:
            from wpriv.results import plot  # loads matplotlib

            numbers = expectations.of_recipe(recipe)
            try:
                files += tuple(plot.draw(rows, plot.panels_of(recipe), out, ("png",), required=False, numbers=numbers))
            except UsageError as error:
                notes += (f"no figure was drawn: {error}",)
    return Comparison(recipe, rows, verdicts, out, files, reused, notes)


def _compute_all(
    cells: list[Cell], keys: list[str], finished: dict[str, list[Row]], out: Path | None, progress: Progress | None
) -> tuple[list[list[Row]], int]:
    """The rows of each cell, kept in ``out`` as they are computed, and the number of cells that were finished."""
    curves: dict[str, object] = {}
    rows, reused = [], 0
    for count, (cell, key) in enumerate(zip(cells, keys, strict=True)):
        if progress:
            progress(count, len(cells))
        if key in finished:
            reused += 1
        else:
            finished[key] = compute(cell, curves)
            if out is not None:
                storage.keep(out, key, finished[key])
        rows.append(finished[key])
    if progress:
        progress(len(cells), len(cells))
    return rows, reused


def _provenance(recipe: Recipe, rows: list[Row], **counts: int) -> dict[str, object]:
    return {
        "recipe": recipe.name,
        "source": recipe.source,
        "quick": recipe.quick,
        **counts,
        "accountants": {row["accountant"]: row["source"] for row in rows if row.get("source")},
        "claims": [claim.model_dump() for claim in recipe.claims],
        "notes": unit_notes(row.get("notion") for row in rows),
    }


def compute(cell: Cell, curves: dict[str, object]) -> list[Row]:
    """Compute the rows of one cell; ``curves`` caches by process and accountant a curve, or why there is none."""
    try:
        if cell.table == "bounds":
            return [_bound(cell, curves)]
        if cell.table not in PROCESS_TABLES:
            table = registry.load("tables", cell.table)
            return [{**cell.labels, **row} for row in table.rows(table.Params(**cell.specs[0]))]
        process = cell.process()
        labels = {**cell.labels, **cell.process_columns()}
        if cell.table == "trade-off":
            return [{**labels, **_trade_off(cell, process, curves)}]
        if cell.table == "class":
            return [{**labels, **grid.class_row(process)}]
        return [{**labels, **row} for row in grid.loss_rows(process, cell.bins)]
    except Unsupported as error:
        columns = cell.process_columns() if cell.table in PROCESS_TABLES else {}
        return [{**cell.labels, **columns, "reason": str(error)}]


def _trade_off(cell: Cell, process: Process, curves: dict[str, Any]) -> Row:
    """The best attack at the false-positive rate of a cell; cells of one process share its points."""
    key = f"trade-off {cell.curve_key()}"
    if key not in curves:
        curves[key] = membership_figures.membership(process, "pld")
    return membership_figures.point_row(curves[key], cell.labels["fpr"])


def _bound(cell: Cell, curves: dict[str, object]) -> Row:
    answer = _answer(cell, curves)
    row = {**cell.labels, **cell.process_columns(), "accountant": cell.accountant}
    asked, given, value = ("eps", "delta", cell.delta) if cell.eps is None else ("delta", "epsilon", cell.eps)
    row |= {"asked": asked, "given": given}
    if isinstance(answer, str):
        return {**row, given: value, "reason": answer}
    about = {name: answer[name] for name in ("adjacency", "notion", "claim", "process", "source", "warnings")}
    about |= {"group": answer["group"]} if answer["group"] > 1 else {}
    about |= {"repeats": cell.repeats} if cell.repeats is not None else {}
    # numpy's floats are not plain data, and -0.0 is 0
    bounds = {name: None if answer[name] is None else float(answer[name]) + 0.0 for name in BOUND_COLUMNS}
    return {**row, **about, **bounds, "reason": None}


def _answer(cell: Cell, curves: dict[str, Any]) -> dict[str, Any] | str:
    """The guarantee of a cell as plain data, or the reason why the accountant has none."""
    key = cell.curve_key()
    if key not in curves and len(curves) > MAX_CURVES:
        curves.clear()  # a sweep over a parameter evaluates each curve once
    try:
        if key not in curves:
            tol = cell.tol or evaluate.DEFAULT_TOL
            options: dict[str, Any] = dict(cell.options)
            process = cell.process()
            curve = evaluate.curve(process, cell.accountant, tol, **options)
            if cell.repeats is not None:
                run = best_of_runs.OneRun(curve, best_of_runs.largest_loss([process]))
                curve = best_of_runs.of_best(run, parse(cell.repeats))
            curves[key] = curve
        curve = curves[key]
        return curve if isinstance(curve, str) else evaluate.ask(curve, eps=cell.eps, delta=cell.delta).as_dict()
    except Unsupported as error:
        curves.setdefault(key, str(error))
        return str(error)


def monotone_rows(cells: Sequence[Cell], rows_by_cell: Sequence[list[Row]]) -> list[Row]:
    """Return all rows in order, with the brackets of each rigorous curve made monotone in the question.

    Args:
        cells: of a grid.
        rows_by_cell: of each cell. Rows that are no rigorous bounds of delta and eps stay as they are.
    """
    curves: dict[tuple[str, str], list[tuple[float, list[Row]]]] = {}
    result = [list(rows) for rows in rows_by_cell]
    for cell, rows in zip(cells, result, strict=True):
        if cell.table == "bounds" and all(_is_rigorous(row) for row in rows):
            column, argument = ("delta", cell.eps) if cell.eps is not None else ("epsilon", cell.delta)
            curves.setdefault((cell.curve_key(), column), []).append((float(argument or 0.0), rows))
    for (_, column), points in curves.items():
        points.sort(key=lambda point: point[0])
        ends = [f"{column}_{end}" for end in ("estimate", "lower", "upper")]
        brackets = [Bracket(*(rows[0][end] for end in ends)) for _, rows in points]
        for (_, rows), bracket in zip(points, monotone(brackets), strict=True):
            values = (bracket.estimate, bracket.lower, bracket.upper)
            rows[0] = {**rows[0], column: bracket.safe, **dict(zip(ends, values, strict=True))}
    return [row for rows in result for row in rows]


def _is_rigorous(row: Row) -> bool:
    return row.get("reason") is None and row.get("claim") in RIGOROUS and row.get("notion") in EPS_DELTA


# A comparison as tables of text: the grid downwards and accountants across, or the other way round.

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


def table_facts(rows: Sequence[Row]) -> list[tuple[str, str]]:
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


def table_title(rows: Sequence[Row]) -> str:
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
