"""Published numbers of a results folder, and the rows of its table that they belong to."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from wpriv.config.recipe import Recipe
from wpriv.errors import MissingResource, UsageError
from wpriv.run.results import expectations


@dataclass(frozen=True)
class Published:
    """A published number: the panel and the row that it belongs to, its column and its value."""

    panel: str
    where: dict[str, Any]
    column: str
    value: float


def of_file(path: Path) -> list[Published]:
    """Return the published numbers that ``expect.json`` names; none where it is missing or damaged."""
    try:
        verdicts = expectations.read(path)
    except (UsageError, MissingResource):
        return []
    return [Published(row.panel, row.where, row.column, row.expected) for row in verdicts if row.kind == "published"]


def of_recipe(recipe: Recipe) -> list[Published]:
    """Return the published numbers that a recipe expects."""
    return [
        Published(check.panel, check.where, column, float(value))
        for check in recipe.checks
        if check.expect.kind == "published"
        for column, value in check.columns.items()
    ]


def matched(rows: Any, numbers: Sequence[Published]) -> list[tuple[dict[str, Any], str, float]]:
    """The published numbers that belong to exactly one row: the row, the column and the number."""
    points = []
    for number in numbers:
        where = number.where.items()
        matches = [row for row in rows if all(expectations.is_same(row.get(key), value) for key, value in where)]
        # the row of a training is its last epoch
        if matches and (len(matches) == 1 or "epoch" in matches[-1]):
            points.append((matches[-1], number.column, number.value))
    return points
