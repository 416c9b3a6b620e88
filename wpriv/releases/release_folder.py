"""What a release leaves: the lines of its ledger, which come first, and its numbers, statement and recipe.

A release that was made is shown again from its folder and spends nothing. The key of its noise is never stored: after a
crash the lines stay, and another attempt spends again, since the same noise on changed data would show the change.
"""

from __future__ import annotations

import contextlib
import datetime
import hashlib
import json
import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from wpriv import randomness
from wpriv._version import __version__
from wpriv.accounting import ledger as file_ledger
from wpriv.accounting.budget import weak_guarantee
from wpriv.accounting.ledger import Ledger
from wpriv.core.guarantee import Guarantee
from wpriv.core.kinds import Adjacency
from wpriv.core.process import Process, Step
from wpriv.errors import CheckFailed, MissingResource, Unsupported, UsageError, require
from wpriv.files import csv_tables, durable_writes
from wpriv.files.durable_writes import plain
from wpriv.numerics.numbers import short, text
from wpriv.releases import declaration, noise_plan
from wpriv.releases import plan as planning
from wpriv.releases.aggregate import Json
from wpriv.releases.plan import NOT_PRIVATE, ROW, Plan
from wpriv.releases.sampling import LEVEL
from wpriv.releases.tables import Table, declared_types

SCHEMA = "wpriv.release/1"
RELEASE, TABLE, STATEMENT, STATEMENT_TEXT = "release.json", "release.csv", "statement.json", "statement.md"
RECIPE, LEDGER = "recipe.yaml", "ledger.jsonl"
HEADER = ("key", "output", "value", "half_width", "lower", "upper", "standard_error", "note", "claim")
MOST_LINES = 1_000_000
NOT_COVERED = (
    "run time and memory, which depend on the data",
    "bounds, limits and keys that were chosen by looking at the data",
    "what was done with the rows before they were read here",
    "other releases about the same people that are in no common ledger",
)
ERRORS = (
    f"intervals hold the noise alone, with probability {LEVEL:g} (exact for counts, sums and histograms, approximate "
    f"for means); neither clipped values, nor rows left out by the limits, nor sampling are in them"
)


@dataclass(frozen=True)
class Receipt:
    """What a ledger holds after a release: its place in it, and the guarantee of all of it together.

    Args:
        ledger: file, lines and digest; None where nothing was written. total: None where there is no earlier line.
    """

    ledger: Json | None = None
    total: Guarantee | None = None


@dataclass(frozen=True)
class Payment:
    """Where a release is paid for: a ledger file, the URL of a ledger, or nowhere.

    Args:
        path: of a file that is created where it is missing. url: of a ledger of an organisation.
        max_eps: refuse what would bring the file beyond it; None without such a limit. lines: those of the file for
            which the noise was found; None where it does not depend on them.
    """

    path: Path | None = None
    url: str = ""
    max_eps: float | None = None
    lines: int | None = None

    @classmethod
    def of(cls, ledger: str | Path | None, out: Path | None, max_eps: float | None) -> Payment:
        """Read the argument ``ledger``; the default is a file in ``out``."""
        if ledger is not None and "://" in str(ledger):
            if max_eps is not None:
                raise UsageError("the ledger at the URL has limits of its own; leave out `max_eps`")
            return cls(url=str(ledger))
        if ledger is not None:
            return cls(Path(ledger), max_eps=max_eps)
        return cls(None if out is None else out / LEDGER, max_eps=max_eps)

    def with_history(self) -> tuple[Payment, Process | None]:
        """What the file holds already, None where it has no line; and this payment, refused once it holds more.

        Raises:
            UsageError: there is no file.
        """
        if self.path is None:
            raise UsageError("`total` is about a ledger and this release together; give `ledger` as a file")
        entries = file_ledger.entries(self.path)
        return replace(self, lines=len(entries)), _process(entries)

    def forecast(self, plan: Plan) -> Receipt:
        """What the file would hold, for a dry run; a release beyond ``max_eps`` is refused as it would be."""
        entries = [] if self.path is None else file_ledger.entries(self.path)
        return Receipt(total=self._total(plan, _process(entries)))

    @contextlib.contextmanager
    def spent(self, plan: Plan, key: bytes) -> Iterator[Receipt]:
        """Write the lines of a release to disk, and run a block that may read rows.

        Raises:
            CheckFailed: eps would exceed ``max_eps``, or the ledger refuses. MissingResource: it cannot be written.
        """
        if self.url:
            require("sqlalchemy", "a ledger at a URL")
            from wpriv.ledger.service import Ledger as Service

            with Service(self.url) as service, service.release(plan.process, reason="release") as receipt:
                yield Receipt({"file": service.store.url, "lines": receipt.seq, "digest": receipt.digest})
        elif self.path is None:
            yield Receipt(total=self._total(plan, None))
        else:
            yield self._appended(self.path, plan, key)

    def _appended(self, path: Path, plan: Plan, key: bytes) -> Receipt:
        lock = path.with_name(f"{path.name}{durable_writes.LOCK}")
        durable_writes.make_folder(path.absolute().parent)
        with durable_writes.locked(lock, f"{path}: another release is being written", wait=True):
            entries = file_ledger.entries(path)
            if self.lines not in (None, len(entries)):
                raise CheckFailed(f"{path}: another release was paid meanwhile, beside which this noise is not enough")
            total = self._total(plan, _process(entries))
            steps = plan.process.steps
            planned = sum(step.n for step in steps)
            if planned > MOST_LINES:
                raise Unsupported(f"a ledger has a line for each draw, here {planned:,}; the limit is {MOST_LINES:,}")
            run = file_ledger.last_run(entries) + 1
            stream = randomness.key_digest(key)
            ledger = Ledger(path, run, planned, adjacency=Adjacency.ADD_REMOVE, stream=stream)
            try:
                singles = (Step(step.mechanism) for step in steps for _ in range(step.n))
                for number, single in enumerate(singles, 1):
                    ledger.spend(number, single)
            finally:
                ledger.close()
            position = ledger.position()
        return Receipt({"file": str(path), **position.as_dict()}, total)

    def _total(self, plan: Plan, before: Process | None) -> Guarantee | None:
        """The guarantee of the file with the release, where the file has lines; checked against ``max_eps``.

        Raises:
            CheckFailed: it is beyond ``max_eps``.
        """
        row = plan.noise.guarantee
        total = None if before is None else noise_plan.total(before, row)
        eps, limit = (total or row).epsilon.safe, self.max_eps
        if limit is None or eps <= limit:
            return total
        delta = short(row.delta.safe)
        if total is None or before is None:
            fault = f"this release has eps = {text(eps, up=True)} at delta {delta}; `max_eps` is {short(limit)}"
            raise CheckFailed(f"{fault}. At most eps = {text(limit, up=False)} fits")
        fits = plan.largest_eps(before, limit)
        most = "No further release fits" if fits is None else f"At most eps = {text(fits, up=False)} fits"
        raise CheckFailed(
            f"this release would bring {self.path} to eps = {text(eps, up=True)} at delta {delta}; `max_eps` is "
            f"{short(limit)}. {most}"
        )


