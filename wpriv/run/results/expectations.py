"""Compare expected numbers with ours: the ``expect`` rows of a recipe, the results, and the stated tolerance."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from wpriv.config.recipe import Check, Recipe
from wpriv.errors import CheckFailed
from wpriv.files import durable_writes
from wpriv.files.json_values import plain
from wpriv.run.results import file_names, means

# a grid point and the number that names it may differ by rounding: linspace(0, 4, 81) holds 0.30000000000000004
ROUNDING = 1e-9
SCHEMA = "wpriv.expect/1"
# the key that marks a row for a number that the recipe expects since its results were stored
NOT_MEASURED = "not_measured"
MAX_SHOWN = 5  # missed numbers in an error


@dataclass(frozen=True)
class Verdict:
    """One expected number: ``difference`` is relative unless ``absolute``; ``ours`` is None without a row or an answer.

    ``kind`` is published (printed in the source), reference (computed apart) or own (an earlier run, of the version
    ``commit``). ``ok`` is whether it is within the tolerance; a number that is only shown (``held`` is false) is never
    missed. Of repeated runs ``ours`` is the mean of ``seeds`` runs, and ``deviation`` the standard deviation of one.
    """

    panel: str
    where: dict[str, Any]
    column: str
    kind: str
    expected: float
    ours: float | None
    difference: float | None
    within: float
    absolute: bool
    ok: bool
    held: bool
    source: str
    commit: str | None = None
    noise_version: int | None = None
    seeds: int = 1
    deviation: float | None = None

    @property
    def word(self) -> str:
        """The verdict as the table shows it."""
        return verdict_word(vars(self))

    def as_dict(self) -> dict[str, Any]:
        return dict(vars(self))


def verdict_word(row: Mapping[str, Any]) -> str:
    """Return the verdict of a row of ``expect.json`` as a terminal shows it; pages show it in small letters."""
    if row["ok"]:
        return "same commit" if row.get("same_commit") else "ok"
    if row.get(NOT_MEASURED):
        return "not measured yet"
    return "MISSED" if row["held"] else "not met"


def is_missed(row: Mapping[str, Any]) -> bool:
    """Tell whether a row of ``expect.json`` is a number that must be met and is not."""
    return bool(row["held"] and not row["ok"] and not row.get(NOT_MEASURED))


def counts(rows: Sequence[Mapping[str, Any]]) -> str:
    """Return how many rows of ``expect.json`` are met, of how many; empty where there are none.

    An own number that is met by the commit which it comes from is in neither count: it was compared with itself. Nor is
    a number that was not measured yet.
    """
    compared = [row for row in rows if not (row["ok"] and row.get("same_commit")) and not row.get(NOT_MEASURED)]
    return f"{sum(row['ok'] for row in compared)} of {len(compared)}" if compared else ""


def require(verdicts: list[Verdict]) -> None:
    """Raise CheckFailed if an expected number was missed."""
    missed = [verdict for verdict in verdicts if verdict.held and not verdict.ok]
    if missed:
        words = "; ".join(_missed(verdict) for verdict in missed[:MAX_SHOWN])
        more = "; ..." if len(missed) > MAX_SHOWN else ""
        raise CheckFailed(f"{len(missed)} of {len(verdicts)} expected numbers are missed: {words}{more}")


def verdicts(recipe: Recipe, rows: list[dict[str, Any]], *, first: bool = False) -> list[Verdict]:
    """Return one verdict for every expected number; a ``quick`` recipe leaves out those outside its reduced grid.

    Args:
        first: if several rows match, compare with the first; otherwise the number is missed.
    """
    results = []
    for check in recipe.checks:
        if recipe.quick and not any(_matches(check, row) for row in rows):
            continue
        results += [verdict(check, name, float(number), rows, first=first) for name, number in check.columns.items()]
    return results


def verdict(check: Check, column: str, expected: float, rows: list[dict[str, Any]], *, first: bool = False) -> Verdict:
    """Return the verdict on one expected number; ``first`` as for ``verdicts``."""
    matches = [row for row in rows if _matches(check, row)]
    return _verdict(check, column, expected, matches[0] if len(matches) == 1 or (first and matches) else {})


def write(out: Path, recipe: Recipe, verdicts: list[Verdict]) -> tuple[Path, ...]:
    """Write the verdicts to ``expect.json`` and return its path; nothing where the recipe expects no numbers.

    Raises:
        MissingResource: it cannot be written.
    """
    if not recipe.checks:
        return ()
    path = out / file_names.EXPECT
    rows = plain([verdict.as_dict() for verdict in verdicts])
    text = json.dumps({"schema": SCHEMA, "recipe": recipe.name, "quick": recipe.quick, "expect": rows}, indent=2) + "\n"
    # a finished folder that may no longer be written to is still read
    if not path.is_file() or path.read_text(encoding="utf-8") != text:
        durable_writes.replace(path, text)
    return (path,)


def is_same(value: Any, expected: Any) -> bool:
    """Return True if a cell holds the expected value, for numbers up to rounding.

    >>> is_same(0.1 + 0.2, 0.3), is_same(math.inf, "inf")
    (True, True)
    """
    if isinstance(value, (int, float)) and isinstance(expected, (int, float)):
        return math.isclose(value, expected, rel_tol=ROUNDING)  # never true of an infinite and a finite one
    # recipes have infinity as a word, and stored tables are read with numbers
    return bool(value == expected) or str(value) == str(expected) == "inf"


def _missed(verdict: Verdict) -> str:
    place = ", ".join(f"{key}={value}" for key, value in verdict.where.items()) or "the only row"
    if verdict.ours is None:
        return f"{verdict.column} at {place} has no such row, or no answer there"
    wanted = f"{verdict.expected:g} within {verdict.within:g}"
    return f"{verdict.column} at {place} should be {wanted}, found {verdict.ours:.6g}"


def _matches(check: Check, row: dict[str, Any]) -> bool:
    if check.panel and row.get("panel") != check.panel:
        return False
    return all(is_same(row.get(name), value) for name, value in check.where.items())


def _verdict(check: Check, column: str, expected: float, row: dict[str, Any]) -> Verdict:
    expect, ours = check.expect, row.get(column)
    difference, ok = None, False
    if ours is not None and math.isfinite(ours):
        difference = ours - expected if expect.absolute else _relative(ours - expected, expected)
        # above zero where the number is on the wrong side
        excess = -difference if expect.at_least else difference if expect.at_most else abs(difference)
        ok = excess <= expect.within
    return Verdict(
        check.panel,
        check.where,
        column,
        expect.kind,
        expected,
        ours,
        difference,
        expect.within,
        expect.absolute,
        ok,
        expect.held,
        expect.source,
        expect.commit,
        expect.noise_version,
        int(row.get(means.SEEDS) or 1),
        row.get(f"{column}{means.DEVIATION}"),
    )


def _relative(difference: float, expected: float) -> float:
    if expected:
        return difference / abs(expected)
    return math.copysign(math.inf, difference) if difference else 0.0
