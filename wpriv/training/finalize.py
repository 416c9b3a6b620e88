"""Finalise a training run: check its ledger, account for it, draw figures, write the privacy statement and weights."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from wpriv.accounting import adaptive_history, evaluate, ledger
from wpriv.config.train_parts import Average
from wpriv.core.guarantee import Guarantee
from wpriv.core.pair_distances import of_distances
from wpriv.core.process import Process
from wpriv.errors import Unsupported, UsageError, WprivError
from wpriv.files import array_files, checkpoint, durable_writes
from wpriv.numerics.numbers import text
from wpriv.results import expectations, model, plot, storage
from wpriv.results.model import Json, Statement
from wpriv.training import all_trainings, plan, tasks, training_statement
from wpriv.training.engine import early_stop
from wpriv.training.plan import Plan
from wpriv.training.reports import model_check
from wpriv.training.run_folder import RunFolder

Checkpoint = Mapping[str, Any]
"""The content of a model's file, or the weights in it: tensors by name."""


def from_ledger(plan: Plan, folder: RunFolder) -> tuple[Plan, list[ledger.Entry], Process | None]:
    """Return the plan as far as the model was trained by it, the entries of the ledger, and their releases.

    The releases have the observed distances if an accountant of the recipe needs them; None without privacy.

    Raises:
        UsageError: they are not exactly those that preceded the model, or those of the run are not of the plan.
    """
    stored, entries = checkpoint.load_without_tensors(folder.model_path), folder.entries()
    position = ledger.Position(**stored["ledger"])
    ledger.require(entries, position, folder.ledger_path, str(folder.model_path))
    if len(entries) > position.lines:
        raise UsageError(
            f"{folder.ledger_path} has {len(entries)} entries, and {folder.model_path} was saved after "
            f"{position.lines} of them: later steps are spent, and the statement of this model does not include them. "
            f"Continue with --fork, or begin again with --fresh"
        )
    if "ended" in stored:
        plan = plan.ended(stored["step"], scheduled=stored["ended"])
    if plan.private is None or plan.step is None:
        return plan, entries, None
    last = [entry for entry in entries if entry.run == folder.run]
    release, count = ledger.describe(plan.step), plan.releases(plan.steps)
    if len(last) != count or any(entry.release != release for entry in last):
        raise UsageError(
            f"{folder.ledger_path}: run {folder.run} has {len(last)} steps, and {count} of {release} were planned: "
            f"the ledger was changed, and no statement can be made on this run. Restore the ledger, or begin again "
            f"with --fresh"
        )
    process = plan.under_neighbours(ledger.process(entries, plan.adjacency).steps)
    names = {name.partition(":")[0] for name in plan.train.accountants}
    if not names & {"bdp", "wdp"} or len(process.steps) != 1 or len({entry.run for entry in entries}) > 1:
        return plan, entries, process  # steps of a run before this one, or of two kinds, were not observed
    from wpriv.training.engine.saved_weights import load_diagnostics

    observed = load_diagnostics(folder.path, checkpoint.load(folder.model_path))
    distances = of_distances(
        observed["distances"].double().numpy(),
        unit=plan.private.bound,
        coordinates=int(observed["coordinates"]),
        origin="observed in this run",
        records=plan.private.pairs,
    )
    return plan, entries, process.with_steps((replace(process.steps[0], observed=distances),))


