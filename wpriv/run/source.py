"""The data set that a training names, and the public sizes that its privacy hangs on."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from wpriv.core import registry
from wpriv.core.recipe import Recipe
from wpriv.errors import UsageError


def sizes(made: Recipe, root: str | Path | None) -> Mapping[str, int]:
    """The sizes that a training's privacy hangs on: as the recipe tells them, or of the data."""
    assert made.training is not None
    asked = made.training.data
    task = registry.load("tasks", made.training.task)
    whole = asked.limit is asked.first is None
    if hasattr(task, "declared") and whole and (told := task.declared(made.training)) is not None:
        return dict(told)
    if asked.records is not None and not hasattr(task, "sizes"):
        return {"records": min(asked.records, asked.limit or asked.records, asked.first or asked.records)}
    return sizes_of(made, data(made, root))


def sizes_of(made: Recipe, read: Any) -> Mapping[str, int]:
    """The sizes that a training's privacy hangs on, of its data."""
    assert made.training is not None
    task = registry.load("tasks", made.training.task)
    found: Mapping[str, int] = task.sizes(made.training, read) if hasattr(task, "sizes") else {"records": read.records}
    return found


def data(made: Recipe, root: str | Path | None) -> Any:
    """The data set of a recipe, cut to its limit, with noise on its training records where the recipe puts some there.

    Raises:
        MissingResource: it is not there. UsageError: it has another size than the recipe counts on, or no test records.
    """
    from wpriv.data import read
    from wpriv.run import reports

    assert made.training is not None
    asked = made.training.data
    named = root or asked.root
    found = read(asked.name, root=None if named is None else Path(named), **asked.parameters())
    if asked.records is not None and found.records != asked.records:
        told = f"{made.name}: data: records: the recipe counts on {asked.records} training records"
        raise UsageError(f"{told}; found {found.records} in {found.name}")
    if not len(found.x_test) and getattr(registry.load("tasks", made.training.task), "TESTED", True):
        raise UsageError(f"{made.name}: data: {found.name} has no test records, on which a training is measured; give some")
    found = found if asked.limit is None else found.limited(asked.limit)
    found = found if asked.first is None else found.limited(asked.first, tests=False)
    return found if asked.privatize is None else reports.privatised(made, found, named)
