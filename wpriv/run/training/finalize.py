"""The end of a training: hold the ledger against model and plan, account for it, write the privacy statement, draw figures."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

from wpriv import tasks
from wpriv.core.guarantee import Guarantee
from wpriv.core.pair_distances import of_distances
from wpriv.core.process import Process
from wpriv.engine import ledger
from wpriv.errors import Unsupported, UsageError
from wpriv.files import durable_writes
from wpriv.numerics.safe_rounding import text
from wpriv.run.accounting import adaptive_history, evaluate, history
from wpriv.run.results import file_names, plot, read, write
from wpriv.run.training import earlier_runs, plan, training_statement
from wpriv.run.training.plan import Plan
from wpriv.run.training.run_folder import Folder


def hold_to_plan(job: Plan, place: Folder) -> list[ledger.Entry]:
    """The ledger's entries, once they are found to be those of the model and of the plan.

    Raises:
        UsageError: the ledger is not the one that the model was made behind, or its last run is not what was planned.
    """
    rows = held_to_model(place)
    if job.step is not None:
        last = [entry for entry in rows if entry.run == place.run]
        release, count = ledger.describe(job.step), job.releases(job.steps)
        if len(last) != count or any(entry.release != release for entry in last):
            raise UsageError(
                f"{place.path / file_names.LEDGER}: run {place.run} has {len(last)} steps, and {count} of {release} were planned: "
                f"the ledger was changed, and nothing is stated of this run. Put the right one back, or begin again with --fresh"
            )
    return rows


def held_to_model(place: Folder) -> list[ledger.Entry]:
    """The ledger's entries, once they are found to be all that the finished model was made behind, and no more.

    Raises:
        UsageError: they are not; or the model is not there, cannot be read, or is of another run.
    """
    from wpriv.engine import checkpoint

    path = place.path / file_names.MODEL
    stored, rows = checkpoint.load(path), place.entries()
    at = ledger.Position(**stored["ledger"])
    ledger.require(rows, at, place.path / file_names.LEDGER, str(path))
    if len(rows) > at.lines:
        raise UsageError(
            f"{place.path / file_names.LEDGER} has {len(rows)} entries, and {path} was made behind {at.lines} of them: "
            f"the steps after it are spent, and the statement of this model does not hold them. "
            f"Go on with --fork, or begin again with --fresh"
        )
    return rows


def process_from_ledger(job: Plan, place: Folder, rows: list[ledger.Entry]) -> Process:
    """What the ledger says ran, with the distances that were observed where an accountant prices them."""
    process = ledger.process(rows, job.adjacency)
    if not any(word.partition(":")[0] in ("bdp", "wdp") for word in job.train.accountants) or len(process.steps) != 1:
        return process
    from wpriv.engine import checkpoint
    from wpriv.engine.training_state import load_diagnostics

    private = job.private
    assert private is not None
    stored = load_diagnostics(place.path, checkpoint.load(place.path / file_names.MODEL))
    norm = private.norm if private.clip == "batch-mean" else float(private.clip)
    seen = of_distances(
        stored["distances"].double().numpy(), unit=norm, coordinates=int(stored["coordinates"]), origin="observed in this run",
        records=private.pairs,
    )  # fmt: skip
    return Process((replace(process.steps[0], observed=seen),), process.adjacency)


def conclude(job: Plan, place: Folder, about: dict[str, Any], before: dict[str, Any] | None) -> None:
    """Writes the statement and the figure of a run that is over; the statement last, whose presence says that it is.

    ``before`` is what was promised of the training records when they were privatised, if they were.
    """
    from wpriv.engine import checkpoint
    from wpriv.engine.training_state import load_diagnostics

    path = place.path
    entries = hold_to_plan(job, place)
    process = None if job.private is None else process_from_ledger(job, place, entries)
    rows, refused = ([], []) if process is None else plan.guarantees(job, process)
    stored = checkpoint.load(path / file_names.MODEL)
    method, metrics = stored["clipping"], json.loads(load_diagnostics(path, stored)["rows"])
    # what was kept while it ran may be moved aside by a fork that never began, or lost
    durable_writes.replace(path / file_names.METRICS, write.csv_text(metrics))
    about = {**about, "clipping": method} if method else about
    provenance = {
        **write.provenance(),
        **about,
        "run": place.run,
        "claims": [claim.model_dump() for claim in job.recipe.claims],
    }
    durable_writes.replace(path / file_names.PROVENANCE, json.dumps(provenance, indent=2) + "\n")
    said = training_statement.statement(job, process, rows, refused, provenance, before)
    said |= _parameters(job, process, entries, rows, said)
    said |= _spent(job, process, entries, path, said)
    metrics, task = read.table(path / file_names.METRICS), tasks.load(job.train.task)
    said = json.loads(json.dumps({**said, "warnings": said.get("warnings", []) + task.warnings(metrics)}))
    durable_writes.replace(path / file_names.STATEMENT_TEXT, training_statement.to_markdown(said))
    plot.draw(metrics, [plot.View(figure=job.train.figure or "training", title=job.train.title)], path, ("png",))
    plot.made(path, job.train.task, ("png",))
    durable_writes.replace(path / file_names.STATEMENT, json.dumps(said, indent=2) + "\n")


def _parameters(
    job: Plan, process: Process | None, entries: list[ledger.Entry], rows: list[Guarantee], said: dict[str, Any]
) -> dict[str, Any]:
    """Of a fork: its figures for parameters fixed in advance and for those chosen from what the runs before showed."""
    if (
        process is None
        or job.private is None
        or job.private.delta is None
        or (declared := history.planned_runs(entries)).runs < 2
    ):
        return {}
    fixed = next((row for row in rows if row.accountant == "pld"), None)
    try:
        both = adaptive_history.account_for_history(
            process, declared, delta=job.private.delta, tol=evaluate.answer_tol(process), fixed=fixed
        )
    except Unsupported as error:
        lines = [
            f"the figures assume that no run was planned after seeing another; for a fork there is none else ({error})"
        ]
        return {"warnings": said["warnings"] + lines}
    lines, eps = [], job.private.eps
    if eps is not None and both.adaptive.epsilon.safe > eps:
        lines.append(
            adaptive_history.EXCEEDED.format(
                eps=eps, found=text(both.adaptive.epsilon.safe, up=True), name=both.adaptive.accountant
            )
        )
    return {"parameters": both.as_dict(), "warnings": said["warnings"] + lines}


def stated(path: Path, process: Process | None, entries: list[ledger.Entry]) -> dict[str, Any]:
    """The statement of a finished run, once it is found to count what its ledger holds and to name the runs before it.

    Args:
        process: what the ledger says ran; None without privacy.
    Raises:
        UsageError: it cannot be read, or is of another state of the folder.
    """
    wrong = f"Delete {path / file_names.STATEMENT} and give the same command again: it is written anew from the model and the ledger"
    try:
        record: Any = json.loads((path / file_names.STATEMENT).read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError):
        record = None
    if not isinstance(record, dict):
        raise UsageError(f"{path / file_names.STATEMENT} cannot be read. {wrong}")
    if process is not None:
        wanted = {
            "steps": sum(step.n for step in process.steps),
            "process": json.loads(json.dumps(process.describe())),
            "ledger": ledger.position(entries).as_dict(),
        }
        runs = record.get("earlier_runs")
        named = runs if isinstance(runs, list) else []
        rows = json.loads(json.dumps([row.as_dict() for row in earlier_runs.earlier(path)]))
        if any(row not in named for row in rows) or any(record.get(key) != value for key, value in wanted.items()):
            raise UsageError(
                f"{path / file_names.STATEMENT} is not the statement of what its ledger and the runs before it hold. {wrong}"
            )
    return record


def _spent(
    job: Plan, process: Process | None, entries: list[ledger.Entry], path: Path, said: dict[str, Any]
) -> dict[str, Any]:
    """The statement's position in the ledger, and the runs before this one that are not part of it."""
    if process is None or job.private is None or job.private.delta is None:
        return {}
    rows = earlier_runs.earlier(path)
    streams = {entry.stream for entry in entries}
    warnings = [earlier_runs.warning(rows, process, job.private.delta, streams)] if rows else []
    return {
        "ledger": ledger.position(entries).as_dict(),
        "earlier_runs": [row.as_dict() for row in rows],
        "warnings": said["warnings"] + warnings,
    }
