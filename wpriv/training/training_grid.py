"""The trainings of a recipe with several, each in a resumable folder of its own.

They are the points of a sweep, each with its repeated runs, and run here, in workers of joblib, or by ``cluster.py``.
"""

from __future__ import annotations

import hashlib
import itertools
import json
import threading
from collections.abc import Mapping, Sequence
from concurrent.futures import BrokenExecutor
from dataclasses import dataclass, replace
from pathlib import Path

from wpriv.accounting import load_recipe
from wpriv.config import document, resolve
from wpriv.config.recipe import Recipe, check, plain_path
from wpriv.config.train_parts import Axis
from wpriv.errors import Interrupted, MissingResource, UsageError, placed
from wpriv.results.expectations import RUN
from wpriv.training import plan, progress, run_folder, train_data, training_run
from wpriv.training.data import Data
from wpriv.training.plan import Plan
from wpriv.training.progress import Say, Stop
from wpriv.training.run_folder import RunFolder
from wpriv.training.trained import Trained

_TRAINING = threading.Lock()
"""Held by each training of a grid: threads of one process share torch's generators, from which masks are drawn."""
MAX_CELLS = 10_000
# keys of a sweep or of a tuned training that its cells do not have
KEYS_OF_SWEEPS = ("sweep", "seeds", "tune", "cluster", "expect", "figure", "claims", "printed", "procedure", "time")
Labels = dict[str, int | float | str]
Setting = tuple[tuple[str, int | float | str], ...]
"""What the runs of one setting have in common: their labels without the number of the run."""


@dataclass(frozen=True)
class Cell:
    """One training of a grid: its position, its recipe, which has no sweep, and the name of its folder."""

    labels: Labels
    recipe: Recipe
    folder: str = ""

    @property
    def name(self) -> str:
        """``privacy.eps=2,seed=0``, unless the folder has another name."""
        return self.folder or ",".join(f"{key}={value}" for key, value in self.labels.items()).replace("/", "_")

    @property
    def setting(self) -> Setting:
        return tuple((name, value) for name, value in self.labels.items() if name != RUN)


def changed(recipe: Recipe, changes: Mapping[str, object]) -> Recipe:
    """Return the recipe with the values at some dotted paths replaced."""
    data = recipe.data
    for path, value in changes.items():
        data = resolve.overridden(data, plain_path(path), value)
    words = ", ".join(f"{path}={value}" for path, value in changes.items())
    validated = check(document.of_data(f"{recipe.name} with {words}", data))
    return replace(validated, name=recipe.name, quick=recipe.quick, changed=True)


def with_first_weights(recipe: Recipe, *, device: str, root: str | Path | None, say: Say | None) -> Recipe:
    """Return a recipe whose file of first weights exists; the recipe that ``init`` names writes a missing one.

    Raises:
        UsageError: that recipe has privacy, or is of several trainings, or does not write the file.
    """
    init = recipe.train.init
    if init is None or init.recipe is None or Path(init.file).is_file():
        return recipe
    first = load_recipe.read(init.recipe, quick=recipe.quick, kind="train")
    if first.train.privacy is not None or first.train.has_several or first.train.init is not None:
        raise UsageError(
            f"init: {init.recipe} must be one training without privacy that begins from random weights. Train it by "
            f"itself, and leave recipe out"
        )
    if say is not None:
        say(f"first weights: {init.recipe}, trained once into {Path(init.file).parent}")
    folder = Path(init.file).parent
    training_run.train(first, folder, device=device, root=root, say=say, stop=None, resume=True)
    if not Path(init.file).is_file():
        raise UsageError(f"init: {init.recipe} writes no file {init.file}; give the path of its model.safetensors")
    digest = hashlib.sha256(Path(init.file).read_bytes()).hexdigest()
    return replace(changed(recipe, {"init.sha256": digest}), changed=recipe.changed)


def runs_of(recipe: Recipe) -> int:
    """Return the number of runs of each setting."""
    return recipe.train.seeds or 1


def cells(recipe: Recipe) -> list[Cell]:
    """Return all trainings of a recipe: the points of its sweep in the order of its axes, each with its runs."""
    points, runs = points_of(recipe, recipe.train.sweep or []), runs_of(recipe)
    if runs == 1:
        return points
    if len(points) * runs > MAX_CELLS:
        raise UsageError(f"{recipe.name} has more than {MAX_CELLS:,} trainings; give fewer values or fewer seeds")
    return [
        Cell({**point.labels, RUN: number}, with_seed_of_run(point.recipe, number))
        for point in points
        for number in range(1, runs + 1)
    ]


def points_of(recipe: Recipe, axes: Sequence[Axis]) -> list[Cell]:
    """Return the product of axes, each cell a recipe without sweep, tuning and published numbers."""
    values = ([(axis.over, *point) for point in axis.points()] for axis in axes)
    points = list(itertools.islice(itertools.product(*values), MAX_CELLS + 1))
    if len(points) > MAX_CELLS:
        raise UsageError(f"{recipe.name} has more than {MAX_CELLS:,} trainings; give fewer values")
    data = {key: value for key, value in recipe.data.items() if key not in KEYS_OF_SWEEPS}
    single = replace(recipe, claims=(), time=None, data=data)
    cells = []
    for point in points:
        changes = {path: value for _, _, keys in point for path, value in keys.items()}
        cells.append(Cell({over: label for over, label, _ in point}, changed(single, changes)))
    return cells


