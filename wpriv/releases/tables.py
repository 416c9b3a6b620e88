"""The tables of releases: CSV files and data frames, of which first the columns are known, and later the rows are read.

No message says anything about a row: not a cell, not a place, not a count.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol, TypeVar

from wpriv.errors import MissingResource, UnknownName, UsageError, of_file
from wpriv.files import csv_tables
from wpriv.files.csv_tables import CsvError

TEXT, INTEGER, NUMBER, DATE = "text", "integer", "number", "date"
TYPES = (TEXT, INTEGER, NUMBER, DATE)
T = TypeVar("T")
Columns = dict[str, Sequence[object]]


class Table(Protocol):
    """A table before its rows are read: a public ``name``, the names of its columns, and their types, if it has any."""

    @property
    def name(self) -> str: ...

    @property
    def columns(self) -> tuple[str, ...]: ...

    @property
    def types(self) -> Mapping[str, str]: ...

    def read(self, columns: Sequence[str]) -> Columns:
        """Read some columns."""
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
        headers = [_of_csv(path, csv_tables.names_of) for path in paths]
        for path, header in zip(paths, headers, strict=True):
            if header != headers[0]:
                raise UsageError(f"{path} has other columns than {paths[0]}; several files are one table")
        return cls(tuple(paths), tuple(headers[0]), dict.fromkeys(headers[0], TEXT))

    def read(self, columns: Sequence[str]) -> Columns:
        tables = [_of_csv(path, lambda path: csv_tables.text_columns(path, columns)) for path in self.paths]
        return {name: [cell for table in tables for cell in table[name]] for name in columns}


def _of_csv(path: Path, read: Callable[[Path], T]) -> T:
    try:
        return read(path)
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
        kinds = {name: getattr(getattr(frame[name], "dtype", None), "kind", "O") for name in names}
        types = {"f": NUMBER, "c": NUMBER, "M": DATE}
        return cls(frame, names, {name: types.get(kind, "") for name, kind in kinds.items()})

    def read(self, columns: Sequence[str]) -> Columns:
        table = {name: _as_list(self.frame[name]) for name in columns}
        if len(set(map(len, table.values()))) > 1:
            raise UsageError("the columns of a table must have one length")
        return table


def _as_list(column: Any) -> Sequence[object]:
    cells: Sequence[object] = column.tolist() if hasattr(column, "tolist") else list(column)
    return cells


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
    """Refuse persons that are numbers with a point: floats merge long ids."""
    if table.types.get(person) == NUMBER:
        raise UsageError(
            f"`person` {person} is a column of floats, which make one of different long ids: read it as text or as "
            f"whole numbers"
        )
