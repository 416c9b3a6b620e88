"""The verb ``plot``: draw saved results again, without computing."""

from __future__ import annotations

import io
import math
import os
import warnings
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from wpriv import tasks
from wpriv.config import yaml_document
from wpriv.config.recipe import Recipe
from wpriv.core import registry
from wpriv.errors import MissingResource, UsageError
from wpriv.files import durable_writes
from wpriv.run.results import composite, file_names, means, read

FORMATS = ("png", "pdf", "svg")
WIDTH, HEIGHT = 6.0, 4.2  # inches of one panel
# without dates and versions, the same table gives the same file
METADATA: dict[str, dict[str, None]] = {"png": {"Software": None}, "pdf": {"CreationDate": None}, "svg": {"Date": None}}


@dataclass(frozen=True)
class View:
    """One panel: its name in the rows, its figure, title and limits of the axes."""

    name: str = ""
    figure: str | None = None
    title: str | None = None
    limits: dict[str, list[float]] | None = None


def panels_of(recipe: Recipe) -> list[View]:
    return [View(p.name, p.figure, p.title, p.limits) for p in recipe.panels]  # type: ignore[arg-type]


def plot(
    source: str | Path, *, figure: str | None = None, formats: Sequence[str] = ("png",), out: str | Path | None = None
) -> list[Path]:
    """Draw the figures of a results folder (of compare or train), or of one table.

    Args:
        figure: one of ``wpriv/figures`` for every panel, instead of the recipe's.
        formats: any of png, pdf, svg. out: a folder for the files (default: that of the table).
    Returns:
        The written files.
    Raises:
        UsageError: there is no table, no such figure or format, or the figure does not fit the table.
    """
    path = Path(source)
    table = _table_of(path) if path.is_dir() else path
    unknown = [name for name in formats if name not in FORMATS]
    if unknown or not formats:
        raise UsageError(f"--format takes {', '.join(FORMATS)}; found {', '.join(unknown) or 'none'}")
    if figure is not None:
        registry.load("figures", figure)
    folder = Path(out) if out is not None else table.parent
    if table.suffix == ".npz":
        return draw(read.arrays(table), [View(figure=figure or "samples")], folder, formats, stem=table.stem)
    rows, recipe = over_runs(read.table(table)), table.with_name(file_names.RECIPE)
    views = _stored_views(recipe, rows)
    if figure is not None:
        return draw(rows, [replace(view, figure=figure) for view in views], folder, formats)
    files = draw(rows, views, folder, formats)
    if path.is_dir() and recipe.is_file():
        task = yaml_document.read(recipe).data.get("task")
        if task is not None:
            several = (path / file_names.TABLE).is_file()
            draw_others = sweep_files if several else task_files
            files += draw_others(path, str(task), formats, out=folder)
    return files


