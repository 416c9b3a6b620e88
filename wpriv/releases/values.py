"""Columns of values become steps of a grid, or bins of a histogram: many cells at once, and exactly.

A cell is decided in float64 where its error cannot change the result, which is a stated margin away from where steps or
bins meet. All others, few of them, are decided one by one in exact arithmetic (``Grid.steps``, ``exact_value``).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from decimal import Decimal
from fractions import Fraction
from typing import Any

import numpy as np
from numpy.typing import NDArray

from wpriv.files.columns import Cells
from wpriv.numerics.arrays import Array
from wpriv.releases.bounding import Cell, Codes, Grid, exact_value

Mask = NDArray[np.bool_]
MARGIN = 2.0**-50  # more than the relative error of a double that was read from text, over one of a step
WIDE = 2**62


def steps(cells: Cells, grid: Grid) -> tuple[Codes, Mask]:
    """[n] the steps of a column, 0 where there is no value; and whether there is one."""
    numbers = _Numbers.of(cells, dates=grid.is_date)
    whole = numbers.whole
    if whole is not None and _fits(whole, grid):
        places, doubtful = _of_integers(whole, grid), np.zeros(len(whole), bool)
    else:
        places, doubtful = _of_floats(numbers.floats(), grid, exact=numbers.are_exact)
        doubtful |= numbers.rounds
    return numbers.decided(places, doubtful, grid.steps)


def bins(cells: Cells, edges: Sequence[Decimal], *, dates: bool) -> tuple[Codes, Mask]:
    """[n] the place of each value among bins [e0, e1), ..., the last closed; -1 below them, their number above them."""

    def exact(cell: Cell) -> int | None:
        value = Decimal(cell) if isinstance(cells.values, np.ndarray) else exact_value(cell, dates=dates)  # type: ignore[arg-type]
        if value is None or value.is_nan():
            return None
        return sum(value >= edge for edge in edges) - 1 - int(value == edges[-1])

    numbers = _Numbers.of(cells, dates=dates)
    values, near = numbers.floats(), np.array([float(edge) for edge in edges])
    doubtful = np.isin(values, near)
    doubtful |= numbers.rounds
    places = np.searchsorted(near, values, side="right").astype(np.int64) - 1
    return numbers.decided(places, doubtful, exact)


@dataclass(frozen=True)
class _Numbers:
    """A column as numbers, of which some have to be looked at one by one.

    Args:
        cells: the column. whole: its values, if they are integers. rounded: those nearest to its values, NaN where
            there is none. are_exact: whether ``rounded`` are the values. odd: places of values that are neither.
    """

    cells: Cells
    whole: NDArray[Any] | None
    rounded: Array
    are_exact: bool
    odd: tuple[int, ...] = ()

    @classmethod
    def of(cls, cells: Cells, *, dates: bool) -> _Numbers:
        values = cells.values
        if isinstance(values, np.ndarray):
            if cells.dates != dates:
                return cls(cells, None, np.full(len(values), np.nan), True)
            if values.dtype.kind == "f":
                return cls(cells, None, values.astype(np.float64, copy=False), True)
            return cls(cells, values, np.zeros(0), True)
        rounded, odd = np.full(len(values), np.nan), []
        for place, value in enumerate(values):
            if dates or type(value) is not str:
                odd.append(place)
            elif "_" not in value:
                try:
                    rounded[place] = float(value)
                except ValueError:
                    continue
        return cls(cells, None, rounded, False, tuple(odd))

    def floats(self) -> Array:
        """The numbers nearest to the values."""
        return self.rounded if self.whole is None else self.whole.astype(np.float64)

    @property
    def rounds(self) -> Mask | bool:
        """Which integers a double may not hold."""
        return False if self.whole is None else np.abs(self.floats()) >= 2.0**53

    def decided(self, places: Codes, doubtful: Mask, exact: Callable[[Cell], int | None]) -> tuple[Codes, Mask]:
        """[n] the results of all cells, of which the doubtful and odd ones are found one by one."""
        present = np.ones(len(places), bool) if self.whole is not None else ~np.isnan(self.rounded)
        doubtful[list(self.odd)] = True
        known: dict[Cell, int | None] = {}
        for place in np.flatnonzero(doubtful).tolist():
            value = self.cells.values[place]
            if type(value) is str:
                result = exact(value)
            elif isinstance(value, np.generic):
                number = value.item()
                result = known[number] if number in known else known.setdefault(number, exact(number))
            else:
                result = exact(value)
            places[place], present[place] = (0, False) if result is None else (result, True)
        places[~present] = 0
        return self.cells.spread(places, 0), self.cells.spread(present, False)


def _of_floats(x: Array, grid: Grid, *, exact: bool) -> tuple[Codes, Mask]:
    """Steps of float64 numbers, and which of them are doubtful: near the middle of two steps."""
    with np.errstate(all="ignore"):
        quotient = x / float(grid.step)
        nearest = np.rint(quotient)
        size = np.abs(quotient)
        most = (max(abs(grid.least), abs(grid.most)) + 1) * (1 + 2.0**-40)
        margin = 0.0 if exact and _is_power_of_two(grid.step) else MARGIN
        doubtful = (size <= most) & (np.abs(np.abs(quotient - nearest) - 0.5) < margin * size)
        # beyond 2^48 steps every number is doubtful, unless the quotient is exact
        doubtful |= (size <= most) & (margin * size >= 0.25)
    places = np.clip(np.nan_to_num(nearest, nan=0.0), -float(WIDE), float(WIDE)).astype(np.int64)
    return np.clip(places, grid.least, grid.most), doubtful


def _is_power_of_two(step: Fraction) -> bool:
    """Whether dividing a double by a step is exact, apart from results that are too small or too large to matter."""
    return step.numerator & (step.numerator - 1) == 0 and step.denominator & (step.denominator - 1) == 0


def _ends(grid: Grid) -> tuple[int, int]:
    """Whole numbers at or beyond the first and the last point of a grid."""
    return math.floor(grid.least * grid.step), math.ceil(grid.most * grid.step)


def _fits(whole: NDArray[Any], grid: Grid) -> bool:
    """Whether the steps of integers can be found in 64 bits."""
    low, high = _ends(grid)
    return max(abs(low), abs(high)) * grid.step.denominator + grid.step.numerator < WIDE


def _of_integers(whole: NDArray[Any], grid: Grid) -> Codes:
    """Steps of integers, rounded half to even."""
    low, high = _ends(grid)
    if whole.dtype == np.uint64:
        whole = np.minimum(whole, np.uint64(max(high, 0)))
    numbers = np.clip(whole.astype(np.int64), low, high)
    below, rest = np.divmod(numbers * grid.step.denominator, grid.step.numerator)
    up = 2 * rest > grid.step.numerator
    up |= (2 * rest == grid.step.numerator) & (below % 2 == 1)
    rounded: Codes = np.clip(below + up, grid.least, grid.most)
    return rounded
