"""A short summary of a results folder: numbers, statement and files, in lines."""

from __future__ import annotations

import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from wpriv.errors import UsageError
from wpriv.numerics.safe_rounding import text
from wpriv.run.results import file_names, model_header, read
from wpriv.run.results.model_check import ModelCheck

SCHEMA = "wpriv.report/1"
NO_MEASUREMENTS = ("epoch", "step", "epsilon", "seconds")


def of_training(path: Path, statement: dict[str, Any], model: ModelCheck) -> tuple[str, dict[str, Any]]:
    """Return the summary of a finished training, as text and as plain data."""
    last = _last_metrics(path)
    data, measured = statement["data"], {key: value for key, value in last.items() if key not in NO_MEASUREMENTS}
    source = statement.get("reports", statement)
    files = [entry for entry in statement["publish"] if (path / entry["file"]).exists()]
    rows = [("trained", f"{statement['task']} on {data['records']} records of {data['name']}{_steps(last)}")]
    if measured:
        words = ", ".join(f"{key} {value:.4g}" for key, value in measured.items() if isinstance(value, (int, float)))
        rows.append(("measured", f"{words} (without noise: not for publication)"))
    rows.append(("guarantee", model_header.promise(statement)))
    if statement["private"] or "reports" in statement:
        rows += [("neighbours", f"{source['adjacency']}: {source['adjacency_means']}")]
        rows += [("delta", f"{text(source['delta']['value'], up=True)} = {source['delta']['meaning']}")]
    rows.append(("weights", model.words))
    rows += [("warning", warning) for warning in statement.get("warnings", [])]
    rows += [(heading, ", ".join(names)) for heading, names in _by_answer(files) if names]
    summary = {
        "schema": SCHEMA,
        "kind": "training",
        "recipe": statement["recipe"],
        "promise": model_header.promise(statement),
        "private": statement["private"],
        "metrics": last,
        "guarantees": statement.get("guarantees", []),
        "model": model.verdict,
        "warnings": statement.get("warnings", []),
        "files": files,
    }
    return _lines(str(statement["recipe"]), str(statement["source"]), rows), summary


def of_table(path: Path, kind: str, recipe: dict[str, Any], provenance: dict[str, Any]) -> tuple[str, dict[str, Any]]:
    """Return the summary of a comparison or a sweep, as text and as plain data.

    Args:
        recipe: the content of recipe.yaml. provenance: the content of provenance.json; both may be empty.
    """
    table = read.table(path / file_names.TABLE)
    names = dict.fromkeys(str(row["accountant"]) for row in table if row.get("accountant"))
    rows = [("rows", f"{len(table)} in {file_names.TABLE}, columns {', '.join(table[0])}")]
    accountants = []
    for name in names:
        part = [row for row in table if row.get("accountant") == name]
        claims = list(dict.fromkeys(str(row["claim"]) for row in part if row.get("claim")))
        ranges = {key: _range(part, key) for key in ("epsilon", "delta")}
        accountants.append({"accountant": name, "rows": len(part), "claims": claims, **ranges})
        shown = [f"{key} {_shown(ends)}" for key, ends in ranges.items() if ends]
        rows.append((name, ", ".join([f"{len(part)} rows", "/".join(claims) or "no answer", *shown])))
    together, warnings = statement_of_all(path)
    trainings = sorted(file.parent.name for file in path.glob(f"*/{file_names.STATEMENT}"))
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
        **({"together": together, "warnings": warnings} if together is not None else {}),
    }
    return _lines(name, str(recipe.get("source", "no source given")), rows), summary


def statement_of_all(path: Path) -> tuple[dict[str, Any] | None, list[str]]:
    """Return the guarantee of several trainings together and its warnings; None where there is no such statement.

    Raises:
        UsageError: the statement is damaged.
    """
    file = path / file_names.STATEMENT
    if not file.exists():
        return None, []
    try:
        statement = json.loads(file.read_text(encoding="utf-8"))
        if isinstance(statement, dict) and "together" not in statement:
            return None, []
        together = dict(statement["together"])
        guarantee_of_all(together)
        return together, [str(line) for line in statement["warnings"]]
    except (OSError, ValueError, KeyError, TypeError, RecursionError) as error:
        raise UsageError(
            f"{file} is damaged ({type(error).__name__}: {error}). Write it again by the command of the trainings"
        ) from None


def guarantee_of_all(together: dict[str, Any]) -> str:
    """Return the guarantee of several trainings together in words, rounded up; or why there is none."""
    if together.get("epsilon") is None:
        return f"no figure, since {together.get('problem')}"
    eps = text(together["epsilon"], up=True)
    delta = text(together["delta"], up=True)
    return f"eps = {eps} at delta = {delta}, {together['claim']} by {together['accountant']}"


def lines_of_all(together: dict[str, Any] | None, warnings: list[str]) -> list[tuple[str, str]]:
    """Return the lines on the guarantee of several trainings together, and the warnings, with their names."""
    if together is None:
        return []
    return [("together", guarantee_of_all(together)), *(("warning", line) for line in warnings)]


def _last_metrics(path: Path) -> dict[str, Any]:
    """The last row of the metrics; empty if they cannot be read."""
    try:
        return dict(read.table(path / file_names.METRICS)[-1])
    except UsageError:
        return {}


def _steps(last: dict[str, Any]) -> str:
    return f", {last['step']} steps" if "step" in last else ""


def _by_answer(files: list[dict[str, str]]) -> list[tuple[str, list[str]]]:
    answers = (("publish", "yes"), ("keep", "no"))
    return [(name, [entry["file"] for entry in files if entry["publish"] == answer]) for name, answer in answers]


def _range(rows: list[dict[str, Any]], key: str) -> list[float] | None:
    values = [row[key] for row in rows if isinstance(row.get(key), (int, float))]
    return [min(values), max(values)] if values else None


def _shown(ends: list[float]) -> str:
    low, high = (text(end, up=True) for end in ends)
    return low if low == high else f"{low} to {high}"


def _lines(title: str, source: str, rows: Iterable[tuple[str, str]]) -> str:
    entries = list(rows)
    width = max(len(name) for name, _ in entries) + 2
    return "\n".join([f"{title}: {source}", *(f"{name.ljust(width)}{value}" for name, value in entries)])
