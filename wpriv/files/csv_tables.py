"""Reading and writing of CSV tables; with ``columns``, for large tables of people, all that parses or formats CSV.

Large tables are parsed by pandas, three times as fast as by the standard library. Small ones do not justify the third
of a second that pandas takes to load. What pandas refuses is read again by the standard library, which names the line
of the fault. Both give the same numbers, text and errors. ``rows`` and ``to_text`` use the standard library only.
"""

from __future__ import annotations

import csv
import io
import re
import sys
import warnings
from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

Array = NDArray[Any]
LARGE = 10_000_000  # characters above which loading pandas saves time
LONGEST_CELL = 131_072  # characters of a cell of rows(); the limit of the csv module is one for the whole process


class CsvError(ValueError):
    """A fault of a CSV table: its ``reason``, and its ``line`` counted from 1 (0 if the fault has no line)."""

    def __init__(self, reason: str, line: int = 0):
        super().__init__(f"line {line}: {reason}" if line else reason)
        self.reason, self.line = reason, line


def decode(raw: bytes) -> str:
    """Return the text of a CSV file, without a byte-order mark."""
    try:
        text = raw.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise CsvError(str(error)) from None
    if "\0" in text:
        raise CsvError("found a null character, as in a binary file")
    return text


def rows(text: str) -> Iterator[tuple[int, list[str]]]:
    """Yield each row that is not blank, with the number of its first line."""
    csv.field_size_limit(LONGEST_CELL)
    reader = csv.reader(io.StringIO(text, newline=""), strict=True)
    line = 1
    try:
        for row in reader:
            if len(row) > 1 or (row and row[0].strip(" \t")):
                yield line, row
            line = reader.line_num + 1
    except csv.Error as error:
        rest = f"; a quotation mark in this row is open up to line {reader.line_num}" * (reader.line_num > line)
        raise CsvError(f"not a CSV table ({error}){rest}", line) from None


def words(text: str) -> list[str]:
    """Return words with commas in between, in quotes where they have commas themselves."""
    return next(csv.reader([text], skipinitialspace=True), [])


class NotANumber(CsvError):
    """A cell of a numeric column that is no number."""


def number(cell: str) -> float:
    """Return the float64 nearest to a decimal number; ``nan`` and ``inf`` are accepted."""
    if "_" in cell:
        raise ValueError(f"could not convert string {cell[:40]!r}")
    return float(cell)


