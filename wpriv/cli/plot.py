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


def command(source: Source, figure: Figure = None, formats: Format = "png", out: Out = None) -> None:
    """Draw saved results again, without computing.

    wpriv plot results/fig7-dpsgd --format pdf,svg
    """
    from wpriv.cli import flags, output
    from wpriv.run.results import plot

    names = [name.strip() for name in formats.split(",") if name.strip()]
    for path in plot.plot(source, figure=flags.folded(figure), formats=names, out=out):
        output.emit(str(path))
