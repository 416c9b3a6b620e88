"""The trainings of a sweep or of repeated runs, and what is computed from all of them: tables, figures, a statement.

The statement says what all of the trainings together keep.
"""

from __future__ import annotations

import contextlib
import re
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from wpriv.config import yaml_document
from wpriv.config.recipe import Recipe
from wpriv.errors import UnknownName, UsageError, WprivError, require
from wpriv.files import durable_writes
from wpriv.files.durable_writes import LOCK, locked
from wpriv.files.shown import Shown
from wpriv.results import expectations, model, plot, storage
from wpriv.results.expectations import RUN, Verdict, means
from wpriv.results.model import Json, OfTrainings, Row, Together
from wpriv.training import all_trainings, cluster, run_folder, tasks, training_grid, training_run
from wpriv.training.plan import Plan
from wpriv.training.progress import Say
from wpriv.training.reports import render, words
from wpriv.training.trained import Trained, load_finished
from wpriv.training.training_grid import Cell, Grid, Setting, cells, with_first_weights

# those of joblib, and submitit, which gives each cell to a cluster as a task
BACKENDS = ("loky", "multiprocessing", "threading", "sequential", cluster.BACKEND)
# the eps of all runs of a setting together, beside the eps of one run
ALL_RUNS = "epsilon_all_runs"
# columns of metrics.csv by the names of the paper; of several fairness measures the first that fits is shown
FIRST_TERMS = {"risk": "loss without penalty", "reconstruction": "reconstruction loss"}
LAST = {"core": "loss of the core", "accuracy": "accuracy"}
ALPHA = "options.alpha"
SCHEMA = "wpriv.statement-of-trainings/1"


@dataclass(frozen=True)
class PlannedCell:
    """A training of a sweep with its plan, and whether it is finished already."""

    cell: Cell
    plan: Plan
    done: bool


@dataclass(frozen=True)
class Finished:
    """A finished training of a recipe with several, and what its folder holds."""

    cell: Cell
    trained: Trained


@dataclass(frozen=True, repr=False)
class SweepResult(Shown):
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
    statement: Json
    runs: list[Row] = field(default_factory=list)

    def sentence(self) -> str:
        done = f"{self.recipe.name}: {self.finished} of {self.cells} trainings are done"
        return f"{done}; {words.all_trainings(self.together)}" if self.together.trainings else done

    @property
    def warnings(self) -> tuple[str, ...]:
        """Those of the statement of all trainings."""
        return tuple(self.statement.get("warnings", ()))

    def facts(self) -> list[tuple[str, str]]:
        """The table of the results, and the expected numbers that were met."""
        met = sum(not verdict.is_missed for verdict in self.verdicts)
        expected = [("expected", f"{met} of {len(self.verdicts)} numbers are met")] if self.verdicts else []
        return [*expected, ("table", str(self.table))]

    def require(self) -> None:
        """Raise CheckFailed if an expected number was missed."""
        expectations.require(self.verdicts)


def shard(text: str, grid: Sequence[Cell]) -> Sequence[Cell]:
    """Return the cells of one shard: ``3/16`` is every sixteenth cell from the third."""
    match = re.fullmatch(r"(\d{1,6})/(\d{1,6})", text.strip())
    if not match or not 1 <= int(match[1]) <= int(match[2]):
        raise UsageError(f"--shard wants its number and the number of shards, such as 3/16; found {text[:40]!r}")
    return grid[int(match[1]) - 1 :: int(match[2])]


def check_backend(name: str) -> None:
    """Refuse an unknown backend (UsageError lists the known), or submitit that is missing (MissingResource)."""
    if name not in BACKENDS:
        raise UnknownName("backend", name, BACKENDS, place="--backend")
    if name == cluster.BACKEND:
        require("submitit", "--backend submitit")


def planned(recipe: Recipe, out: Path, *, part: str = "1/1", root: str | Path | None = None) -> list[PlannedCell]:
    """Return the plans of the trainings of one shard; UsageError: ``out`` holds a single training."""
    _require_no_training(out)
    grid = Grid(shard(part, cells(recipe)), out, root=root)
    plans = ((cell, *grid.planned(cell)) for cell in grid.cells)
    return [PlannedCell(cell, plan, folder.done) for cell, plan, folder in plans]


