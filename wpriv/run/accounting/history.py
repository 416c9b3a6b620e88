"""Read the steps of a history from a JSON file or a training ledger."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from wpriv.core.adjacency import Adjacency
from wpriv.core.sampling.kinds import PASSES
from wpriv.errors import MissingResource, Unsupported, UsageError
from wpriv.files.json_values import unique_keys
from wpriv.numerics.parse_numbers import number, shown, whole
from wpriv.run.results import file_names

MAX_HISTORY_BYTES = 50_000_000
REPORTS = "the reports of all statements are taken to be of the same records, so that their eps add up"


@dataclass(frozen=True)
class History:
    """Steps as mappings for ``build_process.process``, with what their file says beside them.

    Args:
        notes: remarks for readers of the answer. adjacency: as the file names it, if it does.
        places: where in the file each step stands, for messages.
        runs: the number of runs of a training's ledger; 0 for other files.
        multipliers: whether some steps are noise multipliers, relative to what one record adds.
    """

    steps: list[dict[str, Any]]
    notes: tuple[str, ...] = ()
    adjacency: str | None = None
    places: tuple[str, ...] = ()
    runs: int = 0
    multipliers: bool = False

    def relation(self, history: str | Path, adjacency: str | None) -> str | None:
        """The neighbouring relation of the steps: that of the file, or the one that is asked for.

        Raises:
            UsageError: they differ. Unsupported: noise multipliers under replace-one, whose sensitivity is not known.
        """
        if self.adjacency is not None and adjacency not in (None, self.adjacency):
            raise UsageError(
                f"`history` {history} is accounted for under {self.adjacency} neighbours; found `adjacency` "
                f"{shown(adjacency)}"
            )
        if self.multipliers and adjacency == Adjacency.REPLACE_ONE:
            raise Unsupported(
                f"`history` {history} has noise multipliers, which are relative to what one record adds, and under "
                f"replace-one the sensitivity is twice that. Write its steps with their sensitivity, as in "
                f'{{"mech": "gauss", "sigma": 1.1, "sensitivity": 2}}, or use `adjacency=\'add-remove\'`'
            )
        return self.adjacency or adjacency


def read_history(path: str | Path) -> History:
    """Read the steps of a JSON file, as they are written there.

    The file is the ledger of a training (``ledger.jsonl``), or holds a list of step mappings, or a history of Opacus: a
    list of [noise_multiplier, sample_rate, steps], or the state of its accountant with such a list under ``history``
    (Poisson-sampled Gauss steps of sensitivity 1). The statement of ``wpriv privatize`` is one step,
    alone or in a list.

    Raises:
        MissingResource: the file cannot be read. UsageError: it is not such a list.
    """
    if not isinstance(path, (str, Path)):
        raise UsageError(f"`history` must be the path of a JSON file; found {shown(path)}")
    file = Path(path)
    try:
        file.stat()
        if file.suffix == ".jsonl":
            return _ledger(file)
        with file.open("rb") as stream:  # a pipe or a device has no size
            content = stream.read(MAX_HISTORY_BYTES + 1)
        if len(content) > MAX_HISTORY_BYTES:
            raise UsageError(
                f"`history` {file}: the file has more than {MAX_HISTORY_BYTES:,} bytes; merge equal steps first"
            )
        data = json.loads(content.decode("utf-8"), object_pairs_hook=unique_keys)
    except (OSError, ValueError, RecursionError) as error:
        if isinstance(error, OSError):
            raise MissingResource(
                f"`history` {file}: cannot be read ({error.strerror}); give the path of a JSON file"
            ) from None
        raise UsageError(f"`history` {file}: not a JSON file of steps ({_first_line(error)})") from None
    if isinstance(data, dict) and "history" in data:
        data = data["history"]
    if isinstance(data, dict) and "task" in data:  # a statement of wpriv
        data = [data]
    if not isinstance(data, list) or not data:
        raise UsageError(
            f"`history` {file}: wanted a list of steps, or of [noise_multiplier, sample_rate, steps]; found "
            f"{shown(data)}"
        )
    places = tuple(f"`history` {file}, entry {number}" for number in range(1, len(data) + 1))
    steps = [_history_step(item, place) for item, place in zip(data, places, strict=True)]
    reports = any(isinstance(item, dict) and "task" in item for item in data)
    multipliers = any(isinstance(item, list) for item in data)
    return History(steps, (REPORTS,) if reports else (), places=places, multipliers=multipliers)


def merged(specs: Sequence[dict[str, Any]], places: Sequence[str]) -> tuple[list[dict[str, Any]], tuple[str, ...]]:
    """Steps with the counts of equal ones added up, in the order of their first occurrence, and where that is."""
    sums: dict[str, dict[str, Any]] = {}
    first: dict[str, str] = {}
    for index, spec in enumerate(specs):
        key = json.dumps({k: v for k, v in spec.items() if k != "n"}, sort_keys=True, default=str)
        if spec.get("sampling") in PASSES:
            key = f"{key} {index}"  # parts of a pass are not added up to a pass: each entry has whole passes
        first.setdefault(key, places[index] if places else "")
        sums[key] = {**spec, "n": spec["n"] + sums[key]["n"] if key in sums else spec["n"]}
    return list(sums.values()), tuple(first.values()) if places else ()


def _ledger(file: Path) -> History:
    """Read the steps of a training's ledger, all of its runs together.

    Raises:
        UsageError: it has no steps; it does not match the statement (or else the checkpoint and the model) beside it;
            or it has fewer steps than planned, and no checkpoint beside it shows that the run is unfinished.
    """
    from wpriv.engine import ledger

    file = file.resolve()  # the run's folder is that of the file itself, not of a link to it
    entries = ledger.entries(file)
    if not entries:
        raise UsageError(f"`history` {file}: the ledger has no step yet")
    statement = file.with_name(file_names.STATEMENT)
    stated, notes = _stated(statement)
    if stated is not None:
        ledger.require(entries, ledger.Position(**stated), file, str(statement))
    for name in (file_names.CHECKPOINT, file_names.MODEL) if stated is None else ():
        if file.with_name(name).is_file():
            from wpriv.engine import checkpoint  # loads torch, which a finished run does not need

            stored = checkpoint.load(file.with_name(name))
            ledger.require(entries, ledger.Position(**stored["ledger"]), file, str(file.with_name(name)))
    last = entries[-1]
    if stated is None and not last.sealed:
        notes.append(
            f"{file.name} was written by an earlier version of wpriv, whose last line has no digest of its own: a "
            f"change of it alone would not be noticed"
        )
    if last.step < last.planned:
        if not file.with_name(file_names.CHECKPOINT).is_file():
            raise UsageError(
                f"`history` {file}: its last run has {last.step} of {last.planned} steps, and no "
                f"{file_names.CHECKPOINT} is beside it: the ledger was cut short, or copied from the folder of an "
                f"unfinished run. Give the whole ledger, or the one in its folder"
            )
        notes.append(
            f"the run is not finished: {last.step} of its {last.planned} planned steps are accounted for; if it is "
            f"stopped here because of what it showed, the cost of all {last.planned} steps holds"
        )
    for aside in sorted(file.parent.glob("before-*")):
        if (aside / file_names.LEDGER).is_file():
            notes.append(
                f"{aside.name} holds an earlier run that this figure does not include; see the statement of this run"
            )
    notes += map(str, ledger.cut_passes(entries))
    process = ledger.process(entries)
    return History(process.describe(), tuple(notes), process.adjacency, runs=len({entry.run for entry in entries}))


def _stated(path: Path) -> tuple[dict[str, Any] | None, list[str]]:
    """The position in the ledger that a statement records, and what it says that the ledger does not.

    The position is None without a statement of a private training.
    """
    try:
        data = json.loads(path.read_text(encoding="utf-8"))
        position, notes = data.get("ledger"), []
        if data.get("tuning") is not None:
            notes.append(
                f"the ledger has the steps of the best of a random number of runs alone; {path.name} beside it has the "
                f"guarantee of all runs, which is larger"
            )
        if int(data.get("group", 1)) > 1:
            notes.append(
                f"{path.name} beside it protects persons with up to {data['group']} records, a group that has to be "
                f"given here as well"
            )
        stated = None if position is None else {"lines": int(position["lines"]), "digest": str(position["digest"])}
        return stated, notes
    except FileNotFoundError:
        return None, []
    except (OSError, ValueError, KeyError, TypeError, AttributeError, RecursionError):
        raise UsageError(
            f"{path} cannot be read, and it records the length of the ledger beside it; restore the file"
        ) from None


def _history_step(item: Any, place: str) -> dict[str, Any]:
    try:
        if isinstance(item, dict) and "task" in item:
            item = _reports(item)
        if isinstance(item, dict):
            return item
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


def _reports(statement: dict[str, Any]) -> dict[str, Any]:
    """The step of a statement of ``wpriv privatize``: one report of every record.

    Raises:
        UsageError: it is of a training, or is no such statement.
    """
    mechanism = statement.get("mechanism")
    if statement["task"] != "privatize" or not isinstance(mechanism, dict):
        raise UsageError(
            "a privacy statement of something else than `wpriv privatize`; of a training give ledger.jsonl beside it"
        )
    return {**mechanism, "n": 1}


def _first_line(error: BaseException) -> str:
    return (str(error).splitlines() or ["nested too deeply"])[0][:120]
