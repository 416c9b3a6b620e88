"""Reading and writing of CSV tables: all code of the package that parses or formats CSV goes through this module.

Large tables are parsed by pandas, in a third of the time that the standard library needs. Small ones are not worth the third of a second
that pandas takes to load, and go through the standard library, which also reads again what pandas refuses, to name the
line of the fault. Both give the same numbers, text and refusals. ``rows`` and ``to_text`` use the standard library alone.
"""

from __future__ import annotations

import csv
import io
import re
import warnings
from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

Array = NDArray[Any]
LARGE = 10_000_000  # characters from which loading pandas takes less time than it saves


class CsvError(ValueError):
    """A fault of a CSV table: ``reason`` in words, and the ``line`` where it stands (from 1; 0 where it has no line)."""

    def __init__(self, reason: str, line: int = 0):
        super().__init__(f"line {line}: {reason}" if line else reason)
        self.reason, self.line = reason, line


def decode(raw: bytes) -> str:
    """Return the text of a CSV file, without a byte-order mark.

    Raises:
        CsvError: the bytes are not UTF-8, or hold null characters.
    """
    try:
        text = raw.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise CsvError(str(error)) from None
    if "\0" in text:
        raise CsvError("found a null character, as in a binary file")
    return text


def rows(text: str) -> Iterator[tuple[int, list[str]]]:
    """Yield each row that is not blank, with the number of its last line.

    Raises:
        CsvError: a quotation mark is left open, or text follows a closing one.
    """
    reader = csv.reader(io.StringIO(text, newline=""), strict=True)
    try:
        for row in reader:
            if len(row) > 1 or (row and row[0].strip(" \t")):
                yield reader.line_num, row
    except csv.Error as error:
        raise CsvError(f"not a CSV table ({error})", reader.line_num) from None


def number(cell: str) -> float:
    """Return the float64 nearest to a decimal number; ``nan`` and ``inf`` are numbers here.

    Raises:
        ValueError: the cell holds no number, or one with the underscores of Python.
    """
    if "_" in cell:
        raise ValueError(f"could not convert string {cell[:40]!r}")
    return float(cell)


