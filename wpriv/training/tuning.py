"""A tuned training: candidates, the privacy of the best of K runs, and a folder in which only the best is left.

The number of runs, the candidate of each and the order of equal scores are drawn once, before the first run, and kept
in a file that is deleted with the runs. The runs lie in a folder of their own (``RUNS``) until the best is known.
Everything that is kept is then written anew, with the statement under another name; the runs are deleted; the
statement gets its name last. A process that is killed at any point continues from there, with the same choices.
"""

from __future__ import annotations

import json
import math
import os
import secrets
import shutil
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Literal

from wpriv.accounting import best_of_runs, evaluate, ledger
from wpriv.accounting.target import Target, solve_for
from wpriv.config import resolve, yaml_document
from wpriv.config.recipe import Recipe
from wpriv.config.train_parts import Tune
from wpriv.config.train_schema import Privacy, Train
from wpriv.core.guarantee import Curve, Guarantee
from wpriv.core.process import Process
from wpriv.core.repeats import MAX_DRAWN_MEAN, Repeats, parse
from wpriv.errors import Interrupted, Unsupported, UsageError, WprivError, require
from wpriv.files import durable_writes
from wpriv.files.durable_writes import LOCK, locked
from wpriv.numerics.numbers import echo, text
from wpriv.results import expectations, model, plot, storage
from wpriv.results.model import Json, Row
from wpriv.training import (
    finalize,
    plan,
    progress,
    run_folder,
    tasks,
    train_data,
    training_grid,
    training_run,
    training_statement,
)
from wpriv.training.data import Data
from wpriv.training.plan import Plan
from wpriv.training.reports import publication, render
from wpriv.training.run_folder import RunFolder
from wpriv.training.trained import Trained
from wpriv.training.training_grid import Cell, Grid, Labels, number_of, with_seed_of_run

FILE = "draw.json"
BITS = 64
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
# factor by which all noise is raised at a time where candidates of several costs exceed the target together, and the
# largest number of times
MORE_NOISE, MAX_RAISES = 1.005, 400


@dataclass(frozen=True)
class Candidate:
    """One setting: its labels in the sweep, and the plan of a run of it, whose recipe gives the noise and no target."""

    labels: Labels
    plan: Plan

    @classmethod
    def of(cls, cell: Cell, sizes: Mapping[str, int], sigma: float | None = None) -> Candidate:
        """Plan a setting, with a noise multiplier in the place of the target of its recipe if one is given."""
        recipe = cell.recipe
        if sigma is not None:
            kept = {key: value for key, value in recipe.data["privacy"].items() if key not in ("eps", "accountant")}
            data = {**recipe.data, "privacy": {**kept, "sigma": sigma}}
            recipe = training_grid.changed(replace(recipe, data=data), {})
        return cls(cell.labels, plan.plan(recipe, sizes))


@dataclass(frozen=True)
class TuningPlan:
    """A tuned training as planned.

    Args:
        recipe: with the key ``tune``. repeats: the distribution of the number of runs.
        candidates: each run draws one of them uniformly. notes: how the recipe was read.
    """

    recipe: Recipe
    repeats: Repeats
    candidates: tuple[Candidate, ...]
    notes: tuple[str, ...] = ()

    @property
    def tune(self) -> Tune:
        assert self.recipe.train.tune is not None
        return self.recipe.train.tune

    @property
    def private(self) -> Privacy:
        assert self.recipe.train.privacy is not None
        return self.recipe.train.privacy

    @cached_property
    def _processes(self) -> list[tuple[Process, float]]:
        """The different processes of the candidates, with the probability that a run has each of them."""
        shares: dict[str, tuple[Process, float]] = {}
        for candidate in self.candidates:
            process = candidate.plan.process()
            before = shares.get(_key(process), (process, 0.0))[1]
            shares[_key(process)] = process, before + 1
        return [(process, count / len(self.candidates)) for process, count in shares.values()]

    @property
    def distinct(self) -> int:
        """The number of different processes of the candidates."""
        return len(self._processes)

    def curve(self, accountant: str) -> Curve:
        """The curve of the best of K runs by one accountant.

        Raises:
            Unsupported: the accountant has no proven curve of some candidate.
        """
        processes, weights = zip(*self._processes, strict=True)
        tol = max(evaluate.answer_tol(process) for process in processes)
        return best_of_runs.of_candidates(processes, weights, accountant, tol, self.repeats)

    @cached_property
    def guarantees(self) -> tuple[list[Guarantee], list[evaluate.Refusal]]:
        """The guarantees of the best of K runs by the accountants of the recipe, and those without an answer.

        ``extra["repeats"]`` has ``one_run``, the eps of one run of the costliest candidate.
        """

        def answer(name: str) -> Guarantee:
            row = evaluate.ask(self.curve(name), delta=self.private.delta)
            one = max(self._one_run(process, name) for process, _ in self._processes)
            return best_of_runs.with_note(replace(row, accountant=name), self.repeats, one_run=one, all_runs=None)

        return evaluate.answers(self.recipe.train.accountants, answer)

    def _one_run(self, process: Process, accountant: str) -> float:
        tol = evaluate.answer_tol(process)
        return evaluate.ask(evaluate.curve(process, accountant, tol), delta=self.private.delta).epsilon.safe