def _require_no_training(out: Path) -> None:
    if any((out / name).is_file() for name in (storage.LEDGER, storage.MODEL, storage.CHECKPOINT)):
        raise UsageError(
            f"{out} holds the results of one training, which a sweep would overwrite. Name another folder with --out"
        )


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
    ledger: str | None = None,
) -> SweepResult:
    """Train the unfinished cells of one shard, and merge all finished cells of the sweep.

    Args:
        jobs: number of trainings at the same time, by default 1, or with submitit as many as a cluster starts.
        part: the shard. backend: of joblib, if jobs > 1; or submitit. device, root, say, ledger: as in ``train.run``;
            every training pays for itself, and none begins unless all of the shard fit.
    Raises:
        Refused: the ledger has no room for all of them.
        Interrupted: a signal arrived; the same command continues. UsageError: no such backend, or ``out`` holds a
            single training. MissingResource: submitit or the cluster is not there, or a worker was killed.
    """
    if backend == cluster.BACKEND and (ledger or "").startswith("sqlite"):
        raise UsageError("jobs of a cluster cannot share a ledger in SQLite, which needs a local disk. Use PostgreSQL")
    check_backend(backend)
    _require_no_training(out)
    recipe = with_first_weights(recipe, device=device, root=root, say=say)
    whole = Grid(cells(recipe), out, device, root, ledger=ledger)
    grid = replace(whole, cells=shard(part, whole.cells))
    grid.require_room()
    trained: list[Trained] = []
    failed: list[cluster.Failure] = []
    if backend == cluster.BACKEND:
        failed = cluster.train_cells(grid, cluster.request_of(recipe), jobs, say)
    else:
        grid.require_plans()
        if jobs is None or jobs == 1:
            trained = grid.run_here(say)
        else:
            grid.run_in_workers(jobs, backend, say)
    # a shard that ends beside another one must not write tables and a statement without the trainings of that one
    busy = f"another process is merging the trainings in {out}. Give the same command again once it ends"
    with locked(out / LOCK, busy, wait=True):
        result = _merged(recipe, whole, {cell.name: each for cell, each in zip(grid.cells, trained, strict=False)})
    cluster.require(failed, len(grid.cells))
    return result


def _merged(recipe: Recipe, grid: Grid, trained: dict[str, Trained]) -> SweepResult:
    """Write the merged tables, the figures, the statement and the provenance of all finished cells."""
    out, total = grid.out, len(grid.cells)
    finished = [
        Finished(cell, trained.get(cell.name) or _load(grid, cell))
        for cell in grid.cells
        if (out / cell.name / storage.STATEMENT).is_file()
    ]
    provenance = {
        **storage.provenance(),
        "recipe": recipe.name,
        "source": recipe.source,
        "quick": recipe.quick,
        "seed": recipe.train.seed,
        "seeds": training_grid.runs_of(recipe),
        "trainings": total,
        "finished": len(finished),
        "wall_seconds": _wall_seconds(finished),
        "claims": [claim.model_dump() for claim in recipe.claims],
        "device": grid.device,
    }
    together = _together(finished)
    # trainings of no cell, which a recipe whose sweep had other values before, or more repeated runs, left
    folders = {path.parent.name for name in (storage.LEDGER, storage.MODEL) for path in out.glob(f"*/{name}")}
    others = sorted(folders - {cell.name for cell in grid.cells})
    statement = _statement(recipe, finished, total, together, provenance, others)
    stated = model.checked(OfTrainings, statement, storage.STATEMENT, model.TRAIN_AGAIN)
    markdown = render.filled("trainings.md.j2", statement=stated, sentence=words.all_trainings(together))
    durable_writes.replace(out / storage.STATEMENT_TEXT, markdown)
    storage.write_json(out / storage.STATEMENT, statement)
    rows, runs = _tables(recipe, finished, statement)
    durable_writes.replace(out / storage.TABLE, storage.csv_text(rows))
    if runs:
        durable_writes.replace(out / storage.RUNS, storage.csv_text(runs))
    verdicts: list[Verdict] = []
    if len(finished) == total:
        verdicts = expectations.verdicts(recipe, rows, first=is_repeated_only(recipe))
        expectations.write(out, recipe, verdicts)
    # figures show the published ones of the expected numbers
    _write_figures(recipe, finished, out)
    storage.write_json(out / storage.PROVENANCE, provenance)
    return SweepResult(recipe, rows, total, len(finished), verdicts, out / storage.TABLE, together, statement, runs)


def _wall_seconds(finished: list[Finished]) -> float | None:
    """The time of all finished trainings, as far as they say it."""
    seconds = []
    for run in finished:
        with contextlib.suppress(WprivError, ValueError, KeyError, TypeError):
            seconds.append(float(model.json_object(run.trained.out / storage.PROVENANCE)["wall_seconds"]))
    return round(sum(seconds), 1) if len(seconds) == len(finished) else None


