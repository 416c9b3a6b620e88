"""The tables of releases: CSV files and data frames, of which first the columns are known, and later the rows are read.

No message says anything about a row: not a cell, not a place, not a count.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

import numpy as np

from wpriv.errors import MissingResource, UnknownName, UsageError, of_file
from wpriv.files import csv_columns, csv_tables
from wpriv.files.columns import Block, Cells
from wpriv.files.csv_tables import CsvError
from wpriv.releases import bounding

TEXT, INTEGER, NUMBER, DATE = "text", "integer", "number", "date"
TYPES = (TEXT, INTEGER, NUMBER, DATE)
ROWS = 2**20  # of a block


class Table(Protocol):
    """A table before its rows are read: a public ``name``, the names of its columns, and their types, if it has any."""

    @property
    def name(self) -> str: ...

    @property
    def columns(self) -> tuple[str, ...]: ...

    @property
    def types(self) -> Mapping[str, str]: ...

    def blocks(self, columns: Sequence[str]) -> Iterator[Block]:
        """Read some columns, a block of rows after the other."""
        ...


@dataclass(frozen=True)
class CsvFiles:
    """CSV files with the same columns, all cells text; several are one table."""

    paths: tuple[Path, ...]
    columns: tuple[str, ...]
    types: Mapping[str, str]

    @property
    def name(self) -> str:
        return ", ".join(path.name for path in self.paths)

    @classmethod
    def open(cls, paths: Sequence[Path]) -> CsvFiles:
        """Read the names of the columns.

        Raises:
            UsageError: no CSV, or files of different columns. MissingResource: a file cannot be read.
        """
        headers = []
        for path in paths:
            with _reading(path):
                headers.append(csv_tables.names_of(path))
        for path, header in zip(paths, headers, strict=True):
            if header != headers[0]:
                raise UsageError(f"{path} has other columns than {paths[0]}; several files are one table")
        return cls(tuple(paths), tuple(headers[0]), dict.fromkeys(headers[0], TEXT))

    def blocks(self, columns: Sequence[str]) -> Iterator[Block]:
        for path in self.paths:
            with _reading(path):
                yield from csv_columns.blocks(path, columns)


@contextmanager
def _reading(path: Path) -> Iterator[None]:
    try:
        yield
    except CsvError as error:
        raise UsageError(f"{path}: {error.reason}") from None
    except OSError as error:
        raise of_file(error, path, "read", "name another file") from None


@dataclass(frozen=True, eq=False)
class Frame:
    """A data frame of pandas, or a mapping from names to columns."""

    frame: Any
    columns: tuple[str, ...]
    types: Mapping[str, str]
    name: str = "the table"

    @classmethod
    def open(cls, frame: Any) -> Frame:
        """Note the columns, and which of them have floats or dates.

        That all cells are whole numbers is often what pandas found in the cells, of which no noise may depend.
        """
        names = tuple(frame.columns if hasattr(frame, "columns") else frame)
        if len(set(names)) < len(names) or not all(isinstance(name, str) for name in names):
            raise UsageError("the columns of a table must have different names, all of them text; rename them")
        if any(getattr(frame[name], "ndim", 1) != 1 for name in names):
            raise UsageError("each column of a table has one cell in a row; found an array of several dimensions")
        kinds = {name: getattr(getattr(frame[name], "dtype", None), "kind", "O") for name in names}
        types = {"f": NUMBER, "c": NUMBER, "M": DATE}
        return cls(frame, names, {name: types.get(kind, "") for name, kind in kinds.items()})

    def blocks(self, columns: Sequence[str]) -> Iterator[Block]:
        table = {name: _array(self.frame[name]) for name in columns}
        lengths = {len(column) for column in table.values()}
        if len(lengths) > 1:
            raise UsageError("the columns of a table must have one length")
        count = lengths.pop() if lengths else len(self.frame[self.columns[0]]) if self.columns else 0
        for start in range(0, max(count, 1), ROWS):
            rows = slice(start, min(start + ROWS, count))
            yield Block(rows.stop - start, {name: _cells(column[rows]) for name, column in table.items()})


def _array(column: Any) -> Any:
    """A column as an array of numbers or dates without missing ones, or as a sequence of objects."""
    kind = getattr(getattr(column, "dtype", None), "kind", "O")
    array = np.asarray(column) if kind in "iubfM" else column
    if isinstance(array, np.ndarray) and array.dtype.kind in "iubfM":
        return array
    return column.tolist() if hasattr(column, "tolist") else list(column)


def _cells(column: Any) -> Cells:
    """Some cells of a column, exactly."""
    if not isinstance(column, np.ndarray):
        return coded(column)
    if column.dtype.kind == "M":
        days = column.astype("datetime64[D]")  # rounded down
        places = np.where(np.isnat(days), -1, np.arange(len(days))).astype(np.int32)
        return Cells(days.astype(np.int64), places, dates=True)
    wide = {"f": np.float64, "i": np.int64, "u": np.uint64}.get(column.dtype.kind, np.bool_)
    with np.errstate(over="ignore"):  # a number beyond float64 is infinite, and nothing says so
        return Cells(column.astype(wide, copy=False))


def coded(column: Sequence[object]) -> Cells:
    """Objects as the distinct ones among them; what is neither text, number nor date is missing."""
    kinds = set(map(type, column))
    known: dict[object, int] = {}
    if kinds <= {str, type(None)} or kinds <= {int, type(None)}:  # of one type, equal ones are the same
        known = dict.fromkeys(column)  # type: ignore[assignment]
        known = {value: place for place, value in enumerate(known)}
        return Cells(list(known), np.fromiter(map(known.__getitem__, column), np.int32, len(column)))
    values: list[object] = []
    codes = np.empty(len(column), np.int32)
    for row, cell in enumerate(column):
        mark = bounding.mark(cell)
        if mark not in known:
            known[mark] = len(values)
            values.append(None if mark is None else cell)
        codes[row] = known[mark]
    return Cells(values, codes)


def table(data: object) -> Table:
    """Open a table: the path of a CSV file or several, a data frame, or a mapping from names to columns.

    Raises:
        UsageError: it is none of them. MissingResource: a file does not exist.
    """
    if isinstance(data, (str, Path)):
        data = [data]
    if isinstance(data, (list, tuple)) and data and all(isinstance(path, (str, Path)) for path in data):
        paths = [Path(path) for path in data]
        for path in paths:
            if path.suffix.lower() not in (".csv", ".txt"):
                raise UsageError(f"`data` must be CSV files; found {path.name}")
            if not path.is_file():
                raise MissingResource(f"`data` {path}: there is no such file")
        return CsvFiles.open(paths)
    if isinstance(data, Mapping) or (hasattr(data, "columns") and hasattr(data, "dtypes")):
        return Frame.open(data)
    raise UsageError(f"`data` must be a path of a CSV file, or a data frame; found {type(data).__name__}")


def require_column(table: Table, column: str, argument: str) -> None:
    """Refuse a name that is no column; the columns are public."""
    if column not in table.columns:
        raise UnknownName("column", column, table.columns, place=f"`{argument}`")


def require_identifiers(table: Table, person: str) -> None:
    """Refuse persons that are numbers with a point, or dates: floats merge long ids, and days the times within."""
    if table.types.get(person) in (NUMBER, DATE):
        kind = "floats, which make one of different long ids" if table.types[person] == NUMBER else "dates"
        raise UsageError(f"`person` {person} is a column of {kind}: read it as text or as whole numbers")
