"""The tables of releases: files, databases and data frames, whose columns are known first, and rows are read later.

No message says anything about a row: not a cell, not a place, not a count.
"""

from __future__ import annotations

import datetime
import itertools
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

import numpy as np

from wpriv.errors import MissingResource, UnknownName, UsageError, of_file, require
from wpriv.files import csv_tables
from wpriv.files.columns import BOOLEAN, DATE, INTEGER, NUMBER, TEXT, TYPES, Block, Cells, coded, csv_blocks
from wpriv.files.csv_tables import CsvError

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
class Files:
    """Files of CSV, whose cells are text, or of Parquet, all with the same columns of the same types: one table.

    Args:
        read: gives the blocks of some columns of a file.
    """

    paths: tuple[Path, ...]
    columns: tuple[str, ...]
    types: Mapping[str, str]
    read: Callable[[Path, Sequence[str]], Iterator[Block]]

    @property
    def name(self) -> str:
        return ", ".join(path.name for path in self.paths)

    @classmethod
    def open(cls, paths: Sequence[Path]) -> Files:
        """Read the names and types of the columns.

        Raises:
            UsageError: neither CSV nor Parquet, or files of different columns. MissingResource: a file cannot be read.
        """
        kinds = {path.suffix.lower() for path in paths}
        csv, parquet = kinds <= {".csv", ".txt"}, kinds <= {".parquet", ".pq"}
        if not csv and not parquet:
            raise UsageError(
                f"`data` must be files of CSV (.csv, .txt) or of Parquet (.parquet), all of one kind; found "
                f"{', '.join(path.name for path in paths)}"
            )
        for path in paths:
            if not path.is_file():
                raise MissingResource(f"`data` {path}: there is no such file")
        types, read = _csv_types, _csv_blocks
        if parquet:
            require("pyarrow", "a file of Parquet")
            from wpriv.releases import arrow_tables

            types, read = arrow_tables.file_types, arrow_tables.file_blocks
        schemas = list(map(types, paths))
        for path, schema in zip(paths, schemas, strict=True):
            if schema != schemas[0]:
                what = "columns or types" if parquet else "columns"
                raise UsageError(f"{path} has other {what} than {paths[0]}; several files are one table")
        return cls(tuple(paths), tuple(schemas[0]), schemas[0], read)

    def blocks(self, columns: Sequence[str]) -> Iterator[Block]:
        return itertools.chain.from_iterable(self.read(path, columns) for path in self.paths)


def _csv_types(path: Path) -> dict[str, str]:
    with _reading(path):
        return dict.fromkeys(csv_tables.names_of(path), TEXT)


def _csv_blocks(path: Path, columns: Sequence[str]) -> Iterator[Block]:
    with _reading(path):
        yield from csv_blocks(path, columns)


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
        """Note the columns and their types, which pandas often finds in the cells: see ``declared_types``."""
        names = tuple(frame.columns if hasattr(frame, "columns") else frame)
        if len(set(names)) < len(names) or not all(isinstance(name, str) for name in names):
            raise UsageError("the columns of a table must have different names, all of them text; rename them")
        if any(getattr(frame[name], "ndim", 1) != 1 for name in names):
            raise UsageError("each column of a table has one cell in a row; found an array of several dimensions")
        kinds = {name: getattr(getattr(frame[name], "dtype", None), "kind", "O") for name in names}
        types = {"f": NUMBER, "c": NUMBER, "i": INTEGER, "u": INTEGER, "b": BOOLEAN, "M": DATE}
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
    if isinstance(array, np.ndarray) and array.dtype.kind == kind and kind in "iubfM":
        return array  # of integers, some of which are missing, pandas makes floats
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


@dataclass(frozen=True, eq=False)
class Chunks:
    """Tables that are read one after the other, with the same columns.

    Pandas finds the types of each chunk in its cells. So that no failure and no person depends on them, columns of
    ``identifiers`` are text in all chunks of frames, unless the first has floats, dates or booleans there.
    """

    first: Table
    rest: Iterator[object]
    identifiers: tuple[str, ...] = ()
    name: str = "the table"

    @property
    def columns(self) -> tuple[str, ...]:
        return self.first.columns

    @property
    def types(self) -> Mapping[str, str]:
        return {**self.first.types, **dict.fromkeys(self._as_text(), TEXT)}

    def _as_text(self) -> list[str]:
        frame = isinstance(self.first, Frame)
        return [name for name in self.identifiers if frame and self.first.types.get(name) in ("", INTEGER)]

    def blocks(self, columns: Sequence[str]) -> Iterator[Block]:
        texts = set(self._as_text())
        for each in itertools.chain([self.first], map(table, self.rest)):
            has_types = not (isinstance(self.first, Frame) and isinstance(each, Frame))
            if any(
                name not in each.columns or (has_types and each.types[name] != self.first.types[name])
                for name in columns
            ):
                raise UsageError("the chunks of `data` must have the same columns, and in Arrow the same types")
            for block in each.blocks(columns):
                cells = {name: _as_text(cells) if name in texts else cells for name, cells in block.cells.items()}
                yield Block(block.count, cells)


