"""The ledger of a training: the format of its lines, and the file that they are appended to.

A line holds the digest of the line before it, and one of its own. Lines of the format before (``wpriv.ledger/2``) have
none of their own; they are read, and continued.
"""

from __future__ import annotations

import hashlib
import itertools
import json
import os
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from functools import lru_cache
from pathlib import Path

from wpriv import strategies
from wpriv.core.kinds import Sampling
from wpriv.core.process import Process, Step
from wpriv.errors import MissingResource, Unsupported, UsageError
from wpriv.files import durable_writes
from wpriv.numerics.numbers import shown

FORMAT = "wpriv.ledger/3"  # takes the place of a previous digest in the first line
EARLIER_FORMAT = "wpriv.ledger/2"  # of lines without a digest of their own
MAX_BYTES = 2_000_000_000
DIGEST = 32  # hexadecimal digits of a SHA-256
SEAL = b', "digest": "'


@dataclass(frozen=True)
class Entry:
    """One release.

    Args:
        run: its run, from 1; a fork begins a new one. step: its number within the run, from 1.
        planned: the number of releases in the plan of the run.
        release: the core ``Step`` as canonical JSON, so that equal releases are equal text.
        adjacency: the neighbouring relation under which the release is accounted for.
        stream: a digest of the key of its noise, the first one since its run was begun or resumed.
        digest: of the line; the next line holds it. sealed: whether the line holds a digest of its own.
        settings: a digest of the loss and the learning rate that a caller's loop gave it; "" for those of the plan.
        paid: the digest of the entry of an organisation's ledger that paid for the run, in the first line it wrote.
    """

    run: int
    step: int
    planned: int
    release: str
    adjacency: str
    stream: str
    digest: str
    sealed: bool = True
    settings: str = ""
    paid: str = ""


def entries(path: Path) -> list[Entry]:
    """Return the entries of a ledger, without a last line that a crash cut short, whose result was not used."""
    try:
        size = path.stat().st_size
        if size > MAX_BYTES:
            raise UsageError(f"{path}: a ledger may have up to {MAX_BYTES:,} bytes; found {size:,}")
        lines = path.read_bytes().split(b"\n")
    except FileNotFoundError:
        return []
    except OSError as error:
        raise MissingResource(f"{path} cannot be read: {error.strerror}") from None
    rows: list[Entry] = []
    for number, line in enumerate(lines[:-1], start=1):
        entry, previous = _parse(line, f"{path}:{number}")
        first = EARLIER_FORMAT if previous == EARLIER_FORMAT else FORMAT
        last = rows[-1] if rows else Entry(0, 0, 0, "", "", "", first, sealed=first == FORMAT)
        if previous != last.digest or (last.sealed and not entry.sealed):
            raise UsageError(
                f"{path}:{number}: does not continue the line before it: a line was changed, removed or added "
                f"by another program, so that the privacy cost is not known"
            )
        same = (entry.planned, entry.adjacency) == (last.planned, last.adjacency)
        follows = entry.step == 1 if entry.run != last.run else entry.step == last.step + 1 and same
        if not follows or entry.run < last.run or entry.step > entry.planned:
            before, after = (f"step {each.step} of run {each.run}" for each in (last, entry))
            raise UsageError(f"{path}:{number}: wanted the step after {before}; found {after}")
        rows.append(entry)
    return rows


def _parse(line: bytes, place: str) -> tuple[Entry, str]:
    """Return an entry and the digest of the previous line that it holds."""
    try:
        data = json.loads(line)
        if isinstance(data, dict) and "step" in data and "previous" not in data:
            raise UsageError(
                f"{place}: a ledger of an earlier version of wpriv, whose lines are not chained; use that version"
            )
        run, step, planned = (data.pop(key) for key in ("run", "step", "of"))
        words = adjacency, stream, previous = [data.pop(key) for key in ("adjacency", "stream", "previous")]
        settings, paid = data.pop("settings", ""), data.pop("paid", "")
        if all(type(number) is int and number >= 1 for number in (run, step, planned)) and all(
            isinstance(word, str) for word in (*words, settings, paid)
        ):
            sealed = data.pop("digest", None) is not None
            if sealed and line != sealed_line(line.rpartition(SEAL)[0]):
                raise UsageError(
                    f"{place}: does not match its own digest: the line was changed by another program, so that the "
                    f"privacy cost is not known"
                )
            release = json.dumps(data)
            fewest(release)
            entry = Entry(run, step, planned, release, adjacency, stream, digest_of(line), sealed, settings, paid)
            return entry, previous
    except UsageError as error:
        raise error if str(error).startswith(place) else error.at(place) from None
    except (ValueError, KeyError, AttributeError, TypeError, RecursionError):
        pass
    raise UsageError(f"{place}: not an entry of a ledger; the file was changed by another program")