def _load(grid: Grid, cell: Cell) -> Trained:
    """Load a finished cell, with the sizes of its data set from its statement."""
    file = grid.out / cell.name / storage.STATEMENT
    try:
        data = model.json_object(file)["data"]
        sizes = {"records": data["records"], **data.get("groups", {})}
    except (WprivError, KeyError, TypeError, AttributeError):
        sizes = {"": None}
    if not all(type(size) is int and size > 0 for size in sizes.values()):
        raise UsageError(
            f"{file} cannot be read. Delete it and give the same command again: it is written again from the model and "
            f"the ledger"
        )
    folder = run_folder.inspect(grid.out / cell.name, cell.recipe, resume=True)
    return load_finished(training_run.plan_found(cell.recipe, folder, sizes), folder)


def is_repeated_only(recipe: Recipe) -> bool:
    """Tell whether a recipe is one setting that is trained several times."""
    return recipe.train.sweep is None


def _tables(recipe: Recipe, finished: Sequence[Finished], statement: Json) -> tuple[list[Row], list[Row]]:
    """Return the rows of table.csv and those of runs.csv, which has none unless runs are repeated.

    A row has the labels, the last metrics and the first guarantee. One setting alone has a row for each accountant.
    """
    alone = is_repeated_only(recipe)
    rows = [
        {**run.cell.labels, **row}
        for run in finished
        for row in (run.trained.results() if alone else run.trained.results()[:1])
    ]
    if training_grid.runs_of(recipe) == 1:
        return rows, []
    labels = ["accountant"] if alone else [axis.over for axis in recipe.train.sweep or []]
    costs = {tuple(setting["labels"].items()): setting["epsilon"] for setting in statement["settings"]}
    table = means(rows, labels)
    for row in table:
        cost = costs.get(() if alone else tuple((name, row[name]) for name in labels))
        if cost is not None:
            row[ALL_RUNS] = cost
    return table, rows


def _write_figures(recipe: Recipe, finished: Sequence[Finished], out: Path) -> None:
    """Merge the tables of finished cells and draw them, beside the recipe.

    In metrics.csv the last axis is the case and the other axes are the panel; the runs of one setting are told apart
    by the column ``run``. In tables of the task (its ``figures``) every setting is a panel, or as many panels as its
    own table has, and repeated runs are shown by the first of them. Arrays stay in the folders of their cells. The
    table of a sweep is drawn if the recipe names a figure, and repeated runs without a sweep as a training is.
    """
    train = recipe.train
    durable_writes.replace(out / storage.RECIPE, yaml_document.as_yaml(recipe.data))
    rows: list[Row] = []
    first: dict[tuple[str, ...], Finished] = {}
    for run in finished:
        setting = plot.setting_words(run.cell.labels)
        first.setdefault(tuple(setting), run)
        *panel, case = setting or [""]
        place: Row = {"panel": ", ".join(panel), "case": case} if case else {}
        place |= {RUN: run.cell.labels[RUN]} if RUN in run.cell.labels else {}
        rows += [{**place, **row} for row in storage.table(run.trained.out / storage.METRICS)]
    if not rows:
        return
    durable_writes.replace(out / storage.METRICS, storage.csv_text(rows))
    task = tasks.load(train.task)
    options = dict(task.options.model_validate(train.options))
    for name in task.figures:
        if name.endswith(".csv"):
            panels = [row for run in first.values() for row in _panels(name, run, options)]
            durable_writes.replace(out / name, storage.csv_text(panels))
    if not ([] if train.figure is None and train.sweep is not None else plot.plot(out)):
        plot.sweep_files(out, train.task, ("png",))


def _panels(name: str, run: Finished, options: Row) -> list[Row]:
    """The rows of one table of a cell by panel, with the measures as ``header`` where two groups are compared."""
    folder = run.trained.out
    if not (folder / name).is_file():
        return []
    measures = panel_header(run.cell.labels, folder, options)
    header = {"header": measures} if measures else {}
    rows = []
    for row in storage.table(folder / name):
        panel = [str(row["panel"])] if row.get("panel") else []
        rows.append({**row, "panel": ", ".join([*plot.setting_words(run.cell.labels), *panel]), **header})
    return rows