def conclude(
    planned: Plan, folder: RunFolder, about: Json, reports: Json | None, elsewhere: Sequence[Path] = ()
) -> None:
    """Write the statement, the figures and model.safetensors; statement.json is last, and marks the run as finished."""
    from wpriv.training.engine.saved_weights import load_diagnostics

    path = folder.path
    job, entries, process = from_ledger(planned, folder)
    rows, refused = ([], []) if process is None else plan.guarantees(job, process)
    stored = checkpoint.load(path / storage.MODEL)
    method = stored["clipping"]
    # the metrics file of the run may be missing, or moved aside by a fork that never began
    durable_writes.replace(path / storage.METRICS, storage.csv_text(json.loads(load_diagnostics(path, stored)["rows"])))
    provenance = {
        **storage.provenance(),
        **about,
        **({"clipping": method} if method else {}),
        "run": folder.run,
        "claims": [claim.model_dump() for claim in job.recipe.claims],
    }
    storage.write_json(path / storage.PROVENANCE, provenance)
    metrics, task = storage.table(path / storage.METRICS), tasks.load(job.train.task)
    tested = {**provenance, "checked": stored.get("checked", []), "remarks": stored.get("remarks", [])}
    tested["earlier_looks"] = early_stop.earlier_looks(ledger.entries(path / storage.LOOKS), folder.run)
    statement = training_statement.statement(job, process, rows, refused, tested, reports)
    warnings = statement.get("warnings", [])
    if process is not None and job.private is not None:
        adaptive, more = _adaptive_figures(process, entries, rows, job.private.eps, job.delta)
        earlier, others = _earlier_runs(process, entries, path, job.delta, elsewhere)
        statement |= adaptive | earlier
        if cut := ledger.cut_passes(entries):
            statement["cut_passes"] = [each.as_dict() for each in cut]
        warnings = [*warnings, *more, *others]
    described = describe_weights(stored, job.train.average)
    statement = storage.as_stored({**statement, **described, "warnings": [*warnings, *task.warnings(metrics)]})
    hosted = job.train.optimizer.name == "given" and "optimizer" not in job.train.model.parameters()
    if not hosted:  # else the loop of another framework has the figures
        view = plot.View(figure=job.train.figure or "training", title=job.train.title)
        plot.draw(metrics, [view], path, ("png",), numbers=expectations.of_recipe(job.recipe))
    plot.task_files(path, job.train.task, ("png",))
    write_statement(path, statement, stored)


def describe_weights(stored: Checkpoint, average: Average | None) -> Json:
    """Return the entries of a statement on the files of its weights: ``model``, and ``average`` where there is one.

    Each has ``file`` and ``weights_sha256`` (``array_files.digest``); or ``file`` None and ``why`` where the format of
    model.safetensors does not hold the weights.
    """
    entries: Json = {"model": _describe(stored["weights"], storage.WEIGHTS)}
    if average is not None:
        entries["average"] = {**average.model_dump(), **_describe(stored["average"], storage.AVERAGE)}
    return entries


def _describe(weights: Checkpoint, file: str) -> Json:
    from wpriv.training.engine import saved_weights

    try:
        return {"file": file, "weights_sha256": array_files.digest(saved_weights.encode(weights))}
    except Unsupported as error:
        return {"file": None, "why": str(error)}


def write_statement(path: Path, statement: Json, stored: Checkpoint | None, name: str = storage.STATEMENT) -> None:
    """Write statement.md, then the files of the weights, and statement.json last, which marks a finished run.

    A run that is killed in between is concluded again, and so all of them are written again. The weights are never
    without a statement beside them, which their header repeats in short.

    Args:
        statement: as after a round trip through JSON. stored: the content of the model's file; None to write no
            weights. name: of statement.json.
    Raises:
        MissingResource: a file cannot be written.
    """
    durable_writes.replace(path / storage.STATEMENT_TEXT, training_statement.to_markdown(statement))
    content = json.dumps(statement, indent=2) + "\n"
    if stored is not None:
        write_weights(path / storage.WEIGHTS, stored["weights"], statement, content, "model")
        if "average" in statement:
            write_weights(path / storage.AVERAGE, stored["average"], statement, content, "average")
    durable_writes.replace(path / name, content)


def write_weights(path: Path, weights: Checkpoint, statement: Json, content: str, entry: str) -> None:
    """Write a file of weights, or remove it where the format does not hold them."""
    from wpriv.training.engine import saved_weights

    if statement[entry]["file"] is None:
        durable_writes.remove(path)
        return
    stated = model.checked(Statement, statement, path.with_name(storage.STATEMENT), model.TRAIN_AGAIN)
    described = stated.model if entry == "model" else stated.average
    assert described is not None
    encoded = saved_weights.encode(weights, model_check.header(stated, content, described))
    durable_writes.replace(path, encoded, mode=0o600)  # as readable as model.pt