def _as_text(cells: Cells) -> Cells:
    """Persons or keys as text, whatever their types in a chunk: of whole floats without a point, of dates the day."""
    values, codes = cells.coded()
    return Cells([_text(value) for value in values], codes)


def _text(cell: object) -> object:
    if isinstance(cell, float):
        return str(int(cell)) if cell.is_integer() and abs(cell) < 2**53 else None
    if isinstance(cell, datetime.date):
        return str(cell)[:10]
    return str(cell) if isinstance(cell, int) or type(cell).__name__ == "UUID" else cell


@dataclass(frozen=True)
class Query:
    """What is read of a database, beside its URL: a ``table``, perhaps ``where`` a condition holds; or a ``query``,
    in which ``public`` names the tables that hold nobody."""

    table: str = ""
    where: str = ""
    query: str = ""
    public: tuple[str, ...] = ()


def table(data: object, person: str = "", query: Query = Query(), by: str | None = None) -> Table:
    """Open a table: files of CSV or Parquet, the URL of a database, a data frame, a table of Arrow, a mapping from
    names to columns, or an iterator of these.

    Args:
        person, by: the columns of persons and keys. query: of a database, what is read.
    Raises:
        UsageError: it is none of them, or the query is refused. MissingResource: a file or a package is missing.
    """
    listed = [data] if isinstance(data, (str, Path)) else data
    is_named = isinstance(listed, (list, tuple)) and all(isinstance(each, (str, Path)) for each in listed)
    if isinstance(listed, (list, tuple)) and listed and is_named:
        if any(is_url(each) for each in listed):
            return _in_database(list(map(str, listed)), person, query)
        if query != Query():
            raise UsageError("`table`, `where`, `query` and `public` are for databases, such as sqlite:///clinic.db")
        return Files.open([Path(each) for each in listed])
    if isinstance(data, Mapping) or hasattr(data, "iloc"):
        return Frame.open(data)
    if hasattr(data, "__arrow_c_stream__"):
        require("pyarrow", "a table of Arrow")
        from wpriv.releases.arrow_tables import ArrowTable

        return ArrowTable.open(data)
    if isinstance(data, Iterable) and not isinstance(data, (str, bytes)):
        chunks = iter(data)
        first = next(chunks, None)
        if first is not None and not isinstance(first, (str, bytes, tuple, list)):
            return Chunks(table(first), chunks, (person, *([] if by is None else [by])))
    raise UsageError(
        f"`data` must be a file of CSV or Parquet, the URL of a database, or a data frame; found {type(data).__name__}"
    )


def is_url(data: object) -> bool:
    """Whether ``data`` names a database."""
    return isinstance(data, str) and "://" in data


def _in_database(urls: Sequence[str], person: str, query: Query) -> Table:
    if len(urls) > 1:
        raise UsageError("`data` must be one database; several tables in it are joined by `query`")
    for package in ("sqlalchemy", "sqlglot"):
        require(package, "a table in a database", extra="release")
    from wpriv.releases.databases import Database

    return Database.open(urls[0], person, table=query.table, where=query.where, query=query.query, public=query.public)


def require_column(table: Table, column: str, argument: str) -> None:
    """Refuse a name that is no column; the columns are public."""
    if column not in table.columns:
        raise UnknownName("column", column, table.columns, place=f"`{argument}`")


def declared_types(table: Table) -> Mapping[str, str]:
    """The types of a schema, which are public; none of a frame, where one cell of text makes text of a column.

    Neither noise nor a statement may follow from those of a frame.
    """
    first = table.first if isinstance(table, Chunks) else table
    return {} if isinstance(first, Frame) else table.types


def require_usable(table: Table, column: str) -> None:
    """Refuse a column of a type, such as a list, that holds neither text nor numbers nor dates."""
    if table.types.get(column, "") not in ("", *TYPES):
        raise UsageError(
            f"{column} holds {table.types[column]}; releases read text, numbers, booleans, dates, timestamps and UUIDs"
        )


def require_identifiers(table: Table, person: str) -> None:
    """Refuse persons that are numbers with a point, or dates: floats merge long ids, and days the times within."""
    if table.types.get(person) in (NUMBER, DATE):
        kind = "floats, which make one of different long ids" if table.types[person] == NUMBER else "dates"
        raise UsageError(f"`person` {person} is a column of {kind}: read it as text or as whole numbers")
