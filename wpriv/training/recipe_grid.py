"""The trainings of a recipe with several: the points of its sweep, each with its repeated runs."""

from __future__ import annotations

import hashlib
import itertools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from wpriv.config import document, resolve
from wpriv.config.recipe import Recipe, check
from wpriv.config.train_schema import Axis
from wpriv.errors import UsageError
from wpriv.results.expectations import RUN

MAX_CELLS = 10_000
# keys of a sweep or of a tuned training that its cells do not have
KEYS_OF_SWEEPS = ("sweep", "seeds", "tune", "cluster", "expect", "figure", "claims", "time")
Labels = dict[str, int | float | str]


@dataclass(frozen=True)
class Cell:
    """One training of a grid: its position, its recipe, which has no sweep, and the name of its folder."""

    labels: Labels
    recipe: Recipe
    folder: str = ""

    @property
    def name(self) -> str:
        """``privacy.eps=2,seed=0``, unless the folder has another name."""
        return self.folder or ",".join(f"{key}={value}" for key, value in self.labels.items()).replace("/", "_")

    @property
    def setting(self) -> tuple[tuple[str, int | float | str], ...]:
        return setting(self.labels)


def setting(labels: Labels) -> tuple[tuple[str, int | float | str], ...]:
    """Return what the runs of one setting have in common: their labels without the number of the run."""
    return tuple((name, value) for name, value in labels.items() if name != RUN)


def changed(recipe: Recipe, changes: Mapping[str, object]) -> Recipe:
    """Return the recipe with the values at some dotted paths replaced."""
    data = recipe.data
    for path, value in changes.items():
        data = resolve.overridden(data, path, value)
    words = ", ".join(f"{path}={value}" for path, value in changes.items())
    validated = check(document.of_data(f"{recipe.name} with {words}", data))
    return replace(validated, name=recipe.name, quick=recipe.quick, changed=True)


def runs_of(recipe: Recipe) -> int:
    """Return the number of runs of each setting."""
    return recipe.train.seeds or 1


def cells(recipe: Recipe) -> list[Cell]:
    """Return all trainings of a recipe: the points of its sweep in the order of its axes, each with its runs.

    Raises:
        UsageError: a training is no valid recipe, or there are more than 10,000.
    """
    points, runs = points_of(recipe, recipe.train.sweep or []), runs_of(recipe)
    if runs == 1:
        return points
    if len(points) * runs > MAX_CELLS:
        raise UsageError(f"{recipe.name} has more than {MAX_CELLS:,} trainings; give fewer values or fewer seeds")
    return [
        Cell({**point.labels, RUN: number}, with_seed_of_run(point.recipe, number))
        for point in points
        for number in range(1, runs + 1)
    ]


def points_of(recipe: Recipe, axes: Sequence[Axis]) -> list[Cell]:
    """Return the product of axes, each cell a recipe without sweep, tuning and published numbers."""
    values = ([(axis.over, *point) for point in axis.points()] for axis in axes)
    points = list(itertools.islice(itertools.product(*values), MAX_CELLS + 1))
    if len(points) > MAX_CELLS:
        raise UsageError(f"{recipe.name} has more than {MAX_CELLS:,} trainings; give fewer values")
    data = {key: value for key, value in recipe.data.items() if key not in KEYS_OF_SWEEPS}
    single = replace(recipe, claims=(), time=None, data=data)
    cells = []
    for point in points:
        changes = {path: value for _, _, keys in point for path, value in keys.items()}
        cells.append(Cell({over: label for over, label, _ in point}, changed(single, changes)))
    return cells


def with_seed_of_run(recipe: Recipe, number: int) -> Recipe:
    """Return the recipe of one of several runs: with a seed of its own, derived from a fixed one where it has that."""
    seed = seed_of_run(recipe.train.seed, number)
    return recipe if seed is None else changed(recipe, {"seed": seed})


def seed_of_run(seed: int | None, run: int) -> int | None:
    """Return the seed of a run, different for each; None where the recipe has none."""
    return None if seed is None else number_of(f"run {run} of seed {seed}") >> (256 - 62)


def number_of(words: str) -> int:
    """Return the SHA-256 digest of words as a number of 256 bits."""
    return int.from_bytes(hashlib.sha256(words.encode()).digest(), "big")
