"""Compare published numbers with ours: the ``expect`` rows of a recipe, the results, and the stated tolerance."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

from wpriv.config.recipe import Check, Recipe
from wpriv.errors import CheckFailed

# a grid point and the number that names it may differ by rounding: linspace(0, 4, 81) holds 0.30000000000000004
ROUNDING = 1e-9
MAX_SHOWN = 5  # missed numbers in an error


@dataclass(frozen=True)
class Verdict:
    """One expected number: ``difference`` is relative unless ``absolute``; ``ours`` is None without a row or an answer.

    ``ok`` is whether it is within the tolerance; a number that is only shown (``held`` is false) is never missed.
    """

    panel: str
    where: dict[str, Any]
    column: str
    paper: float
    ours: float | None
    difference: float | None
    within: float
    absolute: bool
    ok: bool
    held: bool
    source: str

    @property
    def word(self) -> str:
        """The verdict as the table shows it."""
        return "ok" if self.ok else "MISSED" if self.held else "not reached"

    def as_dict(self) -> dict[str, Any]:
        return dict(vars(self))


def require(verdicts: list[Verdict]) -> None:
    """Raise CheckFailed if a published number was missed."""
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
        matches = [row for row in rows if _matches(check, row)]
        matches = matches[:1] if first else matches
        if not matches and recipe.quick:
            continue
        for column, paper in check.columns.items():
            ours = matches[0].get(column) if len(matches) == 1 else None
            results.append(_verdict(check, column, float(paper), ours))
    return results


def is_same(value: Any, expected: Any) -> bool:
    """Return True if a cell holds the expected value, for numbers up to rounding."""
    if isinstance(value, (int, float)) and isinstance(expected, (int, float)):
        return value == expected or abs(value - expected) <= ROUNDING * max(abs(value), abs(expected))
    return bool(value == expected)


def _missed(verdict: Verdict) -> str:
    place = ", ".join(f"{key}={value}" for key, value in verdict.where.items()) or "the only row"
    if verdict.ours is None:
        return f"{verdict.column} at {place} has no such row, or no answer there"
    return (
        f"{verdict.column} at {place} should be {verdict.paper:g} within {verdict.within:g}, found {verdict.ours:.6g}"
    )


def _matches(check: Check, row: dict[str, Any]) -> bool:
    if check.panel and row.get("panel") != check.panel:
        return False
    return all(is_same(row.get(name), value) for name, value in check.where.items())


def _verdict(check: Check, column: str, paper: float, ours: float | None) -> Verdict:
    expect = check.expect
    difference, ok = None, False
    if ours is not None and math.isfinite(ours):
        difference = ours - paper if expect.absolute else _relative(ours - paper, paper)
        ok = (-difference if expect.at_least else abs(difference)) <= expect.within
    return Verdict(
        check.panel,
        check.where,
        column,
        paper,
        ours,
        difference,
        expect.within,
        expect.absolute,
        ok,
        expect.held,
        expect.source,
    )


def _relative(difference: float, paper: float) -> float:
    if paper:
        return difference / abs(paper)
    return math.copysign(math.inf, difference) if difference else 0.0