def add_warning(path: Path, statement: Json, warning: str) -> Json:
    """Add a warning to the statement of a finished run, in its files too, and return it; once is enough."""
    if warning in statement.get("warnings", []):
        return statement
    statement = {**statement, "warnings": [*statement.get("warnings", []), warning]}
    # earlier versions wrote no model.safetensors, whose header has a digest of the statement
    write_statement(path, statement, checkpoint.load(path / storage.MODEL) if "model" in statement else None)
    return statement


def _read_statement(path: Path) -> tuple[Json, str]:
    """Return the statement in a folder, and what to do where it is faulty."""
    file = path / storage.STATEMENT
    advice = f"Delete {file} and give the same command again: it is written again from the model and the ledger"
    try:
        return model.json_object(file), advice
    except WprivError:
        raise UsageError(f"{file} cannot be read. {advice}") from None


def stated_noise(path: Path) -> float | None:
    """Return the noise multiplier in the statement of a finished run; None where it states none."""
    noise = _read_statement(path)[0].get("noise")
    multiplier = noise.get("multiplier") if isinstance(noise, dict) else None
    return multiplier if isinstance(multiplier, float) and multiplier > 0 else None


def load_statement(path: Path, process: Process | None, entries: list[ledger.Entry]) -> tuple[Json, bool]:
    """Return the statement of a finished run, and whether the digest beside its weights shows that it is unchanged.

    It is checked against the ledger and the earlier runs.
    """
    statement, advice = _read_statement(path)
    file, is_unchanged = path / storage.STATEMENT, False
    if "model" in statement:  # earlier versions wrote no model.safetensors
        weights = model_check.check(path)
        if weights.verdict == model_check.DIFFERS:
            raise UsageError(f"{path}: {weights.words}. {advice}")
        is_unchanged = weights.verdict == model_check.FITS
    if process is None:
        return statement, is_unchanged
    expected = {
        "steps": sum(step.n for step in process.steps),
        "process": storage.as_stored(process.describe()),
        "ledger": ledger.position(entries).as_dict(),
    }
    runs = statement.get("earlier_runs")
    stated = runs if isinstance(runs, list) else []
    earlier = storage.as_stored([run.as_dict() for run in all_trainings.earlier(path)])
    if any(run not in stated for run in earlier) or any(statement.get(key) != expected[key] for key in expected):
        raise UsageError(f"{file} does not match the ledger and the earlier runs in its folder. {advice}")
    return statement, is_unchanged


def _adaptive_figures(
    process: Process, entries: list[ledger.Entry], rows: list[Guarantee], target: float | None, delta: float
) -> tuple[Json, list[str]]:
    """The figures of a fork for parameters fixed in advance and chosen from earlier outputs, and warnings."""
    runs = len({entry.run for entry in entries})
    if runs < 2:
        return {}, []
    fixed = next((row for row in rows if row.accountant == "pld"), None)
    try:
        figures = adaptive_history.account_for_history(
            process, delta=delta, tol=evaluate.answer_tol(process), fixed=fixed, runs=runs
        )
    except Unsupported as error:
        return {}, [
            f"the numbers assume that no run was planned after seeing another; for a fork no other number is known "
            f"({error})"
        ]
    eps = figures.adaptive.epsilon.safe
    warnings = []
    if target is not None and eps > target:
        shown = text(eps, up=True)
        warnings = [adaptive_history.EXCEEDED.format(eps=target, found=shown, name=figures.adaptive.accountant)]
    return {"parameters": figures.as_dict()}, warnings


def _earlier_runs(
    process: Process, entries: list[ledger.Entry], path: Path, delta: float, elsewhere: Sequence[Path]
) -> tuple[Json, list[str]]:
    """The statement's position in the ledger and the earlier runs that are not part of it, and warnings."""
    runs, others = all_trainings.earlier(path), all_trainings.elsewhere(path, elsewhere)
    streams = {entry.stream for entry in entries}
    warnings = []
    if runs:
        warnings.append(all_trainings.warning(runs, process, delta, streams, all_trainings.IN_FOLDER))
    if others:
        warnings.append(all_trainings.warning([*runs, *others], process, delta, streams, all_trainings.OF_PROGRAM))
    return {
        "ledger": ledger.position(entries).as_dict(),
        "earlier_runs": [run.as_dict() for run in (*runs, *others)],
    }, warnings
