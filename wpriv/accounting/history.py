"""Read the steps of a history from a JSON file or a training ledger, and observed pair distances from files."""

from __future__ import annotations

import contextlib
import functools
import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from wpriv.config.plain_words import OBSERVED, is_generator, parse_generator, plain_step
from wpriv.core.kinds import PASSES, Adjacency
from wpriv.core.pair_distances import Observed, of_distances, of_gradients
from wpriv.errors import MissingResource, Unsupported, UsageError
from wpriv.files import array_files, checkpoint, csv_tables, read_bytes, shown_path
from wpriv.files.csv_tables import CsvError, CsvTable
from wpriv.files.durable_writes import unique_keys
from wpriv.numerics.numbers import number, shown, whole

MAX_BYTES = 2_000_000_000
_DRAWS: dict[str, Callable[[np.random.Generator, float, tuple[int, int]], Any]] = {
    "weibull": lambda rng, shape, size: rng.weibull(shape, size),
    "normal": lambda rng, shape, size: shape * rng.standard_normal(size),
}


def observed(value: object) -> Observed:
    """Return observations from any form that a step may give: text, an array of distances, or an ``Observed``."""
    if isinstance(value, Observed):
        return value
    if isinstance(value, (str, Path)):
        text = str(value)
        if is_generator(text):
            return generate(text)
        path = Path(text)
        try:
            about = path.stat()
        except (OSError, ValueError) as error:
            reason = getattr(error, "strerror", error)
            raise MissingResource(f"`observed` {text}: cannot be read ({reason}); wanted {OBSERVED}") from None
        if about.st_size > MAX_BYTES:
            raise UsageError(f"`observed` {text}: a file may have up to {MAX_BYTES:,} bytes; found {about.st_size:,}")
        return _read(text, about.st_mtime_ns, about.st_size)
    if isinstance(value, (list, tuple, np.ndarray)):
        return of_distances(value)
    raise UsageError(f"observed must be {OBSERVED}, or an array of distances; found {type(value).__name__}")


@functools.lru_cache(maxsize=8)
def generate(text: str) -> Observed:
    """Gradients drawn at random: ``weibull:`` or ``normal:`` with shape, records, coordinates, steps, quantile, clip,
    seed.

    Every step draws a fresh set of records. ``shape`` is the Weibull shape, or the standard deviation of the normal
    distribution. With ``quantile`` > 0 the unit of a step is that quantile of its gradient norms, and ``clip=1`` clips
    the gradients to it.
    """
    plan = parse_generator(text)
    rng = np.random.default_rng(plan.seed)
    rows, units = [], []
    for _ in range(plan.steps):
        gradients = _DRAWS[plan.kind](rng, plan.shape, (plan.records, plan.coordinates))
        units.append(float(np.quantile(np.linalg.norm(gradients, axis=1), plan.quantile)) if plan.quantile else 1.0)
        rows.append(of_gradients(gradients, unit=units[-1], clip=bool(plan.clip)).distances[0])
    return of_distances(
        np.array(rows), unit=np.array(units), coordinates=plan.coordinates, origin=text, records=plan.records
    )


@functools.lru_cache(maxsize=8)
def _read(text: str, modified: int, size: int) -> Observed:
    try:
        return _npz(text) if text.endswith(".npz") else _csv(text)
    except UsageError as error:
        raise UsageError(f"`observed` {text}: {error}") from None


def _npz(text: str) -> Observed:
    try:
        arrays = array_files.npz(text, MAX_BYTES)
    except array_files.DAMAGED as error:
        raise UsageError(f"not an .npz file of plain arrays ({str(error)[:120]})") from None
    if ("distances" in arrays) == ("gradients" in arrays):
        raise UsageError(f"wanted an array 'distances' or an array 'gradients'; found {', '.join(arrays) or 'nothing'}")
    try:
        unit = np.asarray(arrays.get("unit", 1.0), dtype=float)
        if "gradients" in arrays:
            return of_gradients(arrays["gradients"], unit=unit, origin=text)
        return of_distances(arrays["distances"], unit=unit, coordinates=int(arrays.get("coordinates", 0)), origin=text)
    except (TypeError, ValueError, OverflowError) as error:
        raise UsageError(f"its arrays must hold numbers ({str(error)[:120]})") from None


