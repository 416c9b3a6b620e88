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
    from wpriv.results import plot

    name = flags.folded(figure)
    options: dict[str, Any] = {
        "formats": [word.strip() for word in formats.split(",") if word.strip()],
        "style": style.casefold(),
        "columns": columns,
    }
    if len(sources) == 1:
        files = plot.plot(sources[0], figure=name, out=out, **options)
    else:
        if name is None:
            message = "several folders need --figure NAME: samples, losses, or a figure that fits all their tables"
            raise UsageError(message)
        files = plot.plot_folders(_folders(sources), name, out=out or Path(), **options)
    output.emit(*map(str, files))


def _folders(sources: list[Path]) -> dict[str, Path]:
    """The folders of one figure by the names of its panels, which are theirs."""
    folders = {path.resolve().name: path for path in sources}
    if len(folders) < len(sources):
        raise UsageError("the folders of one figure need different names, which are those of its panels")
    for path in sources:
        if not path.is_dir():
            raise UsageError(f"one figure of several takes results folders; {path} is none")
    return folders
