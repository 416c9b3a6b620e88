"""How far a training is: what is told and kept after every epoch, and the signals that ask it to stop."""

from __future__ import annotations

import contextlib
import signal
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Protocol, runtime_checkable

from wpriv.errors import UsageError
from wpriv.files import csv_tables, durable_writes
from wpriv.files.csv_tables import CsvError, CsvTable
from wpriv.run.results import file_names, write
from wpriv.run.training.plan import Plan
from wpriv.run.training.run_folder import Folder

Row = dict[str, Any]
Say = Callable[[str, bool], None]  # a line of progress, and whether it stays
SIGNALS = (signal.SIGTERM, signal.SIGUSR1, signal.SIGINT)


@runtime_checkable
class Meter(Protocol):
    """A listener that also shows numbers as they change, such as a bar on a terminal."""

    def advance(self, step: int, steps: int, eps: float | None) -> None:
        """A step is done; ``eps`` is what was spent by the end of the last epoch, None before it and without privacy."""

    def cells(self, done: int, total: int) -> None:
        """So many trainings of a sweep are done."""


class Progress:
    """Adds eps to the rows of metrics, keeps them on disk, and tells how far the run is."""

    def __init__(self, job: Plan, place: Folder, say: Say | None, *, writes: bool):
        self.job, self.place, self.say, self.writes = job, place, say if writes else None, writes
        self.rows: list[Row] = []
        self.meter = self.say if isinstance(self.say, Meter) else None
        self.eps: float | None = None  # at the end of the last epoch
        self.started = time.monotonic()

    def begin(self) -> None:
        """How the recipe was read."""
        if self.say is not None:
            for note in self.job.notes:
                self.say(f"read as: {note}", True)

    def epoch(self, row: Row) -> Row:
        eps = self.eps = self.job.eps(row["step"])
        whole = {**row, "epsilon": eps, "seconds": round(time.monotonic() - self.started, 2)}
        if self.writes:
            self._keep(whole)
        if self.say is not None:
            self.say(f"{self._where(row['step'])}, epoch {row['epoch']}: {_told(whole)}", True)
        return whole

    def step(self, step: int) -> None:
        """A step is done."""
        if self.meter is not None:
            self.meter.advance(step, self.job.steps, self.eps)

    def _where(self, step: int) -> str:
        return f"step {step} of {self.job.steps}"

    def _keep(self, row: Row) -> None:
        path = self.place.path / file_names.METRICS
        earlier = [r for r in _rows(path) if int(r["step"]) < row["step"]]
        durable_writes.replace(path, write.csv_text([*earlier, row]))


def _rows(path: Path) -> list[Row]:
    if not path.is_file():
        return []
    try:
        rows = CsvTable.parse(csv_tables.decode(path.read_bytes())).cells()
        if all(int(row["step"]) >= 1 for row in rows):
            return list(rows)
    except (CsvError, ValueError, KeyError):
        pass
    raise UsageError(
        f"{path} holds no metrics of a run. Delete it and go on with --resume: it is written anew when the run ends"
    )


def _told(row: Row) -> str:
    parts = [
        f"{key} {value:.4g}"
        for key, value in row.items()
        if key not in ("epoch", "step", "epsilon", "seconds") and value is not None
    ]
    eps = [f"eps {row['epsilon']:.4g}"] if row["epsilon"] is not None else []
    return ", ".join([*parts, *eps, f"{row['seconds']:.0f} s"])


@contextlib.contextmanager
def signals() -> Iterator[Callable[[], str | None]]:
    """While it lasts, signals that ask to stop only leave a note; a second one does what it always does."""
    came: list[str] = []
    before: dict[int, Any] = {}

    def note(number: int, _: Any) -> None:
        came.append(signal.Signals(number).name)
        signal.signal(number, before[number])

    with contextlib.suppress(ValueError):  # outside the main thread there are no signals to wait for
        for each in SIGNALS:
            before[each] = signal.signal(each, note)
    try:
        yield lambda: came[0] if came else None
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
