"""What the cells of a sweep leave, put together: a table of each kind with a panel a cell, for one figure of each."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from wpriv import tasks
from wpriv.config import yaml_document
from wpriv.config.recipe import Recipe
from wpriv.files import durable_writes
from wpriv.run.results import file_names, plot, read, write

NAMES = {"alpha": "α", "eps": "ε", "delta": "δ", "sigma": "σ"}
Labels = Mapping[str, Any]


def write_all(made: Recipe, cells: list[tuple[Labels, Path]], out: Path) -> list[Path]:
    """Puts the tables of finished cells together in ``out`` and draws them, and the sweep's own table where the recipe names a figure.

    Of metrics.csv the last axis is the case and those before it the panel; of what the task leaves (its ``figures``) every cell is a panel,
    or as many as its own table has. Arrays stay with their cells.

    Args:
        cells: what tells each cell apart, and its folder.
    Returns:
        The pictures.
    """
    train = made.training
    assert train is not None
    durable_writes.replace(out / file_names.RECIPE, yaml_document.as_yaml(made.data))
    rows: list[dict[str, Any]] = []
    for labels, path in cells:
        words = axis_labels(labels)
        about = {"panel": ", ".join(words[:-1]), "case": words[-1]}
        rows += [{**about, **row} for row in read.table(path / file_names.METRICS)]
    if not rows:
        return []
    durable_writes.replace(out / file_names.METRICS, write.csv_text(rows))
    for name in tasks.load(train.task).figures:
        if name.endswith(".csv"):
            own = [
                {**row, "panel": ", ".join([*axis_labels(labels), *([str(row["panel"])] if row.get("panel") else [])])}
                for labels, path in cells
                if (path / name).is_file()
                for row in read.table(path / name)
            ]
            durable_writes.replace(out / name, write.csv_text(own))
    files = [] if train.figure is None else plot.plot(out)
    return files if files else plot.together(out, train.task, ("png",))


def axis_labels(labels: Labels) -> list[str]:
    """``α = 0.75``, ``ε = inf``: the last word of each path, and its value."""
    found = []
    for path, value in labels.items():
        word = path.rpartition(".")[2]
        found.append(f"{NAMES.get(word, word)} = {'∞' if str(value) == 'inf' else value}")
    return found
