"""Load the data set of a training, and the public sizes that its privacy depends on."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from wpriv import tasks
from wpriv.config.recipe import Recipe
from wpriv.errors import UsageError

MAX_SCALE_RATIO = 50.0  # of the largest column of a table to the smallest, or to 1, before a warning
SAMPLED = 100_000  # records that the scales are computed from


def sizes(recipe: Recipe, root: str | Path | None) -> Mapping[str, int]:
    """Return the sizes that privacy depends on, from the recipe if it declares them, else from the data."""
    options = recipe.train.data
    task = tasks.load(recipe.train.task)
    declared = task.declared_sizes(recipe.train) if options.limit is options.first is None else None
    if declared is not None:
        return dict(declared)
    if options.records is not None and task.sizes is None:
        return {"records": min(options.records, options.limit or options.records, options.first or options.records)}
    return sizes_of(recipe, data(recipe, root))


def sizes_of(recipe: Recipe, loaded: Any) -> Mapping[str, int]:
    """Return the sizes that a training's privacy depends on, from its loaded data."""
    task = tasks.load(recipe.train.task)
    return {"records": loaded.records} if task.sizes is None else task.sizes(recipe.train, loaded)


def scale_warning(recipe: Recipe, loaded: Any) -> str | None:
    """Return a warning if the columns of a table have very different scales and the recipe does not normalise them.

    It is for the screen only: it is computed from the training records, and no statement may contain it.
    """
    import numpy as np

    x, options = loaded.x_train, recipe.train.options
    if x.ndim != 2 or not loaded.columns or x.shape[1] != len(loaded.columns):
        return None
    if options.get("normalise") is not None or options.get("ranges") is not None:
        return None
    scales = np.abs(x[:SAMPLED].astype(np.float64)).max(axis=0, initial=0.0)
    nonzero = np.flatnonzero(scales > 0)
    if not len(nonzero) or scales[nonzero].max() <= MAX_SCALE_RATIO * max(scales[nonzero].min(), 1.0):
        return None
    column = str(loaded.columns[int(nonzero[np.argmax(scales[nonzero])])])
    return (
        f"the columns of {loaded.name} have very different scales ({column[:60]!r} is more than {MAX_SCALE_RATIO:g} "
        f"times another), and a training with clipped gradients learns little from such columns. Rescale them by "
        f"public constants, never computed from these records: rewrite the file, or give the task "
        f"options: {{normalise: {{mean: [...], std: [...]}}}} where it has them"
    )


def data(recipe: Recipe, root: str | Path | None) -> Any:
    """Return the data set of a recipe, cut to its limit, with noise on its training records if the recipe adds it.

    Raises:
        MissingResource: the data set is missing. UsageError: it has another size than the recipe declares, or no test
            records.
    """
    from wpriv.data import read, read_own
    from wpriv.run.training import privatized_data

    options = recipe.train.data
    folder = root or options.root
    if options.own:
        loaded = read_own(str(options.file), options.name, options.parameters())
    else:
        loaded = read(options.name, root=None if folder is None else Path(folder), **options.parameters())
    if options.records is not None and loaded.records != options.records:
        raise UsageError(
            f"{recipe.name}: data: records: the recipe declares {options.records} training records; "
            f"found {loaded.records} in {loaded.name}"
        )
    _require_labels(recipe, loaded)
    if not len(loaded.x_test) and tasks.load(recipe.train.task).needs_test_records:
        raise UsageError(
            f"{recipe.name}: data: the task {recipe.train.task} is evaluated on test records, "
            f"and {loaded.name} has none; give some"
        )
    if loaded.vocabulary and (options.privatize is not None or not tasks.load(recipe.train.task).accepts_tokens):
        fault = "privatize" if options.privatize is not None else f"the task {recipe.train.task}"
        raise UsageError(
            f"{recipe.name}: data: {loaded.name} holds tokens, and {fault} takes the numbers of a record for "
            f"quantities; use the task classify or fit, without privatize"
        )
    loaded = loaded if options.limit is None else loaded.limited(options.limit)
    loaded = loaded if options.first is None else loaded.limited(options.first, tests=False)
    return loaded if options.privatize is None else privatized_data.privatised(recipe, loaded, folder)


def _require_labels(recipe: Recipe, loaded: Any) -> None:
    """Refuse records with noise whose labels were not published, for a task that learns from labels.

    Raises:
        UsageError: they are such records.
    """
    from wpriv.run.local.local_statement import LABELS_PUBLIC

    noise, task = recipe.train.data.privatize, recipe.train.task
    if noise is not None:
        published, remedy = noise.public_labels, "give data: privatize: public_labels: true"
    elif loaded.noise is not None:
        published = LABELS_PUBLIC in loaded.noise.statement.get("not_covered", ())
        remedy = "write the reports with --public-labels"
    else:
        return
    if not published and tasks.load(task).reads_labels:
        raise UsageError(
            f"{recipe.name}: data: the task {task} learns from labels, which have no noise and are not declared "
            f"public: all of them would be 0. Where they are public, {remedy}; else take a task that needs none"
        )