@dataclass(frozen=True)
class CsvTable:
    """A CSV text and the names of its columns.

    Args:
        text: the whole table. names: one for each column, in order. headed: whether the first row holds the names.
    """

    text: str
    names: tuple[str, ...]
    headed: bool = True

    @classmethod
    def parse(cls, text: str, *, headed: bool = True) -> CsvTable:
        """Read the names of the columns, without surrounding blanks; ``0``, ``1``, ... where the table has no header.

        Raises:
            CsvError: two columns have the same name, or the first row is no CSV. An empty text has no columns and no rows.
        """
        line, first = next(rows(text), (1, []))
        names = [cell.strip() for cell in first] if headed else [str(place) for place in range(len(first))]
        if len(set(names)) < len(names):
            repeated = next(name for name in names if names.count(name) > 1)
            raise CsvError(
                f"the first line must name every column, each by another name; found {repeated[:40]!r} twice", line
            )
        return cls(text, tuple(names), headed)

    def matrix(self) -> Array:
        """Return [N, columns] float64.

        Raises:
            CsvError: a cell that is no number, or a row of another length; it names the line.
        """
        columns = self.columns(numeric=self.names)
        return np.column_stack(list(columns.values())) if columns else np.empty((0, 0))

    def columns(self, numeric: Sequence[str] = ()) -> dict[str, Array]:
        """Return each column as [N]: float64 where ``numeric`` names it, else text exactly as it stands in the file.

        Numbers are the float64 nearest to what is written. A row that is too short is filled up with empty cells, where no column is
        numeric. A comma at the end of a row is no further cell.

        Raises:
            CsvError: a cell of a numeric column that is no number, or a row that is too long; it names the line.
        """
        if not self.names:
            return {}
        if len(self.text) < LARGE:
            return self._by_rows(numeric)
        try:
            return self._by_pandas(numeric)
        except (ValueError, Warning, OverflowError):  # among them are pandas' own ParserError and ParserWarning
            return self._by_rows(numeric)

    def numbers(self, name: str, cells: Array) -> Array:
        """Return a column of text as [N] float64.

        Raises:
            CsvError: a cell that is no number; it names the line.
        """
        values = np.empty(len(cells))
        for row, cell in enumerate(cells):
            try:
                values[row] = number(cell)
            except ValueError:
                raise _no_number(cell, row, self.names.index(name), self.line(row)) from None
        return values

    def cells(self) -> list[dict[str, str]]:
        """Return one mapping a row, from names to text; see ``columns``."""
        columns = [column.tolist() for column in self.columns().values()]
        return [dict(zip(self.names, row, strict=True)) for row in zip(*columns, strict=True)]

    def line(self, row: int) -> int:
        """Return the line on which a row ends, counting rows from 0."""
        return next(line for place, (line, _) in enumerate(rows(self.text), start=-int(self.headed)) if place == row)

    def _by_pandas(self, numeric: Sequence[str]) -> dict[str, Array]:
        import pandas as pd

        numbers = set(numeric)
        kinds: Any = {name: np.float64 if name in numbers else object for name in self.names}
        if numbers.issuperset(self.names):
            kinds = np.float64
        options: dict[str, Any] = (
            {} if _release(pd.__version__) >= (3, 1) else {"float_precision": "round_trip"}
        )  # the default since 3.1
        with warnings.catch_warnings():
            warnings.simplefilter("error", pd.errors.ParserWarning)  # rows that are longer than the header
            frame = pd.read_csv(
                io.StringIO(self.text, newline=""),
                header=0 if self.headed else None,
                names=list(self.names),
                index_col=False,
                dtype=kinds,
                na_filter=False,  # "NA", "None" and empty cells stay what they are
                low_memory=False,
                **options,
            )
        self._refuse_what_pandas_lets_pass(numeric, frame[self.names[-1]])
        return {name: frame[name].to_numpy() for name in self.names}

    def _refuse_what_pandas_lets_pass(self, numeric: Sequence[str], last: Any) -> None:
        """Raise ValueError where pandas may have read what ``_by_rows`` refuses."""
        if '"' in self.text:
            deque(rows(self.text), maxlen=0)  # text behind a closing quotation mark
        lowered = self.text.lower() if numeric else ""
        if "true" in lowered or "false" in lowered:
            raise ValueError("true and false were read as 1 and 0")
        if numeric and self.names[-1] not in numeric and (last == "").any():
            raise ValueError("a row may have been too short")

    def _by_rows(self, numeric: Sequence[str]) -> dict[str, Array]:
        numbers = {name for name in numeric if name in self.names}
        columns: dict[str, list[Any]] = {name: [] for name in self.names}
        body = rows(self.text)
        if self.headed:
            next(body, None)
        for place, (line, row) in enumerate(body):
            if len(row) == len(self.names) + 1 and not row[-1]:
                row.pop()  # a comma at the end of the line
            if len(row) > len(self.names) or (numbers and len(row) < len(self.names)):
                raise CsvError(f"{len(self.names)} columns were wanted, as in the first line; found {len(row)}", line)
            for column, (name, cells) in enumerate(columns.items()):
                cell = row[column] if column < len(row) else ""
                try:
                    cells.append(number(cell) if name in numbers else cell)
                except ValueError:
                    raise _no_number(cell, place, column, line) from None
        return {name: np.array(cells, np.float64 if name in numbers else object) for name, cells in columns.items()}


def to_text(names: Sequence[str], body: Sequence[Mapping[str, Any]]) -> str:
    """Return rows as CSV with a header; numbers in full, an empty cell where a row has no value or None."""
    out = io.StringIO()
    writer = csv.DictWriter(out, names, extrasaction="ignore", lineterminator="\n")
    writer.writeheader()
    writer.writerows(body)
    return out.getvalue()


def _no_number(cell: str, row: int, column: int, line: int) -> CsvError:
    return CsvError(f"could not convert string {cell[:40]!r} to a number at row {row}, column {column + 1}", line)


def _release(version: str) -> tuple[int, ...]:
    """Return major and minor version."""
    return tuple(int(part) for part in re.findall(r"\d+", version)[:2])
