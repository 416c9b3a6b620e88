"""A grid of trainings, each in a resumable folder of its own: run here, in workers of joblib, or by ``cluster.py``."""

from __future__ import annotations

import json
import threading
from collections.abc import Mapping, Sequence
from concurrent.futures import BrokenExecutor
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from wpriv.errors import Interrupted, MissingResource, WprivError
from wpriv.training import plan, progress, run_folder, train_data, training_run
from wpriv.training.plan import Plan
from wpriv.training.progress import Say, Stop
from wpriv.training.recipe_grid import Cell
from wpriv.training.run_folder import RunFolder
from wpriv.training.trained import Trained

_TRAINING = threading.Lock()
"""Held by each training of a grid: threads of one process share torch's generators, from which masks are drawn."""


@dataclass(frozen=True)
class Grid:
    """Trainings to run, each of which continues from what its folder holds.

    Args:
        cells: the trainings, in order. out: the folder with those of all cells. device, root: as in ``train.run``.
        data: the records, where all cells share them and they are loaded already.
    """

    cells: Sequence[Cell]
    out: Path
    device: str = "cpu"
    root: str | Path | None = None
    data: Any = None

    def is_done(self, cell: Cell) -> bool:
        """Return whether the folder of a cell holds a finished training."""
        return run_folder.inspect(self.out / cell.name, cell.recipe, resume=True).done

    def planned(self, cell: Cell, sizes: Mapping[str, int] | None = None) -> tuple[Plan, RunFolder]:
        """Return the plan of a cell and the state of its folder."""
        return training_run.planned(cell.recipe, self.out / cell.name, root=self.root, sizes=sizes, resume=True)

    def train(self, cell: Cell, say: Say | None = None, stop: Stop | None = None) -> Trained:
        """Train one cell in its folder, after other trainings of this process, or load it if it is finished."""
        with _TRAINING:
            return training_run.train(
                cell.recipe,
                self.out / cell.name,
                device=self.device,
                root=self.root,
                data=self.data,
                say=say,
                stop=stop,
                resume=True,
            )

    def run_here(self, say: Say | None = None, stop: Stop | None = None) -> list[Trained]:
        """Train the cells one after another in this process.

        Raises:
            Interrupted: ``stop`` returned a reason; by default signals are such reasons.
        """
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
        """Train the cells in several workers of joblib.

        Args:
            backend: of joblib. say: shows how many trainings have ended, if it is a meter.
        Raises:
            MissingResource: a worker was killed.
        """
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

        Raises:
            UsageError, Unsupported, MissingResource: as its training would; the message names the training.
        """
        distinct: dict[str, Cell] = {}
        for cell in self.cells:
            try:
                folder = run_folder.inspect(self.out / cell.name, cell.recipe, resume=True)
            except WprivError as error:
                raise error.at(cell.name) from None
            if not (folder.done or folder.resume or folder.weights):
                distinct.setdefault(_key({key: item for key, item in cell.recipe.data.items() if key != "seed"}), cell)
        by_data: dict[str, list[Cell]] = {}
        # the only training left begins at once
        for cell in distinct.values() if len(distinct) > 1 else ():
            of_data = [cell.recipe.data.get(key) for key in ("data", "task", "seed")]
            by_data.setdefault(_key(of_data), []).append(cell)
        for group in by_data.values():
            loaded: Any = None
            for cell in group:
                try:
                    loaded = train_data.data(cell.recipe, self.root) if loaded is None else loaded
                    plan.plan(cell.recipe, train_data.sizes_of(cell.recipe, loaded))
                except WprivError as error:
                    raise error.at(cell.name) from None


def _train_alone(grid: Grid, cell: Cell) -> None:
    """Train a cell and leave its results in its folder, so that a worker need not send them."""
    grid.train(cell)


def _key(values: object) -> str:
    return json.dumps(values, sort_keys=True, default=str)