def sealed_line(content: bytes) -> bytes:
    """A line with its own digest, from all that stands before that in it."""
    return content + SEAL + digest_of(content).encode() + b'"}'


def digest_of(line: bytes) -> str:
    return hashlib.sha256(line).hexdigest()[:DIGEST]


@lru_cache(maxsize=64)
def fewest(release: str) -> Step:
    """The fewest such releases that are accounted for by themselves: one, those of a pass, or of a training."""
    row = json.loads(release)
    if "n" in row:
        raise UsageError(f"a line is one release; found n = {shown(row['n'])}")
    sampling, strategy = Sampling.from_dict(row), row.get("strategy")
    whole = isinstance(strategy, str) and sampling.kind == "allocation"
    return Step.from_dict({**row, "n": strategies.steps_of(strategy) if whole else sampling.pass_steps})


# The ledger: an append-only file with one chained line for every noisy release that a training began.
#
# A line is written before the result of its step is used, and the file is forced to disk before anything that depends
# on the step (a checkpoint, a metric, the model) leaves the program: after a crash the ledger may hold a step whose
# result was never used, but never the reverse. A resumed run draws the same records and the same noise again for steps
# whose line exists, and refuses them another loss or learning rate: the same release, which is accounted for once.
# Behind the last line it draws noise from a new key, so that two copies of a folder do not share noise.
#
# Each line holds the digest of the line before it and one of its own, which reveal a line that was changed, removed or
# moved, and the number of releases in the plan of its run, which reveals a truncated ledger. It names the stream of
# noise of its release, so that no checkpoint continues behind lines whose noise it cannot draw again, and the adjacency
# of the accounting.


@dataclass(frozen=True)
class Position:
    """The length of a ledger and the digest of its last line: the position that a model or a statement records."""

    lines: int
    digest: str

    def as_dict(self) -> dict[str, object]:
        return {"lines": self.lines, "digest": self.digest}


def describe(step: Step) -> str:
    """Return a single release as canonical JSON, without its count and observed distances."""
    return json.dumps({key: value for key, value in step.describe().items() if key not in ("n", "observed")})


def position(rows: Sequence[Entry]) -> Position:
    """Return the position at the end of a ledger."""
    return Position(len(rows), rows[-1].digest if rows else FORMAT)


def last_run(rows: Sequence[Entry]) -> int:
    """Return the number of the last run in a ledger; 0 if it has no line."""
    return rows[-1].run if rows else 0


def holds(rows: Sequence[Entry], at: Position) -> bool:
    """Tell whether a ledger holds all releases up to a recorded position."""
    return len(rows) >= at.lines and (at.lines == 0 or rows[at.lines - 1].digest == at.digest)


def require(rows: Sequence[Entry], at: Position, path: Path, owner: str) -> None:
    """Check that a ledger holds all releases up to a recorded position.

    Args:
        at: the position that ``owner`` (a checkpoint, the model, the statement) recorded.
    Raises:
        UsageError: the ledger is shorter, or another one.
    """
    if not holds(rows, at):
        raise UsageError(
            f"{path} is not the ledger of {owner}, which recorded {at.lines} entries: it was cut short, changed or "
            f"replaced, and the privacy cost is not known. Put the right one back, or begin again with `fresh=True`"
        )


