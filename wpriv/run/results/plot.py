"""The verb ``plot``: draws saved results again, without computing."""

from __future__ import annotations

import io
import math
import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from wpriv import tasks
from wpriv.config import yaml_document
from wpriv.config.recipe import Recipe
from wpriv.core import registry
from wpriv.errors import MissingResource, UsageError
from wpriv.files import durable_writes
from wpriv.run.results import file_names, read

FORMATS = ("png", "pdf", "svg")
WIDTH, HEIGHT = 6.0, 4.2  # inches of one panel


@dataclass(frozen=True)
class View:
    """One panel: which rows, drawn by which figure, under which title, within which limits of the axes."""

    name: str = ""
    figure: str | None = None
    title: str | None = None
    limits: dict[str, list[float]] | None = None


def panels_of(job: Recipe) -> list[View]:
    return [View(p.name, p.figure, p.title, p.limits) for p in job.panels]  # type: ignore[arg-type]


def plot(
    source: str | Path, *, figure: str | None = None, formats: Sequence[str] = ("png",), out: str | Path | None = None
) -> list[Path]:
    """Draws the figure of a results directory (of compare or train), or of one table, beside it.

    Args:
        figure: one of ``wpriv/figures`` for every panel, instead of what the recipe named.
        formats: any of png, pdf, svg. out: a directory for the files, where not beside the table.
    Returns:
        The files written.
    Raises:
        UsageError: there is no table, no such figure or format, or the figure does not fit the table.
    """
    path = Path(source)
    table = (
        path / (file_names.TABLE if (path / file_names.TABLE).is_file() else file_names.METRICS)
        if path.is_dir()
        else path
    )
    wrong = [f for f in formats if f not in FORMATS]
    if wrong or not formats:
        raise UsageError(f"--format takes {', '.join(FORMATS)}; found {', '.join(wrong) or 'none'}")
    if figure is not None:
        registry.load("figures", figure)
    where = Path(out) if out is not None else table.parent
    if table.suffix == ".npz":
        return draw(read.arrays(table), [View(figure=figure or "samples")], where, formats, stem=table.stem)
    rows = read.table(table)
    views = _stored_views(table.with_name(file_names.RECIPE), rows)
    if figure is not None:
        views = [View(v.name, figure, v.title, v.limits) for v in views]
    files = draw(rows, views, where, formats)
    recipe = table.with_name(file_names.RECIPE)
    if (
        path.is_dir()
        and figure is None
        and recipe.is_file()
        and (task := yaml_document.read(recipe).data.get("task")) is not None
    ):
        files += (made if table.name == file_names.METRICS else together)(path, str(task), formats, out=where)
    return files


def made(path: Path, task: str, formats: Sequence[str], *, out: Path | None = None) -> list[Path]:
    """Draws what a training of a task left in a folder beside its metrics, each file under its own name."""
    files = []
    for name, figure in tasks.load(task).figures.items():
        if (path / name).is_file():
            rows = read.arrays(path / name) if name.endswith(".npz") else read.table(path / name)
            panels = [View(panel, figure) for panel in _panels(rows)]
            files += draw(rows, panels, out or path, formats, stem=Path(name).stem)
    return files


def together(path: Path, task: str, formats: Sequence[str], *, out: Path | None = None) -> list[Path]:
    """Draws what the trainings of a sweep left, put together in its folder: their losses, and what their task makes."""
    files = made(path, task, formats, out=out)
    if (path / file_names.METRICS).is_file():
        rows = read.table(path / file_names.METRICS)
        files += draw(rows, [View(panel, "losses") for panel in _panels(rows)], out or path, formats, stem="losses")
    return files


def _panels(rows: Any) -> list[str]:
    """The names of the panels of a table in their order; arrays are one panel without a name."""
    return [""] if isinstance(rows, dict) else list(dict.fromkeys(_panel_of(row) for row in rows))


def _stored_views(path: Path, rows: list[dict[str, Any]]) -> list[View]:
    """The panels as the recipe beside the table has them, or as the table alone shows them."""
    names = _panels(rows)
    views = {}
    if path.is_file():
        data = yaml_document.read(path).data
        for panel in data.get("panels") or [data]:
            if isinstance(panel, dict):
                views[panel.get("name", "")] = View(
                    panel.get("name", ""), panel.get("figure"), panel.get("title"), panel.get("limits")
                )
    return [views.get(name, View(name)) for name in names]


