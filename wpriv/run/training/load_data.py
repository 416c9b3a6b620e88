"""The data set that a training names, and the public sizes that its privacy hangs on."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from wpriv import tasks
from wpriv.config.recipe import Recipe
from wpriv.errors import UsageError

UNLIKE = 50.0  # how many times larger a column may be than another, or than 1, before a warning
SCALED = 100_000  # records looked at for it


def sizes(made: Recipe, root: str | Path | None) -> Mapping[str, int]:
    """The sizes that a training's privacy hangs on: as the recipe tells them, or of the data."""
    assert made.training is not None
    asked = made.training.data
    task = tasks.load(made.training.task)
    declared = task.declared_sizes(made.training) if asked.limit is asked.first is None else None
    if declared is not None:
        return dict(declared)
    if asked.records is not None and task.sizes is None:
        return {"records": min(asked.records, asked.limit or asked.records, asked.first or asked.records)}
    return sizes_of(made, data(made, root))


def sizes_of(made: Recipe, read: Any) -> Mapping[str, int]:
    """The sizes that a training's privacy hangs on, of its data."""
    assert made.training is not None
    task = tasks.load(made.training.task)
    return {"records": read.records} if task.sizes is None else task.sizes(made.training, read)


def unlike_scales(made: Recipe, read: Any) -> str | None:
    """A warning where the columns of a table have very different scales and the recipe does not normalise them; None elsewhere.

    It is for the screen alone: it is computed from the training records, and no statement may hold it.
    """
    import numpy as np

    assert made.training is not None
    x, options = read.x_train, made.training.options
    if (
        x.ndim != 2
        or not read.columns
        or x.shape[1] != len(read.columns)
        or any(key in options for key in ("normalise", "ranges"))
    ):
        return None
    size = np.abs(x[:SCALED].astype(np.float64)).max(axis=0, initial=0.0)
    present = np.flatnonzero(size > 0)
    if not len(present) or size[present].max() <= UNLIKE * max(size[present].min(), 1.0):
        return None
    large = str(read.columns[int(present[np.argmax(size[present])])])
    return (
        f"the columns of {read.name} have very different scales ({large[:60]!r} is more than {UNLIKE:g} times another), on which clipped "
        f"gradients learn little. Bring them to like scales by constants that are public, never computed from these records: rewrite the "
        f"file, or give the task options: {{normalise: {{mean: [...], std: [...]}}}} where it has them"
    )


def data(made: Recipe, root: str | Path | None) -> Any:
    """The data set of a recipe, cut to its limit, with noise on its training records where the recipe puts some there.

    Raises:
        MissingResource: it is not there. UsageError: it has another size than the recipe counts on, or no test records.
    """
    from wpriv.data import read
    from wpriv.run.training import privatized_data

    assert made.training is not None
    asked = made.training.data
    named = root or asked.root
    found = read(asked.name, root=None if named is None else Path(named), **asked.parameters())
    if asked.records is not None and found.records != asked.records:
        told = f"{made.name}: data: records: the recipe counts on {asked.records} training records"
        raise UsageError(f"{told}; found {found.records} in {found.name}")
    if not len(found.x_test) and tasks.load(made.training.task).needs_test_records:
        raise UsageError(
            f"{made.name}: data: {found.name} has no test records, on which a training is measured; give some"
        )
    found = found if asked.limit is None else found.limited(asked.limit)
    found = found if asked.first is None else found.limited(asked.first, tests=False)
    return found if asked.privatize is None else privatized_data.privatised(made, found, named)
