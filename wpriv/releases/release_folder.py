"""What a release leaves: the lines of its ledger, which come first, and its numbers, statement and recipe.

A release that was made is shown again from its folder and spends nothing. The key of its noise is never stored: after a
crash the lines stay, and another attempt spends again, since the same noise on changed data would show the change.
"""

from __future__ import annotations

import contextlib
import datetime
import hashlib
import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from wpriv import randomness
from wpriv._version import __version__
from wpriv.accounting import evaluate
from wpriv.accounting import ledger as file_ledger
from wpriv.accounting.ledger import Ledger
from wpriv.core.guarantee import Guarantee
from wpriv.core.kinds import Adjacency
from wpriv.core.process import Process, Step
from wpriv.errors import CheckFailed, MissingResource, Unsupported, UsageError, require
from wpriv.files import csv_tables, durable_writes
from wpriv.files.durable_writes import plain
from wpriv.numerics.numbers import short, text
from wpriv.releases import plan as planning
from wpriv.releases.aggregate import Number
from wpriv.releases.noise_plan import ACCOUNTANT
from wpriv.releases.plan import NOT_PRIVATE, ROW, Plan
from wpriv.releases.sampling import LEVEL

Json = dict[str, object]
SCHEMA = "wpriv.release/1"
RELEASE, TABLE, STATEMENT, STATEMENT_TEXT = "release.json", "release.csv", "statement.json", "statement.md"
RECIPE, LEDGER = "recipe.yaml", "ledger.jsonl"
HEADER = ("key", "output", "value", "lower", "upper", "standard_error")
MOST_LINES = 1_000_000
NOT_COVERED = (
    "run time and memory, which depend on the data",
    "bounds, limits and keys that were chosen by looking at the data",
    "what was done with the rows before they were read here",
    "other releases about the same people that are in no common ledger",
)
ERRORS = (
    f"intervals hold the noise alone, with probability {LEVEL:g}; neither clipped values, nor rows left out by the "
    f"limits, nor sampling are in them"
)


@dataclass(frozen=True)
class Payment:
    """Where a release is paid for: a ledger file, the URL of a ledger, or nowhere.

    Args:
        path: of a file that is created where it is missing. url: of a ledger of an organisation.
    """

    path: Path | None = None
    url: str = ""

    @classmethod
    def of(cls, ledger: str | Path | None, out: Path | None) -> Payment:
        """Read the argument ``ledger``; the default is a file in ``out``."""
        if ledger is not None and "://" in str(ledger):
            return cls(url=str(ledger))
        if ledger is not None:
            return cls(Path(ledger))
        return cls(None if out is None else out / LEDGER)

    def before(self) -> Process | None:
        """What the file holds already; None where it has no line."""
        if self.path is None:
            raise UsageError("`total` is about a ledger and this release together; give `ledger` as a file")
        entries = file_ledger.entries(self.path)
        return file_ledger.process(entries) if entries else None

    @contextlib.contextmanager
    def spent(self, row: Guarantee, max_eps: float | None, key: bytes) -> Iterator[Json | None]:
        """Write the lines of a release to disk, and run a block that may read rows; yield the position in the file.

        Raises:
            CheckFailed: eps would exceed ``max_eps``, or the ledger refuses. MissingResource: it cannot be written.
        """
        if self.url:
            if max_eps is not None:
                raise UsageError("the ledger at the URL has limits of its own; leave out `max_eps`")
            require("sqlalchemy", "a ledger at a URL")
            from wpriv.ledger.service import Ledger as Service

            with Service(self.url) as service, service.release(row.process, reason="release") as receipt:
                yield {"file": "a ledger at a URL", "lines": receipt.seq, "digest": receipt.digest}
            return
        if self.path is None:
            if max_eps is not None and row.epsilon.safe > max_eps:
                raise CheckFailed(f"this release has eps = {text(row.epsilon.safe, up=True)}; `max_eps` is {max_eps:g}")
            yield None
            return
        yield self._appended(self.path, row, max_eps, key)

    def _appended(self, path: Path, row: Guarantee, max_eps: float | None, key: bytes) -> Json:
        lock = path.with_name(f"{path.name}{durable_writes.LOCK}")
        durable_writes.make_folder(path.absolute().parent)
        with durable_writes.locked(lock, f"{path}: another release is being written", wait=True):
            entries = file_ledger.entries(path)
            process = file_ledger.process(entries) + row.process if entries else row.process
            _check_limit(path, process, row.delta.safe, max_eps)
            steps = row.process.steps
            planned = sum(step.n for step in steps)
            if planned > MOST_LINES:
                raise Unsupported(f"a ledger has a line for each draw, here {planned:,}; the limit is {MOST_LINES:,}")
            run = file_ledger.last_run(entries) + 1
            stream = randomness.key_digest(key)
            ledger = Ledger(path, run, planned, adjacency=Adjacency.ADD_REMOVE, stream=stream)
            try:
                number = 0
                for step in steps:
                    single = Step(step.mechanism)
                    for _ in range(step.n):
                        number += 1
                        ledger.spend(number, single)
            finally:
                ledger.close()
            position = ledger.position()
        return {"file": str(path), **position.as_dict()}


