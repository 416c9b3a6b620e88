"""A results folder of wpriv: its ledger is what ran, and its statement what is claimed of it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

from wpriv.accounting import ledger
from wpriv.accounting.history import History, ledger_of, read_history
from wpriv.checks.premises import Fact, Found
from wpriv.checks.readers import _documents
from wpriv.checks.readers._documents import items, mapping
from wpriv.errors import Unsupported, UsageError
from wpriv.results import storage

# of the note of a history that a group has to be given, which is read here
GIVEN = "has to be given here as well"


def recognises(x: object) -> bool:
    """Tell whether x is a folder of a training or release that has a ledger, or the ledger or statement in one."""
    return isinstance(x, Path) and _folder(x) is not None


def _folder(path: Path) -> Path | None:
    try:
        folder = path if path.is_dir() else path.parent if path.name in (storage.LEDGER, storage.STATEMENT) else None
        return folder if folder is not None and ledger_of(folder) is not None else None
    except (OSError, ValueError):
        return None


def read(x: object, further: Mapping[str, object]) -> Found:
    """Read the ledger, which is compared with the statement, and the claim of the statement."""
    assert isinstance(x, Path)
    folder = _folder(x)
    assert folder is not None
    file = ledger_of(folder) or folder / storage.LEDGER
    statement: Mapping[str, object] = {}
    if (folder / storage.STATEMENT).is_file():
        statement = mapping(_documents.document(folder / storage.STATEMENT), storage.STATEMENT)
    history = read_history(folder)
    if statement.get("task") == "release":
        history = _of_release(file, history, mapping(statement.get("ledger") or {}, "ledger").get("lines"))
    facts, notes = list[Fact](), [note for note in history.notes if GIVEN not in note]
    if statement.get("tuning") is not None:
        raise Unsupported(
            f"{folder} is the best of a random number of runs, whose curve is known from above only. Ask "
            f"`wpriv budget` with repeats, or `wpriv verify` of the folder"
        )
    if history.adjacency is not None:
        facts.append(Fact("adjacency", history.adjacency, where=file.name))
    if isinstance(statement.get("unit"), str):
        group = statement.get("group", 1)
        facts.append(Fact("max_per_unit", group, where=f"group of {storage.STATEMENT}"))  # type: ignore[arg-type]
    data = statement.get("data")
    if isinstance(data, Mapping) and isinstance(data.get("records"), int):
        facts.append(Fact("records", data["records"], where=f"data of {storage.STATEMENT}"))
    facts += _claim(statement)
    if statement.get("seed") is None:
        facts.append(Fact("noise.seed", "os", where=f"{storage.STATEMENT} has no seed"))
    else:
        notes.append(f"the seed of the noise is recorded in {storage.STATEMENT}, which must stay secret")
    steps = sum(int(str(step["n"])) for step in history.steps)
    version = mapping(statement.get("versions") or {}, "versions").get("wpriv", "")
    read = (f"{file.name} ({steps} step{'s' * (steps != 1)})", *([storage.STATEMENT] if statement else []))
    return Found(f"wpriv {version}".strip(), tuple(facts), ran=tuple(history.steps), notes=tuple(notes), read=read)


def _of_release(file: Path, history: History, lines: object) -> History:
    """The run of a ledger that ends at a stated line: other runs are releases of their own."""
    entries = ledger.entries(file)[: lines if isinstance(lines, int) else None]
    of_run = [entry for entry in entries if entry.run == ledger.last_run(entries)]
    return replace(history, steps=ledger.process(of_run).describe(), notes=())


def _claim(statement: Mapping[str, object]) -> list[Fact]:
    """The first proven figure of a statement."""
    for row in items(statement.get("guarantees") or (), "guarantees"):
        claim = mapping(row, "a guarantee")
        eps, delta = claim.get("epsilon"), claim.get("delta")
        proven = claim.get("claim") in ("certified", "exact", "upper-bound") and claim.get("notion") == "approximate-dp"
        if not proven or not isinstance(eps, (int, float)) or not isinstance(delta, (int, float)):
            continue
        by = f"wpriv {mapping(statement.get('versions') or {}, 'versions').get('wpriv', '')} {claim.get('accountant')}"
        pairs = {"claim.eps": eps, "claim.delta": delta, "claim.by": by, "claim.kind": "bound"}
        try:
            return [Fact(name, value, where=storage.STATEMENT) for name, value in pairs.items()]
        except UsageError as error:
            raise error.at(storage.STATEMENT) from None
    return []
