"""The ledger: every noisy step that was begun, in a file to which lines are only ever added.

A line is written before the result of its step is used, and the file is forced to disk before anything that came of its steps
(a checkpoint, a metric, the model) leaves the program. So a crash may leave a step paid for that nobody saw, never the reverse.
A resumed run draws the same records and the same noise again for steps whose line is there already: that is the same release, made
once and paid for once.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from wpriv.core import registry
from wpriv.core.process import Process, Sampling, Step
from wpriv.errors import UsageError

MAX_BYTES = 2_000_000_000


@dataclass(frozen=True)
class Entry:
    """One step: the ``run`` it belongs to (a fork begins a new one), its number from 1, and what was released."""

    run: int
    step: int
    what: str  # the core Step as canonical JSON, so that equal steps are equal text

    def line(self) -> bytes:
        return f'{{"run": {self.run}, "step": {self.step}, {self.what[1:]}\n'.encode()


def described(step: Step) -> str:
    """A single step (n = 1) as canonical JSON; observations are not part of it."""
    about = {**step.mechanism.describe(), "sampling": step.sampling.kind}
    return json.dumps(about if step.sampling.kind == "none" else {**about, "rate": step.sampling.rate})


def entries(path: Path) -> list[Entry]:
    """All lines of a ledger file; one that a crash cut short at the end is left out, for nothing came of its step.

    Raises:
        UsageError: a line is no entry, or the steps of a run are not 1, 2, 3, ...
    """
    if not path.is_file():
        return []
    if path.stat().st_size > MAX_BYTES:
        raise UsageError(f"{path}: a ledger may have up to {MAX_BYTES:,} bytes; found {path.stat().st_size:,}")
    found: list[Entry] = []
    lines = path.read_bytes().split(b"\n")
    for number, line in enumerate(lines[:-1], start=1):
        entry = _entry(line, f"{path}:{number}")
        last = found[-1] if found else Entry(0, 0, "")
        follows = entry.step == 1 if entry.run != last.run else entry.step == last.step + 1
        if not follows or entry.run < last.run:
            raise UsageError(f"{path}:{number}: wanted the step after step {last.step} of run {last.run}; found step {entry.step}")
        found.append(entry)
    return found


def _entry(line: bytes, place: str) -> Entry:
    try:
        data = json.loads(line)
        run, step = data.pop("run"), data.pop("step")
        if type(run) is int and type(step) is int and run >= 1:
            return Entry(run, step, json.dumps(data))
    except (ValueError, KeyError, AttributeError, TypeError):
        pass
    raise UsageError(f"{place}: not an entry of a ledger; the file was changed by something else than wpriv")


def process(spent: Iterable[Entry], adjacency: str) -> Process:
    """What ran, as a Process: neighbouring equal steps merged, all runs of a ledger composed.

    Raises:
        UsageError: there is no step.
    """
    counts: list[tuple[str, int]] = []
    for entry in spent:
        before = counts.pop() if counts and counts[-1][0] == entry.what else (entry.what, 0)
        counts.append((entry.what, before[1] + 1))
    return Process(tuple(_step(json.loads(what), n) for what, n in counts), adjacency)


def _step(about: dict[str, Any], n: int) -> Step:
    own = dict(about)
    sampling = Sampling(own.pop("sampling"), own.pop("rate", 1.0))
    return Step(registry.mechanism(own.pop("mech"))(**own), n, sampling)


class Ledger:
    """A ledger open for writing.

    Args:
        path: the file; it is made where it is not there. run: the run whose steps are noted; all those before it stay as they are.
    Raises:
        UsageError: the file is no ledger, or holds a later run.
    """

    def __init__(self, path: Path, run: int = 1):
        self.path, self.run, self.spent = path, run, entries(path)
        if self.spent and self.spent[-1].run > run:
            raise UsageError(f"{path} holds run {self.spent[-1].run} already, a later one than run {run}: a ledger is only ever added to")
        self.steps = sum(entry.run == run for entry in self.spent)
        self._cut_torn_line()
        self._file = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o644)

    def spend(self, number: int, step: Step) -> None:
        """Notes step ``number`` of this run before its result is used; one that is there already is made again, not paid again.

        Raises:
            UsageError: the line that is there names another release, or steps in between are missing.
        """
        entry = Entry(self.run, number, described(step))
        if number <= self.steps:
            there = self.spent[len(self.spent) - self.steps + number - 1]
            if there.what != entry.what:
                raise UsageError(f"{self.path}: step {number} was {there.what}; it cannot be made again as {entry.what}. Use --fork")
            return
        if number != self.steps + 1:
            raise UsageError(f"{self.path}: wanted step {self.steps + 1}; found step {number}")
        os.write(self._file, entry.line())
        self.spent.append(entry)
        self.steps = number

    def force(self) -> None:
        """Forces every line to disk: called before anything that came of the steps leaves the program."""
        os.fsync(self._file)

    def close(self) -> None:
        self.force()
        os.close(self._file)

    def _cut_torn_line(self) -> None:
        if self.path.is_file() and not (raw := self.path.read_bytes()).endswith(b"\n") and raw:
            with self.path.open("r+b") as file:
                file.truncate(raw.rfind(b"\n") + 1)
