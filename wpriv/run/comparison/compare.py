"""The verb ``compare``: accountants over a grid, to a table, a figure and a verdict on published numbers."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from wpriv.config.resolve import Recipe
from wpriv.config.schema import BOUND_COLUMNS, PROCESS_TABLES
from wpriv.core import registry
from wpriv.core.guarantee import Curve, unit_notes
from wpriv.errors import Unsupported, UsageError
from wpriv.run import load_recipe
from wpriv.run.accounting import build_process, evaluate
from wpriv.run.accounting.interpretations import compare_interpretations
from wpriv.run.comparison import grid, loss_tables
from wpriv.run.comparison.grid import Cell
from wpriv.run.comparison.monotone_rows import monotone_rows
from wpriv.run.results import expectations, file_names, write
from wpriv.run.results.expectations import Verdict

Row = dict[str, Any]
Progress = Callable[[int, int], None]


@dataclass(frozen=True)
class Comparison:
    """The rows of the table, the verdicts on published numbers, and the files that were written."""

    recipe: Recipe
    rows: list[Row]
    verdicts: list[Verdict] = field(default_factory=list)
    out: Path | None = None
    files: tuple[Path, ...] = ()
    reused: int = 0

    def require(self) -> None:
        """Raises CheckFailed where a published number was missed."""
        expectations.require(self.verdicts)


def compare(
    recipe: str | Path | None = None,
    *,
    out: str | Path | None = None,
    quick: bool = False,
    fresh: bool = False,
    **flags: Any,
) -> Comparison:
    """Puts accountants side by side, from a recipe or from keywords.

    Args:
        recipe: a path, or the name of a shipped recipe (``plc/fig7-dpsgd``).
        out: directory for table, figure, resolved recipe and provenance; a recipe's default is ``results/<name>``.
        quick: apply the recipe's ``quick`` overrides. fresh: forget what an earlier run left in ``out``.
        flags: instead of a recipe, the keys of one: ``process`` (list of steps), ``accountants``, ``sweep``, ``eps`` or ``delta``.
    Returns:
        The rows, one a cell of the grid; ``reason`` is set where an accountant refuses. ``Comparison.require()`` raises where a
        published number was missed.
    Raises:
        UsageError: the recipe is faulty, or ``out`` holds other results.

    >>> rows = compare(process=[{"mech": "gauss", "sigma": 1}], accountants=["gdp"], eps=1).rows
    >>> round(rows[0]["delta"], 6)
    0.126937
    """
    if not isinstance(out, (str, Path, type(None))):
        raise UsageError(f"out is the path of a directory; found {out!r:.60}")
    if (recipe is None) == (not flags):
        raise UsageError(
            "compare takes a recipe, or the keys of one (process=..., accountants=..., eps=...); give one of the two"
        )
    if recipe is None:
        return run(load_recipe.from_flags(flags), None if out is None else Path(out), fresh=fresh)
    job = load_recipe.recipe(recipe, quick=quick, kind="compare")
    return run(job, default_out(job) if out is None else Path(out), fresh=fresh)


def default_out(job: Recipe) -> Path:
    """``results/<name>``, and a directory of its own for a quick run, whose table is another one."""
    return Path("results") / (f"{job.name}-quick" if job.quick else job.name)


def run(
    job: Recipe, out: Path | None = None, *, fresh: bool = False, progress: Progress | None = None, draw: bool = True
) -> Comparison:
    """Computes a checked recipe cell by cell; with ``out``, finished cells are kept there and an interrupted run goes on from them.

    Raises:
        UsageError: ``out`` holds other results. Unsupported: no cell of the grid has an answer.
    """
    started, todo = time.perf_counter(), grid.cells(job)
    grid.check(todo)
    if out is not None:
        write.claim(out, job, fresh=fresh)
    done = {} if out is None else write.finished(out)
    found: list[list[Row]] = []
    curves: dict[str, Curve | str] = {}
    reused = 0
    for count, cell in enumerate(todo):
        if progress:
            progress(count, len(todo))
        key = cell.key()
        if key in done:
            reused += 1
        else:
            done[key] = compute(cell, curves)
            if out is not None:
                write.keep(out, key, done[key])
        found.append(done[key])
    if progress:
        progress(len(todo), len(todo))
    rows = monotone_rows(todo, found)
    if not any(row.get("reason") is None for row in rows):
        raise Unsupported(f"no accountant has an answer anywhere on the grid; the first reason: {rows[0]['reason']}")
    verdicts = expectations.verdicts(job, rows)
    files: tuple[Path, ...] = ()
    if out is not None:
        about: dict[str, Any] = {
            "recipe": job.name,
            "source": job.source,
            "quick": job.quick,
            "cells": len(todo),
            "reused": reused,
        }
        about |= {"accountants": {row["accountant"]: row["source"] for row in rows if row.get("source")}}
        about |= {"claims": [claim.model_dump() for claim in job.claims]}
        about |= {"notes": unit_notes(row.get("notion") for row in rows)}
        write.results(out, rows, {**about, "wall_seconds": round(time.perf_counter() - started, 3)})
        files = (out / file_names.TABLE, out / file_names.RECIPE, out / file_names.PROVENANCE)
        if draw:
            from wpriv.run.results import plot  # matplotlib only when drawing

            files += tuple(plot.draw(rows, plot.panels_of(job), out, ("png",), asked=False))
    return Comparison(job, rows, verdicts, out, files, reused)


def readings(spec: dict[str, Any], **question: float) -> list[Row]:
    """``compare --why``: see ``wpriv.run.accounting.interpretations``, which takes the question (eps or delta, and tol)."""
    return compare_interpretations({k: v for k, v in spec.items() if v is not None}, **question)


def compute(cell: Cell, curves: dict[str, Curve | str]) -> list[Row]:
    """The rows of one cell; ``curves`` keeps what cells share: a curve, or the reason why there is none."""
    try:
        if cell.table == "bounds":
            return [_bound(cell, curves)]
        if cell.table not in PROCESS_TABLES:
            table = registry.load("tables", cell.table)
            return [{**cell.labels, **row} for row in table.rows(table.Params(**cell.specs[0]))]
        process = cell.process()
        about = {**cell.labels, **_process_columns(cell)}
        if cell.table == "class":
            return [{**about, **loss_tables.class_row(process)}]
        return [{**about, **row} for row in loss_tables.loss_rows(process, cell.bins)]
    except Unsupported as error:
        about = _process_columns(cell) if cell.table in PROCESS_TABLES else {}
        return [{**cell.labels, **about, "reason": str(error)}]


def _bound(cell: Cell, curves: dict[str, Curve | str]) -> Row:
    row = {**cell.labels, **_process_columns(cell), "accountant": cell.accountant}
    asked = (
        {"asked": "epsilon", "epsilon": cell.eps} if cell.eps is not None else {"asked": "delta", "delta": cell.delta}
    )
    key = cell.curve_key()
    if key not in curves:
        if len(curves) > 64:
            curves.clear()  # a sweep over a parameter asks each curve once: keeping them all would only fill the memory
        try:
            curves[key] = evaluate.curve(
                cell.process(), cell.accountant, cell.tol or evaluate.DEFAULT_TOL, **dict(cell.options)
            )
        except Unsupported as error:
            curves[key] = str(error)
    curve = curves[key]
    if isinstance(curve, str):
        return {**row, **asked, "reason": curve}
    try:
        found = evaluate.ask(curve, eps=cell.eps, delta=cell.delta)
    except Unsupported as error:
        return {**row, **asked, "reason": str(error)}
    told = found.as_dict()
    about = {name: told[name] for name in ("adjacency", "notion", "claim", "process", "source", "warnings")}
    return {
        **row,
        "asked": asked["asked"],
        **about,
        **{name: _plain(told[name]) for name in BOUND_COLUMNS},
        "reason": None,
    }


def _plain(value: float | None) -> float | None:
    return None if value is None else float(value) + 0.0  # numpy's floats are not plain data, and -0.0 is 0


def _process_columns(cell: Cell) -> Row:
    """What ran, in columns where it is a single step; all of its parameters, also those left at their defaults."""
    return build_process.step(cell.specs[0]).describe() if len(cell.specs) == 1 else {"steps": len(cell.specs)}
