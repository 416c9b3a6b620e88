"""A short summary of a results folder: numbers, statement and files, in lines."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path

from wpriv.errors import UsageError
from wpriv.results import model, storage
from wpriv.results.model import OfAll, Row, Statement, Together
from wpriv.training.reports import words
from wpriv.training.reports.model_check import ModelCheck

SCHEMA = "wpriv.report/1"
NO_MEASUREMENTS = ("epoch", "step", "epsilon", "seconds")


def of_training(path: Path, statement: Statement, weights: ModelCheck) -> tuple[str, Row]:
    """Return the summary of a finished training, as text and as plain data."""
    last = last_metrics(path)
    data, measured = statement.data, {key: value for key, value in last.items() if key not in NO_MEASUREMENTS}
    files = [entry for entry in statement.publish if (path / entry.file).exists()]
    steps = f", {last['step']} steps" if "step" in last else ""
    rows = [("trained", f"{statement.task} on {data.records} records of {data.name}{steps}")]
    if measured:
        shown = ", ".join(f"{key} {value:.4g}" for key, value in measured.items() if isinstance(value, (int, float)))
        rows.append(("measured", f"{shown} (without noise: not for publication)"))
    rows.append(("guarantee", words.promise(statement)))
    if (source := statement.protection) is not None:
        rows += [("neighbours", source.neighbours), ("delta", words.delta(source.delta))]
    rows.append(("weights", weights.words))
    rows += [("warning", warning) for warning in statement.warnings]
    for heading, answer in (("publish", "yes"), ("keep", "no")):
        if names := [entry.file for entry in files if entry.publish == answer]:
            rows.append((heading, ", ".join(names)))
    summary = {
        "schema": SCHEMA,
        "kind": "training",
        "recipe": statement.recipe,
        "promise": words.promise(statement),
        "private": statement.private,
        "metrics": last,
        "guarantees": [] if statement.releases is None else [row.as_dict() for row in statement.releases.guarantees],
        "model": weights.verdict,
        "warnings": statement.warnings,
        "files": [entry.as_dict() for entry in files],
    }
    return _lines(statement.recipe, statement.source, rows), summary


def of_table(path: Path, kind: str, recipe: Mapping[str, object], provenance: Mapping[str, object]) -> tuple[str, Row]:
    """Return the summary of a comparison or a sweep, as text and as plain data.

    Args:
        recipe: the content of recipe.yaml. provenance: the content of provenance.json; both may be empty.
    """
    table = storage.table(path / storage.TABLE)
    names = dict.fromkeys(str(row["accountant"]) for row in table if row.get("accountant"))
    rows = [("rows", f"{len(table)} in {storage.TABLE}, columns {', '.join(table[0])}")]
    accountants = []
    for name in names:
        part = [row for row in table if row.get("accountant") == name]
        claims = list(dict.fromkeys(str(row["claim"]) for row in part if row.get("claim")))
        ranges = {key: _range(part, key) for key in ("epsilon", "delta")}
        accountants.append({"accountant": name, "rows": len(part), "claims": claims, **ranges})
        figures = [f"{key} {shown(ends)}" for key, ends in ranges.items() if ends]
        rows.append((name, ", ".join([f"{len(part)} rows", "/".join(claims) or "no answer", *figures])))
    together, warnings = statement_of_all(path)
    trainings = sorted(file.parent.name for file in path.glob(f"*/{storage.STATEMENT}"))
    if kind == "sweep":
        rows.append(("trainings", f"{len(trainings)} finished, each with a statement: {', '.join(trainings)}"))
        rows += lines_of_all(together, warnings)
    files = sorted(item.name for item in path.iterdir() if item.is_file())
    rows.append(("files", ", ".join(files)))
    name = str(provenance.get("recipe") or path.name)
    summary = {
        "schema": SCHEMA,
        "kind": kind,
        "recipe": name,
        "rows": len(table),
        "accountants": accountants,
        "trainings": trainings,
        "files": files,
        **({"together": together.as_dict(), "warnings": warnings} if together is not None else {}),
    }
    return _lines(name, str(recipe.get("source", "no source given")), rows), summary


def statement_of_all(path: Path) -> tuple[Together | None, list[str]]:
    """Return the guarantee of several trainings together and its warnings; None where there is no such statement.

    Raises:
        UsageError: the statement is damaged.
    """
    file = path / storage.STATEMENT
    if not file.exists():
        return None, []
    data = model.json_object(file)
    if "together" not in data:
        return None, []
    stated = model.checked(OfAll, data, file, "Write it again by the command of the trainings")
    return stated.together, stated.warnings


def lines_of_all(together: Together | None, warnings: list[str]) -> list[tuple[str, str]]:
    """Return the lines on the guarantee of several trainings together, and the warnings, with their names."""
    if together is None:
        return []
    return [("together", words.guarantee_of_all(together)), *(("warning", line) for line in warnings)]


def last_metrics(path: Path) -> Row:
    """Return the last row of the metrics; empty if they cannot be read."""
    try:
        return storage.table(path / storage.METRICS)[-1]
    except UsageError:
        return {}


def _range(rows: list[Row], key: str) -> list[float] | None:
    values = [row[key] for row in rows if isinstance(row.get(key), (int, float))]
    return [min(values), max(values)] if values else None


def shown(ends: list[float] | None) -> str:
    """Return a range of figures, rounded up; nothing where there is none."""
    if not ends:
        return ""
    low, high = (words.up(float(end)) for end in ends)
    return low if low == high else f"{low} to {high}"


def _lines(title: str, source: str, rows: Iterable[tuple[str, str]]) -> str:
    entries = list(rows)
    width = max(len(name) for name, _ in entries) + 2
    return "\n".join([f"{title}: {source}", *(f"{name.ljust(width)}{value}" for name, value in entries)])