def over_runs(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return rows of metrics with repeated runs as their means and deviations at each moment; others as they are."""
    if not any(means.RUN in row and "step" in row for row in rows):
        return rows
    return means.means(rows, [name for name in means.MOMENT if name in rows[0]])


def task_files(path: Path, task: str, formats: Sequence[str], *, out: Path | None = None) -> list[Path]:
    """Draw the tables and arrays that a task left in a folder beside its metrics, each under its own name."""
    files = []
    for name, figure in tasks.load(task).figures.items():
        if (path / name).is_file():
            rows = read.arrays(path / name) if name.endswith(".npz") else read.table(path / name)
            panels = [View(panel, figure) for panel in _panel_names(rows)]
            files += draw(rows, panels, out or path, formats, stem=Path(name).stem)
    return files


def sweep_files(path: Path, task: str, formats: Sequence[str], *, out: Path | None = None) -> list[Path]:
    """Draw the merged results of several trainings: the losses, and the tables and arrays of their task."""
    files = task_files(path, task, formats, out=out)
    for name, figure in tasks.load(task).figures.items():
        if name.endswith(".npz"):
            panels = composite.arrays_by_panel(path, name)
            views = [View(panel, figure) for panel in panels.names]
            files += draw(panels, views, out or path, formats, stem=Path(name).stem) if views else []
    if (path / file_names.METRICS).is_file():
        rows = over_runs(read.table(path / file_names.METRICS))
        views = [View(panel, "losses") for panel in _panel_names(rows)]
        files += draw(rows, views, out or path, formats, stem="losses")
    return files


def draw(
    rows: Any, views: list[View], out: Path, formats: Sequence[str], *, asked: bool = True, stem: str = "figure"
) -> list[Path]:
    """Draw every panel and write ``<stem>.<format>`` into ``out``.

    Args:
        rows: of a table; or the arrays of a .npz by name, which are one panel; or arrays by panel.
        asked: if False, a panel that names no figure, and that the default figure does not fit, is left out.
    Raises:
        UsageError: a figure needs columns that the table lacks, or the files cannot be written.
    """
    figure_class = _figure_class()
    columns = _grid_columns(views)
    lines = math.ceil(len(views) / columns)
    size = 1.0 if columns < 4 else 0.65  # panels of a large grid are smaller
    figure = figure_class(figsize=(WIDTH * columns * size, HEIGHT * lines * size), layout="constrained")
    grid = figure.subplots(lines, columns, squeeze=False).ravel()
    for spare in grid[len(views) :]:
        spare.remove()
    for view, axes in zip(views, grid, strict=False):
        _draw_panel(rows, view, axes, asked)
    return _save(figure, out, formats, stem) if figure.axes else []


def _draw_panel(rows: Any, view: View, axes: Any, asked: bool) -> None:
    """Draw one panel, or remove its axes if no figure was asked for and the default one does not fit."""
    if isinstance(rows, composite.ArraysByPanel):
        rows = rows.of(view.name)
    panel = rows if isinstance(rows, dict) else [row for row in rows if _panel_of(row) == view.name]
    name = view.figure or _default_figure(panel)  # type: ignore[arg-type]
    try:
        registry.load("figures", name).draw(panel, axes)
    except KeyError as error:
        if not asked and view.figure is None:
            axes.remove()
            return
        raise _unfit(f"the figure {name!r} does not fit this table: the column {error} is missing") from None
    except (TypeError, ValueError, OverflowError) as error:
        raise _unfit(f"the figure {name!r} does not fit this table: {error}") from None
    title = view.title if view.title is not None else view.name
    header = panel[0].get("header") if panel and not isinstance(panel, dict) else None
    lines = [str(title), *str(header).split("; ")] if header else [str(title)]
    axes.set_title("\n".join(lines), fontsize="small" if header else "medium")
    for axis, (low, high) in (view.limits or {}).items():
        if low <= 0:
            getattr(axes, f"set_{axis}scale")("linear")
        getattr(axes, f"set_{axis}lim")(low, high)


def _unfit(reason: str) -> UsageError:
    return UsageError(f"{reason}. Choose another with --figure")


def _table_of(path: Path) -> Path:
    """The table of a results folder that its figure shows: of repeated runs of one setting, the metrics."""
    recipe = path / file_names.RECIPE
    data = yaml_document.read(recipe).data if recipe.is_file() else {}
    repeated_only = "seeds" in data and "sweep" not in data
    return path / (
        file_names.TABLE if (path / file_names.TABLE).is_file() and not repeated_only else file_names.METRICS
    )


def _panel_names(rows: Any) -> list[str]:
    """The names of the panels of a table in their order; arrays are one panel without a name."""
    return [""] if isinstance(rows, dict) else list(dict.fromkeys(_panel_of(row) for row in rows))


def _panel_of(row: dict[str, Any]) -> str:
    return "" if row.get("panel") is None else str(row["panel"])


def _stored_views(path: Path, rows: list[dict[str, Any]]) -> list[View]:
    """The panels as the recipe beside the table describes them; without one, those in the table."""
    views = {}
    if path.is_file():
        data = yaml_document.read(path).data
        for panel in data.get("panels") or [data]:
            if isinstance(panel, dict):
                name = panel.get("name", "")
                views[name] = View(name, panel.get("figure"), panel.get("title"), panel.get("limits"))
    return [views.get(name, View(name)) for name in _panel_names(rows)]


def _figure_class() -> Any:
    """Return matplotlib's class of figures, without pyplot: no window system is used.

    Raises:
        MissingResource: matplotlib is not installed, or refuses to load under the settings of this machine.
    """
    try:
        from matplotlib.figure import Figure
    except (ValueError, ImportError) as error:
        if isinstance(error, ModuleNotFoundError) and error.name == "matplotlib":
            raise MissingResource(
                "figures need the Python package matplotlib, which is not installed. Install wpriv with all it needs, "
                "or this package alone"
            ) from None
        backend = os.environ.get("MPLBACKEND")
        if backend and "backend" in str(error):
            raise MissingResource(
                f"MPLBACKEND is {backend[:60]!r}, which matplotlib does not know; unset it to draw figures"
            ) from None
        reason = (str(error).splitlines() or [type(error).__name__])[0]
        raise MissingResource(
            f"figures need matplotlib, which does not load here: {reason}. Check its settings"
        ) from None
    return Figure


def _grid_columns(views: list[View]) -> int:
    """The number of panels side by side: if the names form a grid, such as ``a = 1, b = 2``, a row for each a."""
    rows, columns = ({view.name.rpartition(", ")[end] for view in views} for end in (0, 2))
    if min(len(rows), len(columns)) > 1 and len(rows) * len(columns) == len(views):
        return len(columns)
    return min(len(views), 3 if len(views) in (3, 5, 6) or len(views) > 8 else 2)


def _default_figure(rows: list[dict[str, Any]]) -> str:
    """The figure of a table for which none was named."""
    if any("proposition" in row for row in rows):
        return "claims"
    if "epoch" in rows[0]:
        return "training"
    if any("class_density" in row for row in rows):
        return "loss-law"
    if any("fnr_lower" in row for row in rows):
        return "trade-off"
    if any("variance" in row for row in rows):
        return "loss-class"
    return "curves"


def _save(figure: Any, out: Path, formats: Sequence[str], stem: str) -> list[Path]:
    """Write a figure in each format, each file in one piece."""
    files = []
    durable_writes.make_folder(out)
    for kind in formats:
        path, content = out / f"{stem}.{kind}", io.BytesIO()
        try:
            with warnings.catch_warnings():
                warnings.filterwarnings("error", message="constrained_layout not applied")
                figure.savefig(content, format=kind, dpi=160, metadata=METADATA[kind])
        except UserWarning:
            raise _unfit("the figure does not fit this table: its legend leaves no room for the axes") from None
        except (ValueError, OverflowError) as error:
            raise _unfit(f"the figure does not fit this table: {error}") from None
        durable_writes.replace(path, content.getvalue())
        files.append(path)
    return files
