"""A training on the screen: its plan and its results."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

from wpriv.cli import show, tables, terminal
from wpriv.config.resolve import Recipe
from wpriv.numerics.safe_rounding import text
from wpriv.run import duration, expect, folder, sweep
from wpriv.run.plan import Plan
from wpriv.run.sweep import Cell, Swept
from wpriv.run.train import Trained

MOST_EPOCHS = 12


def dry(plan: Plan, place: folder.Folder, as_json: bool) -> None:
    """Prints what a training would do."""
    ends = plan.epoch_ends
    shown = tables.thin(list(enumerate(ends, start=1)), MOST_EPOCHS)
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
        "time": None if (time := duration.of_plan(plan)) is None else time.as_dict(),
        "folder": str(place.path),
        "files": [str(place.path / name) for name in folder.results(plan.train.task)],
        "notes": list(plan.notes),
    }
    if as_json:
        show.emit(json.dumps(about))
        return
    sampled = "all records each step" if plan.sampling.kind == "none" else f"{plan.sampling.kind} sampling at rate {plan.sampling.rate:.6g}"
    show.emit(show.bold(f"{plan.recipe.name}: {plan.steps} steps of {plan.batch} of {plan.records} records, {sampled}"))
    if private is None or plan.release is None:
        show.emit("privacy: none")
    else:
        eps, clip = plan.eps(), "batch-mean" if private.clip == "batch-mean" else f"{plan.release.clip:g}"
        cost = "no finite eps" if eps is None else f"eps = {text(eps, up=True)}"
        show.emit(f"privacy: {cost} at delta = {private.delta:g} after the last step, {plan.adjacency} neighbours")
        show.emit(f"noise: multiplier sigma = {plan.multiplier:.12g} (standard deviation over sensitivity), clipping {clip}")
        lines = [[str(r["epoch"]), str(r["step"]), "none" if r["epsilon"] is None else text(float(r["epsilon"]), up=True)] for r in rows]
        terminal.print_table(show.table(["epoch", "step", "eps"], lines))
    for note in plan.notes:
        show.emit(f"read as: {note}")
    show.emit(_taken(time, about["guess"], plan))
    show.emit(f"writes: {place.path}{os.sep} {', '.join(folder.results(plan.train.task))}")


def dry_sweep(made: Recipe, planned: list[tuple[Cell, Plan, bool]], out: Path, as_json: bool) -> None:
    """Prints what the trainings of a sweep would do, a line each."""
    rows, name = [], made.name
    time = duration.of_sweep(made, [plan for _, plan, done in planned if not done], len(sweep.cells(made)))
    for cell, plan, done in planned:
        about = {"steps": plan.steps, "sigma": plan.multiplier if plan.private else None, "epsilon": plan.eps()}
        rows.append({**cell.labels, **about, "seconds": (_guessed(plan) or {}).get("seconds_of_one_core"), "done": done})
    if as_json:
        taken = None if time is None else time.as_dict()
        show.emit(json.dumps({"schema": "wpriv.plans/1", "rows": rows, "time": taken, "folder": str(out)}))
        return
    show.emit(show.bold(f"{name}: {len(rows)} trainings, {sum(done for *_, done in planned)} of them done"))
    if not rows:
        show.emit("nothing falls to this shard")
        return
    columns = [key for key in rows[0] if key != "seconds" or any(row[key] for row in rows)]
    terminal.print_table(show.table(columns, [[_plain(row[key]) for key in columns] for row in rows]))
    show.emit(f"takes: {'not known' if time is None else time} (the trainings that are not done)")
    show.emit(f"writes: {out}{os.sep} table.csv and a folder for each training")


def _guessed(plan: Plan) -> dict[str, Any] | None:
    guess = plan.guess()
    if guess is None:
        return None
    return {
        "weights": guess.cost.weights,
        "seconds_of_one_core": float(f"{guess.seconds:.2g}"),
        "megabytes": float(f"{guess.memory / 1e6:.2g}"),
        "records_at_once": guess.physical,
    }


def _taken(time: duration.Duration | None, guess: dict[str, Any] | None, plan: Plan) -> str:
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
        show.emit(json.dumps(about))
        return
    last = done.metrics[-1]
    # what is measured on training records is told while it runs, and is no result
    measured = [key for key in last if key not in ("epoch", "step", "epsilon", "seconds", "loss", "clipped")]
    told = ", ".join(f"{key} {last[key]:.4g}" for key in measured)
    show.emit(show.bold(f"{done.plan.recipe.name}: {told} after {last['step']} steps"))
    for row in done.guarantees:
        show.emit(show.headline(row))
    if done.plan.private is None:
        show.emit("trained without privacy: no guarantee" if "reports" not in done.statement else f"promise: {done.statement['promise']}")
    if done.verdicts:
        terminal.print_table(tables.expected(done.verdicts))
    tables.claims(done.plan.recipe)
    for refusal in done.refused:
        show.say("note", f"{refusal.accountant} has no answer: {refusal.reason}")
    for warning in done.statement.get("warnings", []):
        show.say("warning", warning)
    show.say("wrote", f"{done.out}{os.sep} {', '.join(path.name for path in done.files)}")
    model = json.dumps(str(done.out / folder.MODEL), ensure_ascii=False)
    show.say("note", f'the weights of {done.plan.train.model.name}: torch.load({model}, weights_only=True)["weights"], a state_dict')


def swept(done: Swept, as_json: bool) -> None:
    """Prints the table of a sweep, as far as it is done."""
    if as_json:
        about: dict[str, Any] = {"schema": "wpriv.sweep/1", "rows": done.rows, "cells": done.cells}
        about |= {"claims": [claim.model_dump() for claim in done.recipe.claims]}
        show.emit(json.dumps({**about, "expect": [v.as_dict() for v in done.verdicts]}))
    else:
        show.emit(show.bold(f"{done.recipe.name}: {len(done.rows)} of {done.cells} trainings are done"))
        if done.rows:
            names = [name for name in done.rows[0] if name not in ("epoch", "step", "seconds", "loss", "clipped", "delta")]
            terminal.print_table(show.table(names, [[_plain(row.get(name)) for name in names] for row in done.rows]))
        if done.verdicts:
            terminal.print_table(tables.expected(done.verdicts))
        tables.claims(done.recipe)
        show.say("wrote", str(done.table))
    expect.require(done.verdicts)


def _plain(value: Any) -> str:
    if isinstance(value, bool):
        return "yes" if value else "no"
    return "" if value is None else f"{value:.6g}" if isinstance(value, float) else str(value)
