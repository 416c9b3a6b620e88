"""CSV files as rows of numbers, a target column and perhaps a sensitive one."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np

from wpriv.data._files import File, content
from wpriv.data._record import Array, Data, held_out
from wpriv.errors import MissingResource, UsageError
from wpriv.files import csv_tables
from wpriv.files.csv_tables import CsvError, CsvTable
from wpriv.hints import did_you_mean

LIMIT = 2_000_000_000


@dataclass(frozen=True)
class Roles:
    """Which column is what: ``drop`` holds names separated by commas; ``sensitive`` may be empty."""

    target: str
    sensitive: str = ""
    drop: str = ""
    test_share: float = 0.2
    split_seed: int = 0


def read(path: Path, raw: bytes, file: File, name: str, roles: Roles, source: str) -> Data:
    """[N, D] float32 of every column but the target and those to drop, as the file has them; a share of the rows is held out.

    The sensitive column stays among the features unless it is dropped as well.

    Raises:
        UsageError: a column that is not there. MissingResource: rows of unequal length, or text where numbers are wanted.
    """
    table = _parsed(path, raw)
    header = list(table.names)
    if not header or not all(header):
        raise MissingResource(
            f"{path}: the first line must name every column, each by another name; found {', '.join(header)[:120] or 'none'}"
        )
    dropped = [column.strip() for column in roles.drop.split(",") if column.strip()]
    for column in [roles.target, *([roles.sensitive] if roles.sensitive else []), *dropped]:
        if column not in header:
            near = did_you_mean(column, header)
            raise UsageError(
                f"{path}: no column called {column[:60]!r}{near or '.'} Its columns: {', '.join(header[:12])}{', ...' * (len(header) > 12)}"
            )
    columns = [column for column in header if column != roles.target and column not in dropped]
    if not columns:
        raise UsageError(f"{path}: no column is left for the features; drop fewer")
    try:
        cells = table.columns(numeric=[column for column in columns if column != roles.sensitive])
        if not len(cells[roles.target]):
            raise MissingResource(f"{path}: has no rows below the names of its columns")
        features = [table.numbers(name, cells[name]) if name == roles.sensitive else cells[name] for name in columns]
    except CsvError as error:
        raise MissingResource(
            f"{path}: wanted a number in every cell of the features; {error}. Encode text as numbers, or drop it"
        ) from None
    x = np.column_stack(features)
    classes, y = _numbered(path, table, roles.target, cells[roles.target])
    groups = _numbered(path, table, roles.sensitive, cells[roles.sensitive])[1] if roles.sensitive else None
    train, test = held_out(len(x), roles.test_share, roles.split_seed)
    with np.errstate(over="ignore"):  # what does not fit is infinite, and refused as such
        x = x.astype(np.float32)
    return Data(
        name=name,
        x_train=x[train],
        y_train=y[train],
        x_test=x[test],
        y_test=y[test],
        classes=classes,
        source=source,
        files=(file,),
        notes=("the sets of classes and of groups were read from the data: they are taken as public",),
        columns=tuple(columns),
        sensitive=roles.sensitive,
        sensitive_train=None if groups is None else groups[train],
        sensitive_test=None if groups is None else groups[test],
    )


def _parsed(path: Path, raw: bytes) -> CsvTable:
    """The table of a file.

    Raises:
        MissingResource: it is not CSV in UTF-8.
    """
    try:
        text = csv_tables.decode(raw)
    except CsvError as error:
        raise MissingResource(f"{path}: not a CSV file in UTF-8 ({error})") from None
    try:
        return CsvTable.parse(text)
    except CsvError as error:
        raise MissingResource(f"{path}:{error.line}: {error.reason}") from None


def _numbered(path: Path, table: CsvTable, column: str, text: Array) -> tuple[tuple[str, ...], Array]:
    """The distinct entries of a column in order (as numbers, where all are), and the place of every row's entry among them."""
    cells = np.array([cell.strip() for cell in text], np.str_)
    if np.any(cells == ""):
        row = int(np.argmax(cells == ""))
        raise MissingResource(f"{path}:{table.line(row)}: column {column!r} has an empty cell in row {row + 2}")
    words, places = np.unique(cells, return_inverse=True)
    if len(words) > 1000:
        raise MissingResource(
            f"{path}: column {column!r} has {len(words)} distinct entries; classes and groups may be at most 1000"
        )
    try:
        order = np.argsort([float(word) for word in words], kind="stable")
    except ValueError:
        order = np.arange(len(words))
    return tuple(str(words[i]) for i in order), np.argsort(order)[places].astype(np.int64)


def bytes_of(path: Path) -> bytes:
    """The content of a table."""
    return content(path, LIMIT)