def _check_limit(path: Path, process: Process, delta: float, max_eps: float | None) -> None:
    if max_eps is None:
        return
    row = evaluate.checked(evaluate.curve(process, ACCOUNTANT).at(delta=delta))
    if row.epsilon.safe > max_eps:
        raise CheckFailed(
            f"this release would bring {path} to eps = {text(row.epsilon.safe, up=True)} at delta {short(delta)}; "
            f"`max_eps` is {max_eps:g}. With `total`, `eps` is that of the ledger and the release together"
        )


def answer(plan: Plan, numbers: Sequence[Number], position: Json | None) -> Json:
    """The release as plain data; ``position`` is that in the ledger after it, None where there is none."""
    question, noise = plan.question, plan.noise
    limits = {"max_groups": question.limits.groups, "max_rows": question.limits.rows}
    keys: Json | None = None
    if question.has_unknown_keys:
        keys = {"kind": "unknown", "threshold": noise.threshold, "leak": noise.leak}
    elif question.by is not None:
        keys = {"kind": "declared", "threshold": None, "leak": None}
    unit = planning.unit(question)
    return {
        "schema": SCHEMA,
        "private": question.seed is None,
        "unit": unit,
        "adjacency": Adjacency.ADD_REMOVE.value,
        "limits": limits,
        "outputs": [each.as_dict() for each in numbers],
        "keys": keys,
        "guarantee": noise.guarantee.as_dict(),
        "total": None if noise.total is None else noise.total.as_dict(),
        "ledger": position,
        "statement": _statement(plan, unit),
        "seed": question.seed,
        "warnings": [] if question.seed is None else [NOT_PRIVATE],
        "released": datetime.datetime.now(datetime.UTC).date().isoformat(),
        "version": __version__,
    }


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
        request, answered = data["request"], data["answer"]
    except FileNotFoundError:
        return None
    except OSError as error:
        raise MissingResource(f"{file} cannot be read: {error.strerror}") from None
    except (ValueError, KeyError, TypeError):
        raise UsageError(f"{file} is not a release; name another folder with `out`") from None
    if request != _digest(recipe):
        raise UsageError(f"{folder} holds another release; name another folder with `out`")
    assert isinstance(answered, dict)  # as ``write`` left it
    return answered


def _digest(recipe: Json) -> str:
    return hashlib.sha256(json.dumps(recipe, sort_keys=True, default=str).encode()).hexdigest()[:32]


def write(folder: Path, recipe: Json, answer: Json) -> tuple[Path, ...]:
    """Write numbers, statement and recipe, each file whole or not at all; the answer that is shown again comes last."""
    durable_writes.make_folder(folder)
    rows = answer["outputs"]
    assert isinstance(rows, list)
    keys = ("unit", "adjacency", "limits", "keys", "guarantee", "total", "ledger", "statement", "seed", "warnings")
    statement = {"task": "release", "private": answer["private"], **{name: answer[name] for name in keys}}
    statement |= {"data": recipe["data"], "not_covered": list(NOT_COVERED), "version": answer["version"]}
    lines = [f"{name}: {json.dumps(plain(value), ensure_ascii=False)}" for name, value in recipe.items()]
    contents = {
        TABLE: csv_tables.to_text(HEADER, [dict(zip(HEADER, cells(row), strict=True)) for row in rows]),
        STATEMENT: json.dumps(plain(statement), indent=1) + "\n",
        STATEMENT_TEXT: _markdown(answer, rows),
        RECIPE: "\n".join(lines) + "\n",
        RELEASE: json.dumps({"request": _digest(recipe), "answer": plain(answer)}, indent=1) + "\n",
    }
    for name, content in contents.items():
        raw = content.encode("utf-8", "backslashreplace")  # keys may hold bytes that are no text
        durable_writes.replace(folder / name, raw)
    return tuple(folder / name for name in contents)


def cells(row: Json) -> tuple[object, ...]:
    """The cells of a table for one entry of ``outputs``."""
    interval = row["interval"]
    low, high = interval if isinstance(interval, list) else ("", "")
    key = " ".join(str(row[name]) for name in ("key", "bin") if row.get(name) is not None)
    return key, row["name"], row["value"], low, high, row["standard_error"]


def _markdown(answer: Json, rows: Sequence[Json]) -> str:
    table = ["| key | output | value | lower | upper | standard error |", "|---|---|---|---|---|---|"]
    for row in rows:
        shown = ("" if cell is None else str(cell).replace("|", "\\|").replace("\n", " ") for cell in cells(row))
        table.append(f"| {' | '.join(shown)} |")
    warnings = answer["warnings"]
    assert isinstance(warnings, list)
    return "\n".join(["# Release", "", *warnings, str(answer["statement"]), "", *table, ""])
