"""Rows of a table become bounded integers of persons, by a function of each person's own rows.

Values are clipped and rounded to whole multiples of a grid. Of each person at most ``groups`` cells are kept, and at
most ``rows`` rows in each, namely those of the least ranks, which a keyed permutation gives to the person, the cell and
the value. Neither the order of the rows nor the rows of others play a part, for every key: whoever adds or removes a
person changes at most ``groups`` cells, each by at most ``rows`` bounded integers (docs/guides/release.md).
Sums are of integers and do not overflow.
"""

from __future__ import annotations

import datetime
import hashlib
import unicodedata
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal, InvalidOperation
from fractions import Fraction
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from wpriv.errors import UsageError
from wpriv.numerics.numbers import shown
from wpriv.randomness import Words, permuted

Codes = NDArray[np.int64]
Cell = object
MISSING = -1
LARGEST = 2**62  # grid steps of a bound
LEAST_EXPONENT = -100  # numbers below 1e-100 round to 0 on every grid
MOST_DIGITS = 60  # of a bound or of a grid, on either side of the point
NORMALISE = ("nfc", "strip", "casefold")
EPOCH = datetime.date(1970, 1, 1).toordinal()
LIMB = 31


@dataclass(frozen=True)
class Grid:
    """Bounds and spacing of a column: a value is clipped to [lo, hi] and rounded, half to even, to a multiple of step.

    Args:
        lo, hi, step: exact numbers; dates as days since 1970-01-01. is_date: whether values are dates.
    Raises:
        UsageError: no multiple of ``step`` lies within the bounds, or there are more than 2^62 on a side.
    """

    lo: Fraction
    hi: Fraction
    step: Fraction = Fraction(1)
    is_date: bool = False

    def __post_init__(self) -> None:
        if not self.lo <= self.hi or self.step <= 0:
            raise UsageError(f"`bounds` are LO:HI with LO <= HI, and `grid` is above 0; found {self.lo}:{self.hi}")
        if self.least > self.most:
            raise UsageError(
                f"no multiple of the grid {self.step} lies within {self.lo}:{self.hi}; take a finer `grid`"
            )
        if max(abs(self.least), abs(self.most)) > LARGEST:
            raise UsageError("the bounds have more than 2^62 steps of the grid; take a coarser `grid`")

    @property
    def least(self) -> int:
        """The lower bound in steps, rounded inwards."""
        return -((-self.lo) // self.step)

    @property
    def most(self) -> int:
        """The upper bound in steps, rounded inwards."""
        return self.hi // self.step

    @cached_property
    def _ends(self) -> tuple[Decimal, Decimal]:
        return exact_decimal(self.lo), exact_decimal(self.hi)

    def steps(self, cell: Cell) -> int | None:
        """Return the steps of one value, or None where it is missing: empty, NaN, or no number.

        >>> Grid(Fraction(0), Fraction(60)).steps("inf"), Grid(Fraction(-10), Fraction(60)).steps("-4.5")
        (60, -4)
        """
        value = exact_value(cell, dates=self.is_date)
        if value is None or value.is_nan():
            return None
        if value.is_infinite():
            return self.least if value < 0 else self.most
        low, high = self._ends
        if value <= low:
            return self.least
        if value >= high:
            return self.most
        if not value or value.adjusted() < LEAST_EXPONENT:  # a zero may have any exponent
            return min(max(0, self.least), self.most)
        return min(max(round(Fraction(value) / self.step), self.least), self.most)


def exact_decimal(x: Fraction) -> Decimal:
    """An exact decimal, of a number whose denominator has no other primes than 2 and 5."""
    twos = fives = 0
    rest = x.denominator
    while rest % 2 == 0:
        rest, twos = rest // 2, twos + 1
    while rest % 5 == 0:
        rest, fives = rest // 5, fives + 1
    places = max(twos, fives)
    whole = x.numerator * 10**places // x.denominator
    return Decimal((int(whole < 0), tuple(map(int, str(abs(whole)))), -places))


def exact_value(cell: Cell, *, dates: bool = False) -> Decimal | None:
    """The exact value of a number or of its text, or the days since 1970-01-01 of a date; None for everything else."""
    if dates:
        return _date(cell)
    if isinstance(cell, str):
        if "_" in cell:
            return None
        try:
            value = Decimal(cell)
        except InvalidOperation:
            return None
        return value
    if isinstance(cell, np.generic):
        cell = cell.item()
    if isinstance(cell, (bool, int, float, Decimal)):
        return Decimal(cell)
    return None


def _date(cell: Cell) -> Decimal | None:
    if isinstance(cell, str):
        try:
            cell = datetime.date.fromisoformat(cell.strip()[:10])
        except ValueError:
            return None
    return Decimal(cell.toordinal() - EPOCH) if isinstance(cell, datetime.date) and cell == cell else None


def bound(text: object, name: str, *, dates: bool = False) -> Fraction:
    """Read a bound or a grid exactly: a decimal, ``2^k``, or a date.

    Raises:
        UsageError: it is none, or has more than 60 digits on a side of the point.
    """
    try:
        if dates:
            return Fraction(datetime.date.fromisoformat(str(text).strip()).toordinal() - EPOCH)
        word = str(text).strip()
        base, hat, power = word.partition("^")
        if hat and base in ("2", "10") and abs(int(power)) <= MOST_DIGITS:
            return Fraction(int(base)) ** int(power)
        value = Decimal(word)
        if value.is_finite() and abs(value.adjusted()) <= MOST_DIGITS and len(value.as_tuple().digits) <= MOST_DIGITS:
            return Fraction(value)
    except (ValueError, ArithmeticError):
        pass
    kind = "a date such as 2026-01-31" if dates else "a decimal number or a power of 2, such as 60, 0.01 or 2^-14"
    raise UsageError(f"{name} must be {kind}; found {shown(text)}")


# Persons and keys: text, whole numbers, booleans and dates, compared exactly.


def canonical(cell: Cell) -> str | None:
    """The text by which a person or a key is known, with its kind in front; None where it is missing."""
    if isinstance(cell, np.generic):
        cell = cell.item()
    if isinstance(cell, str):
        return f"text {cell}" if cell else None
    if isinstance(cell, bool):
        return f"bool {cell}"
    if isinstance(cell, int):
        return f"int {cell:x}"  # in hexadecimal, which has no limit of digits
    if isinstance(cell, datetime.date) and cell == cell:
        return f"date {cell.isoformat()}"
    return f"uuid {cell}" if type(cell).__name__ == "UUID" else None


def order(name: str) -> tuple[str, int, str]:
    """What canonical texts are sorted by: their kind, and whole numbers by size."""
    kind, _, text = name.partition(" ")
    return kind, int(text, 16) if kind == "int" else 0, text


def normalised(cell: Cell, forms: Sequence[str]) -> Cell:
    """A key with its text in normal form C, without surrounding blanks, or in folded case, as far as asked for."""
    if not isinstance(cell, str):
        return cell
    for form in forms:
        if form not in NORMALISE:
            raise UsageError(f"`normalise` knows {', '.join(NORMALISE)}; found {shown(form)}")
    text = unicodedata.normalize("NFC", cell) if "nfc" in forms else cell
    text = text.strip() if "strip" in forms else text
    return text.casefold() if "casefold" in forms else text


def _digest(value: str) -> int:
    raw = value.encode("utf-8", "surrogatepass")
    return int.from_bytes(hashlib.blake2b(raw, digest_size=8, key=b"wpriv.release").digest(), "little")


@dataclass(frozen=True, eq=False)
class Coded:
    """A column as numbers: [n] codes, -1 for missing values, and the 64-bit digest of the value of each code."""

    codes: Codes
    digests: Words

    @classmethod
    def persons(cls, cells: Sequence[Cell]) -> Coded:
        """Persons, coded by first appearance, which plays no part in ranks."""
        known: dict[str, int] = {}
        codes = np.empty(len(cells), np.int64)
        for row, cell in enumerate(cells):
            value = canonical(cell)
            codes[row] = MISSING if value is None else known.setdefault(value, len(known))
        return cls(codes, np.array([_digest(value) for value in known], np.uint64))

    @classmethod
    def rows(cls, count: int) -> Coded:
        """Every row is a person."""
        return cls(np.arange(count), np.zeros(count, np.uint64))


def key_codes(cells: Sequence[Cell], keys: Mapping[str | None, int], other: int, forms: Sequence[str]) -> Codes:
    """The codes of declared keys, by canonical text; ``other`` of all that are not declared, missing ones excepted."""
    codes = np.empty(len(cells), np.int64)
    memory: dict[str | None, int] = {}
    for row, cell in enumerate(cells):
        value = canonical(normalised(cell, forms))
        if value not in memory:
            memory[value] = keys.get(value, MISSING if value is None else other)
        codes[row] = memory[value]
    return codes


@dataclass(frozen=True)
class Contributions:
    """What is kept of all persons: [n] the cell of each row, and its integer value."""

    cells: Codes
    values: Codes


def kept(
    key: bytes, persons: Coded, cells: Codes, digests: Words, values: Codes, *, groups: int, rows: int
) -> Contributions:
    """Keep at most ``groups`` cells of each person, and ``rows`` rows in each; see the head of this file.

    Args:
        key: 32 bytes, which may be known.
        cells: [n] code of the cell of each row, -1 for rows that count nowhere. digests: one of each cell.
        values: [n] integers, or zeros where rows are counted.
    """
    used = (persons.codes >= 0) & (cells >= 0)
    person, cell, value = persons.codes[used], cells[used], values[used]
    if not person.size:
        return Contributions(cell, value)
    pairs, pair = np.unique(person * len(digests) + cell, return_inverse=True)
    of_person, of_cell = pairs // len(digests), pairs % len(digests)
    blocks = np.stack([persons.digests[of_person], digests[of_cell]], axis=1)
    ranks = permuted(key, blocks)
    chosen = _first(of_person, (of_cell, ranks[:, 1], ranks[:, 0]), groups)
    inside = chosen[pair]
    pair, cell, value = pair[inside], cell[inside], value[inside]
    if rows >= np.bincount(pair).max(initial=0):
        return Contributions(cell, value)
    # a row is ranked by person, cell, value and its number among equal values: chained blocks of one length
    ordered = np.lexsort((value, pair))
    changes = np.ones(len(pair), bool)
    changes[1:] = (np.diff(pair[ordered]) != 0) | (np.diff(value[ordered]) != 0)
    starts = np.flatnonzero(changes)
    occurrence = np.empty(len(pair), np.uint64)
    occurrence[ordered] = (np.arange(len(pair)) - starts[np.cumsum(changes) - 1]).astype(np.uint64)
    ranks = permuted(key, ranks[pair] ^ np.stack([value.astype(np.uint64), occurrence], axis=1))
    left = _first(pair, (occurrence, value, ranks[:, 1], ranks[:, 0]), rows)
    return Contributions(cell[left], value[left])


def _first(owner: Codes, ranks: tuple[NDArray[np.integer], ...], count: int) -> NDArray[np.bool_]:
    """Which entries are among the ``count`` first of their owner by rank, the last of ``ranks`` counting most."""
    ordered = np.lexsort((*ranks, owner))
    sorted_owner = owner[ordered]
    starts = np.flatnonzero(np.concatenate([[True], sorted_owner[1:] != sorted_owner[:-1]]))
    position = np.arange(len(owner)) - np.repeat(starts, np.diff([*starts, len(owner)]))
    chosen = np.zeros(len(owner), bool)
    chosen[ordered] = position < count
    return chosen


def sums(kept_: Contributions, cells: int) -> list[int]:
    """The exact sum of the values of each cell: of two limbs of 31 bits, which 2^31 rows do not overflow."""
    high, low = np.zeros(cells, np.int64), np.zeros(cells, np.int64)
    np.add.at(high, kept_.cells, kept_.values >> LIMB)
    np.add.at(low, kept_.cells, kept_.values & ((1 << LIMB) - 1))
    return [(h << LIMB) + rest for h, rest in zip(high.tolist(), low.tolist(), strict=True)]


def counts(kept_: Contributions, cells: int) -> list[int]:
    """The number of kept rows of each cell."""
    return [int(count) for count in np.bincount(kept_.cells, minlength=cells)]


def cell_digests(names: Sequence[str]) -> Words:
    """The 64-bit digests of the names of cells."""
    return np.array([_digest(name) for name in names], np.uint64)


def mark(cell: Cell) -> Cell:
    """What equal cells have in common, for a dictionary; None of NaN, and of a cell that is no value of any kind."""
    if isinstance(cell, np.generic):
        cell = cell.item()
    if isinstance(cell, Decimal):
        return None if cell.is_nan() else (Decimal, cell)  # a signalling NaN can be neither hashed nor compared
    known = isinstance(cell, (str, int, float, datetime.date)) and cell == cell
    return (type(cell), cell) if known else None


def value_steps(cells: Sequence[Cell], grid: Grid) -> tuple[Codes, NDArray[np.bool_]]:
    """[n] steps of a column, 0 where there is no value, and whether there is one; equal text is read once."""
    steps, present = np.zeros(len(cells), np.int64), np.zeros(len(cells), bool)
    memory: dict[Cell, int | None] = {}
    for row, cell in enumerate(cells):
        place = mark(cell)
        if place not in memory:
            memory[place] = grid.steps(cell)
        value = memory[place]
        if value is not None:
            steps[row], present[row] = value, True
    return steps, present
