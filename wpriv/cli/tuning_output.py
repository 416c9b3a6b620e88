"""Print the plan and the results of a tuned training."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

from wpriv.cli import guarantee_output, output
from wpriv.run import recipe_duration
from wpriv.run.accounting import repeated_selection
from wpriv.run.accounting.plausibility import weak_figures
from wpriv.run.recipe_duration import Duration
from wpriv.run.results import words
from wpriv.run.training.trained import Trained
from wpriv.run.training.tuning_plan import TuningPlan

OFTEN = 0.99


def print_plan(plan: TuningPlan, out: Path, as_json: bool) -> None:
    """Print what a tuned training would do, and what the whole would cost."""
    rows, refused = plan.guarantees
    duration = _duration(plan)
    most = plan.repeats.quantile(OFTEN)
    candidates: list[dict[str, Any]] = [
        {**each.labels, "steps": each.plan.steps, "sigma": each.plan.multiplier, "epsilon": each.plan.eps()}
        for each in plan.candidates
    ]
    training = plan.recipe.training
    assert training is not None
    warnings = [words.FIXED_SEED] if training.seed is not None else []
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
        output.emit(guarantee_output.headline(row))
        for line in repeated_selection.lines(row.extra["repeats"], "epsilon"):
            output.emit(line)
    for refusal in refused:
        output.say("note", f"{refusal.accountant} has no answer: {refusal.reason}")
    output.emit_table(
        list(candidates[0]), [[output.cell(value) for value in candidate.values()] for candidate in candidates]
    )
    for note in plan.notes:
        output.emit(f"read as: {note}")
    output.emit(f"takes: {'not known' if duration is None else duration} (for the mean number of runs)")
    output.emit(f"writes: {out}{os.sep} the files of the best run alone")
    for line in warnings:
        output.say("warning", line)


def print_nothing(trained: Trained, as_json: bool) -> None:
    """Print that the number of runs was 0, so that nothing is released but the statement."""
    if as_json:
        files = [str(path) for path in trained.files]
        output.emit_json(
            {"schema": "wpriv.training/1", "metrics": None, "statement": trained.statement, "files": files}
        )
        return
    output.emit_bold("the number of runs was drawn as 0: nothing is released")
    for row in trained.guarantees:
        output.emit(guarantee_output.headline(row))
    output.say("note", "this is one of the outcomes that the guarantee covers; to begin again would be a second tuning")
    output.say("wrote", f"{trained.out}{os.sep} {', '.join(path.name for path in trained.files)}")


def _duration(plan: TuningPlan) -> Duration | None:
    """The time of the mean number of runs: as the recipe states it, or estimated from the candidates' operations."""
    stated = recipe_duration.of_recipe(plan.recipe, 1.0)
    if stated is not None and not stated.as_shipped:
        return stated
    seconds = [candidate.plan.cost.seconds for candidate in plan.candidates if candidate.plan.cost is not None]
    if len(seconds) < len(plan.candidates):
        return stated
    mean = plan.repeats.mean * sum(seconds) / len(seconds)
    return Duration(float(f"{mean:.2g}"), "cpu", "estimated")
