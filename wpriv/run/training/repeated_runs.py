"""Repeated trainings (``seeds: 5``): the runs of each setting, each a training in a folder of its own."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from wpriv.config.recipe import Recipe
from wpriv.errors import UsageError
from wpriv.run.results.means import RUN
from wpriv.run.training import recipe_grid, tuning_draw
from wpriv.run.training.recipe_grid import Cell


def count(recipe: Recipe) -> int:
    """Return the number of runs of each setting."""
    assert recipe.training is not None
    return recipe.training.seeds or 1


def cells(recipe: Recipe) -> list[Cell]:
    """Return all trainings of a recipe: the points of its sweep in the order of its axes, and the runs of each.

    A run of a recipe with a fixed seed has a seed of its own that is derived from it.

    Raises:
        UsageError: a training is no valid recipe, or there are more than 10,000.
    """
    assert recipe.training is not None
    grid, runs = recipe_grid.grid_of(recipe, recipe.training.sweep or []), count(recipe)
    if runs == 1:
        return grid
    if len(grid) * runs > recipe_grid.MAX_CELLS:
        raise UsageError(
            f"{recipe.name} has more than {recipe_grid.MAX_CELLS:,} trainings; give fewer values or fewer seeds"
        )
    return [_run_of(cell, number) for cell in grid for number in range(1, runs + 1)]


def _run_of(cell: Cell, number: int) -> Cell:
    assert cell.recipe.training is not None
    seed = tuning_draw.seed_of_run(cell.recipe.training.seed, number)
    recipe = cell.recipe if seed is None else recipe_grid.changed(cell.recipe, {"seed": seed})
    return Cell({**cell.labels, RUN: number}, recipe)


def setting(labels: Mapping[str, Any]) -> tuple[Any, ...]:
    """Return what the runs of one setting have in common: their labels without the number of the run."""
    return tuple((name, value) for name, value in labels.items() if name != RUN)
