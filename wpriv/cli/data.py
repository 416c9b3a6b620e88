"""wpriv data"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from wpriv.cli import flags
from wpriv.errors import UsageError

app = typer.Typer(add_completion=False, rich_markup_mode=None)
Root = Annotated[
    Path | None,
    typer.Option(
        "--data-root",
        metavar="DIR",
        help="The folder that holds the data sets (default: $WPRIV_DATA, then the system's).",
    ),
]
Name = Annotated[str, typer.Argument(metavar="NAME", help="A data set of the list.")]
Param = Annotated[
    list[str] | None, typer.Option("--param", metavar="NAME=VALUE", help="A parameter of its reader; repeatable.")
]


@app.callback(invoke_without_command=True)
def top(ctx: typer.Context, data_root: Root = None, as_json: flags.Json = False) -> None:
    """Data sets: which lie where, whether they are whole, and how to get the others. Each is read from end to end.

    wpriv data --data-root ~/data

    wpriv data show mnist
    """
    if ctx.invoked_subcommand is not None:
        if data_root is not None or as_json:
            raise UsageError(
                f"--data-root and --json go behind {ctx.invoked_subcommand}, as in wpriv data show mnist --data-root DIR"
            )
        return
    from wpriv.cli import guarantee_output
    from wpriv.data import ROOT_HINT, searched_places
    from wpriv.run import list_data

    rows = list_data.listing(data_root)
    if as_json:
        return guarantee_output.emit(guarantee_output.rows_of(rows, "wpriv.data/1"))
    body = [[str(row["name"]), str(row["status"]), *_cells(row)] for row in rows]
    guarantee_output.emit(
        guarantee_output.table(["data set", "status", "train", "test", "example", "checksums", "where"], body)
    )
    for row in rows:
        if row["status"] == "damaged":
            guarantee_output.emit(row["reason"])
        elif row["status"] != "found":
            guarantee_output.emit(f"{row['name']}: {row['about']}. {row['get']}")
    guarantee_output.say(
        "note", f"looked in {searched_places(data_root)}. Each data set lies in a folder of its name there; {ROOT_HINT}"
    )


@app.command("show")
def details(name: Name, param: Param = None, data_root: Root = None, as_json: flags.Json = False) -> None:
    """Show what one data set holds, and its files with their checksums.

    wpriv data show table --param file=people.csv --param target=income
    """
    from wpriv.cli import guarantee_output
    from wpriv.data import VERDICTS
    from wpriv.run import list_data

    found = list_data.details(name, data_root, flags.params(param))
    if as_json:
        return guarantee_output.emit(guarantee_output.rows_of([found], "wpriv.data/1"))
    size = " x ".join(str(side) for side in found["shape"])
    guarantee_output.emit(
        guarantee_output.bold(
            f"{found['name']}: {found['train']} to train on and {found['test']} to test on, {size} {found['dtype']}"
        )
    )
    guarantee_output.emit(f"classes: {', '.join(found['classes'])}")
    if found["sensitive"]:
        guarantee_output.emit(f"sensitive: {found['sensitive']}")
    guarantee_output.emit(f"source: {found['source']}")
    guarantee_output.emit(f"fingerprint: {found['fingerprint']}")
    for file in found["files"]:
        guarantee_output.emit(
            f"file: {file['path']}, sha256 {file['sha256']}, {file['verdict']}: {VERDICTS[file['verdict']]}"
        )
    for note in found["notes"]:
        guarantee_output.say("note", note)


def _cells(row: dict[str, Any]) -> list[str]:
    """Sizes, verdict and place of a data set that was read."""
    if row["status"] != "found":
        return [""] * 5
    size = " x ".join(str(side) for side in row["shape"])
    return [str(row["train"]), str(row["test"]), f"{size} {row['dtype']}", row["checksums"], ", ".join(row["where"])]
