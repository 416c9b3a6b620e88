"""Plan all trainings of a sweep before the first one begins, so that a fault of the last is known at once."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from wpriv.errors import WprivError
from wpriv.run.training import load_data, plan, run_folder
from wpriv.run.training.recipe_grid import Cell


def require(cells: Sequence[Cell], out: Path, root: str | Path | None) -> None:
    """Check that every training of a sweep which has not begun has its data, a plan, and a folder for its results.

    Each data set is loaded once, and runs that differ in the seed alone are planned once. Networks are not built: that
    one does not fit its data is known when its training begins.

    Args:
        out: the folder of the sweep. root: folder of the data sets.
    Raises:
        UsageError, Unsupported, MissingResource: as its training would; the message names the training.
    """
    by_data: dict[str, list[Cell]] = {}
    for cell in _distinct(cells, out):
        by_data.setdefault(_data_key(cell), []).append(cell)
    for group in by_data.values():
        loaded: Any = None
        for cell in group:
            try:
                loaded = load_data.data(cell.recipe, root) if loaded is None else loaded
                plan.plan(cell.recipe, load_data.sizes_of(cell.recipe, loaded))
            except WprivError as error:
                raise error.at(cell.name) from None


def _distinct(cells: Sequence[Cell], out: Path) -> list[Cell]:
    """The trainings that have not begun, without those that differ from an earlier one in the seed alone."""
    distinct: dict[str, Cell] = {}
    for cell in cells:
        try:
            folder = run_folder.inspect(out / cell.name, cell.recipe, resume=True)
        except WprivError as error:
            raise error.at(cell.name) from None
        if not (folder.done or folder.resume or folder.weights):
            data = {key: value for key, value in cell.recipe.data.items() if key != "seed"}
            distinct.setdefault(json.dumps(data, sort_keys=True, default=str), cell)
    # the only training left begins at once
    return list(distinct.values()) if len(distinct) > 1 else []


def _data_key(cell: Cell) -> str:
    """The keys of a recipe that decide which records a training loads."""
    data = cell.recipe.data
    return json.dumps([data.get(key) for key in ("data", "task", "seed")], sort_keys=True, default=str)
