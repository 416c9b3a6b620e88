"""wpriv data"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import typer

from wpriv.cli import flags, output
from wpriv.cli.parsing import Command, Group, argument, option
from wpriv.errors import UsageError

SCHEMA = "wpriv.data/1"

app = typer.Typer(cls=Group, add_completion=False, rich_markup_mode=None)
ROOT = option("DIR", "Folder of the data sets (default: $WPRIV_DATA, then the system's).", "--data-root")


@app.callback(invoke_without_command=True)
def top(ctx: typer.Context, data_root: Path | None = ROOT, as_json: bool = flags.JSON) -> None:
    """List the data sets: their folders, whether each is complete, and how to get the others. Every file is read.

    wpriv data

    wpriv data show digits
    """
    if ctx.invoked_subcommand is None:
        ls(data_root, as_json)
    elif data_root is not None or as_json:
        command = ctx.invoked_subcommand
        raise UsageError(f"--data-root and --json belong after {command}, as in wpriv data {command} --data-root DIR")


@app.command(cls=Command)
def ls(data_root: Path | None = ROOT, as_json: bool = flags.JSON) -> None:
    """List the data sets, as `wpriv data` alone does.

    wpriv data ls --json
    """
    from wpriv.training import list_data
    from wpriv.training.data import ROOT_HINT, searched_places

    rows = list_data.listing(data_root)
    if as_json:
        output.emit_rows(rows, SCHEMA)
        return
    body = [[str(row["name"]), str(row["status"]), *_cells(row)] for row in rows]
    output.emit_table(["data set", "status", "train", "test", "example", "checksums", "where"], body)
    for row in rows:
        if row["status"] == "damaged":
            output.emit(row["reason"])
        elif row["status"] != "found":
            output.emit(f"{row['name']}: {row['about']}. {row['get']}")
    output.say(
        "note", f"looked in {searched_places(data_root)}. Each data set lies in a folder of its name there; {ROOT_HINT}"
    )


@app.command(cls=Command)
def show(
    name: str = argument("NAME", "A data set of the list."),
    param: list[str] | None = option("NAME=VALUE", "A parameter of its reader; repeatable."),
    data_root: Path | None = ROOT,
    as_json: bool = flags.JSON,
) -> None:
    """Show the contents of one data set, and its files with their checksums.

    wpriv data show digits

    wpriv data show table --param file=people.csv --param target=income
    """
    from wpriv.training import list_data
    from wpriv.training.data import VERDICTS

    data = list_data.details(name, data_root, flags.params(param))
    if as_json:
        output.emit_rows([data], SCHEMA)
        return
    shape = " x ".join(str(side) for side in data["shape"])
    output.emit_bold(
        f"{data['name']}: {data['train']} to train on and {data['test']} to test on, {shape} {data['dtype']}",
        f"classes: {', '.join(data['classes'])}",
        *([f"sensitive: {data['sensitive']}"] if data["sensitive"] else []),
        f"source: {data['source']}",
        f"fingerprint: {data['fingerprint']}",
    )
    for file in data["files"]:
        verdict = file["verdict"]
        output.emit(f"file: {file['path']}, sha256 {file['sha256']}, {verdict}: {VERDICTS[verdict]}")
    output.say("note", *data["notes"])


def _cells(row: dict[str, Any]) -> list[str]:
    """Sizes, checksums and folder of a data set that was found; empty cells for one that was not."""
    if row["status"] != "found":
        return [""] * 5
    shape = " x ".join(str(side) for side in row["shape"])
    return [str(row["train"]), str(row["test"]), f"{shape} {row['dtype']}", row["checksums"], ", ".join(row["where"])]
