"""The verb ``plot``: draw saved results again, without computing."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from wpriv.config import yaml_document
from wpriv.config.recipe import Recipe
from wpriv.core import registry
from wpriv.errors import UsageError
from wpriv.figures import _names, _palette
from wpriv.files import durable_writes
from wpriv.results import expectations, figure_layout, storage
from wpriv.results.expectations import RUN, Verdict
from wpriv.results.figure_layout import Style
from wpriv.results.model import Json, Row

if TYPE_CHECKING:
    from matplotlib.axes import Axes

# panels of one figure; the arrays of further settings stay in their folders
MAX_PANELS = 36
# the numbers of a release, and how many of them are drawn
RELEASE, MAX_RELEASED = "release.json", 10_000


def arrays_by_panel(path: Path, name: str) -> dict[str, Path]:
    """Find files of arrays in the folders that a statement of trainings lists, of the first run of each setting."""
    files: dict[str, Path] = {}
    for run in _runs(path):
        file = path / str(run["folder"]) / name
        if len(files) < MAX_PANELS and file.is_file():
            files.setdefault(", ".join(setting_words(run["labels"])), file)
    return files


def setting_words(labels: Mapping[str, object]) -> list[str]:
    """Return ``α = 0.75``, ``ε = ∞``: each swept key by its last word with its value, without the number of a run."""
    # all digits, since the words tell settings apart
    return [_names.value(key.rpartition(".")[2], str(value)) for key, value in labels.items() if key != RUN]


def _runs(path: Path) -> list[Row]:
    """The trainings that the statement of a folder lists; none where it cannot be read."""
    try:
        runs = json.loads((path / storage.STATEMENT).read_text(encoding="utf-8"))["runs"]
        return [run for run in runs if isinstance(run["labels"], dict) and Path(run["folder"]).name == run["folder"]]
    except (OSError, ValueError, KeyError, TypeError, RecursionError):
        return []


Drawn = list[Row] | Json  # a table, or the arrays of a file by name
FORMATS, SAMPLES = ("png", "pdf", "svg"), "samples"
_SCREEN = figure_layout.of()


@dataclass(frozen=True)
class View:
    """One panel: its name in the rows, its figure, title and limits of the axes.

    ``arrays`` is a file of arrays that is drawn in place of rows, and read when its panel is drawn.
    """

    name: str = ""
    figure: str | None = None
    title: str | None = None
    limits: dict[str, list[float]] | None = None
    arrays: Path | None = None


def panels_of(recipe: Recipe) -> list[View]:
    return [View(p.name, p.figure, p.title, p.limits) for p in recipe.panels]  # type: ignore[arg-type]


def plot(
    source: str | Path,
    *,
    figure: str | None = None,
    formats: Sequence[str] = ("png",),
    out: str | Path | None = None,
    style: str = figure_layout.SCREEN,
    columns: int | None = None,
) -> list[Path]:
    """Draw the figures of a results folder (of compare, train or release), or of one table.

    Args:
        figure: one of ``wpriv/figures`` for every panel, instead of the recipe's.
        formats: any of png, pdf, svg. out: a folder for the files (default: that of the table).
        style: ``screen``, or ``paper``: 8 point type, without titles, which ``<stem>.txt`` has for the caption.
        columns: of the page that a figure for a paper spans, 1 (the default, 85 mm) or 2 (175 mm).
    Returns:
        The written files.
    Raises:
        UsageError: there is no table, no such figure, format or style, or the figure does not fit the table.
    """
    setting = figure_layout.of(style, columns)
    table = path = Path(source)
    data: Json = {}
    if (path / RELEASE).is_file():
        check_formats(formats)
        rows = _released(path / RELEASE)
        views = [View(panel, figure or "release-noise") for panel in _panel_names(rows)]
        return draw(rows, views, path if out is None else Path(out), formats, style=setting)
    if path.is_dir():
        data = yaml_document.read(path / storage.RECIPE).data if (path / storage.RECIPE).is_file() else {}
        # of repeated runs of one setting, the figure shows the metrics
        repeated_only = "seeds" in data and "sweep" not in data
        table = path / (storage.TABLE if (path / storage.TABLE).is_file() and not repeated_only else storage.METRICS)
    check_formats(formats)
    if figure is not None:
        registry.load("figures", figure)
    folder = Path(out) if out is not None else table.parent
    if table.suffix == ".npz":
        views = [View(figure=figure or SAMPLES)]
        return draw(storage.arrays(table), views, folder, formats, stem=table.stem, style=setting)
    rows, recipe = over_runs(storage.table(table)), table.with_name(storage.RECIPE)
    views, numbers = _stored_views(recipe, rows), expectations.of_file(table.with_name(storage.EXPECT))
    if figure is not None:
        views = [replace(view, figure=figure) for view in views]
        return draw(rows, views, folder, formats, style=setting, numbers=numbers)
    files = []
    # the table of a sweep of trainings is no course over epochs, which a training has by default
    if not ("task" in data and "sweep" in data and data.get("figure") is None):
        files += draw(rows, views, folder, formats, style=setting, numbers=numbers)
    if data.get("task") is not None:
        several = (path / storage.TABLE).is_file()
        draw_others = sweep_files if several else task_files
        files += draw_others(path, str(data["task"]), formats, out=folder, style=setting)
    return files


def _released(path: Path) -> list[Row]:
    """The numbers of a release, a panel for each output, which says so where not all are drawn."""
    try:
        rows = json.loads(path.read_text(encoding="utf-8"))["outputs"]
        part = f" (the first {MAX_RELEASED} of {len(rows)} numbers)" if len(rows) > MAX_RELEASED else ""
        drawn = [{**row, "panel": f"{row['name']}{part}"} for row in rows[:MAX_RELEASED]]
    except (OSError, ValueError, KeyError, TypeError):
        raise UsageError(f"{path} is damaged or no release of wpriv; release it again") from None
    if not drawn:
        raise UsageError(f"{path} has no number to draw: no key has enough persons to be shown")
    return drawn


def check_formats(formats: Sequence[str]) -> None:
    """Refuse unknown formats."""
    unknown = [name for name in formats if name not in FORMATS]
    if unknown or not formats:
        raise UsageError(f"--format takes {', '.join(FORMATS)}; found {', '.join(unknown) or 'none'}")


def over_runs(rows: list[Row]) -> list[Row]:
    """Return rows of metrics with repeated runs as their means and deviations at each moment; others as they are."""
    if not any(expectations.RUN in row and "step" in row for row in rows):
        return rows
    return expectations.means(rows, [name for name in expectations.MOMENT if name in rows[0]])


def task_files(
    path: Path, task: str, formats: Sequence[str], *, out: Path | None = None, style: Style = _SCREEN
) -> list[Path]:
    """Draw the tables and arrays that a task left in a folder beside its metrics, each under its own name."""
    files = []
    for name, figure in registry.load("tasks", task).TASK.figures.items():
        if (path / name).is_file():
            rows = storage.arrays(path / name) if name.endswith(".npz") else storage.table(path / name)
            panels = [View(panel, figure) for panel in _panel_names(rows)]
            files += draw(rows, panels, out or path, formats, stem=Path(name).stem, style=style)
    return files


def sweep_files(
    path: Path, task: str, formats: Sequence[str], *, out: Path | None = None, style: Style = _SCREEN
) -> list[Path]:
    """Draw the merged results of several trainings: the losses, and the tables and arrays of their task."""
    files = task_files(path, task, formats, out=out, style=style)
    for name, figure in registry.load("tasks", task).TASK.figures.items():
        if name.endswith(".npz"):
            views = [View(panel, figure, arrays=file) for panel, file in arrays_by_panel(path, name).items()]
            files += draw([], views, out or path, formats, stem=Path(name).stem, style=style) if views else []
    if (path / storage.METRICS).is_file():
        rows = over_runs(storage.table(path / storage.METRICS))
        views = [View(panel, "losses") for panel in _panel_names(rows)]
        files += draw(rows, views, out or path, formats, stem="losses", style=style)
    return files


def draw(
    rows: Drawn,
    views: list[View],
    out: Path,
    formats: Sequence[str],
    *,
    required: bool = True,
    stem: str = "figure",
    style: Style = _SCREEN,
    numbers: Sequence[Verdict] = (),
) -> list[Path]:
    """Draw every panel and write ``<stem>.<format>`` into ``out``.

    Args:
        rows: of a table; or the arrays of a .npz by name, which are one panel.
        required: if False, a panel that names no figure, and that the default figure does not fit, is left out.
        numbers: published ones, which are drawn beside ours where the figure shows their column.
    Raises:
        UsageError: a figure needs columns that the table lacks, or the files cannot be written.
    """
    figure_class = figure_layout.figure_class()
    from matplotlib import rc_context

    with rc_context(dict(style.settings)):
        wide = any(view.figure == "table" for view in views)
        columns = style.columns(len(views), _grid_columns(views), wide=wide)
        lines = math.ceil(len(views) / columns)
        figure = figure_class(figsize=style.size(columns, lines), layout="constrained")
        _palette.prepare(figure, _methods(rows), style.width or None)
        grid = figure.subplots(lines, columns, squeeze=False).ravel()
        for spare in grid[len(views) :]:
            spare.remove()
        for view, axes in zip(views, grid, strict=False):
            _draw_panel(rows, view, axes, required, numbers)
        drawn = [(view, axes) for view, axes in zip(views, grid, strict=False) if axes.figure is not None]
        panels = [(axes, *_title(view, rows)) for view, axes in drawn]
        if not panels:
            return []
        figure_layout.finish(figure, panels, columns, style)
        files = figure_layout.save(figure, out, formats, stem)
    if style.is_paper:
        caption = figure_layout.caption(panels, "")
        durable_writes.replace(out / f"{stem}.txt", f"{caption}\n")
        files.append(out / f"{stem}.txt")
    return files


def _methods(rows: Drawn) -> set[str]:
    """The names by which methods have colours of their own: accountants of a table of bounds, methods and cases."""
    if not isinstance(rows, list):
        return set()
    keys = ("accountant", "case") if any("given" in row for row in rows) else ("method", "case")
    return {_names.key(str(row[key])) for row in rows for key in keys if row.get(key)}


def _title(view: View, rows: Drawn) -> tuple[str, bool]:
    """The title of a panel with the measures that its rows have as a ``header``, and whether it is only its name."""
    title = _names.method(view.name) if view.title is None else view.title
    header = next((row["header"] for row in _rows_of(rows, view) if row.get("header")), "")
    lines = [str(title), *(str(header).split("; ") if header else [])]
    return "\n".join(lines), view.title is None and not header


def _rows_of(rows: Drawn, view: View) -> list[Row]:
    return [row for row in rows if _panel_of(row) == view.name] if isinstance(rows, list) else []


def _draw_panel(rows: Drawn, view: View, axes: Axes, required: bool, numbers: Sequence[Verdict]) -> None:
    """Draw one panel, or remove its axes if no figure was asked for and the default one does not fit."""
    panel = rows if isinstance(rows, dict) else _rows_of(rows, view)
    panel = panel if view.arrays is None else storage.arrays(view.arrays)
    name = view.figure or _default_figure(panel)  # type: ignore[arg-type]
    misfit = f"the figure {name!r} does not fit this table"
    try:
        module = registry.load("figures", name)
        module.draw(panel, axes)
        if hasattr(module, "draw_published") and isinstance(panel, list):
            points = expectations.matched(panel, [number for number in numbers if number.panel in ("", view.name)])
            if points:
                module.draw_published(panel, points, axes)
    except KeyError as error:
        if not required and view.figure is None:
            axes.remove()
            return
        raise figure_layout.unfit(f"{misfit}: the column {error} is missing") from None
    except (TypeError, ValueError, OverflowError) as error:
        raise figure_layout.unfit(f"{misfit}: {error}") from None
    for axis, (low, high) in (view.limits or {}).items():
        if low <= 0:
            getattr(axes, f"set_{axis}scale")("linear")
        getattr(axes, f"set_{axis}lim")(low, high)


def _panel_names(rows: list[Row] | Json) -> list[str]:
    """The names of the panels of a table in their order; arrays are one panel without a name."""
    return [""] if isinstance(rows, dict) else list(dict.fromkeys(_panel_of(row) for row in rows))


def _panel_of(row: Row) -> str:
    return "" if row.get("panel") is None else str(row["panel"])


def _stored_views(path: Path, rows: list[Row]) -> list[View]:
    """The panels as the recipe beside the table describes them; without one, those in the table."""
    views = {}
    if path.is_file():
        data = yaml_document.read(path).data
        for panel in data.get("panels") or [data]:
            if isinstance(panel, dict):
                name = panel.get("name", "")
                views[name] = View(name, panel.get("figure"), panel.get("title"), panel.get("limits"))
    return [views.get(name, View(name)) for name in _panel_names(rows)]


def _grid_columns(views: list[View]) -> int | None:
    """The columns of the grid that names such as ``a = 1, b = 2`` form, with a row for each a; None if they do not."""
    rows, columns = ({view.name.rpartition(", ")[end] for view in views} for end in (0, 2))
    if min(len(rows), len(columns)) > 1 and len(rows) * len(columns) == len(views):
        return len(columns)
    return None


def _default_figure(rows: list[Row]) -> str:
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
    # without a swept quantity there is one answer of each accountant, and no curve
    places = {(row.get("case"), row.get("accountant")) for row in rows}
    return "budgets" if "accountant" in rows[0] and len(places) == len(rows) else "curves"


# figures of the course of a training, which is in its metrics
_COURSES = ("losses", "training")


def plot_folders(
    sources: Mapping[str, Path],
    figure: str,
    *,
    formats: Sequence[str] = ("png",),
    out: str | Path = ".",
    stem: str | None = None,
    style: str = figure_layout.SCREEN,
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
    check_formats(formats)
    setting = figure_layout.of(style, columns)
    if figure == SAMPLES:
        rows, views = [], [View(name, figure, arrays=file) for name, file in _arrays(sources).items()]
    else:
        rows = _rows(sources, figure)
        views = [View(name, figure) for name in _panel_names(rows)]
    return draw(rows, views, Path(out), formats, stem=stem or figure, style=setting)


def _arrays(sources: Mapping[str, Path]) -> dict[str, Path]:
    name = f"{SAMPLES}.npz"
    files: dict[str, Path] = {}
    for label, folder in sources.items():
        panels = arrays_by_panel(folder, name) or {"": folder / name}
        files |= {_joined(label, panel): path for panel, path in panels.items()}
    missing = [str(path) for path in files.values() if not path.is_file()]
    if missing:
        raise UsageError(f"--figure {SAMPLES} needs samples of each folder; there is no {missing[0]}")
    return files


def _rows(sources: Mapping[str, Path], figure: str) -> list[Row]:
    name = storage.METRICS if figure in _COURSES else storage.TABLE
    each = ((label, row) for label, path in sources.items() for row in over_runs(storage.table(path / name)))
    return [{**row, "panel": _joined(label, str(row.get("panel") or ""))} for label, row in each]


def _joined(label: str, panel: str) -> str:
    return ", ".join(part for part in (label, panel) if part)
