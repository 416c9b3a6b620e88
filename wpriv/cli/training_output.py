"""Print the plan and the results of a training, and the answer of an audit."""

from __future__ import annotations

import itertools
import json
import os
from collections.abc import Sequence
from pathlib import Path

from wpriv.accounting import best_of_runs
from wpriv.accounting.budget import weak_figures
from wpriv.cli import comparison_output, guarantee_output, output
from wpriv.config.recipe import Recipe
from wpriv.core.process import SAMPLING_WORDS, sampling_words
from wpriv.numerics.numbers import short, text
from wpriv.results import storage
from wpriv.results.expectations import DEVIATION, RUN, SEEDS
from wpriv.results.model import Row, Together
from wpriv.training import all_trainings, train_data, training_grid, training_statement
from wpriv.training.audit.audit import Audit
from wpriv.training.plan import Duration, Plan, duration_of_plans, stated_duration
from wpriv.training.reports import words
from wpriv.training.sweep import ALL_RUNS, PlannedCell, SweepResult
from wpriv.training.trained import Trained
from wpriv.training.tuning import TuningPlan

MAX_EPOCHS = 12  # lines of the table of eps after each epoch
# columns of metrics.csv that are no measured result, or are measured on training records
NO_RESULTS = ("epoch", "step", "seconds", "loss", "clipped")


def print_plan(plan: Plan, out: Path, as_json: bool, remarks: Sequence[str]) -> None:
    """Print what a training would do and cost; ``remarks`` are warnings about its folder."""
    epochs = comparison_output.thin(list(enumerate(plan.epoch_ends, start=1)), MAX_EPOCHS)
    rows: list[Row] = [{"epoch": epoch, "step": step, "epsilon": plan.eps(step)} for epoch, step in epochs]
    duration = duration_of_plans(plan.recipe, [plan])
    estimate = cost_estimate(plan)
    warnings = [*remarks, *training_statement.warnings_of_plan(plan)]
    files = storage.of_training(plan.train.task, averaged=plan.train.average is not None)
    if as_json:
        private = plan.private
        output.emit_json(
            {
                "schema": "wpriv.plan/1",
                "recipe": plan.recipe.name,
                "records": plan.records,
                "batch": plan.batch,
                "steps": plan.steps,
                "sampling": plan.sampling.kind,
                "rate": plan.sampling.rate,
                "noise_multiplier": plan.multiplier if private else None,
                "adjacency": plan.adjacency if private else None,
                "delta": private.delta if private else None,
                "epsilon": plan.eps(),
                "epochs": rows,
                "guess": estimate,
                "time": None if duration is None else duration.as_dict(),
                "folder": str(out),
                "files": [str(out / name) for name in files],
                "notes": list(plan.notes),
                "warnings": warnings,
            }
        )
        return
    kind = plan.sampling.kind
    drawn = "all records each step" if kind == "none" else f"{SAMPLING_WORDS[kind]} at rate {plan.sampling.rate:.6g}"
    batch = f"{plan.batch}" if isinstance(plan.batch, int) else f"{plan.batch:g}"
    if plan.step is not None and plan.recursion is not None:
        drawn = sampling_words(plan.step.describe())
    elif kind == "allocation":
        drawn = f"{drawn}, passes of {plan.sampling.pass_steps} steps"
    output.emit_bold(f"{plan.recipe.name}: {plan.steps} steps of {batch} of {plan.records} records, {drawn}")
    output.emit_facts(
        [
            *_privacy(plan),
            *(("read as", note) for note in plan.notes),
            ("takes", _cost(duration, estimate, plan)),
            ("writes", f"{out}{os.sep} {', '.join(files)}"),
        ]
    )
    if plan.private is not None and plan.release is not None:
        ends = ["none" if row["epsilon"] is None else text(float(row["epsilon"]), up=True) for row in rows]
        body = [[str(row["epoch"]), str(row["step"]), end] for row, end in zip(rows, ends, strict=True)]
        output.emit("")
        output.emit_table(["epoch", "step", "eps"], body, indent=2)
    output.warn(warnings)