def alone(folder: Path | None) -> contextlib.AbstractContextManager[None]:
    """Let no other process release into a folder meanwhile."""
    if folder is None:
        return contextlib.nullcontext()
    lock = folder / f"{RELEASE}{durable_writes.LOCK}"
    return durable_writes.locked(lock, f"{folder}: another release is being written", wait=True)


def _process(entries: Sequence[file_ledger.Entry]) -> Process | None:
    return file_ledger.process(entries) if entries else None


def answer(plan: Plan, numbers: Sequence[Json], receipt: Receipt) -> Json:
    """The release as plain data."""
    question, noise = plan.question, plan.noise
    limits = {"max_groups": question.limits.groups, "max_rows": question.limits.rows}
    keys: Json | None = None
    if question.has_unknown_keys:
        shown = [{"persons": size, "probability": plan.shown(size)} for size in plan.sizes()]
        keys = {"kind": "unknown", "threshold": noise.threshold, "leak": noise.leak, "shown": shown}
    elif question.by is not None:
        keys = {"kind": "declared", "threshold": None, "leak": None}
    unit = planning.unit(question)
    return {
        "schema": SCHEMA,
        "private": question.seed is None,
        "unit": unit,
        "adjacency": Adjacency.ADD_REMOVE.value,
        "limits": limits,
        "outputs": [_marked(each, question.seed) for each in numbers],
        "keys": keys,
        "guarantee": noise.guarantee.as_dict(),
        "total": None if receipt.total is None else receipt.total.as_dict(),
        "ledger": receipt.ledger,
        "statement": _statement(plan, unit),
        "seed": question.seed,
        "warnings": [
            *([] if question.seed is None else [NOT_PRIVATE]),
            *weak_guarantee(noise.guarantee, question.records),
        ],
        "released": datetime.datetime.now(datetime.UTC).date().isoformat(),
        "version": __version__,
    }


def _marked(row: Json, seed: int | None) -> Json:
    """An output, which says that it is not private where the seed is fixed."""
    return row if seed is None else {**row, "note": "; ".join(filter(None, ("NOT PRIVATE", str(row["note"]))))}


def _statement(plan: Plan, unit: str) -> str:
    """Person, limits, cost, and what is not covered, in words."""
    question = plan.question
    parts = [f"Released from {plan.source}: {planning.headline(plan.noise.guarantee, unit)}."]
    if question.person == ROW:
        parts.append("Each row is taken as a person of its own: whoever has several rows is protected less.")
    else:
        parts.append(f"Tables with and without all rows of one {question.person} are neighbours.")
    if question.limits.groups is not None:
        parts.append(f"One {question.person} counts in at most {question.limits.groups} keys.")
    if question.limits.rows is not None:
        parts.append(f"At most {question.limits.rows} rows of one {question.person} count in a key.")
    if question.has_unknown_keys:
        parts.append(f"Keys are shown whose noisy count of persons is above {plan.noise.threshold}.")
    parts.append(f"{ERRORS[0].upper()}{ERRORS[1:]}.")
    parts.append(f"Not covered: {'; '.join(NOT_COVERED)}.")
    return " ".join(([NOT_PRIVATE] if question.seed is not None else []) + parts)


