"""Print the plan and the results of several trainings: a sweep, or repeated runs."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from wpriv.cli import comparison_output, output
from wpriv.cli.training_output import NO_RESULTS, cost_estimate
from wpriv.config.recipe import Recipe
from wpriv.numerics.safe_rounding import text
from wpriv.run import recipe_duration
from wpriv.run.results import words
from wpriv.run.results.means import DEVIATION, RUN, SEEDS
from wpriv.run.training import all_trainings, repeated_runs, sweep
from wpriv.run.training.all_trainings import Together
from wpriv.run.training.sweep import PlannedCell, SweepResult
from wpriv.run.training.sweep_tables import ALL_RUNS

# the plan or the runs are printed in full up to so many lines
MAX_RUNS = 60


def print_plan(recipe: Recipe, planned: list[PlannedCell], out: Path, as_json: bool, tasks: str | None = None) -> None:
    """Print what the trainings would do and cost together, one line each, and what ``tasks`` of a cluster ask for."""
    open_plans = [cell.plan for cell in planned if not cell.done]
    duration = recipe_duration.of_sweep(recipe, open_plans, len(sweep.cells(recipe)))
    together, of_runs = _together(planned), _of_runs(recipe, planned)
    fixed = any(cell.plan.private is not None and cell.plan.train.seed is not None for cell in planned)
    warnings = [words.FIXED_SEED] if fixed else []
    rows = []
    for cell in planned:
        plan = cell.plan
        numbers = {"steps": plan.steps, "sigma": plan.multiplier if plan.private else None, "epsilon": plan.eps()}
        seconds = (cost_estimate(plan) or {}).get("seconds_of_one_core")
        numbers |= {ALL_RUNS: of_runs[repeated_runs.setting(cell.cell.labels)].epsilon} if of_runs else {}
        rows.append({**cell.cell.labels, **numbers, "seconds": seconds, "done": cell.done})
    if as_json:
        time = None if duration is None else duration.as_dict()
        whole = {"together": together.as_dict(), "time": time, "folder": str(out), "warnings": warnings, "tasks": tasks}
        output.emit_json({"schema": "wpriv.plans/1", "rows": rows, **whole})
        return
    output.emit_bold(f"{recipe.name}: {len(rows)} trainings, {sum(row['done'] for row in rows)} of them done")
    if not rows:
        output.emit("this shard has no trainings")
        return
    lines = rows if repeated_runs.count(recipe) == 1 else _by_setting(rows)
    columns = [key for key in lines[0] if key != "seconds" or any(row[key] for row in lines)]
    output.emit_table(columns, [[_cell(row, key) for key in columns] for row in lines])
    if together.trainings:
        output.emit(str(together))
    output.emit(f"takes: {'not known' if duration is None else duration} (the trainings that are not done)")
    if tasks is not None:
        output.emit(f"submits: {len(open_plans)} tasks to {tasks}")
    output.emit(f"writes: {out}{os.sep} table.csv and a folder for each training")
    output.warn(warnings)


def _by_setting(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """One row for each setting, with the number of its runs and of those that are done."""
    groups: dict[tuple[Any, ...], list[dict[str, Any]]] = {}
    numbers = ("steps", "sigma", "epsilon", ALL_RUNS, "seconds", "done")
    for row in rows:
        groups.setdefault(tuple(row[key] for key in row if key not in (RUN, *numbers)), []).append(row)
    lines = []
    for group in groups.values():
        labels = {key: value for key, value in group[0].items() if key not in (RUN, *numbers)}
        kept = {key: group[0][key] for key in numbers if key in group[0]}
        done = sum(row["done"] for row in group)
        lines.append({**labels, "runs": len(group), **kept, "done": f"{done} of {len(group)}"})
    return lines


def _together(planned: Sequence[PlannedCell]) -> Together:
    """What some planned trainings keep together."""
    releases = [release for cell in planned if (release := all_trainings.of_plan(cell.plan)) is not None]
    return all_trainings.together(releases)


def _of_runs(recipe: Recipe, planned: Sequence[PlannedCell]) -> dict[tuple[Any, ...], Together]:
    """What the runs of each setting keep together; empty without repeated runs."""
    if repeated_runs.count(recipe) == 1:
        return {}
    groups: dict[tuple[Any, ...], list[PlannedCell]] = {}
    for cell in planned:
        groups.setdefault(repeated_runs.setting(cell.cell.labels), []).append(cell)
    return {setting: _together(group) for setting, group in groups.items()}


def print_results(result: SweepResult, as_json: bool) -> None:
    """Print the table of the finished trainings, their runs, and what all of them together keep.

    Raises:
        CheckFailed: all are finished and an expected number was missed.
    """
    if as_json:
        output.emit_json(
            {
                "schema": "wpriv.sweep/1",
                "rows": result.rows,
                "runs": result.runs,
                "cells": result.cells,
                "statement": result.statement,
                "claims": [claim.model_dump() for claim in result.recipe.claims],
                "expect": [verdict.as_dict() for verdict in result.verdicts],
            }
        )
    else:
        output.emit_bold(f"{result.recipe.name}: {result.finished} of {result.cells} trainings are done")
        _print_table(result.rows)
        if result.runs and len(result.runs) <= MAX_RUNS:
            output.emit("\neach run:")
            _print_table(result.runs)
        if result.together.trainings:
            output.emit(str(result.together))
        comparison_output.print_verdicts(result.verdicts)
        comparison_output.print_claims(result.recipe)
        output.warn(result.statement["warnings"])
        output.say("wrote", str(result.table))
    result.require()


def _print_table(rows: Sequence[dict[str, Any]]) -> None:
    """Print rows of results; a mean with its deviation is one cell, as 0.912 ± 0.004."""
    if not rows:
        return
    repeated = any(name in row for row in rows for name in (SEEDS, RUN))
    # a sweep whose first training has no privacy shows what was measured; the file has all columns
    names = dict.fromkeys(name for row in (rows if repeated else rows[:1]) for name in row)
    columns = [name for name in names if name not in (*NO_RESULTS, "delta") and not name.endswith(DEVIATION)]
    if all(row.get(SEEDS) == 1 for row in rows):
        columns = [name for name in columns if name != SEEDS]
    output.emit_table(columns, [[_cell(row, name) for name in columns] for row in rows])


def _cell(row: dict[str, Any], name: str) -> str:
    """A cell of the table: bounds rounded up, means with their deviation."""
    if name.startswith("epsilon") and isinstance(row.get(name), float):
        return text(row[name], up=True)
    deviation = row.get(f"{name}{DEVIATION}")
    return output.cell(row.get(name)) + ("" if deviation is None else f" ± {deviation:.2g}")