def print_training(trained: Trained, as_json: bool) -> None:
    """Print the results of a training beside the expected ones."""
    recipe, last = trained.plan.recipe, trained.metrics[-1]
    if as_json:
        output.emit_json(
            {
                "schema": "wpriv.training/1",
                "metrics": last,
                "statement": trained.statement,
                "expect": [verdict.as_dict() for verdict in trained.verdicts],
                "files": [str(path) for path in trained.files],
                "claims": [claim.model_dump() for claim in recipe.claims],
            }
        )
        return
    results = [f"{key} {last[key]:.4g}" for key in last if key not in (*NO_RESULTS, "epsilon")]
    steps = f"{last['step']} step{'s' * (last['step'] != 1)}"
    output.emit_bold(f"{recipe.name}: {', '.join(results)} after {steps}")
    guarantee_output.print_beside(trained.guarantees)
    if trained.plan.private is None:
        reports = "reports" in trained.statement
        output.emit_words(
            f"promise: {trained.statement['promise']}" if reports else "trained without privacy: no guarantee"
        )
    comparison_output.print_verdicts(trained.verdicts)
    comparison_output.print_claims(recipe)
    guarantee_output.say_refused([{"accountant": each.accountant, "reason": each.reason} for each in trained.refused])
    if order := train_data.class_words(trained.statement["data"]):
        output.say("note", order)
    output.warn(trained.statement.get("warnings", []))
    if not trained.found:
        output.say("wrote", f"{trained.out}{os.sep} {', '.join(path.name for path in trained.files)}")
    path = json.dumps(str(trained.out / storage.MODEL), ensure_ascii=False)
    load = f'torch.load({path}, weights_only=True)["weights"]'
    average = "; their average is the entry 'average'" if trained.plan.train.average is not None else ""
    output.say("note", f"the weights of {trained.plan.train.model.name}: {load}, a state_dict{average}")


def _privacy(plan: Plan) -> list[tuple[str, str]]:
    """eps after the last step, and the noise."""
    private = plan.private
    if private is None or plan.release is None:
        return [("privacy", "none")]
    eps = plan.eps()
    cost = "no finite eps" if eps is None else f"eps = {text(eps, up=True)}"
    assert private.delta is not None  # a recipe without it is refused
    clip = private.clip if isinstance(private.clip, str) else f"{plan.release.clip:g}"
    clip += " at first" if private.adapt is not None else ""
    multiplier = f"multiplier sigma = {plan.multiplier:.12g} (standard deviation over sensitivity)"
    if plan.step is not None and plan.recursion is not None:
        multiplier += f" of Z, step t has row t of C^-1 Z, C = {plan.step.describe()['strategy']}"
    return [
        ("privacy", f"{cost} at delta {short(private.delta)} after the last step"),
        ("neighbours", str(plan.adjacency)),
        ("noise", f"{multiplier}, clipping {clip}"),
    ]


def cost_estimate(plan: Plan) -> dict[str, object] | None:
    """Return the estimate of time and memory, rounded to what is known; None where the task has none."""
    cost = plan.cost
    if cost is None:
        return None
    return {
        "weights": cost.model.weights,
        "seconds_of_one_core": float(f"{cost.seconds:.2g}"),
        "megabytes": float(f"{cost.memory / 1e6:.2g}"),
        "records_at_once": cost.physical,
    }


def _cost(duration: Duration | None, estimate: dict[str, object] | None, plan: Plan) -> str:
    """The time and memory that a training takes, as far as known."""
    if duration is None:
        train = plan.train
        return f"not known for the model {train.model.name} on {train.data.name} in the task {train.task}"
    if estimate is None:
        return str(duration)
    size = f"{estimate['weights']:,} weights, up to {estimate['records_at_once']} records through the model at once"
    return f"{duration}; about {estimate['megabytes']:.0f} MB; {size}"


# Print the plans and the results of several trainings: a sweep, repeated runs, or a tuned training.

# the plan or the runs are printed in full up to so many lines
MAX_RUNS = 60
OFTEN = 0.99