def stored(folder: Path, recipe: Json) -> Json | None:
    """The answer that a folder holds for a recipe; None where it holds none.

    Raises:
        UsageError: it holds another release. MissingResource: it cannot be read.
    """
    file = folder / RELEASE
    try:
        data = json.loads(file.read_text(encoding="utf-8"))
        if data["schema"] != SCHEMA:
            raise ValueError(SCHEMA)
        request, answered = data["request"], {name: data[name] for name in data if name != "request"}
    except FileNotFoundError:
        return None
    except NotADirectoryError:
        raise UsageError(f"`out` {folder} is a file; name a folder") from None
    except OSError as error:
        raise MissingResource(f"{file} cannot be read: {error.strerror}") from None
    except (ValueError, KeyError, TypeError):
        raise UsageError(f"{file} is not a release; name another folder with `out`") from None
    if request != _digest(recipe):
        raise UsageError(f"{folder} holds another release; name another folder with `out`")
    return answered


def _digest(recipe: Json) -> str:
    return hashlib.sha256(json.dumps(recipe, sort_keys=True, default=str).encode()).hexdigest()[:32]


def write(folder: Path, recipe: Json, answer: Json, source: Table) -> tuple[Path, ...]:
    """Write numbers, statement and recipe, each file whole or not at all; the answer that is shown again comes last."""
    durable_writes.make_folder(folder)
    rows = answer["outputs"]
    assert isinstance(rows, list)
    lines = [f"{key}: {json.dumps(plain(value))}" for key, value in declaration.beside(recipe, folder).items()]
    contents = {
        TABLE: csv_tables.to_text(HEADER, [dict(zip(HEADER, cells(row), strict=True)) for row in rows]),
        STATEMENT: json.dumps(plain(_facts(folder, answer, source)), indent=1) + "\n",
        STATEMENT_TEXT: _markdown(answer, rows),
        RECIPE: "\n".join(lines) + "\n",
        RELEASE: json.dumps(plain({**answer, "request": _digest(recipe)}), indent=1) + "\n",
    }
    for name, content in contents.items():
        raw = content.encode("utf-8", "backslashreplace")  # keys may hold bytes that are no text
        durable_writes.replace(folder / name, raw)
    return tuple(folder / name for name in contents)


def _facts(folder: Path, answer: Json, source: Table) -> Json:
    """The statement as plain data; of the table only what is public."""
    keys = ("private", "unit", "adjacency", "limits", "keys", "total", "statement", "seed", "warnings")
    ledger = answer["ledger"]
    if isinstance(ledger, dict) and "://" not in ledger["file"]:
        # from the folder, so that the ledger is found where both are moved
        ledger = {**ledger, "file": Path(os.path.relpath(ledger["file"], folder)).as_posix()}
    return {
        "schema": "wpriv.statement/1",
        "task": "release",
        **{name: answer[name] for name in keys},
        "guarantees": [answer["guarantee"]],
        "ledger": ledger,
        "data": {"name": source.name, "columns": list(source.columns), "types": dict(declared_types(source))},
        "not_covered": list(NOT_COVERED),
        "versions": {"wpriv": answer["version"]},
    }


def cells(row: Json) -> tuple[object, ...]:
    """The cells of a table for one entry of ``outputs``."""
    interval = row["interval"]
    low, high = interval if isinstance(interval, list) else ("", "")
    key = " ".join(str(row[name]) for name in ("key", "bin") if row.get(name) is not None)
    about = (row["standard_error"], row["note"], row.get("claim"))  # of an earlier version without its claim
    return key, row["name"], row["value"], row["half_width"], low, high, *about


def visible(text: str) -> str:
    """Text of a table in one line, with ends of lines and characters that control a terminal as escapes."""
    return "".join(each if each.isprintable() else ascii(each)[1:-1] for each in text)


def _markdown(answer: Json, rows: Sequence[Json]) -> str:
    table = ["| key | output | value | +- | lower | upper | standard error | note | claim |", f"{'|---' * 9}|"]
    for row in rows:
        shown = ("" if cell is None else visible(str(cell)).replace("|", "\\|") for cell in cells(row))
        table.append(f"| {' | '.join(shown)} |")
    warnings = answer["warnings"]
    assert isinstance(warnings, list)
    others = [line for line in warnings if line != NOT_PRIVATE]  # with which the statement begins
    return "\n".join(["# Release", "", *others, str(answer["statement"]), "", *table, ""])
