"""The trainings of single cells of a sweep: for workers of joblib, and as tasks of a cluster that submitit runs."""

from __future__ import annotations

import contextlib
import signal
import threading
from collections.abc import Sequence
from concurrent.futures import BrokenExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from wpriv.errors import Interrupted, MissingResource, WprivError
from wpriv.run.training import progress, train
from wpriv.run.training.recipe_grid import Cell

PREEMPTION = signal.SIGUSR1
"""The signal that comes before the time of a task is over: it is saved and put into the queue again."""
_TRAINING = threading.Lock()
"""Held by a training of ``train_cell``: threads of one process share torch's generators, from which masks are drawn."""


def train_cell(cell: Cell, out: Path, options: dict[str, Any]) -> None:
    """Train one cell in its folder, after other trainings of this function in the same process.

    Args:
        out: the folder of the sweep. options: further arguments of ``train.run``.
    """
    with _TRAINING:
        train.run(cell.recipe, out / cell.name, **options)


def train_in_workers(
    cells: Sequence[Cell], out: Path, jobs: int, backend: str, options: dict[str, Any], meter: progress.Meter | None
) -> None:
    """Train cells in several workers of joblib.

    Args:
        out, options: as for ``train_cell``. meter: shows how many trainings have ended.
    Raises:
        MissingResource: joblib lacks the backend, or a worker was killed.
    """
    import joblib

    try:
        config = joblib.parallel_config(backend=backend, n_jobs=jobs)
    except (ValueError, ImportError) as error:
        raise MissingResource(
            f"--backend {backend}: joblib cannot load it here ({str(error)[:120]}); install it, or use loky"
        ) from None
    with config:
        # only loky returns results in the order in which they finish
        order = "generator_unordered" if meter is not None and backend == "loky" else "list"
        tasks = (joblib.delayed(train_cell)(cell, out, options) for cell in cells)
        try:
            for done, _ in enumerate(joblib.Parallel(return_as=order)(tasks), start=1):
                if meter is not None:
                    meter.cells(done, len(cells))
        except BrokenExecutor:
            raise MissingResource(
                "a worker was killed, as systems do that run out of memory. Its training is saved up to the last "
                "checkpoint; the same command continues, with fewer --jobs if the memory was too little"
            ) from None


@dataclass(frozen=True)
class Outcome:
    """How a task ended: the message and the exit code of its error, or neither where the cell is trained."""

    message: str = ""
    exit_code: int = 0


@dataclass(frozen=True)
class CellTask:
    """Trains one cell in its folder, from its last checkpoint where there is one.

    Args:
        cell: the training. out: the folder of the sweep, absolute. device, root: as in ``train.run``.
    """

    cell: Cell
    out: Path
    device: str
    root: Path | None

    def __call__(self) -> Outcome:
        """Train; where a signal stops it, the task is queued again or ends with exit code 75, and all is saved."""
        with progress.signals() as stop:
            try:
                train.run(
                    self.cell.recipe,
                    self.out / self.cell.name,
                    device=self.device,
                    resume=True,
                    root=self.root,
                    say=_print,
                    stop=stop,
                )
                return Outcome()
            except Interrupted as error:
                _print(str(error), True)
            except WprivError as error:
                _print(str(error), True)
                return Outcome(str(error), error.exit_code)
        if stop() == PREEMPTION.name:
            return self._queue_again()
        raise SystemExit(Interrupted.exit_code)

    def checkpoint(self) -> Any:
        """Return what runs when this task is queued again: the same task, since its state is in the folder."""
        from submitit.helpers import DelayedSubmission

        return DelayedSubmission(self)

    def _queue_again(self) -> Outcome:
        """Give the signal to submitit, whose handler puts this task into the queue again and ends the process."""
        from submitit.core.utils import UncompletedJobError

        with contextlib.suppress(UncompletedJobError):
            signal.raise_signal(PREEMPTION)
        return Outcome(
            "reached its time limit as often as cluster.requeues allows; it is saved. Give the same command again, "
            "which continues it, or more time by cluster.time",
            Interrupted.exit_code,
        )


def _print(line: str, stays: bool) -> None:
    """Print lines of progress that stay to the log of the task."""
    if stays:
        print(f"wpriv: {line}", flush=True)
