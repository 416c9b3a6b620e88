"""A tuned training in its folder: K runs of drawn candidates, of which only the best is left when it ends.

The runs lie in a folder of their own (``RUNS``) until the best is known. Everything that is kept is then written anew,
with the statement under another name; the runs are deleted; the statement gets its name last. A process that is killed
at any point continues from there, with the same choices.
"""

from __future__ import annotations

import json
import os
import shutil
from dataclasses import replace
from pathlib import Path
from typing import Literal

from wpriv.accounting import ledger
from wpriv.config import resolve, yaml_document
from wpriv.config.recipe import Recipe
from wpriv.config.train_schema import Train
from wpriv.core.guarantee import Guarantee
from wpriv.errors import Interrupted, Unsupported, UsageError, require
from wpriv.files import durable_writes
from wpriv.files.durable_writes import LOCK, locked
from wpriv.results import expectations, plot, storage
from wpriv.results.model import Json
from wpriv.training import finalize, progress, run_folder, tasks, train_data, training_run, training_statement
from wpriv.training import tuning_plan as planning
from wpriv.training.data import Data
from wpriv.training.reports import publication, render
from wpriv.training.run_folder import RunFolder
from wpriv.training.trained import Trained
from wpriv.training.training_grid import Cell, Grid, with_seed_of_run
from wpriv.training.tuning_plan import Draw, TuningPlan

# the folder of the runs while they are trained, and its name while it is deleted
RUNS, DISCARDED = "runs", "runs.discarded"
# the statement until all runs are deleted
PENDING = "statement.pending"
UNSEEN = (
    "training candidates drawn at random; how many runs there are, their settings and their scores are not shown, "
    "since the guarantee holds only where they stay secret"
)
# files of a run that are written for the whole, or not kept: they hold timings of the run or its eps alone
REWRITTEN = (
    *(storage.STATEMENT, storage.STATEMENT_TEXT, storage.METRICS, storage.WEIGHTS),
    *(storage.FIGURE, storage.DIAGNOSTICS, storage.RECIPE, storage.PROVENANCE),
)
RUN_COLUMNS = ("seconds", "epsilon")
State = Literal["in training", "chosen", "done"]  # chosen: only the deletion of runs is left


def planned(recipe: Recipe, out: Path, *, root: str | Path | None = None, resume: bool = False) -> TuningPlan:
    """Return the plan of a tuned training, without running it; records are not loaded if their sizes are known."""
    inspect(out, recipe, resume=resume)
    return planning.tuning_plan(recipe, train_data.sizes(recipe, root))


def run(
    recipe: Recipe,
    out: Path,
    *,
    device: str = "cpu",
    resume: bool = False,
    root: str | Path | None = None,
    say: progress.Say | None = None,
    stop: progress.Stop | None = None,
) -> Trained:
    """Train a random number of randomly drawn candidates, and keep the best.

    Args:
        device, say, stop: as for ``train.run``. resume: continue an unfinished tuned training.
    Returns:
        The best run, with the guarantees and the statement of the whole; its metrics are empty if no run was drawn.
    Raises:
        Interrupted: a signal arrived; ``resume`` continues. UsageError: the folder holds something else.
        Unsupported: the target is out of reach, or several processes train together.
    """
    if int(os.environ.get("WORLD_SIZE", "1")) > 1:
        raise Unsupported(f"{recipe.name}: tune trains in one process; start it without torchrun")
    if inspect(out, recipe, resume=resume) != "done":
        require("torch", "training")
    data = train_data.data(recipe, root)
    plan = planning.tuning_plan(recipe, train_data.sizes_of(recipe, data))
    busy = f"another process is training in {out}. Wait until it ends, or name another folder with --out"
    with locked(out / LOCK, busy):
        state = inspect(out, recipe, resume=resume)
        if state == "in training":
            _train_runs(plan, out, data, device, say, stop)
        if state != "done":
            _delete_runs(out)
    train_data.require_records(out, data)
    return replace(_load(plan, out), found=state == "done")


def inspect(path: Path, recipe: Recipe, *, resume: bool) -> State:
    """Determine what a folder holds, without changing it."""
    names = run_folder.names_in(path)
    if not names:
        return "in training"
    if storage.RECIPE not in names:
        raise UsageError(f"{path} holds files that are not results of a training. Name another folder with `out`")
    if run_folder.stored_recipe(path) != storage.as_stored(resolve.essence(recipe.data)):
        raise UsageError(
            f"{path} holds a run of another recipe, or of this one before it was changed. Name another folder with "
            f"`out`; what was trained there is spent, and its cost is added to that of this training"
        )
    if storage.STATEMENT in names:
        return "done"
    if not resume:
        raise UsageError(
            f"{path} holds an unfinished tuned training. Continue it with --resume: the number of runs has been drawn, "
            f"and is not drawn again"
        )
    return "chosen" if PENDING in names else "in training"