def print_sweep_plan(
    recipe: Recipe,
    planned: list[PlannedCell],
    out: Path,
    as_json: bool,
    remarks: Sequence[str],
    tasks: str | None,
) -> None:
    """Print what the trainings would do and cost together, one line each, and what ``tasks`` of a cluster ask for."""
    open_plans = [each.plan for each in planned if not each.done]
    duration = duration_of_plans(recipe, open_plans, len(training_grid.cells(recipe)))
    repeated = training_grid.runs_of(recipe) > 1
    together = _together(planned)
    fixed = any(each.plan.private is not None and each.plan.train.seed is not None for each in planned)
    warnings = [*remarks, *([words.FIXED_SEED] if fixed else [])]
    rows: list[Row] = []
    lines: list[Row] = []  # one for each setting
    for _, runs in itertools.groupby(planned, lambda each: each.cell.setting):
        group = list(runs)
        of_runs = {ALL_RUNS: _together(group).epsilon} if repeated else {}
        rows += [{**each.cell.labels, **_numbers(each.plan, of_runs), "done": each.done} for each in group]
        done = f"{sum(each.done for each in group)} of {len(group)}"
        labels = {key: value for key, value in group[0].cell.labels.items() if key != RUN}
        lines.append({**labels, "runs": len(group), **_numbers(group[0].plan, of_runs), "done": done})
    if as_json:
        time = None if duration is None else duration.as_dict()
        whole = {"together": together.as_dict(), "time": time, "folder": str(out), "warnings": warnings, "tasks": tasks}
        output.emit_json({"schema": "wpriv.plans/1", "rows": rows, **whole})
        return
    output.emit_bold(f"{recipe.name}: {len(rows)} trainings, {sum(row['done'] for row in rows)} of them done")
    if not rows:
        output.emit("this shard has no trainings")
        return
    lines = lines if repeated else rows
    columns = [key for key in lines[0] if key != "seconds" or any(row[key] for row in lines)]
    output.emit_table(columns, [[_cell(row, key) for key in columns] for row in lines])
    output.emit("")
    output.emit_facts(
        [
            *([("together", words.all_trainings(together))] if together.trainings else []),
            ("takes", f"{'not known' if duration is None else duration} (the trainings that are not done)"),
            *([("submits", f"{len(open_plans)} tasks to {tasks}")] if tasks is not None else []),
            ("writes", f"{out}{os.sep} table.csv and a folder for each training"),
        ]
    )
    output.warn(warnings)


def _together(planned: Sequence[PlannedCell]) -> Together:
    releases = [release for each in planned if (release := all_trainings.of_plan(each.plan)) is not None]
    return all_trainings.together(releases)


def _numbers(plan: Plan, of_runs: Row) -> Row:
    """The numbers of a planned training; ``of_runs`` is what all runs of its setting cost."""
    sigma, seconds = plan.multiplier if plan.private else None, (cost_estimate(plan) or {}).get("seconds_of_one_core")
    return {"steps": plan.steps, "sigma": sigma, "epsilon": plan.eps(), **of_runs, "seconds": seconds}


def print_sweep(result: SweepResult, as_json: bool) -> None:
    """Print the table of the finished trainings, their runs, and what all of them together keep."""
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
            output.emit("", "each run:")
            _print_table(result.runs)
        if result.together.trainings:
            output.emit_words(words.all_trainings(result.together))
        comparison_output.print_verdicts(result.verdicts)
        comparison_output.print_claims(result.recipe)
        output.warn(result.statement["warnings"])
        output.say("wrote", str(result.table))
    result.require()


def _print_table(rows: Sequence[Row]) -> None:
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


def _cell(row: Row, name: str) -> str:
    """A cell of the table: bounds rounded up, means with their deviation."""
    if name.startswith("epsilon") and isinstance(row.get(name), float):
        return text(row[name], up=True)
    deviation = row.get(f"{name}{DEVIATION}")
    return output.cell(row.get(name)) + ("" if deviation is None else f" ± {deviation:.2g}")


