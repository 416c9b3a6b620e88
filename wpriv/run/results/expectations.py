"""Published numbers beside ours: what a recipe expects, what came out, and whether it is within the stated tolerance."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

from wpriv.config.recipe import Check, Recipe
from wpriv.errors import CheckFailed

# a grid point and the number it is named by may differ by rounding: linspace(0, 4, 81) holds 0.30000000000000004
SAME = 1e-9


@dataclass(frozen=True)
class Verdict:
    """One expected number: ``difference`` is relative unless ``absolute``; ``ours`` is None where no row or no answer is there.

    ``ok`` is whether it is within; a number that is only shown (``held`` is false) is never missed.
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
        """How the table says it."""
        return "ok" if self.ok else "MISSED" if self.held else "not reached"

    def as_dict(self) -> dict[str, Any]:
        return dict(vars(self))


def require(found: list[Verdict]) -> None:
    """Raises CheckFailed where a published number was missed."""
    missed = [v for v in found if v.held and not v.ok]
    if missed:
        told = "; ".join(_missed(v) for v in missed[:5]) + ("; ..." if len(missed) > 5 else "")
        raise CheckFailed(f"{len(missed)} of {len(found)} expected numbers are missed: {told}")


def _missed(v: Verdict) -> str:
    where = ", ".join(f"{k}={value}" for k, value in v.where.items())
    if v.ours is None:
        return f"{v.column} at {where or 'the only row'} has no such row, or no answer there"
    return f"{v.column} at {where or 'the only row'} should be {v.paper:g} within {v.within:g}, found {v.ours:.6g}"


def verdicts(recipe: Recipe, rows: list[dict[str, Any]], *, first: bool = False) -> list[Verdict]:
    """One verdict for every expected number; under ``quick`` those outside the reduced grid are left out.

    Args:
        first: of several rows that fit, the first is meant.
    """
    found = []
    for check in recipe.checks:
        hits = [row for row in rows if _matches(check, row)]
        hits = hits[:1] if first else hits
        if not hits and recipe.quick:
            continue
        for column, paper in check.columns.items():
            ours = hits[0].get(column) if len(hits) == 1 else None
            found.append(_verdict(check, column, float(paper), ours))
    return found


def _matches(check: Check, row: dict[str, Any]) -> bool:
    if check.panel and row.get("panel") != check.panel:
        return False
    return all(_same(row.get(name), value) for name, value in check.where.items())


def _same(found: Any, wanted: Any) -> bool:
    if isinstance(found, (int, float)) and isinstance(wanted, (int, float)):
        return found == wanted or abs(found - wanted) <= SAME * max(abs(found), abs(wanted))
    return bool(found == wanted)


def _verdict(check: Check, column: str, paper: float, ours: float | None) -> Verdict:
    expect = check.expect
    difference, ok = None, False
    if ours is not None and math.isfinite(ours):
        difference = ours - paper
        if not expect.absolute:
            difference = (
                difference / abs(paper) if paper else math.copysign(math.inf, difference) if difference else 0.0
            )
        ok = (-difference if expect.at_least else abs(difference)) <= expect.within
    about = (expect.within, expect.absolute, ok, expect.held, expect.source)
    return Verdict(check.panel, check.where, column, paper, ours, difference, *about)
