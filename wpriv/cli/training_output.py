"""Print the plan and the results of a training."""

from __future__ import annotations

import json
import os
from typing import Any

from wpriv.cli import comparison_output, guarantee_output, output
from wpriv.numerics.safe_rounding import text
from wpriv.run import recipe_duration
from wpriv.run.results import file_names
from wpriv.run.training import class_order, training_statement
from wpriv.run.training.plan import Plan
from wpriv.run.training.run_folder import RunFolder
from wpriv.run.training.trained import Trained

MAX_EPOCHS = 12  # lines of the table of eps after each epoch
# columns of metrics.csv that are no measured result, or are measured on training records
NO_RESULTS = ("epoch", "step", "seconds", "loss", "clipped")


def print_plan(plan: Plan, folder: RunFolder, as_json: bool) -> None:
    """Print what a training would do and cost."""
    epochs = comparison_output.thin(list(enumerate(plan.epoch_ends, start=1)), MAX_EPOCHS)
    rows: list[dict[str, Any]] = [{"epoch": epoch, "step": step, "epsilon": plan.eps(step)} for epoch, step in epochs]
    duration = recipe_duration.of_plan(plan)
    estimate = cost_estimate(plan)
    warnings = training_statement.warnings_of_plan(plan)
    files = file_names.of_training(plan.train.task, averaged=plan.train.average is not None)
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
                "folder": str(folder.path),
                "files": [str(folder.path / name) for name in files],
                "notes": list(plan.notes),
                "warnings": warnings,
            }
        )
        return
    sampling = f"{plan.sampling.kind} sampling at rate {plan.sampling.rate:.6g}"
    sampling = "all records each step" if plan.sampling.kind == "none" else sampling
    batch = f"{plan.batch}" if isinstance(plan.batch, int) else f"{plan.batch:g}"
    if plan.sampling.kind == "allocation":
        sampling = f"{sampling}, passes of {plan.sampling.pass_steps} steps"
    output.emit_bold(f"{plan.recipe.name}: {plan.steps} steps of {batch} of {plan.records} records, {sampling}")
    _print_privacy(plan, rows)
    output.emit(*(f"read as: {note}" for note in plan.notes), _cost_line(duration, estimate, plan))
    output.emit(f"writes: {folder.path}{os.sep} {', '.join(files)}")
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
    guarantees = map(guarantee_output.headline, trained.guarantees)
    output.emit_bold(f"{recipe.name}: {', '.join(results)} after {steps}", *guarantees)
    if trained.plan.private is None:
        reports = "reports" in trained.statement
        output.emit(f"promise: {trained.statement['promise']}" if reports else "trained without privacy: no guarantee")
    comparison_output.print_verdicts(trained.verdicts)
    comparison_output.print_claims(recipe)
    output.say("note", *(f"{each.accountant} has no answer: {each.reason}" for each in trained.refused))
    if order := class_order.words(trained.statement["data"]):
        output.say("note", order)
    output.warn(trained.statement.get("warnings", []))
    output.say("wrote", f"{trained.out}{os.sep} {', '.join(path.name for path in trained.files)}")
    path = json.dumps(str(trained.out / file_names.MODEL), ensure_ascii=False)
    load = f'torch.load({path}, weights_only=True)["weights"]'
    average = "; their average is the entry 'average'" if trained.plan.train.average is not None else ""
    output.say("note", f"the weights of {trained.plan.train.model.name}: {load}, a state_dict{average}")


def _print_privacy(plan: Plan, rows: list[dict[str, Any]]) -> None:
    """Print eps after each epoch and the noise."""
    private = plan.private
    if private is None or plan.release is None:
        output.emit("privacy: none")
        return
    eps = plan.eps()
    cost = "no finite eps" if eps is None else f"eps = {text(eps, up=True)}"
    assert private.delta is not None  # a recipe without it is refused
    delta = text(private.delta, up=True)
    output.emit(f"privacy: {cost} at delta = {delta} after the last step, {plan.adjacency} neighbours")
    clip = private.clip if isinstance(private.clip, str) else f"{plan.release.clip:g}"
    clip += " at first" if private.adapt is not None else ""
    multiplier = f"multiplier sigma = {plan.multiplier:.12g} (standard deviation over sensitivity)"
    output.emit(f"noise: {multiplier}, clipping {clip}")
    body = []
    for row in rows:
        epsilon = "none" if row["epsilon"] is None else text(float(row["epsilon"]), up=True)
        body.append([str(row["epoch"]), str(row["step"]), epsilon])
    output.emit_table(["epoch", "step", "eps"], body)


def cost_estimate(plan: Plan) -> dict[str, Any] | None:
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


def _cost_line(duration: recipe_duration.Duration | None, estimate: dict[str, Any] | None, plan: Plan) -> str:
    """The time and memory that a training takes, as far as known."""
    if duration is None:
        train = plan.train
        return f"takes: not known for the model {train.model.name} on {train.data.name} in the task {train.task}"
    if estimate is None:
        return f"takes: {duration}"
    size = f"{estimate['weights']:,} weights, up to {estimate['records_at_once']} records through the model at once"
    return f"takes: {duration}; about {estimate['megabytes']:.0f} MB; {size}"
