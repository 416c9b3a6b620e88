"""CSV files as rows of numbers with a target column and an optional sensitive column."""

from __future__ import annotations

import functools
import itertools
from collections.abc import Sequence
from dataclasses import dataclass
from decimal import Decimal
from pathlib import Path

import numpy as np

from wpriv.data import _declared
from wpriv.data._dataset import Array, Data, random_split
from wpriv.data._declared import Declared
from wpriv.data._files import File
from wpriv.errors import FaultyRecords, UsageError
from wpriv.files import csv_tables
from wpriv.files.csv_tables import CsvError, CsvTable
from wpriv.hints import did_you_mean

MAX_CLASSES = 1000


@dataclass(frozen=True)
class Roles:
    """The roles of columns (``drop``: names separated by commas; ``sensitive`` may be empty) and the test split.

    ``number``: the target is a number to predict, and no class.
    """

    target: str
    sensitive: str = ""
    drop: str = ""
    test_share: float = 0.2
    split_seed: int = 0
    number: bool = False


@dataclass(frozen=True)
class Content:
    """The path of a CSV file and its bytes."""

    path: Path
    raw: bytes


@dataclass(frozen=True)
class _Rows:
    """The rows of one file: features [N, D] with their names, and the target and the sensitive column as text."""

    path: Path
    table: CsvTable
    columns: tuple[str, ...]
    x: Array
    target: Array
    groups: Array | None

    def place(self, column: str, row: int) -> str:
        """The beginning of a message on one cell: its file, line and column."""
        return f"{self.path}:{self.table.line(row)}: column {column!r} has"


def read(
    path: Path,
    raw: bytes,
    file: File,
    name: str,
    roles: Roles,
    source: str,
    *,
    declared: Declared = _declared.NOTHING,
    test: Content | None = None,
) -> Data:
    """Return [N, D] float32 of every column but the target and the dropped ones.

    Columns of words become zeros and ones by their declared categories; numbers with a declared range are brought to
    [0, 1]. The sensitive column stays among the features unless it is dropped as well.

    Args:
        declared: what is publicly known of the columns. test: a second file for testing; without it a share of the rows
            is held out.
    Raises:
        UsageError: a column does not exist, or none is left for the features.
        FaultyRecords: rows have unequal lengths, cells are not numbers or none of the declared words, or there are no
            rows.
    """
    parts = [_rows(content, roles, declared) for content in (Content(path, raw), *([test] if test else []))]
    if parts[-1].columns != parts[0].columns:
        raise FaultyRecords(
            f"{parts[1].path}: wanted the columns of {path}, in their order: {', '.join(parts[0].columns)[:200]}; "
            f"found {', '.join(parts[1].columns)[:200]}"
        )
    x = np.concatenate([part.x for part in parts])
    if test is None:
        train, held_out = random_split(len(x), roles.test_share, roles.split_seed)
    else:
        train, held_out = np.arange(len(parts[0].x)), np.arange(len(parts[0].x), len(x))
    classes, y = _classes(parts, roles, declared.classes)
    response = _response(parts, roles, declared) if roles.number else None
    groups = None
    if roles.sensitive:
        groups = _encode(parts, roles.sensitive, [part.groups for part in parts if part.groups is not None])[1]
    inferred = [
        *(["classes"] if declared.classes is None and not roles.number else []),
        *(["groups"] if roles.sensitive else []),
    ]
    return Data(
        name=name,
        x_train=x[train],
        y_train=y[train],
        x_test=x[held_out],
        y_test=y[held_out],
        classes=classes,
        source=source,
        files=(file, *([File.unverified(test.path, test.raw)] if test else [])),
        notes=(_note(inferred),) if inferred else (),
        columns=parts[0].columns,
        sensitive=roles.sensitive,
        sensitive_train=None if groups is None else groups[train],
        sensitive_test=None if groups is None else groups[held_out],
        response=(roles.target,) if response is not None else (),
        response_train=None if response is None else response[train],
        response_test=None if response is None else response[held_out],
    )


def _note(inferred: Sequence[str]) -> str:
    if len(inferred) == 1:
        return f"the set of {inferred[0]} was read from the data: it is taken as public"
    return "the sets of classes and of groups were read from the data: they are taken as public"


def _rows(content: Content, roles: Roles, declared: Declared) -> _Rows:
    """Read one file: its features as numbers, its target and groups as text."""
    path, table = content.path, _parse(content.path, content.raw)
    names = _feature_columns(path, list(table.names), roles)
    declared.require_columns(str(path), [*names, *([roles.target] if roles.number else [])])
    numeric = [name for name in names if name not in declared.categories and name != roles.sensitive]
    try:
        cells = table.columns(numeric=numeric)
        if not len(cells[roles.target]):
            raise FaultyRecords(f"{path}: has no rows below the names of its columns")
        numbers = {
            name: table.numbers(name, cells[name]) if name == roles.sensitive else cells[name]
            for name in names
            if name not in declared.categories
        }
    except CsvError as error:
        raise FaultyRecords(
            f"{path}: wanted a number in every cell of the features; {error}. Declare the words of that column in "
            f"categories, encode text as numbers, or drop it"
        ) from None
    groups = cells[roles.sensitive] if roles.sensitive else None
    rows = _Rows(path, table, (), np.empty(0), cells[roles.target], groups)
    columns, features = [], []
    for name in names:
        if name in declared.categories:
            words = declared.categories[name]
            places = _declared.indices(
                [cell.strip() for cell in cells[name]], words, "categories", functools.partial(rows.place, name)
            )
            columns += [f"{name}={word}" for word in words]
            features.append(np.eye(len(words), dtype=np.float32)[places])
        else:
            columns.append(name)
            features.append(_finite(rows, name, numbers[name], declared)[:, None])
    return _Rows(path, table, tuple(columns), np.concatenate(features, axis=1), cells[roles.target], groups)