def _train_runs(
    plan: TuningPlan, out: Path, data: Data, device: str, say: progress.Say | None, stop: progress.Stop | None
) -> None:
    """Draw the runs if none were drawn, train those that are left, unseen, and write the results of the best."""
    from wpriv.training.engine import launch

    launch.device_of(device)  # before anything is written
    runs = out / RUNS
    durable_writes.make_folder(out)
    durable_writes.replace(out / storage.RECIPE, yaml_document.as_yaml(plan.recipe.data))
    durable_writes.make_folder(runs)
    choices = planning.read(runs, data.fingerprint)
    if choices is None:
        choices = planning.draw(plan.repeats, len(plan.candidates), data.fingerprint, plan.recipe.train.seed)
        planning.write(choices, runs)
    for line in (*(f"read as: {note}" for note in plan.notes), UNSEEN):
        if say is not None:
            say(line)
    candidates = [plan.candidates[number] for number in choices.candidates]
    cells = [
        Cell(candidate.labels, with_seed_of_run(candidate.plan.recipe, number), str(number))
        for number, candidate in enumerate(candidates)
    ]
    with progress.signals(stop) as stop_reason:
        try:
            trained = Grid(cells, runs, device, data=data).run_here(stop=stop_reason)
        except Interrupted:  # its message has the number of runs
            raise Interrupted(
                f"stopped by {stop_reason() or 'a signal'}; everything is saved in {out}. Continue with --resume, "
                f"which draws nothing again"
            ) from None
    _publish(plan, _best(plan, choices, cells, trained), out, data, device)


def _best(plan: TuningPlan, choices: Draw, cells: list[Cell], trained: list[Trained]) -> Trained | None:
    """The run with the best score, its candidate under ``statement["chosen"]``; None if there was no run."""
    score = plan.tune.score
    ranks = [
        (planning.score_of(run.metrics, score.column, score.best), tie, number)
        for number, (run, tie) in enumerate(zip(trained, choices.ties, strict=True))
    ]
    if not ranks:
        return None
    number = max(ranks)[2]
    return replace(trained[number], statement={**trained[number].statement, "chosen": cells[number].labels})


def _publish(plan: TuningPlan, best: Trained | None, out: Path, data: Data, device: str) -> None:
    """Write everything that is kept of the best run, and last the statement, under the name ``PENDING``."""
    from wpriv.files import checkpoint
    from wpriv.training.engine import launch

    about = {**storage.provenance(), **training_run.provenance(plan.recipe, data, device), **launch.about()}
    # the words of the command line may say that the training was continued
    del about["command"]
    weights: Json = {"model": {"file": None, "why": "the number of runs was 0"}}
    stored = None
    if best is not None:
        _keep_files(plan.recipe.train, best, out)
        method = best.statement.get("noise", {}).get("clipped_by")
        about |= {"clipping": method} if method else {}
        stored = checkpoint.load(best.out / storage.MODEL)
        weights = finalize.describe_weights(stored, best.plan.train.average)
    durable_writes.replace(out / storage.RECIPE, yaml_document.as_yaml(plan.recipe.data))
    storage.write_json(out / storage.PROVENANCE, about)
    statement = storage.as_stored({**_statement(plan, best, about), **weights})
    finalize.write_statement(out, statement, stored, PENDING)


def _keep_files(train: Train, best: Trained, out: Path) -> None:
    """Write the files of the best run anew, without what shows when it ran."""
    for name in storage.of_training(train.task, averaged=False):
        if name not in REWRITTEN and (best.out / name).is_file():
            durable_writes.replace(out / name, (best.out / name).read_bytes())
    rows = [{key: value for key, value in row.items() if key not in RUN_COLUMNS} for row in best.metrics]
    durable_writes.replace(out / storage.METRICS, storage.csv_text(rows))
    durable_writes.replace(out / storage.CANDIDATE, yaml_document.as_yaml(best.plan.recipe.data))
    metrics = storage.table(out / storage.METRICS)
    plot.draw(metrics, [plot.View(figure=train.figure or "training", title=train.title)], out, ("png",))


