"""The verb ``compare``: accountants over a grid, to a table, a figure and a verdict on published numbers."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from wpriv.config.recipe import Recipe
from wpriv.config.schema import BOUND_COLUMNS, PROCESS_TABLES
from wpriv.core import registry
from wpriv.core.guarantee import Curve, unit_notes
from wpriv.errors import Unsupported, UsageError
from wpriv.run import flag_recipes, load_recipe
from wpriv.run.accounting import build_process, evaluate
from wpriv.run.accounting.interpretations import why
from wpriv.run.comparison import grid, loss_tables
from wpriv.run.comparison.grid import Cell
from wpriv.run.comparison.monotone_rows import monotone_rows
from wpriv.run.results import expectations, file_names, write
from wpriv.run.results.expectations import Verdict

Row = dict[str, Any]
Progress = Callable[[int, int], None]
MAX_CURVES = 64


@dataclass(frozen=True)
class Comparison:
    """The rows of the table, the verdicts on published numbers, and the files that were written.

    ``reused`` counts the cells that an earlier run had finished.
    """

    recipe: Recipe
    rows: list[Row]
    verdicts: list[Verdict] = field(default_factory=list)
    out: Path | None = None
    files: tuple[Path, ...] = ()
    reused: int = 0

    def require(self) -> None:
        """Raise CheckFailed if a published number was missed."""
        expectations.require(self.verdicts)


def compare(
    recipe: str | Path | None = None,
    *,
    out: str | Path | None = None,
    quick: bool = False,
    fresh: bool = False,
    **flags: Any,
) -> Comparison:
    """Put accountants side by side, from a recipe or from keywords.

    Args:
        recipe: a path, or the name of a shipped recipe (``plc/fig7-dpsgd``).
        out: directory for table, figure, resolved recipe and provenance; a recipe's default is ``results/<name>``.
        quick: apply the recipe's ``quick`` overrides. fresh: discard what an earlier run left in ``out``.
        flags: instead of a recipe, the keys of one: ``process`` (list of steps), ``accountants``, ``sweep``, ``eps`` or
            ``delta``.
    Returns:
        The rows, one per cell of the grid; ``reason`` is set where an accountant has no answer. ``Comparison.require()``
        raises if a published number was missed.
    Raises:
        UsageError: the recipe is faulty, or ``out`` holds other results. Unsupported: no cell of the grid has an answer.

    >>> rows = compare(process=[{"mech": "gauss", "sigma": 1}], accountants=["gdp"], eps=1).rows
    >>> round(rows[0]["delta"], 6)
    0.126937
    """
    if not isinstance(out, (str, Path, type(None))):
        raise UsageError(f"out is the path of a directory; found {out!r:.60}")
    if (recipe is None) == (not flags):
        keys = "process=..., accountants=..., eps=..."
        raise UsageError(f"compare takes either a recipe, or the keys of one ({keys})")
    if recipe is None:
        return run(flag_recipes.from_flags(flags), None if out is None else Path(out), fresh=fresh)
    loaded = load_recipe.recipe(recipe, quick=quick, kind="compare")
    return run(loaded, default_out(loaded) if out is None else Path(out), fresh=fresh)


def default_out(recipe: Recipe) -> Path:
    """Return ``results/<name>``, and a directory of its own for a quick run, whose table is another one."""
    return Path("results") / (f"{recipe.name}-quick" if recipe.quick else recipe.name)


def run(
    recipe: Recipe,
    out: Path | None = None,
    *,
    fresh: bool = False,
    progress: Progress | None = None,
    draw: bool = True,
) -> Comparison:
    """Compute a valid recipe cell by cell; with ``out``, finished cells are kept there and an interrupted run resumes.

    Args:
        fresh: discard what an earlier run left in ``out``. progress: called with the number of finished cells and of all.
        draw: whether to draw the figure.
    Raises:
        UsageError: ``out`` holds other results. Unsupported: no cell of the grid has an answer.
    """
    started = time.perf_counter()
    cells = grid.cells(recipe)
    _read_observations(cells)
    finished: dict[str, list[Row]] = {}
    if out is not None:
        write.claim(out, recipe, fresh=fresh)
        finished = write.finished(out)
    rows_by_cell, reused = _compute_all(cells, finished, out, progress)
    rows = monotone_rows(cells, rows_by_cell)
    if all(row.get("reason") is not None for row in rows):
        raise Unsupported(f"no accountant has an answer anywhere on the grid; the first reason: {rows[0]['reason']}")
    verdicts = expectations.verdicts(recipe, rows)
    files: tuple[Path, ...] = ()
    if out is not None:
        about = _provenance(recipe, rows, cells=len(cells), reused=reused)
        write.results(out, rows, {**about, "wall_seconds": round(time.perf_counter() - started, 3)})
        files = (out / file_names.TABLE, out / file_names.RECIPE, out / file_names.PROVENANCE)
        if draw:
            from wpriv.run.results import plot  # loads matplotlib

            files += tuple(plot.draw(rows, plot.panels_of(recipe), out, ("png",), asked=False))
    return Comparison(recipe, rows, verdicts, out, files, reused)


def readings(spec: dict[str, Any], **question: float) -> list[Row]:
    """Answer ``compare --why``: see ``wpriv.run.accounting.interpretations``; the question is eps or delta, and tol."""
    return why({k: v for k, v in spec.items() if v is not None}, **question)


def _read_observations(cells: list[Cell]) -> None:
    """Build the processes that observations belong to, so that a faulty file is reported before any work begins."""
    observed = {cell.curve_key(): cell for cell in cells if any("observed" in spec for spec in cell.specs)}
    for cell in observed.values():
        with contextlib.suppress(Unsupported):  # the reason goes into the table
            cell.process()


def _compute_all(
    cells: list[Cell], finished: dict[str, list[Row]], out: Path | None, progress: Progress | None
) -> tuple[list[list[Row]], int]:
    """The rows of each cell, computed where they are not finished and kept in ``out``; and how many cells were finished."""
    curves: dict[str, Curve | str] = {}
    rows, reused = [], 0
    for count, cell in enumerate(cells):
        if progress:
            progress(count, len(cells))
        key = cell.key()
        if key in finished:
            reused += 1
        else:
            finished[key] = compute(cell, curves)
            if out is not None:
                write.keep(out, key, finished[key])
        rows.append(finished[key])
    if progress:
        progress(len(cells), len(cells))
    return rows, reused


def _provenance(recipe: Recipe, rows: list[Row], **counts: int) -> dict[str, Any]:
    return {
        "recipe": recipe.name,
        "source": recipe.source,
        "quick": recipe.quick,
        **counts,
        "accountants": {row["accountant"]: row["source"] for row in rows if row.get("source")},
        "claims": [claim.model_dump() for claim in recipe.claims],
        "notes": unit_notes(row.get("notion") for row in rows),
    }


def compute(cell: Cell, curves: dict[str, Curve | str]) -> list[Row]:
    """Compute the rows of one cell.

    Args:
        curves: a cache for cells with the same process and accountant: their curve, or the reason why there is none.
    """
    try:
        if cell.table == "bounds":
            return [_bound(cell, curves)]
        if cell.table not in PROCESS_TABLES:
            table = registry.load("tables", cell.table)
            return [{**cell.labels, **row} for row in table.rows(table.Params(**cell.specs[0]))]
        process = cell.process()
        labels = {**cell.labels, **_process_columns(cell)}
        if cell.table == "class":
            return [{**labels, **loss_tables.class_row(process)}]
        return [{**labels, **row} for row in loss_tables.loss_rows(process, cell.bins)]
    except Unsupported as error:
        columns = _process_columns(cell) if cell.table in PROCESS_TABLES else {}
        return [{**cell.labels, **columns, "reason": str(error)}]


def _bound(cell: Cell, curves: dict[str, Curve | str]) -> Row:
    row = {**cell.labels, **_process_columns(cell), "accountant": cell.accountant}
    given = ("epsilon", cell.eps) if cell.eps is not None else ("delta", cell.delta)
    refused = {**row, "asked": given[0], given[0]: given[1]}
    key = cell.curve_key()
    if key not in curves:
        if len(curves) > MAX_CURVES:
            curves.clear()  # a sweep over a parameter evaluates each curve once
        curves[key] = _curve(cell)
    curve = curves[key]
    if isinstance(curve, str):
        return {**refused, "reason": curve}
    try:
        guarantee = evaluate.ask(curve, eps=cell.eps, delta=cell.delta).as_dict()
    except Unsupported as error:
        return {**refused, "reason": str(error)}
    names = ("adjacency", "notion", "claim", "process", "source", "warnings")
    about = {name: guarantee[name] for name in names}
    bounds = {name: _plain(guarantee[name]) for name in BOUND_COLUMNS}
    return {**row, "asked": given[0], **about, **bounds, "reason": None}


def _curve(cell: Cell) -> Curve | str:
    """The curve of a cell's process, or the reason why the accountant has none."""
    try:
        tol = cell.tol or evaluate.DEFAULT_TOL
        return evaluate.curve(cell.process(), cell.accountant, tol, **dict(cell.options))
    except Unsupported as error:
        return str(error)


def _plain(value: float | None) -> float | None:
    return None if value is None else float(value) + 0.0  # numpy's floats are not plain data, and -0.0 is 0


def _process_columns(cell: Cell) -> Row:
    """The parameters of a single step, also those left at their defaults, or the number of several steps."""
    return build_process.step(cell.specs[0]).describe() if len(cell.specs) == 1 else {"steps": len(cell.specs)}
