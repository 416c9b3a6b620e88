"""Finished results folders: whether they are those of a recipe as it is today, and its expected numbers beside theirs.

Expected numbers, sources and claims of a recipe may change after it was run; the results stay those of the recipe.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from wpriv.config import resolve_train, yaml_document
from wpriv.config.recipe import Check, Recipe
from wpriv.errors import UsageError
from wpriv.run.results import expectations, file_names, means, stored_json, write
from wpriv.run.results.expectations import Verdict

Row = dict[str, Any]
# columns of which the claim of a row speaks; other columns of trainings are measured
_PROMISED = ("epsilon", "delta", "sigma", "noise")


def is_of(recipe: Recipe, folder: Path) -> bool:
    """Return True if a folder holds results of this recipe, with equal keys in all that decides the results."""
    try:
        data = yaml_document.read(folder / file_names.RECIPE).data
    except UsageError:
        return False
    return bool(essence(data) == essence(json.loads(json.dumps(recipe.data))))


def essence(data: Any) -> Any:
    """Return what decides the results of a recipe: without texts, figures and expected numbers, files by name."""
    if isinstance(data, Mapping) and data.get("kind") == "train":
        return _names_of_files(resolve_train.essence(data))
    return _names_of_files(write.essence(data))


def with_names_of_files(data: Row) -> Row:
    """Return a recipe with the files of observations that it reads without the folders that hold them."""
    return dict(_names_of_files(data))


def _names_of_files(data: Any) -> Any:
    if isinstance(data, Mapping):
        return {
            key: Path(value).name if key == "file" and isinstance(value, str) else _names_of_files(value)
            for key, value in data.items()
        }
    return [_names_of_files(value) for value in data] if isinstance(data, list) else data


def entries(path: Path) -> list[Row]:
    """Return the rows of ``expect.json``; none where the recipe expects no numbers.

    Raises:
        UsageError: the file is damaged. MissingResource: it cannot be read.
    """
    if not path.exists():
        return []
    rows = stored_json.read(path).get("expect")
    needed = {"panel", "where", "column", "kind", "expected", "ours", "difference", "within", "absolute", "source"}
    if not isinstance(rows, list) or not all(
        isinstance(row, dict) and {*needed, "ok", "held"} <= set(row) for row in rows
    ):
        raise UsageError(f"{path} is damaged: it lacks the expected numbers")
    return rows


def answered(check: Check, column: str, expected: float, entries: Sequence[Row]) -> tuple[Verdict, str | None] | None:
    """Return the verdict on an expected number by the rows of an ``expect.json``, and the claim of our number.

    None where they have no answer at that place.
    """
    for entry in entries:
        if entry["column"] == column and entry["panel"] == check.panel and _is_same_place(entry["where"], check.where):
            row = {
                "panel": check.panel,
                **check.where,
                # JSON has neither infinities nor NaN: expect.json names them
                column: float(entry["ours"]) if isinstance(entry["ours"], str) else entry["ours"],
                means.SEEDS: entry.get("seeds", 1),
                f"{column}{means.DEVIATION}": entry.get("deviation"),
            }
            return expectations.verdict(check, column, expected, [row]), entry.get("claim")
    return None


def _is_same_place(one: Row, other: Row) -> bool:
    return set(one) == set(other) and all(expectations.is_same(one[key], value) for key, value in other.items())


def today(recipe: Recipe, entries: Sequence[Row], table: Sequence[Row] = ()) -> list[Row]:
    """Return rows of ``expect.json`` for the numbers that a recipe expects today, by the answers of its earlier run.

    A bound from one side has the key ``side``: at least, or at most. A number that is expected since then is looked up
    in the table of that run. Where it has none, the row is marked as not measured; a quick run, whose grid lacks most
    of the numbers, has no such rows.

    Args:
        entries: the rows of ``expect.json``. table: all rows of the results, or none where some were left out.
    """
    rows = []
    for check in recipe.checks:
        for column, number in check.columns.items():
            verdict, claim = answered(check, column, float(number), entries) or (
                _of_table(recipe, check, column, float(number), table),
                None,
            )
            if verdict is not None:
                rows.append({**verdict.as_dict(), "claim": claim, **_side(check)})
            elif not recipe.quick:
                verdict = expectations.verdict(check, column, float(number), [])
                rows.append({**verdict.as_dict(), "claim": None, **_side(check), expectations.NOT_MEASURED: True})
    return rows


def _of_table(recipe: Recipe, check: Check, column: str, expected: float, table: Sequence[Row]) -> Verdict | None:
    """The verdict on an expected number by the table of a run; None where no row has an answer."""
    training = recipe.training
    # the table of one training is its course, of which the end counts
    rows = list(table[-1:] if training is not None and not training.has_several else table)
    first = training is not None and training.sweep is None
    verdict = expectations.verdict(check, column, expected, rows, first=first)
    return None if verdict.ours is None else verdict


def _side(check: Check) -> Row:
    """The side from which an expected number is a bound; nothing for a value."""
    if check.expect.at_least:
        return {"side": "at least"}
    return {"side": "at most"} if check.expect.at_most else {}


def with_claims(rows: list[Row], table: Sequence[Row], kind: str) -> list[Row]:
    """Return rows of ``expect.json`` with the claim of our number: exact, certified, ..., or measured.

    Args:
        table: the rows of the results. kind: of the recipe.
    """
    return [row if row.get("claim") else {**row, "claim": _claim(row, table, kind)} for row in rows]


def with_same_commit(rows: list[Row], commit: object) -> list[Row]:
    """Return rows of ``expect.json``, those marked whose expected number is an own one of the commit of the results."""
    return [
        {**row, "same_commit": True}
        if row["kind"] == "own" and row.get("commit") and str(commit).startswith(str(row["commit"]))
        else row
        for row in rows
    ]


def _claim(entry: Row, table: Sequence[Row], kind: str) -> str | None:
    if kind == "train" and entry["column"] not in _PROMISED:
        return "measured"
    place = {**({"panel": entry["panel"]} if entry["panel"] else {}), **entry["where"]}
    words = {
        row.get("claim")
        for row in table
        if all(expectations.is_same(row.get(key), value) for key, value in place.items())
    }
    return words.pop() if len(words) == 1 else None