def print_tuning_plan(plan: TuningPlan, out: Path, as_json: bool, remarks: Sequence[str]) -> None:
    """Print what a tuned training would do, and what the whole would cost."""
    rows, refused = plan.guarantees
    duration = _duration(plan)
    most = plan.repeats.quantile(OFTEN)
    candidates: list[Row] = [
        {**each.labels, "steps": each.plan.steps, "sigma": each.plan.multiplier, "epsilon": each.plan.eps()}
        for each in plan.candidates
    ]
    warnings = [*remarks, *([words.FIXED_SEED] if plan.recipe.train.seed is not None else [])]
    size = plan.candidates[0].plan.records
    warnings += [line for row in rows[:1] for line in weak_figures(row.epsilon.safe, row.delta.safe, size)]
    if as_json:
        output.emit_json(
            {
                "schema": "wpriv.tuning/1",
                "recipe": plan.recipe.name,
                "repeats": plan.repeats.describe(),
                "runs_mean": plan.repeats.mean,
                "runs_99": most,
                "candidates": candidates,
                "guarantees": [row.as_dict() for row in rows],
                "refused": [{"accountant": each.accountant, "reason": each.reason} for each in refused],
                "time": None if duration is None else duration.as_dict(),
                "folder": str(out),
                "notes": list(plan.notes),
                "warnings": warnings,
            }
        )
        return
    output.emit_bold(
        f"{plan.recipe.name}: the best of K runs, K {plan.repeats.kind} with mean {plan.repeats.mean:g} "
        f"(at most {most} with probability {OFTEN:g}), each of one of {len(candidates)} candidates"
    )
    for row in rows:
        output.emit_words(row.sentence())
        output.emit_facts(best_of_runs.facts(row.extra["repeats"], "epsilon"))
    guarantee_output.say_refused([{"accountant": each.accountant, "reason": each.reason} for each in refused])
    output.emit("")
    output.emit_table(
        list(candidates[0]), [[output.cell(value) for value in candidate.values()] for candidate in candidates]
    )
    output.emit("")
    output.emit_facts(
        [
            *(("read as", note) for note in plan.notes),
            ("takes", f"{'not known' if duration is None else duration} (for the mean number of runs)"),
            ("writes", f"{out}{os.sep} the files of the best run alone"),
        ]
    )
    output.warn(warnings)


def print_nothing(trained: Trained, as_json: bool) -> None:
    """Print that the number of runs was 0, so that nothing is released but the statement."""
    if as_json:
        answer = {"schema": "wpriv.training/1", "metrics": None, "statement": trained.statement}
        output.emit_json({**answer, "files": [str(path) for path in trained.files]})
        return
    output.emit_bold("the number of runs was drawn as 0: nothing is released")
    output.emit_words(*(row.sentence() for row in trained.guarantees))
    output.say("note", "this is one of the outcomes that the guarantee covers; to begin again would be a second tuning")
    if not trained.found:
        output.say("wrote", f"{trained.out}{os.sep} {', '.join(path.name for path in trained.files)}")


def _duration(plan: TuningPlan) -> Duration | None:
    """The time of the mean number of runs: as the recipe states it, or estimated from the candidates' operations."""
    stated = stated_duration(plan.recipe, 1.0)
    if stated is not None and not stated.as_shipped:
        return stated
    seconds = [candidate.plan.cost.seconds for candidate in plan.candidates if candidate.plan.cost is not None]
    if len(seconds) < len(plan.candidates):
        return stated
    mean = plan.repeats.mean * sum(seconds) / len(seconds)
    return Duration(float(f"{mean:.2g}"), "cpu", "estimated")


def print_audit(result: Audit, as_json: bool) -> None:
    """Print the certified bracket, the audit's lower bound and the verdict, as text or as one JSON object."""
    answer = result.as_dict()
    if as_json:
        output.emit_json({**answer, "files": [str(path) for path in result.files]})
        return
    output.emit_bold(result.sentence())
    output.emit_facts(result.facts())
    rows = [
        [test.statistic, str(test.guesses), str(test.correct), text(test.epsilon_at_least, up=False)]
        for test in result.tests
    ]
    output.emit("")
    output.emit_table(["statistic", "guesses", "correct", "eps at least"], rows, indent=2)
    output.warn(answer["warnings"])
    if result.files:
        folder = result.files[0].parent
        output.say("wrote", f"{folder}{os.sep} {', '.join(path.name for path in result.files)}")
