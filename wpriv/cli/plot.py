"""wpriv plot"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

Source = Annotated[Path, typer.Argument(metavar="DIR|TABLE.CSV", help="A results directory of compare, or one table.")]
Figure = Annotated[
    str | None, typer.Option("--figure", metavar="NAME", help="Draw this figure, whatever the recipe named.")
]
Format = Annotated[str, typer.Option("--format", metavar="LIST", help="Any of png,pdf,svg.")]
Out = Annotated[
    Path | None, typer.Option("--out", metavar="DIR", help="Where the files go (default: beside the table).")
]


def command(source: Source, figure: Figure = None, formats: Format = "png", out: Out = None) -> None:
    """Draw saved results again, without computing.

    wpriv plot results/fig7-dpsgd --format pdf,svg
    """
    from wpriv.cli import flags, guarantee_output
    from wpriv.run.results import plot

    for path in plot.plot(
        source, figure=flags.folded(figure), formats=[f.strip() for f in formats.split(",") if f.strip()], out=out
    ):
        guarantee_output.emit(str(path))
