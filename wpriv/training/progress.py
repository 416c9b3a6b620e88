"""Progress of a training: the metrics after every epoch, the signals that stop it, and which of several processes acts.

Under torchrun, only the first process reads and writes the results folder.
"""

from __future__ import annotations

import contextlib
import os
import signal
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Protocol, runtime_checkable

from wpriv.errors import UsageError, WprivError
from wpriv.files import csv_tables, durable_writes
from wpriv.files.csv_tables import CsvError, CsvTable
from wpriv.numerics.numbers import text
from wpriv.results import storage
from wpriv.results.model import Row
from wpriv.training.plan import Plan
from wpriv.training.run_folder import RunFolder


def is_main() -> bool:
    """Tell whether this process is the only one, or the first of several."""
    return int(os.environ.get("WORLD_SIZE", "1")) < 2 or os.environ.get("RANK", "0") == "0"


def together(function: Callable[[], Any]) -> Any:
    """Run a function in the first of several processes, and return its result or raise its error in all of them."""
    if int(os.environ.get("WORLD_SIZE", "1")) < 2:
        return function()
    from wpriv.training.engine import distributed

    distributed.join()
    outcome: Any = None
    if distributed.is_main():
        try:
            outcome = function()
        except WprivError as error:
            outcome = error
    outcome = distributed.broadcast(outcome)
    if isinstance(outcome, WprivError):
        distributed.leave()
        raise outcome
    return outcome


Say = Callable[[str], None]  # shows a line of progress
Stop = Callable[[], str | None]  # returns the reason to stop, if there is one
SIGNALS = (signal.SIGTERM, signal.SIGUSR1, signal.SIGINT)


@runtime_checkable
class Meter(Protocol):
    """A listener that also shows numbers as they change, such as a bar on a terminal."""

    def advance(self, step: int, steps: int, eps: float | None) -> None:
        """Show that a step is done; ``eps`` is that of the last epoch, None before its end and without privacy."""

    def cells(self, done: int, total: int) -> None:
        """Show how many trainings of a sweep are done."""


def count(say: Say | None, done: int, total: int) -> None:
    """Show how many trainings of several are done, on a listener that is a meter."""
    if isinstance(say, Meter):
        say.cells(done, total)


class Progress:
    """Adds eps to the rows of metrics, saves them, and reports progress."""

    def __init__(self, plan: Plan, folder: RunFolder, say: Say | None):
        self.plan, self.folder, self.say = plan, folder, say
        self.meter = self.say if isinstance(self.say, Meter) else None
        self.eps: float | None = None  # at the end of the last epoch
        self.started = time.monotonic() - earlier_seconds(folder)

    def begin(self) -> None:
        """Report how the recipe was read."""
        if self.say is not None:
            for note in self.plan.notes:
                self.say(f"read as: {note}")

    def epoch(self, row: Row) -> Row:
        """Complete, save and report the metrics of an epoch, and return them."""
        self.eps = self.plan.eps(row["step"])
        row = {**row, "epsilon": self.eps, "seconds": round(time.monotonic() - self.started, 2)}
        if is_main():
            path = self.folder.path / storage.METRICS
            earlier = [other for other in _saved_rows(path) if int(other["step"]) < row["step"]]
            durable_writes.replace(path, storage.csv_text([*earlier, row]))
        if self.say is not None:
            self.say(f"step {row['step']} of {self.plan.steps}, epoch {row['epoch']}: {_metrics(row)}")
        return row

    def step(self, step: int) -> None:
        """Report that a step is done."""
        if self.meter is not None:
            self.meter.advance(step, self.plan.steps, self.eps)


def earlier_seconds(folder: RunFolder) -> float:
    """Return how long a training that is continued took before, up to the last epoch that it ended; 0 for others."""
    rows = _saved_rows(folder.path / storage.METRICS) if folder.resume else []
    return float(rows[-1].get("seconds") or 0.0) if rows else 0.0


def _saved_rows(path: Path) -> list[Row]:
    if not path.is_file():
        return []
    try:
        rows = CsvTable.parse(csv_tables.decode(path.read_bytes())).cells()
        if all(int(row["step"]) >= 1 and float(row.get("seconds") or 0.0) >= 0 for row in rows):
            return list(rows)
    except (CsvError, ValueError, KeyError):
        pass
    raise UsageError(
        f"{path} holds no metrics of a run. Delete it and continue with `resume=True`: it is written again when "
        f"the run ends"
    )


def _metrics(row: Row) -> str:
    """The metrics of an epoch in words."""
    names = [key for key in row if key not in ("epoch", "step", "epsilon", "seconds") and row[key] is not None]
    words = [f"{key} {row[key]:.4g}" for key in names]
    eps = [f"eps {text(row['epsilon'], up=True, digits=4)}"] if row["epsilon"] is not None else []
    return ", ".join([*words, *eps, f"{row['seconds']:.0f} s"])


@contextlib.contextmanager
def signals(stop: Stop | None = None) -> Iterator[Stop]:
    """Yield a function that names the first signal to stop during a block, or None; a second one acts as usual."""
    if stop is not None:
        yield stop
        return
    received: list[str] = []
    handlers: dict[int, Any] = {}

    def record(number: int, _: Any) -> None:
        received.append(signal.Signals(number).name)
        signal.signal(number, handlers[number])

    with contextlib.suppress(ValueError):  # outside the main thread no signals arrive
        for each in SIGNALS:
            handlers[each] = signal.signal(each, record)
    try:
        yield lambda: received[0] if received else None
    finally:
        for number, handler in handlers.items():
            signal.signal(number, handler)
