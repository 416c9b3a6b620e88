"""The lines of a ledger: their format, their digests, and their reading. ``ledger`` writes and accounts for them.

A line holds the digest of the line before it, and one of its own. Lines of the format before (``wpriv.ledger/2``) have
none of their own; they are read, and continued.
"""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

from wpriv.core.process import Step
from wpriv.core.sampling.kinds import Sampling
from wpriv.errors import MissingResource, UsageError
from wpriv.numerics.parse_numbers import shown

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
        digest: of the line; the next line holds it.
        sealed: whether the line holds a digest of its own.
        settings: a digest of the loss and the learning rate that a caller's loop gave it; "" for those of the plan.
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


def entries(path: Path) -> list[Entry]:
    """Return all entries of a ledger, without a last line that a crash cut short: the result of its step was not used.

    Raises:
        UsageError: a line is not an entry, names no release that can be accounted for, or does not match its digest or
            that of the line before; or the steps of a run are not 1, 2, 3, ... up to the planned number.
        MissingResource: the file cannot be read.
    """
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
            raise UsageError(
                f"{path}:{number}: wanted the step after step {last.step} of run {last.run}; "
                f"found step {entry.step} of run {entry.run}"
            )
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
        settings = data.pop("settings", "")
        if all(type(number) is int and number >= 1 for number in (run, step, planned)) and all(
            isinstance(word, str) for word in (*words, settings)
        ):
            sealed = data.pop("digest", None) is not None
            if sealed and line != sealed_line(line.rpartition(SEAL)[0]):
                raise UsageError(
                    f"{place}: does not match its own digest: the line was changed by another program, so that the "
                    f"privacy cost is not known"
                )
            release = json.dumps(data)
            fewest(release)
            entry = Entry(run, step, planned, release, adjacency, stream, digest_of(line), sealed, settings)
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
    """The fewest such releases that are accounted for by themselves: one, or those of a pass.

    Raises:
        UsageError: the text describes no release.
    """
    row = json.loads(release)
    if "n" in row:
        raise UsageError(f"a line is one release; found n = {shown(row['n'])}")
    return Step.from_dict({**row, "n": Sampling.from_dict(row).pass_steps})