def process(rows: Sequence[Entry], adjacency: str = "") -> Process:
    """Return the process that ran: consecutive equal releases merged, all runs of a ledger composed.

    A pass of random allocation that a run did not complete is accounted for as a whole one, in each run by itself
    (docs/theory/allocation.md): two parts are of two passes, even where they have the steps of one together.

    Raises:
        UsageError: there is no entry. Unsupported: the entries are accounted for under different adjacencies.
    """
    known = sorted({entry.adjacency for entry in rows} | ({adjacency} if adjacency else set()))
    if len(known) > 1:
        raise Unsupported(
            f"steps under {' and under '.join(known)} neighbours cannot be composed. Use one of them for all runs"
        )
    steps: list[Step] = []
    for (_, release), group in itertools.groupby(rows, key=lambda entry: (entry.run, entry.release)):
        # in whole passes under random allocation
        step = fewest(release)
        step = replace(step, n=-(-sum(1 for _ in group) // step.unit) * step.unit)
        before = steps.pop().n if steps and steps[-1].adds_to(step) else 0
        steps.append(replace(step, n=before + step.n))
    return Process(tuple(steps), known[0] if known else "")


@dataclass(frozen=True)
class CutPass:
    """A pass of random allocation of ``pass_steps`` steps, of which a run took only the first ``steps``.

    With ``correlated`` noise it is the training, all of whose steps are accounted for together.
    """

    run: int
    steps: int
    pass_steps: int
    correlated: bool = False

    def as_dict(self) -> dict[str, int]:
        return {key: value for key, value in asdict(self).items() if value is not False}

    def __str__(self) -> str:
        part = f"run {self.run} took {self.steps} of the {self.pass_steps} steps of its"
        if self.correlated:
            return f"{part} training, whose noise is correlated: it is accounted for as a whole"
        return f"{part} last pass, which is accounted for as a whole pass"


def cut_passes(rows: Sequence[Entry]) -> list[CutPass]:
    """Return the passes of random allocation, or trainings with correlated noise, that no run completed, in order."""
    cut = []
    for (run, release), group in itertools.groupby(rows, key=lambda entry: (entry.run, entry.release)):
        step = fewest(release)
        if rest := sum(1 for _ in group) % step.n:
            cut.append(CutPass(run, rest, step.n, correlated=not step.adds_to(step)))
    return cut


class Ledger:
    """A ledger open for writing, of one run.

    Args:
        path: the file, created where it is missing. run: the run whose releases are written.
        planned: the number of releases in the plan of the run. adjacency: the neighbouring relation of the accounting.
        stream: a digest of the first key of the noise of the run; it changes with the key.
        paid: the digest of the entry of an organisation's ledger that pays for the run, named in the next line.
        resume: continue this run. Otherwise the file must hold no line of it: a second training would not be accounted
            for.
    Raises:
        UsageError: the file is not a ledger, holds a later run, or holds this one and ``resume`` is false.
        MissingResource: the file cannot be written.
    """

    def __init__(
        self,
        path: Path,
        run: int,
        planned: int,
        *,
        adjacency: str,
        stream: str,
        resume: bool = False,
        paid: str = "",
    ):
        self.path, self.run, self.planned, self.entries = path, run, planned, entries(path)
        self.adjacency, self.stream, self.paid = adjacency, stream, paid
        last = last_run(self.entries)
        if last > run:
            raise UsageError(f"{path} holds run {last}, which is later than run {run}: a ledger is append-only")
        self.steps = sum(entry.run == run for entry in self.entries)
        if self.steps and not resume:
            raise UsageError(
                f"{path} holds {self.steps} steps of run {run}: training again would run them twice and account for "
                f"them once. Continue with `resume=True`, continue from the weights at the cost of both with "
                f"`fork=True`, or begin again with `fresh=True`"
            )
        # a line that a crash cut short
        if path.is_file() and not (raw := path.read_bytes()).endswith(b"\n") and raw:
            durable_writes.truncate(path, raw.rfind(b"\n") + 1)
        with durable_writes.reported(path):
            self._file = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o644)

    def spend(self, number: int, step: Step, settings: str = "") -> None:
        """Append release ``number`` of this run before its result is used; an existing line is not repeated.

        Raises:
            UsageError: the existing line names another release or other settings, or steps in between are missing.
            MissingResource: the line cannot be written.
        """
        release = describe(step)
        if number <= self.steps:
            entry = self.entries[len(self.entries) - self.steps + number - 1]
            if entry.stream != self.stream:
                raise UsageError(
                    f"{self.path}: step {number} was released with other noise than this run draws: its checkpoint "
                    f"does not belong to these steps, which would be accounted for once and released twice. Put the "
                    f"right one back, or use `fork=True`"
                )
            before, now = (entry.release, entry.planned, entry.settings), (release, self.planned, settings)
            if before != now:
                old, new = (f"{what} (of {count}) {settings}".rstrip() for what, count, settings in (before, now))
                raise UsageError(
                    f"{self.path}: step {number} is {old}; it cannot be repeated as {new}, with the same noise. Give "
                    f"it what it had (loss and lr of `run.step` too), or use `fork=True`, which accounts for both"
                )
            return
        if number != self.steps + 1 or number > self.planned:
            raise UsageError(f"{self.path}: wanted step {self.steps + 1} of {self.planned}; found step {number}")
        numbers = f'"run": {self.run}, "step": {number}, "of": {self.planned}'
        words = f'"adjacency": "{self.adjacency}", "stream": "{self.stream}", "previous": "{self.position().digest}"'
        words += f', "settings": "{settings}"' if settings else ""
        words += f', "paid": "{self.paid}"' if self.paid else ""
        line = sealed_line(f"{{{numbers}, {release[1:-1]}, {words}".encode())
        durable_writes.append(self._file, line + b"\n", self.path)
        names = self.adjacency, self.stream, digest_of(line)
        entry = Entry(self.run, number, self.planned, release, *names, settings=settings, paid=self.paid)
        self.entries.append(entry)
        self.steps, self.paid = number, ""

    def position(self) -> Position:
        """Return the position at the present end of the ledger."""
        return position(self.entries)

    def force(self) -> None:
        """Force every line to disk; required before anything that depends on the steps leaves the program."""
        durable_writes.sync(self._file, self.path)

    def close(self) -> None:
        self.force()
        os.close(self._file)
