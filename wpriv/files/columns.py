"""Columns of large tables in little memory: the distinct values of some rows, and the place of each row's value."""

from __future__ import annotations

import datetime
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal
from typing import Any

import numpy as np
from numpy.typing import NDArray

Values = Sequence[object] | NDArray[Any]
Codes = NDArray[np.int32]
Places = NDArray[np.int64]
TEXT, INTEGER, NUMBER, DATE, BOOLEAN, UUIDS = "text", "integer", "number", "date", "boolean", "uuid"
TYPES = (TEXT, INTEGER, NUMBER, DATE, BOOLEAN, UUIDS)
WORD = 64
EPOCH = datetime.date(1970, 1, 1).toordinal()


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
