"""wpriv plot"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

Source = Annotated[
    Path, typer.Argument(metavar="DIR|TABLE.CSV", help="A results folder of compare or train, or one table.")
]
Figure = Annotated[
    str | None, typer.Option("--figure", metavar="NAME", help="Draw this figure instead of the recipe's.")
]
Format = Annotated[
    str, typer.Option("--format", metavar="LIST", help="Formats of the files, separated by commas: png, pdf, svg.")
]
Out = Annotated[Path | None, typer.Option("--out", metavar="DIR", help="Folder of the files (default: the table's).")]
Style = Annotated[
    str,
    typer.Option(
        "--style",
        metavar="NAME",
        help="screen; or paper: 8 point type and no titles, which FIGURE.txt holds for the caption.",
    ),
]
Columns = Annotated[
    int | None,
    typer.Option(
        "--columns",
        metavar="1|2",
        help="Width of a figure for a paper: one column (85 mm, the default) or two (175 mm).",
    ),
]


def command(
    source: Source,
    figure: Figure = None,
    formats: Format = "png",
    style: Style = "screen",
    columns: Columns = None,
    out: Out = None,
) -> None:
    """Draw saved results again, without computing.

    wpriv plot results/fig7-dpsgd --format pdf,svg

    wpriv plot results/fig7-dpsgd --format pdf --style paper --columns 2
    """
    from wpriv.cli import flags, output
    from wpriv.run.results import plot

    names = [name.strip() for name in formats.split(",") if name.strip()]
    for path in plot.plot(
        source, figure=flags.folded(figure), formats=names, out=out, style=style.casefold(), columns=columns
    ):
        output.emit(str(path))