def _delete_runs(out: Path) -> None:
    """Delete all runs, and give the statement its name, which marks the tuned training as finished."""
    if (out / RUNS).is_dir():
        durable_writes.rename(out / RUNS, DISCARDED)
    with durable_writes.reported(out):
        if (out / DISCARDED).is_dir():
            shutil.rmtree(out / DISCARDED)
        for leftover in out.glob(f"*{durable_writes.PART}"):
            durable_writes.remove(leftover)
    durable_writes.rename(out / PENDING, storage.STATEMENT)


def _load(plan: TuningPlan, out: Path) -> Trained:
    """Return the finished tuned training of a folder."""
    path = out / storage.STATEMENT
    try:
        statement = json.loads(path.read_text(encoding="utf-8"))
        chosen = statement["tuning"]["chosen"]
    except (OSError, ValueError, KeyError, TypeError, RecursionError):
        raise UsageError(
            f"{path} cannot be read. Restore it, or train in another folder with `out`, at the cost of both"
        ) from None
    matching = [candidate for candidate in plan.candidates if storage.as_stored(candidate.labels) == chosen]
    job = (matching or plan.candidates)[0].plan
    rows, refused = plan.guarantees
    metrics = [] if chosen is None else storage.table(out / storage.METRICS)
    names = (*storage.of_training(job.train.task, averaged=True), storage.CANDIDATE)
    files = tuple(out / name for name in names if (out / name).is_file())
    trained = Trained(job, metrics, rows, refused, [], statement, out, files)
    if not metrics:
        return trained
    return replace(trained, verdicts=expectations.verdicts(plan.recipe, trained.results(), first=True))


def _statement(plan: TuningPlan, best: Trained | None, about: Json) -> Json:
    """The privacy statement of the whole: that of the best run, with the guarantees of the best of K runs."""
    job = plan.candidates[0].plan if best is None else best.plan
    rows, refused = plan.guarantees
    base = training_statement.statement(job, job.process(), rows, refused, about)
    warnings = list(base["warnings"])
    position: Json = {}
    if best is not None:
        _, entries, _ = finalize.from_ledger(job, RunFolder(best.out))
        position = {"ledger": ledger.position(entries).as_dict()}
        warnings += tasks.load(job.train.task).warnings(best.metrics)
    score = plan.tune.score
    lists = render.sections("tuned_lists.txt.j2", column=score.column, repeats=plan.repeats)
    not_covered = [line for line in base["not_covered"] if not line.startswith("the choice of model")]
    return {
        **base,
        "recipe": plan.recipe.name,
        "source": plan.recipe.source,
        "seed": plan.recipe.train.seed,
        "publish": _publishable(base["publish"], plan),
        "tuning": _tuning(plan, rows, None if best is None else best.statement["chosen"]),
        **position,
        "earlier_runs": [],
        "covered": [*base["covered"], *lists["covered"]],
        "not_covered": [*lists["not_covered"], *not_covered],
        "not_assessed": [*lists["not_assessed"], *base["not_assessed"]],
        "warnings": warnings,
    }


def _tuning(plan: TuningPlan, rows: list[Guarantee], chosen: Json | None) -> Json:
    """The entry ``tuning`` of a statement: the distribution, the candidates and the score, and the eps of one run."""
    return {
        "repeats": plan.repeats.describe(),
        "candidates": [candidate.labels for candidate in plan.candidates],
        "drawn": "each run draws one candidate uniformly, with replacement",
        "score": plan.tune.score.model_dump(),
        "chosen": chosen,
        "released": "nothing: the number of runs was 0" if chosen is None else "the best run",
        "one_run": {row.accountant: row.extra["repeats"]["one_run"] for row in rows},
        "process_is_of": "the best run alone; the guarantees are those of the best of K runs",
    }


def _publishable(entries: list[dict[str, str]], plan: TuningPlan) -> list[dict[str, str]]:
    """The files that may be published, with the recipe of the best run and without what is not kept."""
    seeded = plan.recipe.train.seed is not None
    gone = (storage.DIAGNOSTICS, storage.CHECKPOINT, "before-1, before-2, ...")
    kept = [entry for entry in entries if entry["file"] not in gone]
    why = publication.FIXED_SEED if seeded else f"{publication.SETTINGS}, and which candidate was the best"
    return [*kept, {"file": storage.CANDIDATE, "publish": "no" if seeded else "yes", "why": why}]
