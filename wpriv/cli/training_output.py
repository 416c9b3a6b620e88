"""A training on the screen: its plan and its results."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

from wpriv.cli import comparison_output, guarantee_output, terminal
from wpriv.config.recipe import Recipe
from wpriv.numerics.safe_rounding import text
from wpriv.run import recipe_duration
from wpriv.run.results import expectations, file_names
from wpriv.run.training import run_folder, sweep
from wpriv.run.training.plan import Plan
from wpriv.run.training.sweep import Cell, Swept
from wpriv.run.training.train import Trained

MOST_EPOCHS = 12


def dry(plan: Plan, place: run_folder.Folder, as_json: bool) -> None:
    """Prints what a training would do."""
    ends = plan.epoch_ends
    shown = comparison_output.thin(list(enumerate(ends, start=1)), MOST_EPOCHS)
    rows: list[dict[str, Any]] = [{"epoch": epoch, "step": step, "epsilon": plan.eps(step)} for epoch, step in shown]
    private = plan.private
    about: dict[str, Any] = {
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
        "guess": _guessed(plan),
        "time": None if (time := recipe_duration.of_plan(plan)) is None else time.as_dict(),
        "folder": str(place.path),
        "files": [str(place.path / name) for name in file_names.of_training(plan.train.task)],
        "notes": list(plan.notes),
    }
    if as_json:
        guarantee_output.emit(json.dumps(about))
        return
    sampled = (
        "all records each step"
        if plan.sampling.kind == "none"
        else f"{plan.sampling.kind} sampling at rate {plan.sampling.rate:.6g}"
    )
    guarantee_output.emit(
        guarantee_output.bold(
            f"{plan.recipe.name}: {plan.steps} steps of {plan.batch} of {plan.records} records, {sampled}"
        )
    )
    if private is None or plan.release is None:
        guarantee_output.emit("privacy: none")
    else:
        eps, clip = plan.eps(), "batch-mean" if private.clip == "batch-mean" else f"{plan.release.clip:g}"
        cost = "no finite eps" if eps is None else f"eps = {text(eps, up=True)}"
        guarantee_output.emit(
            f"privacy: {cost} at delta = {private.delta:g} after the last step, {plan.adjacency} neighbours"
        )
        guarantee_output.emit(
            f"noise: multiplier sigma = {plan.multiplier:.12g} (standard deviation over sensitivity), clipping {clip}"
        )
        lines = [
            [str(r["epoch"]), str(r["step"]), "none" if r["epsilon"] is None else text(float(r["epsilon"]), up=True)]
            for r in rows
        ]
        terminal.print_table(guarantee_output.table(["epoch", "step", "eps"], lines))
    for note in plan.notes:
        guarantee_output.emit(f"read as: {note}")
    guarantee_output.emit(_taken(time, about["guess"], plan))
    guarantee_output.emit(f"writes: {place.path}{os.sep} {', '.join(file_names.of_training(plan.train.task))}")


def dry_sweep(made: Recipe, planned: list[tuple[Cell, Plan, bool]], out: Path, as_json: bool) -> None:
    """Prints what the trainings of a sweep would do, a line each."""
    rows, name = [], made.name
    time = recipe_duration.of_sweep(made, [plan for _, plan, done in planned if not done], len(sweep.cells(made)))
    for cell, plan, done in planned:
        about = {"steps": plan.steps, "sigma": plan.multiplier if plan.private else None, "epsilon": plan.eps()}
        rows.append(
            {**cell.labels, **about, "seconds": (_guessed(plan) or {}).get("seconds_of_one_core"), "done": done}
        )
    if as_json:
        taken = None if time is None else time.as_dict()
        guarantee_output.emit(json.dumps({"schema": "wpriv.plans/1", "rows": rows, "time": taken, "folder": str(out)}))
        return
    guarantee_output.emit(
        guarantee_output.bold(f"{name}: {len(rows)} trainings, {sum(done for *_, done in planned)} of them done")
    )
    if not rows:
        guarantee_output.emit("nothing falls to this shard")
        return
    columns = [key for key in rows[0] if key != "seconds" or any(row[key] for row in rows)]
    terminal.print_table(guarantee_output.table(columns, [[_plain(row[key]) for key in columns] for row in rows]))
    guarantee_output.emit(f"takes: {'not known' if time is None else time} (the trainings that are not done)")
    guarantee_output.emit(f"writes: {out}{os.sep} table.csv and a folder for each training")


def _guessed(plan: Plan) -> dict[str, Any] | None:
    cost = plan.cost
    if cost is None:
        return None
    return {
        "weights": cost.model.weights,
        "seconds_of_one_core": float(f"{cost.seconds:.2g}"),
        "megabytes": float(f"{cost.memory / 1e6:.2g}"),
        "records_at_once": cost.physical,
    }


def _taken(time: recipe_duration.Duration | None, guess: dict[str, Any] | None, plan: Plan) -> str:
    """What a training takes, as far as that is known."""
    if time is None:
        return f"takes: not known for the model {plan.train.model.name} on {plan.train.data.name} in the task {plan.train.task}"
    if guess is None:
        return f"takes: {time}"
    size = f"{guess['weights']:,} weights, up to {guess['records_at_once']} records through the model at once"
    return f"takes: {time}; about {guess['megabytes']:.0f} MB; {size}"


def results(done: Trained, as_json: bool) -> None:
    """Prints what came out, beside what was published."""
    if as_json:
        about: dict[str, Any] = {"schema": "wpriv.training/1", "metrics": done.metrics[-1], "statement": done.statement}
        about |= {"expect": [v.as_dict() for v in done.verdicts], "files": [str(path) for path in done.files]}
        about |= {"claims": [claim.model_dump() for claim in done.plan.recipe.claims]}
        guarantee_output.emit(json.dumps(about))
        return
    last = done.metrics[-1]
    # what is measured on training records is told while it runs, and is no result
    measured = [key for key in last if key not in ("epoch", "step", "epsilon", "seconds", "loss", "clipped")]
    told = ", ".join(f"{key} {last[key]:.4g}" for key in measured)
    guarantee_output.emit(guarantee_output.bold(f"{done.plan.recipe.name}: {told} after {last['step']} steps"))
    for row in done.guarantees:
        guarantee_output.emit(guarantee_output.headline(row))
    if done.plan.private is None:
        guarantee_output.emit(
            "trained without privacy: no guarantee"
            if "reports" not in done.statement
            else f"promise: {done.statement['promise']}"
        )
    if done.verdicts:
        terminal.print_table(comparison_output.expected(done.verdicts))
    comparison_output.claims(done.plan.recipe)
    for refusal in done.refused:
        guarantee_output.say("note", f"{refusal.accountant} has no answer: {refusal.reason}")
    for warning in done.statement.get("warnings", []):
        guarantee_output.say("warning", warning)
    guarantee_output.say("wrote", f"{done.out}{os.sep} {', '.join(path.name for path in done.files)}")
    model = json.dumps(str(done.out / file_names.MODEL), ensure_ascii=False)
    guarantee_output.say(
        "note",
        f'the weights of {done.plan.train.model.name}: torch.load({model}, weights_only=True)["weights"], a state_dict',
    )


def swept(done: Swept, as_json: bool) -> None:
    """Prints the table of a sweep, as far as it is done."""
    if as_json:
        about: dict[str, Any] = {"schema": "wpriv.sweep/1", "rows": done.rows, "cells": done.cells}
        about |= {"claims": [claim.model_dump() for claim in done.recipe.claims]}
        guarantee_output.emit(json.dumps({**about, "expect": [v.as_dict() for v in done.verdicts]}))
    else:
        guarantee_output.emit(
            guarantee_output.bold(f"{done.recipe.name}: {len(done.rows)} of {done.cells} trainings are done")
        )
        if done.rows:
            names = [
                name for name in done.rows[0] if name not in ("epoch", "step", "seconds", "loss", "clipped", "delta")
            ]
            terminal.print_table(
                guarantee_output.table(names, [[_plain(row.get(name)) for name in names] for row in done.rows])
            )
        if done.verdicts:
            terminal.print_table(comparison_output.expected(done.verdicts))
        comparison_output.claims(done.recipe)
        guarantee_output.say("wrote", str(done.table))
    expectations.require(done.verdicts)


def _plain(value: Any) -> str:
    if isinstance(value, bool):
        return "yes" if value else "no"
    return "" if value is None else f"{value:.6g}" if isinstance(value, float) else str(value)
