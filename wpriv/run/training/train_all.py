"""The verb ``train_all``: all trainings of a recipe with a sweep or with seeds."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from wpriv.errors import UsageError
from wpriv.run.training import sweep, train
from wpriv.run.training.sweep import SweepResult


def train_all(
    recipe: str | Path,
    *,
    out: str | Path | None = None,
    seeds: int | None = None,
    set: Mapping[str, Any] | None = None,
    quick: bool = False,
    jobs: int = 1,
    device: str = "cpu",
    data_root: str | Path | None = None,
) -> SweepResult:
    """Train every setting of a recipe with a sweep, or one setting several times, each in a folder of its own.

    The same call continues: trainings that are finished in ``out`` are not repeated.

    Args:
        recipe: a path, or the name of a shipped recipe of kind train.
        out: folder of all results (default ``results/<name>``).
        seeds: the number of independent runs of each setting, in place of the recipe's; an int of 1 to 1000.
        set: keys to change, by path. quick: apply the recipe's ``quick`` overrides.
        jobs: trainings at the same time. device: ``cpu`` or ``cuda``. data_root: folder of the data sets.
    Returns:
        The SweepResult: rows (means and deviations where runs are repeated), runs, and what all trainings together
        keep. ``SweepResult.require()`` raises if an expected number was missed.
    Raises:
        UsageError: the recipe is faulty, or is of one training. Interrupted: a signal arrived.
    """
    changes = {**(set or {}), **({} if seeds is None else {"seeds": seeds})}
    loaded = train.recipe_of(recipe, quick=quick, changes=changes)
    if loaded.training is None or not loaded.training.has_several:
        raise UsageError(f"{loaded.name} is one training: give `seeds`, or call `train`")
    folder = Path(out) if out is not None else train.default_out(loaded)
    return sweep.run(loaded, folder, jobs=jobs, device=device, root=data_root)
