"""Columns of large tables in little memory: the distinct values of some rows, and the place of each row's value.

CSV files whose content is secret are read in blocks, exactly, with errors that say nothing of a row. The table is one
by RFC 4180: cells with commas, line ends or quotation marks stand in quotation marks, which are doubled inside; all
rows have as many cells as the first. Lines without a character are no rows. Bytes that are not UTF-8 stay distinct, as
surrogates. All characters of a block are looked at together, which takes a fifth of a microsecond a cell, and a Python
object is made for each distinct cell of a block only.
"""

from __future__ import annotations

import datetime
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
from numpy.typing import NDArray

from wpriv.files import csv_tables
from wpriv.files.csv_tables import NO_TABLE, CsvError

Values = Sequence[object] | NDArray[Any]
Codes = NDArray[np.int32]
Places = NDArray[np.int64]
TEXT, INTEGER, NUMBER, DATE, BOOLEAN, UUIDS = "text", "integer", "number", "date", "boolean", "uuid"
TYPES = (TEXT, INTEGER, NUMBER, DATE, BOOLEAN, UUIDS)
WORD = 64
EPOCH = datetime.date(1970, 1, 1).toordinal()
BLOCK = 2**24  # bytes
SHORT = 64  # bytes of a cell that is compared as numbers of 8 bytes
QUOTE, COMMA, LF, CR = b'",\n\r'
MARK = b"\xef\xbb\xbf"
_MASKS = np.array([(1 << 8 * size) - 1 for size in range(9)], np.uint64)
Text = NDArray[np.uint8]


@dataclass(frozen=True, eq=False)
class Cells:
    """Some cells of a column.

    Args:
        values: a list of values, or an array of int64, uint64, booleans or float64.
        codes: [n] the place of each cell among ``values``, -1 where it is missing; None: ``values`` are the cells.
        dates: ``values`` are an array of days since 1970-01-01.
    """

    values: Values
    codes: Codes | None = None
    dates: bool = False

    def coded(self) -> tuple[list[object], Codes]:
        """The distinct values, some perhaps twice, and the place of each cell among them, -1 where it is missing."""
        if not isinstance(self.values, np.ndarray):
            codes = np.arange(len(self.values), dtype=np.int32) if self.codes is None else self.codes
            return list(self.values), codes
        numbers = np.asarray(self.values)
        wide = numbers if numbers.dtype.kind == "f" else numbers.astype(np.int64, copy=False)
        codes, first = distinct(wide.view(np.uint64))
        values = [_date(days) for days in numbers[first].tolist()] if self.dates else numbers[first].tolist()
        return values, self.spread(codes, -1)

    def without(self, null: Sequence[str]) -> Cells:
        """The same cells, of which those with some text are missing."""
        if not null or isinstance(self.values, np.ndarray):
            return self
        values, codes = self.coded()
        places = np.array([*(-1 if value in null else place for place, value in enumerate(values)), -1], np.int32)
        return Cells(values, places[codes])

    def spread(self, of_values: NDArray[Any], missing: Any) -> NDArray[Any]:
        """[n] the entry of ``of_values`` for each cell, and ``missing`` where there is no value."""
        if self.codes is None:
            return of_values
        return np.append(of_values, np.asarray([missing], of_values.dtype))[self.codes]


@dataclass(frozen=True, eq=False)
class Block:
    """Some rows of a table: their number, and the cells of the columns that were asked for."""

    count: int
    cells: Mapping[str, Cells]


def coded(column: Sequence[object]) -> Cells:
    """Objects as the distinct ones among them; what is neither text, number nor date is missing."""
    kinds = set(map(type, column))
    if kinds == {float}:
        return Cells(np.array(column, np.float64))
    if kinds == {int}:
        try:
            return Cells(np.array(column, np.int64))
        except OverflowError:
            pass
    known: dict[object, int] = {}
    if kinds <= {str, type(None)} or kinds <= {int, type(None)}:  # of one type, equal ones are the same
        known = dict.fromkeys(column)  # type: ignore[assignment]
        known = {value: place for place, value in enumerate(known)}
        return Cells(list(known), np.fromiter(map(known.__getitem__, column), np.int32, len(column)))
    values: list[object] = []
    codes = np.empty(len(column), np.int32)
    for row, cell in enumerate(column):
        mark = _mark(cell)
        if mark not in known:
            known[mark] = len(values)
            values.append(None if mark is None else cell)
        codes[row] = known[mark]
    return Cells(values, codes)


def _mark(cell: object) -> object:
    """What equal cells have in common, for a dictionary; None of NaN, and of a cell that is no value of any kind."""
    if isinstance(cell, np.generic):
        cell = cell.item()
    if isinstance(cell, Decimal) and cell.is_nan():  # a signalling NaN can be neither hashed nor compared
        return None
    known = isinstance(cell, (str, int, float, Decimal, datetime.date)) or type(cell).__name__ == "UUID"
    return (type(cell), cell) if known and cell == cell else None


def _date(days: int) -> datetime.date | None:
    """The date of days since 1970-01-01; None beyond the years 1 to 9999."""
    day = days + EPOCH
    return datetime.date.fromordinal(day) if 0 < day <= datetime.date.max.toordinal() else None


def sorted_with_order(numbers: NDArray[np.uint64]) -> tuple[NDArray[np.uint64], Places]:
    """The numbers in order, and the places at which they were; those of equal ones are in any order."""
    bits = max(len(numbers) - 1, 0).bit_length()
    if len(numbers) and int(numbers.max()).bit_length() + bits <= WORD:  # ten times as fast as argsort
        packed = numbers << np.uint64(bits)
        packed |= np.arange(len(numbers), dtype=np.uint64)
        packed.sort()
        order = packed & np.uint64((1 << bits) - 1)
        packed >>= np.uint64(bits)
        return packed, order.view(np.int64)
    places = np.argsort(numbers)
    return numbers[places], places