@dataclass(frozen=True)
class CsvTable:
    """A CSV text with its header, if it is ``headed``, and the names of its columns in order."""

    text: str
    names: tuple[str, ...]
    headed: bool = True

    @classmethod
    def parse(cls, text: str, *, headed: bool = True) -> CsvTable:
        """Read the column names, without blanks; ``0``, ``1``, ... without a header, none of an empty text."""
        line, first = next(rows(text), (1, []))
        for separator, word in ((";", "semicolons"), ("\t", "tabs")) if len(first) == 1 else ():
            if separator in first[0].strip():
                raise CsvError(
                    f"the columns are separated by {word}; wanted commas, and points in decimal numbers. Save it "
                    f"again, for example by pandas: read_csv(path, sep={separator!r}).to_csv(path, index=False)",
                    line,
                )
        names = [cell.strip() for cell in first] if headed else [str(index) for index in range(len(first))]
        if len(set(names)) < len(names):
            repeated = next(name for name in names if names.count(name) > 1)
            raise CsvError(f"the names of the columns must differ; found {repeated[:40]!r} twice", line)
        return cls(text, tuple(names), headed)

    def matrix(self) -> Array:
        """Return [N, columns] float64; a CsvError names the line of a cell or a row that does not fit."""
        columns = self.columns(numeric=self.names)
        return np.column_stack(list(columns.values())) if columns else np.empty((0, 0))

    def columns(self, numeric: Sequence[str] = ()) -> dict[str, Array]:
        """Return each column as [N]: float64 if ``numeric`` names it, else text exactly as in the file.

        Numbers are the float64 nearest to the decimal text. If no column is numeric, short rows are filled up with
        empty cells. A comma at the end of a row does not begin another cell.

        Raises:
            CsvError: a cell of a numeric column is not a number, or a row has the wrong length; names the line.
        """
        if not self.names:
            return {}
        if len(self.text) < LARGE:
            return self._by_rows(numeric)
        try:
            return self._by_pandas(numeric)
        except (ValueError, Warning, OverflowError):  # include pandas' ParserError and ParserWarning
            return self._by_rows(numeric)

    def numbers(self, name: str, cells: Array) -> Array:
        """Convert a column of text to [N] float64; a CsvError names the line of a cell that is none."""
        values = np.empty(len(cells))
        for row, cell in enumerate(cells):
            try:
                values[row] = number(cell)
            except ValueError:
                raise _not_a_number(cell, row, self.names.index(name), self.line(row)) from None
        return values

    def cells(self) -> list[dict[str, str]]:
        """Return one mapping from names to text for each row; see ``columns``."""
        columns = [column.tolist() for column in self.columns().values()]
        return [dict(zip(self.names, row, strict=True)) for row in zip(*columns, strict=True)]

    def line(self, row: int) -> int:
        """Return the line on which a row begins; rows are counted from 0."""
        numbered = enumerate(rows(self.text), start=-int(self.headed))
        return next(line for index, (line, _) in numbered if index == row)

    def _by_pandas(self, numeric: Sequence[str]) -> dict[str, Array]:
        import pandas as pd

        some: Any = {name: np.float64 if name in numeric else object for name in self.names}
        types: Any = np.float64 if set(numeric).issuperset(self.names) else some
        # correct rounding is the default since pandas 3.1
        release = tuple(int(part) for part in re.findall(r"\d+", pd.__version__)[:2])
        precision: Any = {} if release >= (3, 1) else {"float_precision": "round_trip"}
        with warnings.catch_warnings():
            warnings.simplefilter("error", pd.errors.ParserWarning)  # rows that are longer than the header
            frame = pd.read_csv(
                io.StringIO(self.text, newline=""),
                header=0 if self.headed else None,
                names=list(self.names),
                index_col=False,
                dtype=types,
                na_filter=False,  # "NA", "None" and empty cells stay text
                low_memory=False,
                **precision,
            )
        self._check_leniencies_of_pandas(numeric, frame[self.names[-1]])
        return {name: frame[name].to_numpy() for name in self.names}

    def _check_leniencies_of_pandas(self, numeric: Sequence[str], last: Any) -> None:
        """Raise ValueError if pandas may have accepted a table that ``_by_rows`` refuses."""
        if '"' in self.text:
            deque(rows(self.text), maxlen=0)  # refuses text after a closing quotation mark
        lowered = self.text.lower() if numeric else ""
        if "true" in lowered or "false" in lowered:
            raise ValueError("true and false were read as 1 and 0")
        if numeric and self.names[-1] not in numeric and (last == "").any():
            raise ValueError("a row may have been too short")

    def _by_rows(self, numeric: Sequence[str]) -> dict[str, Array]:
        numbers = set(numeric).intersection(self.names)
        columns: dict[str, list[object]] = {name: [] for name in self.names}
        body = rows(self.text)
        if self.headed:
            next(body, None)
        for index, (line, row) in enumerate(body):
            if len(row) == len(self.names) + 1 and not row[-1]:
                row.pop()  # a comma at the end of the line
            if len(row) > len(self.names) or (numbers and len(row) < len(self.names)):
                fault = f"{len(self.names)} columns were wanted, as in the first line; found {len(row)}"
                if index == 0 and len(row) == len(self.names) + 1:
                    fault += "; is the first one a column of row numbers without a name?"
                raise CsvError(fault, line)
            for column, (name, cells) in enumerate(columns.items()):
                cell = row[column] if column < len(row) else ""
                try:
                    cells.append(number(cell) if name in numbers else cell)
                except ValueError:
                    raise _not_a_number(cell, index, column, line) from None
        return {name: np.array(cells, np.float64 if name in numbers else object) for name, cells in columns.items()}


def names_of(path: Path) -> list[str]:
    """Return the names of the columns of a CSV file, of which only the first row is read.

    Raises:
        CsvError: it has none, or two of one name. OSError: it cannot be read.
    """
    csv.field_size_limit(sys.maxsize)  # a long cell is a cell
    with path.open(encoding="utf-8-sig", errors="surrogateescape", newline="") as file:
        try:
            names = [name.strip() for name in next(csv.reader(file, strict=True), [])]
        except csv.Error:
            raise CsvError(NO_TABLE) from None
    if not names or len(set(names)) < len(names):
        raise CsvError("the first row must name the columns, each differently")
    return names


NO_TABLE = "not a CSV table by RFC 4180, with as many cells in each row as in the first one"


def has_index_column(names: Sequence[str]) -> bool:
    """Tell whether the first column holds the numbers of the rows, as pandas writes them beside a table."""
    return len(names) > 1 and names[0].strip() in ("", "Unnamed: 0")


def to_text(names: Sequence[str], body: Sequence[Mapping[str, object]]) -> str:
    """Format rows as CSV with a header; numbers in full, an empty cell for a missing value or None."""
    out = io.StringIO()
    writer = csv.DictWriter(out, names, extrasaction="ignore", lineterminator="\n")
    writer.writeheader()
    writer.writerows(body)
    return out.getvalue()


def _not_a_number(cell: str, row: int, column: int, line: int) -> NotANumber:
    return NotANumber(f"could not convert string {cell[:40]!r} to a number at row {row}, column {column + 1}", line)
