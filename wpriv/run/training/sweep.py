"""A grid of trainings, each in a resumable folder of its own: in several processes, or in shards of a batch job."""

from __future__ import annotations

import contextlib
import json
import re
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from wpriv.config.cluster_schema import Cluster
from wpriv.config.recipe import Recipe
from wpriv.errors import Interrupted, UsageError
from wpriv.files import durable_writes
from wpriv.files.file_lock import LOCK, locked
from wpriv.hints import did_you_mean
from wpriv.run.results import expectations, file_names, write
from wpriv.run.results.expectations import Verdict
from wpriv.run.training import (
    cluster,
    merge_sweep,
    plan_ahead,
    progress,
    repeated_runs,
    run_folder,
    sweep_statement,
    sweep_tables,
    train,
)
from wpriv.run.training.all_trainings import Together
from wpriv.run.training.cell_task import Outcome, train_in_workers
from wpriv.run.training.plan import Plan
from wpriv.run.training.progress import Say
from wpriv.run.training.recipe_grid import Cell
from wpriv.run.training.sweep_statement import Finished
from wpriv.run.training.task_queue import Submission
from wpriv.run.training.trained import Trained, load_finished

Row = dict[str, Any]
# dask and ray need to be installed and registered; submitit gives each cell to a cluster as a task
BACKENDS = ("loky", "multiprocessing", "threading", "sequential", "dask", "ray", cluster.BACKEND)


@dataclass(frozen=True)
class PlannedCell:
    """A training of a sweep with its plan, and whether it is finished already."""

    cell: Cell
    plan: Plan
    done: bool


@dataclass(frozen=True)
class SweepResult:
    """The finished trainings of a recipe with several.

    Args:
        rows: one for each setting, as in table.csv; with repeated runs their means and deviations.
        cells: the number of all trainings, and ``finished`` of those that are done.
        verdicts: on the expected numbers, once all are done. table: the file.
        together: what all private trainings together keep. statement: of all trainings, as in statement.json.
        runs: with repeated runs one row for each of them, as in runs.csv.
    """

    recipe: Recipe
    rows: list[Row]
    cells: int
    finished: int
    verdicts: list[Verdict]
    table: Path
    together: Together
    statement: dict[str, Any]
    runs: list[Row] = field(default_factory=list)

    def require(self) -> None:
        """Raise CheckFailed if an expected number was missed."""
        expectations.require(self.verdicts)


def cells(recipe: Recipe) -> list[Cell]:
    """Return all trainings of a recipe: the points of its sweep in the order of its axes, each with its runs.

    Raises:
        UsageError: a cell is no valid recipe, or there are more than 10,000.
    """
    return repeated_runs.cells(recipe)


def shard(text: str, grid: list[Cell]) -> list[Cell]:
    """Return the cells of one shard: ``3/16`` is every sixteenth cell from the third.

    Raises:
        UsageError: the text is no such fraction.
    """
    match = re.fullmatch(r"(\d{1,6})/(\d{1,6})", text.strip())
    if not match or not 1 <= int(match[1]) <= int(match[2]):
        raise UsageError(f"--shard wants its number and the number of shards, such as 3/16; found {text[:40]!r}")
    return grid[int(match[1]) - 1 :: int(match[2])]


def check_backend(name: str) -> None:
    """Refuse an unknown backend.

    Raises:
        UsageError: the name is not known; the message lists those that are. MissingResource: submitit is not installed.
    """
    if name not in BACKENDS:
        hint = did_you_mean(name, list(BACKENDS)) or "."
        raise UsageError(f"--backend: no backend called {name[:60]!r}{hint} Known: {', '.join(BACKENDS)}")
    if name == cluster.BACKEND:
        cluster.require_package()


def planned(recipe: Recipe, out: Path, *, part: str = "1/1", root: str | Path | None = None) -> list[PlannedCell]:
    """Return the plans of the trainings of one shard."""
    plans = []
    for cell in shard(part, cells(recipe)):
        plan, folder = train.planned(cell.recipe, out / cell.name, root=root, resume=True)
        plans.append(PlannedCell(cell, plan, folder.done))
    return plans


def run(
    recipe: Recipe,
    out: Path,
    *,
    jobs: int | None = None,
    part: str = "1/1",
    backend: str = "loky",
    device: str = "cpu",
    root: str | Path | None = None,
    say: Say | None = None,
) -> SweepResult:
    """Train the unfinished cells of one shard, and merge all finished cells of the sweep.

    Args:
        jobs: number of trainings at the same time, by default 1, or with submitit as many as a cluster starts.
        part: the shard. backend: of joblib, if jobs > 1; or submitit. device, root, say: as in ``train.run``.
    Raises:
        Interrupted: a signal arrived; the same command continues. UsageError: no such backend, or ``out`` holds a
            single training. MissingResource: the backend is not installed, or the cluster is not there.
    """
    check_backend(backend)
    if any((out / name).is_file() for name in (file_names.LEDGER, file_names.MODEL, file_names.CHECKPOINT)):
        raise UsageError(
            f"{out} holds the results of one training, which a sweep would overwrite. Name another folder with --out"
        )
    grid = cells(recipe)
    selected = shard(part, grid)
    options: dict[str, Any] = {"device": device, "resume": True, "root": root}
    failed: list[tuple[str, Outcome]] = []
    trained: dict[str, Trained] = {}
    if backend == cluster.BACKEND:
        plan = Submission(selected, out, asked_of_cluster(recipe), device, None if root is None else Path(root), jobs)
        failed = cluster.train_cells(plan, say)
    elif jobs is None or jobs == 1:
        plan_ahead.require(selected, out, root)
        trained = _sequential(selected, out, options, say)
    else:
        plan_ahead.require(selected, out, root)
        train_in_workers(selected, out, jobs, backend, options, say if isinstance(say, progress.Meter) else None)
    # a shard that ends beside another one must not write tables and a statement without the trainings of that one
    busy = f"another process is merging the trainings in {out}. Give the same command again once it ends"
    with locked(out / LOCK, busy, wait=True):
        result = _merge(recipe, grid, out, device, trained)
    cluster.require(failed, len(selected))
    return result


