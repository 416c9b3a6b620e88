"""Recipes of trainings with keys changed: one change, or the cells of a grid."""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from wpriv.config import document, resolve_train
from wpriv.config.grid_schema import Axis
from wpriv.config.recipe import Recipe, check
from wpriv.errors import UsageError

MAX_CELLS = 10_000
# keys of a sweep or of a tuned training that its cells do not have
KEYS_OF_SWEEPS = ("sweep", "seeds", "tune", "cluster", "expect", "figure", "claims", "time")


@dataclass(frozen=True)
class Cell:
    """One training of a sweep: its position in the grid and its recipe, which has no sweep."""

    labels: dict[str, Any]
    recipe: Recipe

    @property
    def name(self) -> str:
        """``privacy.eps=2,seed=0``: the name of its folder."""
        return ",".join(f"{key}={value}" for key, value in self.labels.items()).replace("/", "_")


def changed(recipe: Recipe, changes: Mapping[str, Any]) -> Recipe:
    """Return the recipe with the values at some dotted paths replaced."""
    data = recipe.data
    for path, value in changes.items():
        data = resolve_train.overridden(data, path, value)
    words = ", ".join(f"{path}={value}" for path, value in changes.items())
    validated = check(document.of_data(f"{recipe.name} with {words}", data))
    return replace(validated, name=recipe.name, quick=recipe.quick, changed=True)


def grid_of(recipe: Recipe, over: Sequence[Axis]) -> list[Cell]:
    """Return the product of axes, each cell a recipe without sweep, tuning and published numbers."""
    axes = [[(axis.over, *point) for point in axis.points()] for axis in over]
    points = list(itertools.islice(itertools.product(*axes), MAX_CELLS + 1))
    if len(points) > MAX_CELLS:
        raise UsageError(f"{recipe.name} has more than {MAX_CELLS:,} trainings; give fewer values")
    data = {key: value for key, value in recipe.data.items() if key not in KEYS_OF_SWEEPS}
    single = replace(recipe, claims=(), time=None, data=data)
    grid = []
    for point in points:
        changes = {path: value for _, _, keys in point for path, value in keys.items()}
        grid.append(Cell({over: label for over, label, _ in point}, changed(single, changes)))
    return grid