def _csv(text: str) -> Observed:
    """Read columns ``distance``, or ``step`` and ``distance``; else a row is a gradient of a record (at a ``step``)."""
    try:
        parsed = CsvTable.parse(csv_tables.decode(Path(text).read_bytes()))
        header, table = list(parsed.names), parsed.matrix()
    except (OSError, CsvError) as error:
        raise UsageError(f"not a CSV of numbers with a header ({str(error)[:120]}); wanted {OBSERVED}") from None
    if table.size == 0:
        raise UsageError(f"wanted rows of {len(header)} numbers below the header; found {table.shape[0]} rows")
    if "distance" in header and set(header) - {"distance", "step"}:
        raise UsageError(f"wanted a column distance, and perhaps a column step, alone; found {', '.join(header)[:120]}")
    step = table[:, header.index("step")] if "step" in header else np.zeros(len(table))
    rest = table[:, [i for i, name in enumerate(header) if name != "step"]]
    parts = [rest[step == value] for value in np.unique(step)]
    if len({len(part) for part in parts}) > 1:
        least, most = min(map(len, parts)), max(map(len, parts))
        raise UsageError(f"every step needs the same number of rows; found from {least} to {most}")
    stacked = np.array(parts)
    if "distance" in header:
        return of_distances(stacked[:, :, 0], origin=text)
    return of_gradients(stacked, origin=text)


MAX_HISTORY_BYTES = 50_000_000
MULTIPLIERS = "entries of three numbers are Gaussian noise / sensitivity, Poisson rate and steps, as Opacus has them"
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

    steps: list[dict[str, object]]
    notes: tuple[str, ...] = ()
    adjacency: str | None = None
    places: tuple[str, ...] = ()
    runs: int = 0
    multipliers: bool = False

    def relation(self, history: str | Path, adjacency: str | None) -> str | None:
        """The neighbouring relation of the steps: that of the file, or the one that is asked for."""
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

    The file is the ledger of a training (``ledger.jsonl``, or the folder that has it), or holds a list of step
    mappings, or a history of Opacus: a list of [noise_multiplier, sample_rate, steps], or the state of its accountant
    with such a list under ``history`` (Poisson-sampled Gaussian steps of sensitivity 1). The statement of
    ``wpriv privatize`` is one step, alone or in a list. ``-`` is standard input.
    """
    if not isinstance(path, (str, Path)):
        raise UsageError(f"`history` must be the path of a JSON file; found {shown(path)}")
    file, name = Path(path), shown_path(path)
    try:
        if file.is_dir() or file.suffix == ".jsonl":
            file.stat()
            return _ledger(file)
        content = read_bytes(path, MAX_HISTORY_BYTES)
        if len(content) > MAX_HISTORY_BYTES:
            fault = f"the file has more than {MAX_HISTORY_BYTES:,} bytes; merge equal steps first"
            raise UsageError(f"`history` {name}: {fault}")
        data = json.loads(content.decode("utf-8"), object_pairs_hook=unique_keys)
    except (OSError, ValueError, RecursionError) as error:
        if isinstance(error, OSError):
            fault = f"cannot be read ({error.strerror}); give the path of a JSON file"
            raise MissingResource(f"`history` {name}: {fault}") from None
        reason = (str(error).splitlines() or ["nested too deeply"])[0][:120]
        raise UsageError(f"`history` {name}: not a JSON file of steps ({reason})") from None
    if isinstance(data, dict) and "history" in data:
        data = data["history"]
    if isinstance(data, dict) and "task" in data:  # a statement of wpriv
        data = [data]
    if not isinstance(data, list) or not data:
        raise UsageError(
            f"`history` {name}: wanted a list of steps, or of [noise_multiplier, sample_rate, steps]; found "
            f"{shown(data)}"
        )
    places = tuple(f"`history` {name}, entry {number}" for number in range(1, len(data) + 1))
    steps = [_history_step(item, place) for item, place in zip(data, places, strict=True)]
    reports = any(isinstance(item, dict) and "task" in item for item in data)
    multipliers = any(isinstance(item, list) for item in data)
    notes = [REPORTS] * reports + [MULTIPLIERS] * multipliers
    return History(steps, tuple(notes), places=places, multipliers=multipliers)


def merged(
    specs: Sequence[dict[str, object]], places: Sequence[str]
) -> tuple[list[dict[str, object]], tuple[str, ...]]:
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
    """Read the steps of a training's ledger, or of that in its results folder, all of its runs together."""
    from wpriv.accounting import ledger
    from wpriv.results import storage  # loads pydantic, which a process in flags does without

    folder = file if file.is_dir() else None
    known = file if folder is None else ledger_of(folder)
    if known is None:
        raise MissingResource(
            f"`history` {folder}: the folder has no {storage.LEDGER}; give the results folder of a private training or "
            f"of a release, or the path of a JSON file"
        )
    file = known.resolve()  # the run's folder is that of the file itself, not of a link to it
    entries = ledger.entries(file)
    if not entries:
        raise UsageError(f"`history` {file}: the ledger has no step yet")
    if file.name == storage.LOOKS:
        raise UsageError(
            f"`history` {file}: what these looks at test records showed may have ended them, so that their cost is "
            f"that of all planned ones, which the statement beside it says"
        )
    statement = (folder or file.parent) / storage.STATEMENT
    stated, notes = _stated(statement)
    if stated is not None:
        ledger.require(entries, ledger.Position(**stated), file, str(statement))
    for name in (storage.CHECKPOINT, storage.MODEL) if stated is None else ():
        if file.with_name(name).is_file():
            stored = checkpoint.load_without_tensors(file.with_name(name))
            ledger.require(entries, ledger.Position(**stored["ledger"]), file, str(file.with_name(name)))
    last, cut = entries[-1], ledger.cut_passes(entries)
    if stated is None and not last.sealed:
        notes.append(
            f"{file.name} was written by an earlier version of wpriv, whose last line has no digest of its own: a "
            f"change of it alone would not be noticed"
        )
    if last.step < last.planned:
        if stated is None and not file.with_name(storage.CHECKPOINT).is_file():
            raise UsageError(
                f"`history` {file}: its last run has {last.step} of {last.planned} steps, and no "
                f"{storage.CHECKPOINT} is beside it: the ledger was cut short, or copied from the folder of an "
                f"unfinished run. Give the whole ledger, or the one in its folder"
            )
        if not (cut and cut[-1].run == last.run and cut[-1].correlated):
            notes.append(
                f"the run is not finished: {last.step} of its {last.planned} planned steps are accounted for; if it is "
                f"stopped here because of what it showed, the cost of all {last.planned} steps holds"
            )
    for aside in sorted(file.parent.glob("before-*")):
        if (aside / storage.LEDGER).is_file():
            notes.append(
                f"{aside.name} holds an earlier run that this number does not include; see the statement of this run"
            )
    notes += map(str, cut)
    process = ledger.process(entries)
    return History(process.describe(), tuple(notes), process.adjacency, runs=len({entry.run for entry in entries}))