def distinct(numbers: NDArray[np.uint64]) -> tuple[Codes, Places]:
    """[n] the place of each number among the distinct ones in order, and a row that has each of these."""
    ordered, order = sorted_with_order(numbers)
    is_new = np.ones(len(order), bool)
    is_new[1:] = ordered[1:] != ordered[:-1]
    codes = np.empty(len(order), np.int32)
    codes[order] = np.cumsum(is_new, dtype=np.int32) - 1
    return codes, order[is_new]


def csv_blocks(path: Path, names: Sequence[str]) -> Iterator[Block]:
    """Yield some columns of a CSV file as text, exactly as in the file, for one block of rows after the other.

    Raises:
        CsvError: it is no table by RFC 4180. OSError: it cannot be read.
    """
    header = csv_tables.names_of(path)
    places = [header.index(name) for name in names]
    with path.open("rb") as file:
        first = 1
        for raw in _whole_rows(file):
            text = np.frombuffer(raw + bytes(SHORT + 8), np.uint8)
            begins, ends = _cells(text[: len(raw)], len(header))
            cells = [_coded(raw, text, begins[first:, place], ends[first:, place]) for place in places]
            yield Block(len(begins) - first, dict(zip(names, cells, strict=True)))
            first = 0


def _whole_rows(file: BinaryIO) -> Iterator[bytes]:
    """Yield the bytes of a file, cut behind ends of rows."""
    rest = file.read(len(MARK)).removeprefix(MARK)
    while True:
        more = file.read(max(BLOCK, len(rest)))
        raw = rest + (more or b"\n" * bool(rest))
        cut = _last_end(np.frombuffer(raw, np.uint8))
        if cut:
            yield raw[:cut]
        rest = raw[cut:]
        if not more:
            break
    if rest:
        raise CsvError(NO_TABLE)  # within quotation marks


def _last_end(text: Text) -> int:
    """The number of characters up to the last end of a row."""
    stops = _stops(text)
    ends = stops[text[stops] != COMMA]
    return int(ends[-1]) + 1 if len(ends) else 0


def _stops(text: Text) -> Places:
    """The places of commas and line ends outside quotation marks: those that an even number of marks precede."""
    stops = text == COMMA
    stops |= text == LF
    stops |= text == CR
    marks = text == QUOTE
    if marks.any():
        stops &= ~np.logical_xor.accumulate(marks)
    return np.flatnonzero(stops)


def _cells(text: Text, count: int) -> tuple[Places, Places]:
    """[rows, count] the first character of each cell, and that behind its last; quotation marks around it included."""
    stops = _stops(text)
    begins = np.concatenate([[0], stops[:-1] + 1])
    is_end = text[stops] != COMMA
    is_blank = is_end & (stops == begins)
    is_blank[1:] &= is_end[:-1]
    if is_blank.any():
        stops, begins, is_end = stops[~is_blank], begins[~is_blank], is_end[~is_blank]
    if len(stops) % count:
        raise CsvError(NO_TABLE)
    is_end = is_end.reshape(-1, count)
    marks = np.flatnonzero(text == QUOTE)
    if not is_end[:, -1].all() or is_end[:, :-1].any() or not _are_paired(text, marks):
        raise CsvError(NO_TABLE)
    return begins.reshape(-1, count), stops.reshape(-1, count)


def _are_paired(text: Text, marks: Places) -> bool:
    """Return whether every quotation mark opens or closes a cell, or is doubled within one."""
    opening, closing = marks[::2], marks[1::2]
    before, after = text[opening - 1], text[closing + 1]
    starts = (opening == 0) | np.isin(before, (COMMA, LF, CR, QUOTE))
    return bool(starts.all() and np.isin(after, (COMMA, LF, CR, QUOTE)).all())


def _coded(raw: bytes, text: Text, begins: Places, ends: Places) -> Cells:
    """The cells of a column of a block."""
    quoted = text[begins] == QUOTE
    has_marks = bool(quoted.any())
    if has_marks:
        begins, ends = begins + quoted, ends - quoted
    codes, first = _compared(text, begins, ends - begins)
    values = []
    for start, stop, doubled in zip(begins[first].tolist(), ends[first].tolist(), quoted[first].tolist(), strict=True):
        value = raw[start:stop].decode("utf-8", "surrogateescape")
        values.append(value.replace('""', '"') if doubled else value)
    return Cells(values, codes)


def _compared(text: Text, begins: Places, lengths: Places) -> tuple[Codes, Places]:
    """Number equal cells alike: by eight bytes after the other, and long ones by all their bytes at once."""
    words = np.ndarray((len(text) - 7,), "<u8", text, strides=(1,))  # the eight bytes from each place on
    short = np.minimum(lengths, SHORT)
    codes, first = distinct(short.astype(np.uint64))
    for place in range(0, int(short.max(initial=0)), 8):
        size = np.clip(short - place, 0, 8)
        more, _ = distinct(words[np.minimum(begins + place, len(words) - 1)] & _MASKS[size])
        codes, first = distinct(codes.astype(np.uint64) << np.uint64(32) | more.astype(np.uint64))
    known: dict[tuple[int, bytes], int] = {}
    long = np.flatnonzero(lengths > SHORT)
    if not long.size:
        return codes, first
    numbers = np.full(len(codes), 0, np.uint64)
    for row in long.tolist():
        start = int(begins[row])
        cell = (int(codes[row]), text[start : start + int(lengths[row])].tobytes())
        numbers[row] = known.setdefault(cell, len(known) + 1)
    return distinct(codes.astype(np.uint64) << np.uint64(32) | numbers)