def _panel_of(row: dict[str, Any]) -> str:
    return "" if row.get("panel") is None else str(row["panel"])


def draw(
    rows: Any, views: list[View], out: Path, formats: Sequence[str], *, asked: bool = True, stem: str = "figure"
) -> list[Path]:
    """Draws every panel and writes ``<stem>.<format>`` into ``out``.

    Args:
        rows: of a table, or the arrays of a .npz by name, which are one panel.
        asked: somebody asked for a figure; otherwise a panel that names none, and that none fits, is left out.
    Raises:
        UsageError: a figure lacks columns of the table, or the files cannot be written.
    """
    Figure = _figure_class()
    across = _across(views)
    down = math.ceil(len(views) / across)
    size = 1.0 if across < 4 else 0.65  # a large grid is looked at as a whole
    figure = Figure(figsize=(WIDTH * across * size, HEIGHT * down * size), layout="constrained")
    grid = figure.subplots(down, across, squeeze=False).ravel()
    for spare in grid[len(views) :]:
        spare.remove()
    for view, axes in zip(views, grid, strict=False):
        own = rows if isinstance(rows, dict) else [row for row in rows if _panel_of(row) == view.name]
        name = view.figure or _natural(own)  # type: ignore[arg-type]
        try:
            registry.load("figures", name).draw(own, axes)
        except KeyError as error:
            if not asked and view.figure is None:
                axes.remove()
                continue
            raise UsageError(
                f"the figure {name!r} does not fit this table: it lacks {error}. Choose another with --figure"
            ) from None
        except (TypeError, ValueError, OverflowError) as error:
            raise UsageError(
                f"the figure {name!r} does not fit this table: {error}. Choose another with --figure"
            ) from None
        axes.set_title(view.title if view.title is not None else view.name, fontsize="medium")
        for axis, (low, high) in (view.limits or {}).items():
            if low <= 0:
                getattr(axes, f"set_{axis}scale")("linear")
            getattr(axes, f"set_{axis}lim")(low, high)
    return [] if not figure.axes else _save(figure, out, formats, stem)


def _figure_class() -> Any:
    """matplotlib's class of figures, without pyplot: no window system is touched.

    Raises:
        MissingResource: matplotlib refuses to load under the settings of this machine.
    """
    try:
        from matplotlib.figure import Figure
    except (ValueError, ImportError) as error:
        backend = os.environ.get("MPLBACKEND")
        if backend and "backend" in str(error):
            raise MissingResource(
                f"MPLBACKEND is {backend[:60]!r}, which matplotlib does not know; unset it to draw figures"
            ) from None
        reason = (str(error).splitlines() or [type(error).__name__])[0]
        raise MissingResource(
            f"matplotlib does not load here, and draws the figures: {reason}. Check its settings"
        ) from None
    return Figure


def _across(views: list[View]) -> int:
    """How many panels stand side by side: where the names are a grid, as in ``a = 1, b = 2``, a row for each a."""
    rows, columns = ({view.name.rpartition(", ")[end] for view in views} for end in (0, 2))
    if min(len(rows), len(columns)) > 1 and len(rows) * len(columns) == len(views):
        return len(columns)
    return min(len(views), 3 if len(views) in (3, 5, 6) or len(views) > 8 else 2)


def _natural(rows: list[dict[str, Any]]) -> str:
    """The figure that suits a table where nobody named one."""
    if any("proposition" in row for row in rows):
        return "claims"
    if "epoch" in rows[0]:
        return "training"
    if any("class_density" in row for row in rows):
        return "loss-law"
    if any("variance" in row for row in rows):
        return "loss-class"
    return "curves"


def _save(figure: Any, out: Path, formats: Sequence[str], stem: str) -> list[Path]:
    """Write a figure in each format, each file in one piece; no dates are inside, so that the same table gives the same file."""
    files = []
    dates: dict[str, dict[str, None]] = {
        "png": {"Software": None},
        "pdf": {"CreationDate": None},
        "svg": {"Date": None},
    }
    durable_writes.make_folder(out)
    for kind in formats:
        path, content = out / f"{stem}.{kind}", io.BytesIO()
        try:
            figure.savefig(content, format=kind, dpi=160, metadata=dates[kind])
        except (ValueError, OverflowError) as error:
            raise UsageError(f"the figure does not fit this table: {error}. Choose another with --figure") from None
        durable_writes.replace(path, content.getvalue())
        files.append(path)
    return files
