"""CSV files as rows of numbers with a target column and an optional sensitive column."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np

from wpriv.data._dataset import Array, Data, random_split
from wpriv.data._files import File
from wpriv.errors import MissingResource, UsageError
from wpriv.files import csv_tables
from wpriv.files.csv_tables import CsvError, CsvTable
from wpriv.hints import did_you_mean

MAX_CLASSES = 1000


@dataclass(frozen=True)
class Roles:
    """The roles of columns (``drop``: names separated by commas; ``sensitive`` may be empty) and the test split."""

    target: str
    sensitive: str = ""
    drop: str = ""
    test_share: float = 0.2
    split_seed: int = 0


def read(path: Path, raw: bytes, file: File, name: str, roles: Roles, source: str) -> Data:
    """Return [N, D] float32 of every column but the target and the dropped ones; a share of the rows is held out.

    The sensitive column stays among the features unless it is dropped as well.

    Raises:
        UsageError: a column does not exist, or none is left for the features.
        MissingResource: rows have unequal lengths, cells are not numbers, or there are no rows.
    """
    table = _parse(path, raw)
    columns = _feature_columns(path, list(table.names), roles)
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
    classes, y = _encode(path, table, roles.target, cells[roles.target])
    groups = _encode(path, table, roles.sensitive, cells[roles.sensitive])[1] if roles.sensitive else None
    train, test = random_split(len(x), roles.test_share, roles.split_seed)
    with np.errstate(over="ignore"):  # numbers that overflow become infinite, which Data refuses
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


def _parse(path: Path, raw: bytes) -> CsvTable:
    """Parse a file.

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


def _feature_columns(path: Path, header: list[str], roles: Roles) -> list[str]:
    """Return the columns that are neither the target nor dropped, after checking that all named columns exist."""
    if not header or not all(header):
        first_line = ", ".join(header)[:120] or "none"
        raise MissingResource(f"{path}: the first line must give every column a distinct name; found {first_line}")
    dropped = [column.strip() for column in roles.drop.split(",") if column.strip()]
    for column in [roles.target, *([roles.sensitive] if roles.sensitive else []), *dropped]:
        if column not in header:
            suggestion = did_you_mean(column, header) or "."
            known = f"{', '.join(header[:12])}{', ...' * (len(header) > 12)}"
            raise UsageError(f"{path}: no column called {column[:60]!r}{suggestion} Its columns: {known}")
    columns = [column for column in header if column != roles.target and column not in dropped]
    if not columns:
        raise UsageError(f"{path}: no column is left for the features; drop fewer")
    return columns


def _encode(path: Path, table: CsvTable, column: str, text: Array) -> tuple[tuple[str, ...], Array]:
    """Return the distinct entries of a column, sorted (as numbers if all are), and the index of every row's entry."""
    cells = np.array([cell.strip() for cell in text], np.str_)
    if np.any(cells == ""):
        row = int(np.argmax(cells == ""))
        raise MissingResource(f"{path}:{table.line(row)}: column {column!r} has an empty cell in row {row + 2}")
    entries, indices = np.unique(cells, return_inverse=True)
    if len(entries) > MAX_CLASSES:
        raise MissingResource(
            f"{path}: column {column!r} has {len(entries)} distinct entries; "
            f"there may be at most {MAX_CLASSES} classes or groups"
        )
    try:
        order = np.argsort([float(entry) for entry in entries], kind="stable")
    except ValueError:
        order = np.arange(len(entries))
    return tuple(str(entries[i]) for i in order), np.argsort(order)[indices].astype(np.int64)