def ledger_of(folder: Path) -> Path | None:
    """Return the ledger in a results folder, or that elsewhere which paid for a release, as its statement names it."""
    from wpriv.results import storage

    file = folder / storage.LEDGER
    if not file.is_file():
        with contextlib.suppress(OSError, ValueError, KeyError, TypeError):  # no statement that names a ledger
            file = folder / json.loads((folder / storage.STATEMENT).read_text(encoding="utf-8"))["ledger"]["file"]
    return file if file.is_file() else None


def _stated(path: Path) -> tuple[dict[str, Any] | None, list[str]]:
    """The ledger position of a statement (None without one of a private training), and what it says besides."""
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
                f"{path.name} beside it protects people with up to {data['group']} records, a group that has to be "
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


def _history_step(item: Any, place: str) -> dict[str, object]:
    try:
        if isinstance(item, dict) and "task" in item:
            item = _reports(item)
        if isinstance(item, dict):
            return plain_step(item)
        if isinstance(item, list) and len(item) == 3:
            rate = number(item[1], "sample_rate")
            sampled = {"sampling": "poisson", "rate": rate} if rate != 1 else {}
            sigma = number(item[0], "noise_multiplier")
            return {"mech": "gauss", "sigma": sigma, **sampled, "n": whole(item[2], "steps")}
    except UsageError as error:
        raise UsageError(f"{place}: {error}") from None
    raise UsageError(f"{place}: wanted a step mapping or [noise_multiplier, sample_rate, steps]; found {shown(item)}")


def _reports(statement: dict[str, object]) -> dict[str, object]:
    """The step of a statement of ``wpriv privatize``: one report of every record."""
    mechanism = statement.get("mechanism")
    if statement["task"] != "privatize" or not isinstance(mechanism, dict):
        raise UsageError(
            "a privacy statement of something else than `wpriv privatize`; of a training give ledger.jsonl beside it"
        )
    rows = statement.get("guarantees")
    if isinstance(rows, list) and any(isinstance(row, dict) and row.get("claim") == "as-published" for row in rows):
        raise UsageError(
            "the statement of reports without a guarantee: their bounds are quantiles of the protected records. "
            "Privatise them with public bounds"
        )
    return {**mechanism, "n": 1}
