"""CSV files of numbers and words with a target column and an optional sensitive column: the user's, or published."""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from wpriv.core.parameters import Parameters, parameter
from wpriv.errors import FaultyRecords, UsageError
from wpriv.files import csv_tables
from wpriv.files.csv_tables import CsvError, CsvTable, NotANumber
from wpriv.hints import did_you_mean
from wpriv.training.data import _classes
from wpriv.training.data._classes import Classes, Declared
from wpriv.training.data._dataset import Array, Data, narrowed, random_split
from wpriv.training.data._files import File, read_bytes, resolve_path

ABOUT = "your own CSV file with a target column"
GET = (
    "Give the path of a CSV file whose first line names the columns: --param file=PATH --param target=COLUMN "
    "(in a recipe, data: {name: table, file: PATH, target: COLUMN})."
)
NOTES = (
    "the set of {} was read from the data: it is taken as public",
    "the sets of {} and of {} were read from the data: they are taken as public",
)


@dataclass(frozen=True)
class Params(Parameters):
    """The file, the roles of its columns, what is publicly known of them, and the test split."""

    file: str = parameter("path of the CSV file, as it stands or below the data root")
    target: str = parameter("the column to predict: numbers or words, each a class")
    sensitive: str = parameter("a column of groups for fairness; it stays a feature unless dropped", default="")
    drop: str = parameter("columns to leave out, separated by commas", default="")
    ranges: Mapping[str, object] | str = parameter(_classes.RANGES, default="")
    categories: Mapping[str, object] | str = parameter(_classes.CATEGORIES, default="")
    classes: Sequence[object] | str = parameter(_classes.CLASSES, default="")
    number: bool = parameter("true: the target is a number to predict (task fit), and no class", default=False)
    test_file: str = parameter("another CSV file for testing; else a share of the rows is held out", default="")
    test_share: float = parameter("share of the rows held out for testing", default=0.2, minimum=0)
    split_seed: int = parameter("seed of that choice", default=0, minimum=0)


def read(root: Path | None, params: Params) -> Data:
    """Return [N, D] float32: numbers as in the file or in their range, words as zeros and ones.

    Classes and groups are sorted by value where they are not declared.
    """
    declared = _classes.declared(
        params.name, ranges=params.ranges, categories=params.categories, classes=params.classes
    )
    names = (params.file, *([params.test_file] if params.test_file else []))
    paths = [resolve_path(params.name, "file", name, root) for name in names]
    contents = [(path, read_bytes(path)) for path in paths]
    files = tuple(File.unverified(*content) for content in contents)
    return read_csv(contents, files, f"{params.name}:{paths[0].stem}", params, str(paths[0]), declared)


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
        return _place(self.path, self.table, column, row)


def read_csv(
    contents: Sequence[tuple[Path, bytes]],
    files: tuple[File, ...],
    name: str,
    roles: Params,
    source: str,
    declared: Declared = _classes.NOTHING,
) -> Data:
    """Return [N, D] float32 of every column but the target and the dropped ones.

    Columns of words become zeros and ones by their declared categories; numbers with a declared range are brought to
    [0, 1]. The sensitive column stays among the features unless it is dropped as well.

    Args:
        contents: path and bytes of the file, and of a second one for testing; without it a share of the rows is held
            out. files: what is recorded of them. roles: of the columns. declared: what is publicly known of them.
    Raises:
        UsageError: a column does not exist, or none is left for the features.
        FaultyRecords: rows have unequal lengths, cells are not numbers or none of the declared words, or there are no
            rows.
    """
    parts = [_rows(path, raw, roles, declared) for path, raw in contents]
    if parts[-1].columns != parts[0].columns:
        raise FaultyRecords(
            f"{parts[1].path}: wanted the columns of {parts[0].path}, in their order: "
            f"{', '.join(parts[0].columns)[:200]}; found {', '.join(parts[1].columns)[:200]}"
        )
    x = np.concatenate([part.x for part in parts])
    if len(parts) == 1:
        train, held_out = random_split(len(x), roles.test_share, roles.split_seed)
    else:
        train, held_out = np.arange(len(parts[0].x)), np.arange(len(parts[0].x), len(x))
    classes = _classes_of(parts, roles, declared.classes)
    y = np.concatenate([classes.train, classes.test])
    response = _response(parts, roles, declared) if roles.number else None
    groups = _groups(parts, roles.sensitive) if roles.sensitive else None
    inferred = ["classes"] * (declared.classes is None and not roles.number) + ["groups"] * bool(roles.sensitive)
    return Data(
        name=name,
        x_train=x[train],
        y_train=y[train],
        x_test=x[held_out],
        y_test=y[held_out],
        classes=classes.names,
        source=source,
        files=files,
        notes=(NOTES[len(inferred) - 1].format(*inferred),) if inferred else (),
        columns=parts[0].columns,
        sensitive=roles.sensitive,
        sensitive_train=None if groups is None else groups[train],
        sensitive_test=None if groups is None else groups[held_out],
        response=(roles.target,) if response is not None else (),
        response_train=None if response is None else response[train],
        response_test=None if response is None else response[held_out],
        classes_from=classes.origin,
        wide=x.dtype == np.float64,
    )