def asked_of_cluster(recipe: Recipe) -> Cluster:
    """Return what the tasks of a sweep ask of a cluster, by default if the recipe does not say."""
    assert recipe.training is not None
    return recipe.training.cluster or Cluster.model_validate({})


def tasks_in_words(recipe: Recipe, backend: str, device: str) -> str | None:
    """Return the cluster and what each task asks of it, in words; None with other backends than submitit."""
    request = asked_of_cluster(recipe)
    return f"{request.system}: {cluster.words(request, device)} each" if backend == cluster.BACKEND else None


def _sequential(selected: list[Cell], out: Path, options: dict[str, Any], say: Say | None) -> dict[str, Trained]:
    """Train cells one after another in this process, and return the trainings by the names of their folders."""
    trained = {}
    meter = say if isinstance(say, progress.Meter) else None
    with progress.signals() as stop:
        for done, cell in enumerate(selected):
            if reason := stop():
                raise Interrupted(
                    f"stopped by {reason} after {done} of {len(selected)} trainings; the same command continues"
                )
            if meter is not None:
                meter.cells(done, len(selected))
            if say is not None:
                over = run_folder.inspect(out / cell.name, cell.recipe, resume=True).done
                say(f"training {done + 1} of {len(selected)}: {cell.name}{' (done before)' if over else ''}", True)
            trained[cell.name] = train.run(cell.recipe, out / cell.name, say=say, stop=stop, **options)
    if meter is not None:
        meter.cells(len(selected), len(selected))
    return trained


def _merge(recipe: Recipe, grid: list[Cell], out: Path, device: str, trained: dict[str, Trained]) -> SweepResult:
    """Write the merged tables, the figures, the statement and the provenance of all finished cells.

    Args:
        trained: those that this process has loaded already.
    """
    finished = [
        Finished(cell.labels, trained.get(cell.name) or _load(cell, out / cell.name))
        for cell in grid
        if (out / cell.name / file_names.STATEMENT).is_file()
    ]
    provenance = {
        **write.provenance(),
        "recipe": recipe.name,
        "source": recipe.source,
        "quick": recipe.quick,
        "seed": None if recipe.training is None else recipe.training.seed,
        "seeds": repeated_runs.count(recipe),
        "trainings": len(grid),
        "finished": len(finished),
        "wall_seconds": _wall_seconds(finished),
        "claims": [claim.model_dump() for claim in recipe.claims],
        "device": device,
    }
    together = sweep_statement.of_runs(finished)
    others = sweep_statement.other_trainings(out, {cell.name for cell in grid})
    statement = sweep_statement.statement(recipe, finished, len(grid), together, provenance, others)
    sweep_statement.write(out, statement, str(together))
    rows, runs = sweep_tables.tables(recipe, finished, statement)
    table = out / file_names.TABLE
    durable_writes.replace(table, write.csv_text(rows))
    if runs:
        durable_writes.replace(out / file_names.RUNS, write.csv_text(runs))
    complete = len(finished) == len(grid)
    verdicts = expectations.verdicts(recipe, rows, first=sweep_tables.is_repeated_only(recipe)) if complete else []
    if complete:
        expectations.write(out, recipe, verdicts)
    # figures show the published ones of the expected numbers
    merge_sweep.write_all(recipe, [(run.labels, run.trained.out) for run in finished], out)
    durable_writes.replace(out / file_names.PROVENANCE, json.dumps(provenance, indent=2) + "\n")
    return SweepResult(recipe, rows, len(grid), len(finished), verdicts, table, together, statement, runs)


def _wall_seconds(finished: list[Finished]) -> float | None:
    """The time of all finished trainings, as far as they say it."""
    seconds = []
    for run in finished:
        with contextlib.suppress(OSError, ValueError, KeyError, TypeError):
            about = json.loads((run.trained.out / file_names.PROVENANCE).read_text(encoding="utf-8"))
            seconds.append(float(about["wall_seconds"]))
    return round(sum(seconds), 1) if len(seconds) == len(finished) else None


def _load(cell: Cell, path: Path) -> Trained:
    plan, folder = train.planned(cell.recipe, path, sizes=_sizes(path))
    return load_finished(plan, folder)


def _sizes(path: Path) -> dict[str, int]:
    """Return the sizes of the data set of a finished cell, from its statement.

    Raises:
        UsageError: the statement cannot be read.
    """
    file = path / file_names.STATEMENT
    try:
        data = json.loads(file.read_text(encoding="utf-8"))["data"]
        sizes = {"records": data["records"], **data.get("groups", {})}
    except (OSError, ValueError, KeyError, TypeError, AttributeError, RecursionError):
        sizes = {"": None}
    if not all(type(size) is int and size > 0 for size in sizes.values()):
        raise UsageError(
            f"{file} cannot be read. Delete it and give the same command again: it is written again from the model and "
            f"the ledger"
        )
    return sizes
