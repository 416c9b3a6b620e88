"""The guarantee of several trainings together, all on the same records: the sum of their releases, accounted for once.

Proof in docs/theory/several-trainings.md.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from wpriv.accounting import evaluate, ledger
from wpriv.config import yaml_document
from wpriv.config.train_schema import DataSet
from wpriv.core.kinds import Adjacency
from wpriv.core.process import Process, Step
from wpriv.errors import Unsupported, UsageError, WprivError
from wpriv.files import checkpoint
from wpriv.numerics.numbers import text
from wpriv.randomness import key_digest, training_seeds
from wpriv.results import storage
from wpriv.results.model import Json, Together
from wpriv.training import run_folder
from wpriv.training.plan import Plan
from wpriv.training.training_statement import PERSON

ACCOUNTANT = "pld"
TOL = 1e-4  # relative width of the bracket of all trainings together

# keys of a data set that leave its groups as they are
SIZES = ("records", "limit", "first", "root", "sha256")


@dataclass(frozen=True)
class Release:
    """What one training releases, or one privatisation of its records.

    Args:
        process: its releases. delta: at which its eps is stated.
        streams: digests of the keys of its noise; releases that share one have no common cost, since the noise cancels
            in their difference.
        unit: what is protected; groups are those of the named data set.
        problem: why it has no guarantee, if it has none.
    """

    process: Process
    delta: float
    streams: frozenset[str]
    unit: str = ""
    problem: str = ""


def together(releases: Sequence[Release]) -> Together:
    """Compose all releases, on the records of a neighbour who is in all of them, at their largest delta."""
    count, problem = len(releases), _no_common_cost(releases)
    if problem:
        return Together(trainings=count, problem=problem)
    try:
        steps = merged(step for release in releases for step in release.process.steps)
        size = max(release.process.records for release in releases)
        process = replace(releases[0].process, steps=steps, records=size)
        curve = evaluate.curve(process, ACCOUNTANT, max(TOL, evaluate.answer_tol(process)))
        row = evaluate.ask(curve, delta=max(release.delta for release in releases)).as_dict()
    except (Unsupported, UsageError) as error:
        return Together(trainings=count, problem=str(error))
    relation = Adjacency(process.adjacency).meaning
    return Together(trainings=count, problem=None, **row, adjacency_means=relation, unit=releases[0].unit)


def _no_common_cost(releases: Sequence[Release]) -> str:
    """Return the reason why releases have no common cost; empty where none is known."""
    if not releases:
        return "no training is private"
    if problem := next((release.problem for release in releases if release.problem), ""):
        return problem
    adjacencies = sorted({release.process.adjacency for release in releases})
    if len(adjacencies) > 1:
        return f"they are accounted for under {' and '.join(adjacencies)} neighbours"
    if len({release.process.group for release in releases}) > 1:
        return "they protect people with different numbers of records"
    if len(units := list(dict.fromkeys(release.unit for release in releases))) > 1:
        return f"they protect different things: {'; and '.join(units)}"
    streams = [stream for release in releases for stream in release.streams]
    if len(set(streams)) < len(streams):
        source = "one fixed seed or one checkpoint"
        return f"some of them drew the same noise from {source}, and it cancels in their difference"
    pure = max(release.delta for release in releases) == 0
    return "they are of pure DP (delta = 0), and their eps add up" if pure else ""


def of_plan(plan: Plan) -> Release | None:
    """Return what a planned training will release; None without privacy."""
    if plan.private is None:
        return None
    seed = plan.train.seed
    streams = frozenset() if seed is None else frozenset({key_digest(training_seeds(seed).noise)})
    return Release(plan.process(), plan.delta, streams, _unit(plan))


def of_folder(plan: Plan, out: Path) -> Release | None:
    """Return what the finished training in a folder has released, from its ledger; None without privacy."""
    if plan.private is None:
        return None
    entries = ledger.entries(out / storage.LEDGER)
    process = plan.under_neighbours(ledger.process(entries, plan.adjacency).steps)
    return Release(process, plan.delta, frozenset(entry.stream for entry in entries), _unit(plan))


def _unit(plan: Plan) -> str:
    """Return what a training protects. The same words may be about groups by one column and by another."""
    assert plan.release is not None
    unit = plan.release.unit
    if len(plan.sizes) > 1:
        data = {key: value for key, value in plan.train.data.model_dump(exclude_none=True).items() if key not in SIZES}
        unit += f" (groups of {', '.join(f'{key} {value}' for key, value in data.items())})"
    group = 1 if plan.private is None else plan.private.group
    return unit if group == 1 else PERSON.format(group=group, unit=unit)


def of_reports(reports: Iterable[tuple[DataSet, Json]]) -> list[Release]:
    """Return the different privatisations of records by local noise that trainings without noise used.

    Trainings on the same reports (one file of them, or noise from one seed on the same records) are post-processing of
    one release. Statements do not tell two files apart that the same command wrote: their noise is independent.
    """
    distinct = {(_origin(data), json.dumps(statement, sort_keys=True)): statement for data, statement in reports}
    releases = []
    for statement in distinct.values():
        row = statement["guarantees"][0]
        steps = tuple(Step.from_dict(step) for step in row["process"])
        streams = frozenset() if statement["seed"] is None else frozenset({f"reports {statement['seed']}"})
        process, unit = Process(steps, statement["adjacency"]), statement.get("unit", "")
        problem = "" if row.get("claim") != "as-published" else "the reports that they use have no guarantee"
        releases.append(Release(process, float(row["delta"]), streams, unit, problem))
    return releases


def _origin(data: DataSet) -> str:
    """Return the file of the reports, or the parameters of the data set where a training draws them itself."""
    return str(data.file) if data.privatize is None else json.dumps(data.model_dump(exclude_none=True), sort_keys=True)


def merged(steps: Iterable[Step]) -> tuple[Step, ...]:
    """Steps with the counts of equal ones added up."""
    merged: list[Step] = []
    for step in steps:
        place = next((index for index, other in enumerate(merged) if other.adds_to(step)), None)
        if place is None:
            merged.append(step)
        else:
            merged[place] = replace(step, n=merged[place].n + step.n)
    return tuple(merged)


# Runs that ``--fresh`` moved aside: their privacy is spent, and no figure of a later run in the folder includes it.

# relative width of the figure for all runs of a folder together, which is printed to the safe side
EARLIER_TOL = 1e-3
NOT_PRIVATE = "trained without privacy"
SHOWN, FEW = 8, 4
"""Runs that a warning names, and kinds of steps that it accounts for by pld; for more by rdp, which takes less time."""


@dataclass(frozen=True)
class EarlierRun:
    """A run in the folder ``before-N`` (``name``).

    Args:
        steps: the releases in its ledger, under ``adjacency``, in whole passes under random allocation.
        problem: why these are not all, or not known.
        streams: the noise streams that they were drawn from, see ``ledger.Entry``.
        alike: whether it protects the same values of a record as the run after it, as far as its recipe says.
    """

    name: str
    steps: tuple[Step, ...] = ()
    adjacency: str = ""
    streams: frozenset[str] = field(default=frozenset())
    problem: str = ""
    alike: bool = True

    def as_dict(self) -> Json:
        return {
            "folder": self.name,
            "steps": sum(step.n for step in self.steps),
            "process": [step.describe() for step in self.steps],
            "problem": self.problem or None,
        }

    def __str__(self) -> str:
        steps = f"{sum(step.n for step in self.steps)} steps" if self.steps else ""
        return f"{self.name}: {', '.join(part for part in (steps, self.problem) if part)}"


def earlier(path: Path) -> list[EarlierRun]:
    """Return the runs in the folders ``before-1``, ``before-2``, ... of a results folder that released something.

    The ledger entries that preceded a model, a checkpoint or a statement in them must be in a ledger of one of these
    folders, or in that of the run that continued from it. Folders that hold nothing but the remains of a fork are left
    out.
    """
    folders = sorted(
        (folder for folder in path.glob("before-*") if folder.is_dir()), key=lambda item: (len(item.name), item.name)
    )
    ledgers = [_entries(folder / storage.LEDGER)[0] for folder in (path, *folders)]
    runs = (_read(folder, ledgers, _recipe_or_none(path)) for folder in folders)
    return [run for run in runs if run is not None]


def elsewhere(path: Path, folders: Sequence[Path]) -> list[EarlierRun]:
    """Return the runs in other folders than ``path`` that released something; their names are the folders."""
    ledgers, present = [_entries(folder / storage.LEDGER)[0] for folder in folders], _recipe_or_none(path)
    runs = []
    for folder in folders:
        run = _read(folder, ledgers, present)
        if run is None and not (folder / storage.LEDGER).is_file():
            run = EarlierRun("", problem="its ledger is missing")
        if run is not None:
            runs.append(replace(run, name=str(folder)))
    return runs


IN_FOLDER = "earlier runs in this folder"
OF_PROGRAM = "earlier trainings of this program on records of this one"


def warning(runs: list[EarlierRun], process: Process, delta: float, streams: set[str], what: str) -> str:
    """Return the warning that names earlier runs, with the cost of all runs together if it is known.

    Args:
        what: the earlier runs are.
        streams: the noise streams of ``process``; runs that share noise have no common cost, since it cancels in their
            difference.
    """
    names = "; ".join(map(str, runs[:SHOWN])) + (f"; and {len(runs) - SHOWN} more" if len(runs) > SHOWN else "")
    sentence = f"{what} are not included in these numbers ({names}): what recipients saw of them costs privacy as well"
    all_streams = [streams, *(run.streams for run in runs)]
    if sum(map(len, all_streams)) != len(frozenset().union(*all_streams)):
        return (
            f"{sentence}. Some of them drew the same noise, by one fixed seed or from one checkpoint, so that there is "
            f"no number for all runs together"
        )
    if any(run.problem or run.adjacency != process.adjacency or not run.alike for run in runs):
        return sentence
    steps = tuple(step for run in runs for step in run.steps)
    try:
        whole = process.with_steps(merged((*steps, *process.steps)))
        curve = evaluate.curve(whole, "pld" if len(whole.steps) <= FEW else "rdp", EARLIER_TOL)
        eps = evaluate.ask(curve, delta=delta).epsilon.safe
    except (Unsupported, UsageError):
        return sentence
    return (
        f"{sentence}. All runs together keep eps = {text(eps, up=True)} at delta = {text(delta, up=True)}, if their "
        f"noise, rates and lengths did not depend on outputs of earlier ones"
    )


def _recipe(folder: Path) -> Json:
    """Return the recipe in a folder; {} where there is none."""
    path = folder / storage.RECIPE
    return yaml_document.read(path).data if path.is_file() else {}


def _recipe_or_none(folder: Path) -> Json:
    try:
        return _recipe(folder)
    except WprivError:
        return {}


def _read(folder: Path, ledgers: list[list[ledger.Entry]], present: Json) -> EarlierRun | None:
    entries, problem = _entries(folder / storage.LEDGER)
    process, alike = None, True
    try:
        process = ledger.process(entries) if entries else None
        # a run without privacy may have left nothing but its recipe
        recipe = _recipe(folder)
        alike = not recipe or not present or run_folder.protect_alike(recipe, present)
        if recipe.get("privacy") == "none":
            problem = problem or NOT_PRIVATE
        for name, position, clear in _positions(folder):
            if clear:
                problem = problem or NOT_PRIVATE
            if not any(ledger.holds(rows, position) for rows in ledgers):
                problem = problem or (
                    f"its ledger is missing or was changed; {name} was written after its first {position.lines} entries"
                )
    except WprivError as error:
        problem = f"its cost is not known ({error})"
    if process is None:
        return EarlierRun(folder.name, problem=problem) if problem else None
    streams = frozenset(entry.stream for entry in entries)
    return EarlierRun(folder.name, process.steps, process.adjacency, streams, problem, alike)


def _entries(path: Path) -> tuple[list[ledger.Entry], str]:
    """Return the entries of a ledger, and the reason if they cannot be read."""
    try:
        return ledger.entries(path), ""
    except WprivError as error:
        return [], f"its cost is not known ({error})"


def _positions(folder: Path) -> Iterable[tuple[str, ledger.Position, bool]]:
    """Yield, for each file of a run, its position in the ledger and whether it was trained without privacy."""
    for name in (storage.MODEL, storage.CHECKPOINT):
        if (folder / name).is_file():
            stored = checkpoint.load_without_tensors(folder / name)
            yield name, ledger.Position(**stored["ledger"]), stored["clear"]
    path = folder / storage.STATEMENT
    if path.is_file():
        try:
            position = json.loads(path.read_text(encoding="utf-8")).get("ledger")
            if position is not None:
                yield storage.STATEMENT, ledger.Position(int(position["lines"]), str(position["digest"])), False
        except (OSError, ValueError, KeyError, TypeError, AttributeError, RecursionError):
            raise UsageError(f"{path} cannot be read") from None
