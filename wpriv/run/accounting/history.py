"""The steps of a run, from the JSON file that kept them."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from wpriv.errors import MissingResource, UsageError
from wpriv.numerics.parse_numbers import number, shown, whole
from wpriv.run.accounting.adaptive_history import Declared
from wpriv.run.results import file_names

if TYPE_CHECKING:
    from wpriv.engine.ledger import Entry

MAX_HISTORY_BYTES = 50_000_000


@dataclass(frozen=True)
class History:
    """Steps as mappings for ``process``, and what a reader of the answer must know of their file."""

    steps: list[dict[str, Any]]
    notes: tuple[str, ...] = ()
    adjacency: str | None = None  # the neighbours that the file names; None where it names none
    places: tuple[str, ...] = ()  # where in the file each of the steps first stands, for messages
    declared: Declared | None = (
        None  # what its file says was fixed before the first release; None where it says nothing
    )


def read_history(path: str | Path) -> History:
    """The steps of a JSON file; equal steps are merged, in the order they first appear.

    The file is the ledger of a training (``ledger.jsonl``), or holds a list of step mappings, or what Opacus keeps: a list of
    [noise_multiplier, sample_rate, steps], or the state of its accountant with such a list under ``history`` (Poisson-sampled
    Gauss steps of sensitivity 1).

    Raises:
        MissingResource: the file cannot be read. UsageError: it is not such a list.
    """
    if not isinstance(path, (str, Path)):
        raise UsageError(f"--history must be the path of a JSON file; found {shown(path)}")
    file = Path(path)
    try:
        file.stat()
        if file.suffix == ".jsonl":
            return _ledger(file)
        with file.open("rb") as stream:  # a pipe or a device has no size, and maybe no end
            content = stream.read(MAX_HISTORY_BYTES + 1)
        if len(content) > MAX_HISTORY_BYTES:
            raise UsageError(
                f"--history {file}: the file has more than {MAX_HISTORY_BYTES:,} bytes; merge equal steps first"
            )
        data = json.loads(content.decode("utf-8"))
    except (OSError, ValueError, RecursionError) as error:
        if isinstance(error, OSError):
            raise MissingResource(
                f"--history {file}: cannot be read ({error.strerror}); give the path of a JSON file"
            ) from None
        raise UsageError(f"--history {file}: not a JSON file of steps ({_first_line(error)})") from None
    if isinstance(data, dict) and "history" in data:
        data = data["history"]
    if not isinstance(data, list) or not data:
        raise UsageError(
            f"--history {file}: wanted a list of steps, or of [noise_multiplier, sample_rate, steps]; found {shown(data)}"
        )
    merged: dict[str, dict[str, Any]] = {}
    places: dict[str, str] = {}
    for place, item in enumerate(data, start=1):
        spec = _history_step(item, f"--history {file}, entry {place}")
        key = json.dumps({k: v for k, v in spec.items() if k != "n"}, sort_keys=True)
        places.setdefault(key, f"--history {file}, entry {place}")
        merged[key] = {**spec, "n": spec["n"] + merged[key]["n"] if key in merged else spec["n"]}
    return History(list(merged.values()), places=tuple(places.values()))


def _ledger(file: Path) -> History:
    """The steps of ``wpriv train``'s ledger, all its runs together.

    Raises:
        UsageError: it has no step; it is not the ledger of the statement, or else of the checkpoint and the model, beside it; or it has
            fewer steps than were planned, and no checkpoint beside it shows that the run is not finished.
    """
    from wpriv.engine import ledger

    file = file.resolve()  # the folder of the run is the one that it lies in, not that of a link
    entries = ledger.entries(file)
    if not entries:
        raise UsageError(f"--history {file}: the ledger has no step yet")
    statement = file.with_name(file_names.STATEMENT)
    stated = _stated(statement)
    if stated is not None:
        ledger.require(entries, ledger.Position(**stated), file, str(statement))
    for name in (file_names.CHECKPOINT, file_names.MODEL) if stated is None else ():
        if file.with_name(name).is_file():
            from wpriv.engine import checkpoint  # loads torch, which a finished run does not need

            stored = checkpoint.load(file.with_name(name))
            ledger.require(entries, ledger.Position(**stored["ledger"]), file, str(file.with_name(name)))
    last, notes = entries[-1], []
    if last.step < last.planned:
        if not file.with_name(file_names.CHECKPOINT).is_file():
            raise UsageError(
                f"--history {file}: its last run has {last.step} of {last.planned} steps, and no {file_names.CHECKPOINT} is beside it: the "
                f"ledger was cut short, or taken out of the folder of an unfinished run. Give the whole ledger, or that in its folder"
            )
        notes.append(
            f"the run is not finished: {last.step} of its {last.planned} planned steps are accounted for; if it ends here because of what "
            f"it showed, the cost of all {last.planned} holds"
        )
    for aside in sorted(file.parent.glob("before-*")):
        if (aside / file_names.LEDGER).is_file():
            notes.append(
                f"{aside.name} holds an earlier run, which is not part of this figure: see the statement of this one"
            )
    process = ledger.process(entries)
    return History(process.describe(), tuple(notes), process.adjacency, declared=declared(entries))


def declared(entries: Sequence[Entry]) -> Declared:
    """What was fixed before the first release of a ledger: its first run as planned. Each further run is a fork of the one before."""
    from wpriv.engine import ledger

    (step,) = ledger.process(entries[:1]).steps
    return Declared(replace(step, n=entries[0].planned), len({entry.run for entry in entries}))


def _stated(path: Path) -> dict[str, Any] | None:
    """The position in the ledger that a statement records; None where there is no statement, or none of a private training."""
    try:
        position = json.loads(path.read_text(encoding="utf-8")).get("ledger")
        return None if position is None else {"lines": int(position["lines"]), "digest": str(position["digest"])}
    except FileNotFoundError:
        return None
    except (OSError, ValueError, KeyError, TypeError, AttributeError, RecursionError):
        raise UsageError(
            f"{path} cannot be read, which says how long the ledger beside it is; put the right one back"
        ) from None


def _history_step(item: Any, place: str) -> dict[str, Any]:
    try:
        if isinstance(item, dict):
            return {**item, "n": whole(item.get("n", 1), "n")}
        if isinstance(item, list) and len(item) == 3:
            rate = number(item[1], "sample_rate")
            sampled = {"sampling": "poisson", "rate": rate} if rate != 1 else {}
            return {
                "mech": "gauss",
                "sigma": number(item[0], "noise_multiplier"),
                **sampled,
                "n": whole(item[2], "steps"),
            }
    except UsageError as error:
        raise UsageError(f"{place}: {error}") from None
    raise UsageError(f"{place}: wanted a step mapping or [noise_multiplier, sample_rate, steps]; found {shown(item)}")


def _first_line(error: BaseException) -> str:
    return (str(error).splitlines() or ["nested too deeply"])[0][:120]
