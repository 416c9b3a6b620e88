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
from wpriv.run.results import expectations, file_names, means, write
from wpriv.run.results.expectations import Verdict
from wpriv.run.results.model import Row

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


def answered(check: Check, column: str, expected: float, entries: Sequence[Verdict]) -> Verdict | None:
    """Return the verdict on an expected number by those of an earlier run, with the claim of our number.

    None where they have no answer at that place.
    """
    for entry in entries:
        if entry.column == column and entry.panel == check.panel and _is_same_place(entry.where, check.where):
            row = {
                "panel": check.panel,
                **check.where,
                column: entry.ours,
                means.SEEDS: entry.seeds,
                f"{column}{means.DEVIATION}": entry.deviation,
            }
            return expectations.verdict(check, column, expected, [row]).with_entries(claim=entry.claim)
    return None


def _is_same_place(one: Mapping[str, object], other: Mapping[str, object]) -> bool:
    return set(one) == set(other) and all(expectations.is_same(one[key], value) for key, value in other.items())


def today(recipe: Recipe, entries: Sequence[Verdict], table: Sequence[Row] = ()) -> list[Verdict]:
    """Return verdicts on the numbers that a recipe expects today, by the answers of its earlier run.

    A number that is expected since then is looked up in the table of that run. Where it has none, it is not measured; a
    quick run, whose grid lacks most of the numbers, has no such verdicts.

    Args:
        entries: the verdicts of that run. table: all rows of the results, or none where some were left out.
    """
    verdicts = []
    for check in recipe.checks:
        for column, number in check.columns.items():
            verdict = answered(check, column, float(number), entries) or _of_table(recipe, check, column, number, table)
            if verdict is not None:
                verdicts.append(verdict.with_entries(**_side(check)))
            elif not recipe.quick:
                verdict = expectations.verdict(check, column, float(number), [])
                verdicts.append(verdict.with_entries(claim=None, **_side(check), not_measured=True))
    return verdicts


def _of_table(recipe: Recipe, check: Check, column: str, expected: float, table: Sequence[Row]) -> Verdict | None:
    """The verdict on an expected number by the table of a run; None where no row has an answer."""
    training = recipe.training
    # the table of one training is its course, of which the end counts
    rows = list(table[-1:] if training is not None and not training.has_several else table)
    first = training is not None and training.sweep is None
    verdict = expectations.verdict(check, column, float(expected), rows, first=first)
    return None if verdict.ours is None else verdict.with_entries(claim=None)


def _side(check: Check) -> dict[str, str]:
    """The side from which an expected number is a bound; nothing for a value."""
    if check.expect.at_least:
        return {"side": "at least"}
    return {"side": "at most"} if check.expect.at_most else {}


def with_claims(verdicts: list[Verdict], table: Sequence[Row], kind: str) -> list[Verdict]:
    """Return verdicts with the claim of our number: exact, certified, ..., or measured.

    Args:
        table: the rows of the results. kind: of the recipe.
    """
    return [each if each.claim else each.with_entries(claim=_claim(each, table, kind)) for each in verdicts]


def with_same_commit(verdicts: list[Verdict], commit: object) -> list[Verdict]:
    """Return verdicts, those marked whose expected number is an own one of the commit of the results."""
    return [
        each.with_entries(same_commit=True)
        if each.kind == "own" and each.commit and str(commit).startswith(each.commit)
        else each
        for each in verdicts
    ]


def _claim(verdict: Verdict, table: Sequence[Row], kind: str) -> str | None:
    if kind == "train" and verdict.column not in _PROMISED:
        return "measured"
    place = {**({"panel": verdict.panel} if verdict.panel else {}), **verdict.where}
    words = {
        row.get("claim")
        for row in table
        if all(expectations.is_same(row.get(key), value) for key, value in place.items())
    }
    return words.pop() if len(words) == 1 else None