def with_seed_of_run(recipe: Recipe, number: int) -> Recipe:
    """Return the recipe of one of several runs: with a seed of its own, derived from a fixed one where it has that."""
    seed = seed_of_run(recipe.train.seed, number)
    return recipe if seed is None else changed(recipe, {"seed": seed})


def seed_of_run(seed: int | None, run: int) -> int | None:
    """Return the seed of a run, different for each; None where the recipe has none."""
    return None if seed is None else number_of(f"run {run} of seed {seed}") >> (256 - 62)


def number_of(words: str) -> int:
    """Return the SHA-256 digest of words as a number of 256 bits."""
    return int.from_bytes(hashlib.sha256(words.encode()).digest(), "big")


@dataclass(frozen=True)
class Grid:
    """Trainings to run, each of which continues from what its folder holds.

    Args:
        cells: the trainings, in order. out: the folder with those of all cells. device, root: as in ``train.run``.
        data: the records, where all cells share them and they are loaded already. ledger: the URL of the ledger that
            pays for each training before its first step.
    """

    cells: Sequence[Cell]
    out: Path
    device: str = "cpu"
    root: str | Path | None = None
    data: Data | None = None
    ledger: str | None = None

    def is_done(self, cell: Cell) -> bool:
        """Return whether the folder of a cell holds a finished training."""
        return run_folder.inspect(self.out / cell.name, cell.recipe, resume=True).done

    def planned(self, cell: Cell) -> tuple[Plan, RunFolder]:
        """Return the plan of a cell and the state of its folder."""
        return training_run.planned(cell.recipe, self.out / cell.name, root=self.root, resume=True)

    def train(self, cell: Cell, say: Say | None = None, stop: Stop | None = None) -> Trained:
        """Train one cell in its folder, after other trainings of this process, or load it if it is finished."""
        with _TRAINING:
            return training_run.train(
                cell.recipe,
                self.out / cell.name,
                device=self.device,
                root=self.root,
                data=self.data,
                resume=True,
                say=say,
                stop=stop,
                ledger=self.ledger,
            )

    def run_here(self, say: Say | None = None, stop: Stop | None = None) -> list[Trained]:
        """Train the cells one after another in this process."""
        total, trained = len(self.cells), list[Trained]()
        with progress.signals(stop) as stop_reason:
            for done, cell in enumerate(self.cells):
                if reason := stop_reason():
                    raise Interrupted(
                        f"stopped by {reason} after {done} of {total} trainings; the same command continues"
                    )
                progress.count(say, done, total)
                if say is not None:
                    state = " (done before)" if self.is_done(cell) else ""
                    say(f"training {done + 1} of {total}: {cell.name}{state}")
                trained.append(self.train(cell, say, stop_reason))
        progress.count(say, total, total)
        return trained

    def run_in_workers(self, jobs: int, backend: str, say: Say | None = None) -> None:
        """Train the cells in workers of joblib by a ``backend``; ``say``, if a meter, shows how many have ended."""
        import joblib

        # only loky returns results in the order in which they finish
        order = "generator_unordered" if isinstance(say, progress.Meter) and backend == "loky" else "list"
        alone = replace(self, cells=())
        tasks = (joblib.delayed(_train_alone)(alone, cell) for cell in self.cells)
        try:
            for done, _ in enumerate(joblib.Parallel(n_jobs=jobs, backend=backend, return_as=order)(tasks), start=1):
                progress.count(say, done, len(self.cells))
        except BrokenExecutor:
            raise MissingResource(
                "a worker was killed, as systems do that run out of memory. Its training is saved up to the last "
                "checkpoint; the same command continues, with fewer --jobs if the memory was too little"
            ) from None

    def require_plans(self) -> None:
        """Check that every training which has not begun has its data, a plan, and a folder for its results.

        A fault of the last one is then known before the first one begins. Each data set is loaded once, and runs that
        differ in the seed alone are planned once. Networks are not built: that one does not fit its data is known when
        its training begins.
        """
        distinct: dict[str, Cell] = {}
        for cell in self.cells:
            with placed(cell.name):
                folder = run_folder.inspect(self.out / cell.name, cell.recipe, resume=True)
            if not (folder.done or folder.resume or folder.weights):
                distinct.setdefault(_key({key: item for key, item in cell.recipe.data.items() if key != "seed"}), cell)
        by_data: dict[str, list[Cell]] = {}
        # the only training left begins at once
        for cell in distinct.values() if len(distinct) > 1 else ():
            of_data = [cell.recipe.data.get(key) for key in ("data", "task", "seed")]
            by_data.setdefault(_key(of_data), []).append(cell)
        for group in by_data.values():
            loaded: Data | None = None
            for cell in group:
                with placed(cell.name):
                    loaded = train_data.data(cell.recipe, self.root) if loaded is None else loaded
                    plan.plan(cell.recipe, train_data.sizes_of(cell.recipe, loaded))

    def require_room(self) -> None:
        """Check that the ledger has room for all trainings that have not begun, before the first one begins.

        Raises:
            Refused: they do not fit together. UsageError: one has no privacy.
        """
        if self.ledger is None:
            return
        rows = [self.planned(cell) for cell in self.cells]
        plans = [each for each, folder in rows if not (folder.done or folder.resume or folder.weights)]
        training_run.require_room(self.ledger, plans)


def _train_alone(grid: Grid, cell: Cell) -> None:
    """Train a cell and leave its results in its folder, so that a worker need not send them."""
    grid.train(cell)


def _key(values: object) -> str:
    return json.dumps(values, sort_keys=True, default=str)
