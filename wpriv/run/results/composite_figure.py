"""One figure from several results folders: the samples, losses or tables of each as its panels."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from wpriv.core import registry
from wpriv.errors import UsageError
from wpriv.run.results import composite, figure_style, file_names, plot, read
from wpriv.run.results.composite import ArraysByPanel
from wpriv.run.results.plot import View

SAMPLES = "samples"
# figures of the course of a training, which is in its metrics
_COURSES = ("losses", "training")


def plot_folders(
    sources: Mapping[str, Path],
    figure: str,
    *,
    formats: Sequence[str] = ("png",),
    out: str | Path = ".",
    stem: str | None = None,
    style: str = figure_style.SCREEN,
    columns: int | None = None,
) -> list[Path]:
    """Draw one figure with the panels of several results folders.

    Args:
        sources: the folders by the names of their panels; a folder with several panels of its own adds their names.
        figure: ``samples``, for the arrays of samples; ``losses`` or ``training``, for the metrics of trainings; or
            another figure, for the tables.
        formats, out, style, columns: as for ``plot``. stem: of the names of the files, by default the figure.
    Returns:
        The written files.
    Raises:
        UsageError: a folder has no such file, or the figure does not fit its table.
    """
    registry.load("figures", figure)
    plot.check_formats(formats)
    setting = figure_style.of(style, columns)
    rows: Any = _arrays(sources) if figure == SAMPLES else _rows(sources, figure)
    names = rows.names if isinstance(rows, ArraysByPanel) else list(dict.fromkeys(row["panel"] for row in rows))
    views = [View(name, figure) for name in names]
    return plot.draw(rows, views, Path(out), formats, stem=stem or figure, style=setting)


def _arrays(sources: Mapping[str, Path]) -> ArraysByPanel:
    name = f"{SAMPLES}.npz"
    files: dict[str, Path] = {}
    for label, folder in sources.items():
        panels = composite.arrays_by_panel(folder, name).files or {"": folder / name}
        files |= {_joined(label, panel): path for panel, path in panels.items()}
    missing = [str(path) for path in files.values() if not path.is_file()]
    if missing:
        raise UsageError(f"--figure {SAMPLES} needs samples of each folder; there is no {missing[0]}")
    return ArraysByPanel(files)


def _rows(sources: Mapping[str, Path], figure: str) -> list[dict[str, Any]]:
    name = file_names.METRICS if figure in _COURSES else file_names.TABLE
    return [
        {**row, "panel": _joined(label, str(row.get("panel") or ""))}
        for label, folder in sources.items()
        for row in plot.over_runs(read.table(folder / name))
    ]


def _joined(label: str, panel: str) -> str:
    return ", ".join(part for part in (label, panel) if part)
