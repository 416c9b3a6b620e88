"""wpriv plot"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from wpriv.cli.parsing import argument, option
from wpriv.errors import UsageError


def command(
    sources: list[Path] = argument(
        "DIR|TABLE.CSV...",
        "A results folder of compare, train or release, or one table; or several folders, for one figure of all.",
    ),
    figure: str | None = option("NAME", "Draw this figure instead of the recipe's."),
    formats: str = option(
        "LIST", "Formats of the files, separated by commas: png, pdf, svg.", "--format", default="png"
    ),
    style: str = option(
        "NAME",
        "screen; dark, for dark pages; or paper: 8 point type, its titles in FIGURE.txt for the caption.",
        default="screen",
    ),
    columns: int | None = option(
        "1|2", "Width of a figure for a paper: one column (85 mm, the default) or two (175 mm)."
    ),
    out: Path | None = option("DIR", "Folder of the files (default: the table's)."),
) -> None:
    """Draw saved results again, without computing.

    wpriv plot results/fig7-dpsgd --format pdf,svg

    wpriv plot results/fig7-dpsgd --format pdf --style paper --columns 2

    wpriv plot results/fig7-dpsgd --figure table --out figures
    """
    from wpriv.cli import flags, output

    name = flags.folded(figure)
    options: dict[str, object] = {
        "formats": [word.strip() for word in formats.split(",") if word.strip()],
        "style": style.casefold(),
        "columns": columns,
    }
    for path in (
        _plot_several(sources, name, out, options) if len(sources) > 1 else _plot(sources[0], name, out, options)
    ):
        output.emit(str(path))


def _plot(source: Path, figure: str | None, out: Path | None, options: dict[str, Any]) -> list[Path]:
    from wpriv.results import plot

    return plot.plot(source, figure=figure, out=out, **options)


def _plot_several(sources: list[Path], figure: str | None, out: Path | None, options: dict[str, Any]) -> list[Path]:
    """Draw one figure of several folders, whose names are those of its panels."""
    from wpriv.results import plot

    if figure is None:
        raise UsageError("several folders need --figure NAME: samples, losses, or a figure that fits all their tables")
    folders = {path.resolve().name: path for path in sources}
    if len(folders) < len(sources):
        raise UsageError("the folders of one figure need different names, which are those of its panels")
    for path in sources:
        if not path.is_dir():
            raise UsageError(f"one figure of several takes results folders; {path} is none")
    return plot.plot_folders(folders, figure, out=out or Path(), **options)