def panel_header(labels: Row, folder: Path, options: Row) -> str:
    """Return the measures of a finished training that stand above its panel; empty without a distance of two groups.

    They are those that Rodriguez-Vitores, Lalanne and Loubes (2025) print above the histograms of Figures 1 to 12:
    noise, loss, the terms of the loss and test measures. There the loss and its terms are of training records; here all
    measures are of test records, whose values need not be kept secret.
    """
    metrics = storage.table(folder / storage.METRICS)[-1]
    first = next((name for name in FIRST_TERMS if metrics.get(name) is not None), None)
    alpha = labels.get(ALPHA, options.get("alpha"))
    if first is None or metrics.get("distance") is None or alpha is None:
        return ""
    term, distance = float(metrics[first]), float(metrics["distance"])
    loss = (1 - float(alpha)) * term + float(alpha) * distance
    statement = model.json_object(folder / storage.STATEMENT)
    noise = float((statement.get("noise") or {}).get("standard_deviation", 0.0))  # on each coordinate of a step
    upper = [("noise", noise), ("loss", loss), (FIRST_TERMS[first], term), ("distance", distance)]
    if labels.get("options.error", options.get("error")) == "sum":
        del upper[1]  # the measured term is a mean over the numbers of a record, and the loss has their sum
    fairness = _fairness_names(metrics, labels.get("options.notion", options.get("notion")))
    lower = [
        (name, metrics[column]) for column, name in {**LAST, **fairness}.items() if metrics.get(column) is not None
    ]
    return "; ".join(", ".join(f"{name} = {float(value):.3g}" for name, value in line) for line in (upper, lower))


def _fairness_names(metrics: Row, notion: object) -> dict[str, str]:
    if metrics.get("od0") is not None:
        return {"od0": "above the diagonal: group 0", "od1": "group 1"}
    if notion == "odds":
        return {"eo0": "ratio of decisions 1: label 0", "eo1": "label 1"}
    return {"disparate_impact": "disparate impact"}


# The privacy statement of all trainings together.


def _together(runs: Sequence[Finished]) -> Together:
    """The guarantee of finished trainings together: of their own noise, or of the reports that they used."""
    private = [run.trained for run in runs if run.trained.plan.private is not None]
    releases = [release for each in private if (release := all_trainings.of_folder(each.plan, each.out)) is not None]
    reports = [
        (run.trained.plan.train.data, run.trained.statement["reports"])
        for run in runs
        if "reports" in run.trained.statement
    ]
    return all_trainings.together([*releases, *all_trainings.of_reports(reports)])


def _statement(
    recipe: Recipe, runs: Sequence[Finished], trainings: int, together: Together, versions: Json, others: Sequence[str]
) -> Json:
    """Return the statement of all finished trainings of a recipe as plain data."""
    without = [run for run in runs if run.trained.plan.private is None and "reports" not in run.trained.statement]
    lists = render.sections(
        "trainings_lists.txt.j2",
        finished=len(runs),
        trainings=trainings,
        without=len(without),
        seeded=any(_seed(run) is not None for run in runs if run not in without),
        earlier=[run.cell.name for run in runs if run.trained.statement.get("earlier_runs")],
        others=others,
    )
    data: Json = {
        "schema": SCHEMA,
        "recipe": recipe.name,
        "source": recipe.source,
        "trainings": trainings,
        "finished": len(runs),
        "without_privacy": len(without),
        "means": lists["means"][0],
        "together": together.as_dict(),
        "runs": [_run(run) for run in runs],
        "covered": lists["covered"],
        "not_covered": lists["not_covered"],
        "warnings": lists["warnings"],
        "versions": {key: versions.get(key) for key in ("wpriv", "python", "numpy", "git_commit")},
    }
    if training_grid.runs_of(recipe) > 1:
        data["settings"] = _settings(runs, together)
    return dict(storage.as_stored(data))


def _run(run: Finished) -> Json:
    """One training alone, by the first accountant that gives a guarantee."""
    row = run.trained.proven[0].as_dict() if run.trained.proven else {}
    promise = run.trained.statement.get("promise")
    return {
        "folder": run.cell.name,
        "labels": run.cell.labels,
        "seed": _seed(run),
        "private": run.trained.plan.private is not None,
        "promise": promise if promise or row else "no accountant gives an (eps, delta) guarantee",
        **{key: row.get(key) for key in ("epsilon", "delta", "claim", "accountant")},
    }


def _seed(run: Finished) -> int | None:
    """The fixed seed of the noise, which the reports have where the training added none."""
    statement = run.trained.statement
    seed: int | None = statement.get("reports", statement).get("seed")
    return seed


def _settings(runs: Sequence[Finished], together: Together) -> list[Row]:
    """The cost of the runs of each setting together; ``together`` is that of all runs."""
    groups: dict[Setting, list[Finished]] = {}
    for run in runs:
        groups.setdefault(run.cell.setting, []).append(run)
    rows = []
    for labels, group in groups.items():
        ones = [row["epsilon"] for run in group if (row := _run(run))["epsilon"] is not None]
        whole = together if len(groups) == 1 else _together(group)
        rows.append(
            {
                "labels": dict(labels),
                "runs": len(group),
                "epsilon_of_one": max(ones) if len(ones) == len(group) else None,
                "epsilon": whole.epsilon,
                "problem": whole.problem or None,
            }
        )
    return rows