def _finite(rows: _Rows, name: str, values: Array, declared: Declared) -> Array:
    """Return a column as [N] float32, in its declared range.

    Raises:
        FaultyRecords: a number is not finite, or too large for float32.
    """
    if name in declared.ranges and np.isfinite(values).all():
        values = _declared.in_range(values, declared.ranges[name])
    with np.errstate(over="ignore"):
        column: Array = values.astype(np.float32)
    wrong = ~np.isfinite(column)
    if wrong.any():
        row = int(np.argmax(wrong))
        raise FaultyRecords(f"{rows.place(name, row)} no finite number: found {column[row]}")
    return column


def _classes(parts: Sequence[_Rows], roles: Roles, given: tuple[str, ...] | None) -> tuple[tuple[str, ...], Array]:
    """The names of the classes and the number of each row's; one class where the target is a number to predict."""
    if roles.number:
        return ("a number",), np.zeros(sum(len(part.x) for part in parts), np.int64)
    if given is None:
        return _encode(parts, roles.target, [part.target for part in parts])
    numbers = [
        _declared.indices(
            [cell.strip() for cell in part.target],
            given,
            "classes",
            functools.partial(part.place, roles.target),
        )
        for part in parts
    ]
    return given, np.concatenate(numbers)


def _response(parts: Sequence[_Rows], roles: Roles, declared: Declared) -> Array:
    """The numbers to predict, [N, 1] float32, in their declared range."""
    columns = []
    for part in parts:
        try:
            values = part.table.numbers(roles.target, part.target)
        except CsvError as error:
            raise FaultyRecords(f"{part.path}: wanted a number to predict in every row; {error}") from None
        columns.append(_finite(part, roles.target, values, declared))
    return np.concatenate(columns)[:, None]


def _parse(path: Path, raw: bytes) -> CsvTable:
    """Parse a file.

    Raises:
        FaultyRecords: it is not CSV in UTF-8.
    """
    try:
        text = csv_tables.decode(raw)
    except CsvError as error:
        raise FaultyRecords(f"{path}: not a CSV file in UTF-8 ({error})") from None
    try:
        return CsvTable.parse(text)
    except CsvError as error:
        raise FaultyRecords(f"{path}:{error.line}: {error.reason}") from None


def _feature_columns(path: Path, header: list[str], roles: Roles) -> list[str]:
    """Return the columns that are neither the target nor dropped, after checking that all named columns exist."""
    if not header or not all(header):
        first_line = ", ".join(header)[:120] or "none"
        raise FaultyRecords(f"{path}: the first line must give every column a distinct name; found {first_line}")
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


def _encode(parts: Sequence[_Rows], column: str, texts: Sequence[Array]) -> tuple[tuple[str, ...], Array]:
    """Return the distinct entries of a column, sorted (as numbers if all are), and the index of every row's entry."""
    for part, text in zip(parts, texts, strict=True):
        empty = [row for row, cell in enumerate(text) if not cell.strip()]
        if empty:
            line = part.table.line(empty[0])
            raise FaultyRecords(f"{part.path}:{line}: column {column!r} has an empty cell in row {empty[0] + 2}")
    cells = np.array([cell.strip() for text in texts for cell in text], np.str_)
    entries, places = np.unique(cells, return_inverse=True)
    if len(entries) > MAX_CLASSES:
        raise FaultyRecords(
            f"{parts[0].path}: column {column!r} has {len(entries)} distinct entries; there may be at most "
            f"{MAX_CLASSES} classes or groups. For a number to predict give the reader number: true"
        )
    try:
        order = np.argsort([float(entry) for entry in entries], kind="stable")
    except ValueError:
        order = np.arange(len(entries))
    else:
        _refuse_equal_numbers(parts[0].path, column, [str(entries[i]) for i in order])
    return tuple(str(entries[i]) for i in order), np.argsort(order)[places].astype(np.int64)


def _refuse_equal_numbers(path: Path, column: str, ordered: Sequence[str]) -> None:
    """Refuse a number that is written in two ways, such as 1 and 1.0: each would be a class or group of its own."""
    for one, other in itertools.pairwise(ordered):
        if Decimal(one) == Decimal(other):
            raise FaultyRecords(
                f"{path}: column {column!r} has both {one[:40]!r} and {other[:40]!r}; write each number in one way"
            )