def tuning_plan(recipe: Recipe, sizes: Mapping[str, int]) -> TuningPlan:
    """Plan every candidate of a recipe with ``tune``, and solve for the noise that keeps its target for the whole.

    Args:
        sizes: of the data, as its task reports them.
    Raises:
        UsageError: a candidate is no valid recipe. Unsupported: the target cannot be reached, the candidates have
            different neighbours, or the mean number of runs exceeds 500.
    """
    assert recipe.train.tune is not None
    repeats, private = parse(recipe.train.tune.repeats), recipe.train.privacy
    assert private is not None
    if repeats.mean > MAX_DRAWN_MEAN:
        raise Unsupported(
            f"{recipe.name}: tune: repeats: a number of runs is drawn for means of up to {MAX_DRAWN_MEAN:g}; found "
            f"{repeats.mean:g}"
        )
    cells = training_grid.points_of(recipe, recipe.train.tune.sweep)
    candidates = [Candidate.of(cell, sizes, None if private.eps is None else 1.0) for cell in cells]
    adjacencies = sorted({candidate.plan.adjacency for candidate in candidates})
    if len(adjacencies) > 1:
        raise Unsupported(
            f"{recipe.name}: the candidates are accounted for under {' and '.join(adjacencies)} neighbours, and have "
            f"no common cost. Keep one privacy.sampling for all of them"
        )
    draft = TuningPlan(recipe, repeats, tuple(candidates), candidates[0].plan.notes)
    return draft if private.eps is None else _calibrated(draft, private.eps, cells, sizes)


def _calibrated(draft: TuningPlan, eps: float, cells: list[Cell], sizes: Mapping[str, int]) -> TuningPlan:
    """The plan with the noise of each candidate at which the best of K runs of it alone keeps the target.

    Candidates of several costs are then accounted for together, and all noise is raised until they keep the target.
    """
    accountant = draft.private.accountant or plan.ACCOUNTANT
    noise: dict[str, float] = {}
    for candidate in draft.candidates:
        key = _key(candidate.plan.process())
        if key not in noise:
            noise[key] = _least_noise(candidate.plan, accountant, eps, draft.repeats)
    multipliers = [noise[_key(candidate.plan.process())] for candidate in draft.candidates]
    factor = 1.0
    for _ in range(MAX_RAISES):
        noisy = zip(cells, multipliers, strict=True)
        final = replace(draft, candidates=tuple(Candidate.of(cell, sizes, factor * value) for cell, value in noisy))
        row = evaluate.ask(final.curve(accountant), delta=draft.private.delta)
        if row.epsilon.safe <= eps:
            note = (
                f"with {_several(multipliers, factor)} the best of K runs ({draft.repeats}) keeps eps = "
                f"{text(row.epsilon.safe, up=True, limit=eps)} <= {echo(eps)}, by {accountant} ({row.claim})"
            )
            return replace(final, notes=(*draft.notes, note))
        factor *= MORE_NOISE if final.distinct > 1 else 1 + 1e-6
    raise Unsupported(f"no noise was found with which the best of K runs keeps eps = {eps:g} by {accountant}")


def _several(multipliers: list[float], factor: float) -> str:
    """The noise of the candidates in words, rounded up: noise that is rounded down would not keep the target."""
    low, high = (text(factor * value, up=True) for value in (min(multipliers), max(multipliers)))
    return f"sigma = {low}" if low == high else f"sigma from {low} to {high}"


