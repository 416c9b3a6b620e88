"""Merge the results of a finished sweep into one table and one figure per kind."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from wpriv import tasks
from wpriv.config import yaml_document
from wpriv.config.recipe import Recipe
from wpriv.files import durable_writes
from wpriv.run.results import composite, file_names, means, plot, read, write
from wpriv.run.training import panel_header

Labels = Mapping[str, Any]


def write_all(recipe: Recipe, cells: list[tuple[Labels, Path]], out: Path) -> list[Path]:
    """Merge the tables of finished cells into ``out`` and draw them.

    In metrics.csv the last axis is the case and the other axes are the panel; the runs of one setting are told apart
    by the column ``run``. In tables of the task (its ``figures``) every setting is a panel, or as many panels as its
    own table has, and repeated runs are shown by the first of them. Arrays stay in the folders of their cells. The
    table of a sweep is drawn if the recipe names a figure, and repeated runs without a sweep as a training is.

    Args:
        cells: labels and folder of each cell.
    Returns:
        The figures.
    """
    train = recipe.training
    assert train is not None
    durable_writes.replace(out / file_names.RECIPE, yaml_document.as_yaml(recipe.data))
    rows: list[dict[str, Any]] = []
    for labels, path in cells:
        *panel, case = composite.setting_words(labels) or [""]
        place = {"panel": ", ".join(panel), "case": case} if case else {}
        place |= {means.RUN: labels[means.RUN]} if means.RUN in labels else {}
        rows += [{**place, **row} for row in read.table(path / file_names.METRICS)]
    if not rows:
        return []
    durable_writes.replace(out / file_names.METRICS, write.csv_text(rows))
    for name in tasks.load(train.task).figures:
        if name.endswith(".csv"):
            durable_writes.replace(out / name, write.csv_text(_merged(name, first_runs(cells), train.options)))
    files = [] if train.figure is None and train.sweep is not None else plot.plot(out)
    return files or plot.sweep_files(out, train.task, ("png",))


def first_runs(cells: list[tuple[Labels, Path]]) -> list[tuple[Labels, Path]]:
    """Return the first finished run of each setting."""
    first: dict[tuple[str, ...], tuple[Labels, Path]] = {}
    for labels, path in cells:
        first.setdefault(tuple(composite.setting_words(labels)), (labels, path))
    return list(first.values())


def _merged(name: str, cells: list[tuple[Labels, Path]], options: Labels) -> list[dict[str, Any]]:
    """The rows of one table of all cells, with a panel for each cell or for each panel of its table.

    Each has the measures of its cell as a ``header`` where the task compares two groups.
    """
    rows = []
    for labels, path in cells:
        if (path / name).is_file():
            header = panel_header.text(labels, path, options)
            for row in read.table(path / name):
                panel = [str(row["panel"])] if row.get("panel") else []
                place = {"panel": ", ".join([*composite.setting_words(labels), *panel])}
                rows.append({**row, **place, **({panel_header.COLUMN: header} if header else {})})
    return rows