def _rows(path: Path, raw: bytes, roles: Params, declared: Declared) -> _Rows:
    """Read one file: its features as numbers, its target and groups as text."""
    table = _parse(path, raw)
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
    except NotANumber as error:
        raise FaultyRecords(
            f"{path}: wanted a number in every cell of the features; {error}. Declare the words of that column in "
            f"categories, encode text as numbers, or drop it"
        ) from None
    except CsvError as error:
        raise FaultyRecords(f"{path}: {error}") from None
    columns, features = [], []
    for name in names:
        place = functools.partial(_place, path, table, name)
        if name in declared.categories:
            words = declared.categories[name]
            places = _classes.indices([cell.strip() for cell in cells[name]], words, "categories", place)
            columns += [f"{name}={word}" for word in words]
            features.append(np.eye(len(words), dtype=np.float32)[places])
        else:
            columns.append(name)
            features.append(_finite(numbers[name], name, declared, place)[:, None])
    groups = cells[roles.sensitive] if roles.sensitive else None
    return _Rows(path, table, tuple(columns), np.concatenate(features, axis=1), cells[roles.target], groups)


def _place(path: Path, table: CsvTable, column: str, row: int) -> str:
    """The beginning of a message on one cell: its file, line and column."""
    return f"{path}:{table.line(row)}: column {column!r} has"


def _finite(values: Array, name: str, declared: Declared, place: Callable[[int], str]) -> Array:
    """Return a column as [N] float32 (or float64, see ``narrowed``), in its declared range."""
    if name in declared.ranges and np.isfinite(values).all():
        values = _classes.in_range(values, declared.ranges[name])
    column = narrowed(values)
    wrong = ~np.isfinite(column)
    if wrong.any():
        row = int(np.argmax(wrong))
        raise FaultyRecords(f"{place(row)} no finite number: found {column[row]}")
    return column


def _classes_of(parts: Sequence[_Rows], roles: Params, given: tuple[str, ...] | None) -> Classes:
    """The classes of the rows of each file; one class where the target is a number to predict."""
    train = parts[0].target
    test = parts[1].target if len(parts) > 1 else np.empty(0, object)
    if roles.number:
        return Classes(("a number",), np.zeros(len(train), np.int64), np.zeros(len(test), np.int64))

    def place(part: int, row: int) -> str:
        return parts[part].place(roles.target, row)

    name = f"{parts[0].path}: column {roles.target!r}"
    return _classes.of_words(name, train, test, place, apart=len(parts) > 1, declared=given)


def _groups(parts: Sequence[_Rows], column: str) -> Array:
    """The number of each row's group among the sorted groups of all files."""
    words = [[cell.strip() for cell in part.groups] for part in parts if part.groups is not None]
    for part, cells in zip(parts, words, strict=True):
        _classes.refuse_missing(cells, functools.partial(part.place, column))
    names = _classes.sorted_words(f"{parts[0].path}: column {column!r}", {cell for cells in words for cell in cells})
    return _classes.numbered([cell for cells in words for cell in cells], names, str)


def _response(parts: Sequence[_Rows], roles: Params, declared: Declared) -> Array:
    """The numbers to predict, [N, 1] float32, in their declared range."""
    columns = []
    for part in parts:
        try:
            values = part.table.numbers(roles.target, part.target)
        except CsvError as error:
            raise FaultyRecords(f"{part.path}: wanted a number to predict in every row; {error}") from None
        place = functools.partial(part.place, roles.target)
        columns.append(_finite(values, roles.target, declared, place).astype(np.float32))
    return np.concatenate(columns)[:, None]


def _parse(path: Path, raw: bytes) -> CsvTable:
    try:
        text = csv_tables.decode(raw)
    except CsvError as error:
        raise FaultyRecords(f"{path}: not a CSV file in UTF-8 ({error})") from None
    try:
        return CsvTable.parse(text)
    except CsvError as error:
        raise FaultyRecords(f"{path}:{error.line}: {error.reason}") from None


def _feature_columns(path: Path, header: list[str], roles: Params) -> list[str]:
    """Return the columns that are neither the target nor dropped, after checking that all named columns exist."""
    dropped = [column.strip() for column in roles.drop.split(",") if column.strip()]
    if csv_tables.has_index_column(header) and header[0] not in dropped:
        raise FaultyRecords(
            f"{path}: the first column, {header[0]!r}, seems to hold the numbers of the rows, as pandas writes them; "
            f"they are no features. Write the file with index=False, or drop a column called 'Unnamed: 0'"
        )
    if not header or not all(header):
        first_line = ", ".join(header)[:120] or "none"
        raise FaultyRecords(f"{path}: the first line must give every column a distinct name; found {first_line}")
    for column in [roles.target, *([roles.sensitive] if roles.sensitive else []), *dropped]:
        if column not in header:
            suggestion = did_you_mean(column, header) or "."
            known = _classes.listed(header)
            raise UsageError(f"{path}: no column called {column[:60]!r}{suggestion} Its columns: {known}")
    columns = [column for column in header if column != roles.target and column not in dropped]
    if not columns:
        raise UsageError(f"{path}: no column is left for the features; drop fewer")
    return columns