def _least_noise(draft: Plan, accountant: str, eps: float, repeats: Repeats) -> float:
    """The least noise multiplier with which the best of K runs of one candidate keeps the target."""

    def process(sigma: float) -> Process:
        return replace(draft, multiplier=sigma).process()

    def account(of: Process, tol: float) -> Curve:
        return best_of_runs.of_candidates([of], [1.0], accountant, tol, repeats)

    tol = max(evaluate.answer_tol(process(1.0)), best_of_runs.PROFILE_TOL)
    return solve_for(plan.NOISE, process, accountant, Target(eps, draft.delta), tol, account=account).value


def _key(process: Process) -> str:
    return json.dumps(process.describe(), sort_keys=True)


# The choices of a tuned training.


@dataclass(frozen=True)
class Draw:
    """The choices of one tuned training.

    Args:
        candidates: the number of each run's candidate; their count is the number of runs.
        ties: for each run a number; of runs with equal scores the one with the largest is the best.
        fingerprint: of the training records.
    """

    candidates: list[int]
    ties: list[int]
    fingerprint: str


def draw(repeats: Repeats, candidates: int, fingerprint: str, seed: int | None) -> Draw:
    """Draw the number of runs, and the candidate of each uniformly with replacement.

    Args:
        seed: makes the choices repeatable; None takes the randomness of the operating system.
    """
    bits = secrets.randbits if seed is None else _seeded(seed)
    runs = repeats.draw(bits)
    return Draw([_below(candidates, bits) for _ in range(runs)], [bits(BITS) for _ in range(runs)], fingerprint)


def write_draw(choices: Draw, folder: Path) -> None:
    """Force the choices to disk, before anything depends on them."""
    durable_writes.replace(folder / FILE, json.dumps(asdict(choices)) + "\n", mode=0o600)


def read_draw(folder: Path, fingerprint: str) -> Draw | None:
    """Return the choices made before; None where none were made.

    Raises:
        UsageError: runs exist without them, they cannot be read, or the training records are others.
    """
    path = folder / FILE
    if not path.is_file():
        if any(item.is_dir() for item in folder.glob("*")):
            raise _lost(path)
        return None
    try:
        choices = Draw(**json.loads(path.read_text(encoding="utf-8")))
        sound = len(choices.candidates) == len(choices.ties)
    except (OSError, ValueError, TypeError, RecursionError):
        sound = False
    if not sound:
        raise _lost(path)
    if choices.fingerprint != fingerprint:
        raise UsageError(
            f"{folder.parent} holds an unfinished tuned training on other records. Give it these records, or name "
            f"another folder with --out"
        )
    return choices


def _lost(path: Path) -> UsageError:
    return UsageError(
        f"{path} is missing or cannot be read, and the number of runs must not be drawn a second time. Restore it, or "
        f"begin in another folder with --out: what was trained here is spent, and its cost is added to that"
    )


def _below(count: int, bits: Callable[[int], int]) -> int:
    """A number below ``count``, uniformly, by rejection."""
    while True:
        number = bits((count - 1).bit_length()) if count > 1 else 0
        if number < count:
            return number


def _seeded(seed: int) -> Callable[[int], int]:
    """Random bits from a seed, by SHA-256 of a counter."""
    calls = 0

    def bits(count: int) -> int:
        nonlocal calls
        calls += 1
        return number_of(f"draw {calls} of seed {seed}") >> (256 - count)

    return bits


def score_of(metrics: list[Row], column: str, best: str) -> float:
    """The score of a finished run, larger for better ones; -inf where it is missing or no number."""
    value = metrics[-1].get(column) if metrics else None
    if not isinstance(value, (int, float)) or math.isnan(value):
        return float("-inf")
    return float(value) if best == "highest" else -float(value)


# The folder.


def planned(recipe: Recipe, out: Path, *, root: str | Path | None = None, resume: bool = False) -> TuningPlan:
    """Return the plan of a tuned training, without running it; records are not loaded if their sizes are known."""
    inspect(out, recipe, resume=resume)
    return tuning_plan(recipe, train_data.sizes(recipe, root))


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
    plan = tuning_plan(recipe, train_data.sizes_of(recipe, data))
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
    choices = read_draw(runs, data.fingerprint)
    if choices is None:
        choices = draw(plan.repeats, len(plan.candidates), data.fingerprint, plan.recipe.train.seed)
        write_draw(choices, runs)
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
        (score_of(run.metrics, score.column, score.best), tie, number)
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
    path = out / storage.STATEMENT
    try:
        statement = model.json_object(path)
        chosen = statement["tuning"]["chosen"]
    except (WprivError, KeyError, TypeError):
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
