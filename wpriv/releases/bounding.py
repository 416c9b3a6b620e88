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
import re
import unicodedata
from array import array
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from decimal import Decimal, InvalidOperation
from fractions import Fraction
from functools import cached_property
from itertools import repeat

import numpy as np
from numpy.typing import NDArray

from wpriv.errors import UsageError
from wpriv.files import columns
from wpriv.files.columns import EPOCH, Cells
from wpriv.numerics.numbers import shown
from wpriv.randomness import Words, permuted

Codes = NDArray[np.int64]
Cell = object
MISSING = -1
LARGEST = 2**62  # grid steps of a bound
LEAST_EXPONENT = -100  # numbers below 1e-100 round to 0 on every grid
MOST_DIGITS = 60  # of a bound or of a grid, on either side of the point
NORMALISE = ("nfc", "strip", "casefold")
LIMB = 31
LONG_KEY = 10_000  # bits of a whole number, of which Python writes no decimal text from 4300 digits on
PART = 2**18  # rows that are ranked at once


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
    looks = re.fullmatch(r"\d+[-./]\d+[-./]\d+", str(text).strip()) and not dates
    hint = ". Is it a date? Write 2026-01-31, and give the column this type: --types COLUMN=date" if looks else ""
    raise UsageError(f"{name} must be {kind}; found {shown(text)}{hint}")


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
        return f"date {cell.year:04}-{cell.month:02}-{cell.day:02}"  # of a timestamp its day
    return f"uuid {cell}" if type(cell).__name__ == "UUID" else None


def order(name: str) -> tuple[str, int, str]:
    """What canonical texts are sorted by: their kind, and whole numbers by size."""
    kind, _, text = name.partition(" ")
    return kind, int(text, 16) if kind == "int" else 0, text


def normalised(cell: Cell, forms: Sequence[str]) -> Cell:
    """A key with its text in normal form C, without surrounding blanks, or in folded case, as far as asked for."""
    if not isinstance(cell, str):
        return cell
    text = unicodedata.normalize("NFC", cell) if "nfc" in forms else cell
    text = text.strip() if "strip" in forms else text
    return text.casefold() if "casefold" in forms else text


def printable(key: Cell) -> str:
    """A key as text, in which bytes that are no text are escapes; in hexadecimal where it is too long for Python."""
    text = hex(key) if isinstance(key, int) and key.bit_length() > LONG_KEY else str(key)
    return text.encode("utf-8", "backslashreplace").decode()


def _digest(value: str) -> int:
    raw = value.encode("utf-8", "surrogatepass")
    return int.from_bytes(hashlib.blake2b(raw, digest_size=8, key=b"wpriv.release").digest(), "little")


@dataclass(frozen=True, eq=False)
class Coded:
    """A column as numbers: [n] codes, -1 for missing values, and the 64-bit digest of the value of each code."""

    codes: NDArray[np.int32]
    digests: Words

    @classmethod
    def rows(cls, count: int) -> Coded:
        """Every row is a person."""
        return cls(np.arange(count, dtype=np.int32), np.zeros(count, np.uint64))


class Persons:
    """The persons of a table, numbered by first appearance, which plays no part in ranks."""

    def __init__(self) -> None:
        self._known: dict[object, int] = {}
        self._digests = array("Q")
        self._codes: list[NDArray[np.int32]] = []

    def add(self, cells: Cells) -> None:
        """Take the persons of further rows."""
        values, codes = cells.coded()
        plain = set(map(type, values)) <= {str, int}  # true and 1.0 would be found as 1
        known = map(self._known.get, values) if plain else repeat(None, len(values))
        places = [self._new(value) if place is None else place for value, place in zip(values, known, strict=True)]
        self._codes.append(np.array([*places, MISSING], np.int32)[codes])

    def _new(self, value: Cell) -> int:
        name = canonical(value)
        if name is None or isinstance(value, datetime.date):
            return MISSING
        value = value.item() if isinstance(value, np.generic) else value
        mark: object = (name,)
        if isinstance(value, str):
            mark = str(value)
        elif isinstance(value, int) and not isinstance(value, bool):
            mark = int(value)
        place = self._known.setdefault(mark, len(self._digests))
        if place == len(self._digests):
            self._digests.append(_digest(name))
        return place

    def coded(self) -> Coded:
        """All rows that were added."""
        codes = np.concatenate(self._codes) if self._codes else np.zeros(0, np.int32)
        return Coded(codes, np.array(self._digests, np.uint64))


@dataclass(frozen=True)
class Contributions:
    """What is kept of all persons: [n] the cell of each row, and its integer value.

    Where rows are counted, an entry may stand for several rows of a person, whose number is its value.
    """

    cells: Codes
    values: Codes


def kept(
    key: bytes, persons: Coded, cells: Codes, digests: Words, values: Codes | None, *, groups: int, rows: int
) -> Contributions:
    """Keep at most ``groups`` cells of each person, and ``rows`` rows in each; see the head of this file.

    Args:
        key: 32 bytes, which may be known.
        cells: [n] code of the cell of each row, -1 for rows that count nowhere. digests: one of each cell.
        values: [n] integers; None where rows are counted.
    """
    used = np.flatnonzero((persons.codes >= 0) & (cells >= 0))
    pair = persons.codes[used].astype(np.uint64)
    pair *= np.uint64(max(len(digests), 1))
    pair += cells[used].astype(np.uint64)
    pair, order = columns.sorted_with_order(pair)
    starts = np.flatnonzero(_is_new(pair))
    sizes = np.diff(starts, append=len(pair))
    of_person, of_cell = (each.astype(np.int64) for each in np.divmod(pair[starts], np.uint64(max(len(digests), 1))))
    del pair
    ranked = _Ranked(key, persons.digests, digests, of_person, of_cell)
    chosen = ranked.first(groups)
    if values is None:
        return Contributions(of_cell[chosen], np.minimum(sizes[chosen], rows))
    large = chosen & (sizes > rows)
    whole = np.repeat(chosen & ~large, sizes)
    value = values[used[order]]
    cell = np.repeat(of_cell, sizes)
    some = [Contributions(cell[whole], value[whole])]
    if large.any():
        owner = np.repeat(np.arange(len(sizes)), sizes)[np.repeat(large, sizes)]
        value = value[np.repeat(large, sizes)]
        for part in _parts(owner):
            left = ranked.first_rows(owner[part], value[part], rows)
            some.append(Contributions(of_cell[owner[part][left]], value[part][left]))
    return Contributions(
        *(np.concatenate(each) for each in zip(*((one.cells, one.values) for one in some), strict=True))
    )


@dataclass(frozen=True, eq=False)
class _Ranked:
    """Pairs of a person and a cell, in order, which a keyed permutation ranks."""

    key: bytes
    of_persons: Words
    of_cells: Words
    person: Codes
    cell: Codes

    def ranks(self, pairs: Codes | slice) -> Words:
        """[n, 2] the ranks of some pairs."""
        words = np.stack([self.of_persons[self.person[pairs]], self.of_cells[self.cell[pairs]]], axis=1)
        return permuted(self.key, words)

    def first(self, groups: int) -> NDArray[np.bool_]:
        """Which pairs are among the ``groups`` first of their person."""
        chosen = np.ones(len(self.person), bool)
        starts = np.flatnonzero(_is_new(self.person))
        sizes = np.diff(starts, append=len(self.person))
        many = np.flatnonzero(np.repeat(sizes > groups, sizes))
        for part in _parts(self.person[many]):
            pairs = many[part]
            chosen[pairs] = _first(self.person[pairs], self.ranks(pairs), (self.cell[pairs],), groups)
        return chosen

    def first_rows(self, owner: Codes, value: Codes, rows: int) -> NDArray[np.bool_]:
        """Which rows are among the first of their pair ``owner``, by person, cell, value, and number among equals."""
        ordered = np.lexsort((value, owner))
        starts = np.flatnonzero(_is_new(owner[ordered]) | _is_new(value[ordered]))
        occurrence = np.empty(len(owner), np.int64)
        occurrence[ordered] = np.arange(len(owner)) - np.repeat(starts, np.diff(starts, append=len(owner)))
        # chained blocks of one length
        more = np.stack([value, occurrence], axis=1).astype(np.uint64)
        return _first(owner, permuted(self.key, self.ranks(owner) ^ more), (occurrence, value), rows)


def _parts(owner: Codes) -> Iterator[slice]:
    """Stretches of an ordered array of owners, none of whom is in two of them."""
    start = 0
    while start < len(owner):
        stop = min(start + PART, len(owner))
        stop = int(np.searchsorted(owner, owner[stop - 1], side="right"))
        yield slice(start, stop)
        start = stop


def _is_new(ordered: NDArray[np.generic]) -> NDArray[np.bool_]:
    """Which entries differ from the one before."""
    return np.concatenate([np.ones(min(len(ordered), 1), bool), ordered[1:] != ordered[:-1]])


def _first(owner: Codes, ranks: Words, ties: tuple[Codes, ...], count: int) -> NDArray[np.bool_]:
    """Which entries are among the ``count`` first of their owner by rank; owners are in order."""
    starts = _is_new(owner)
    number = np.cumsum(starts).astype(np.uint64)
    bits = int(number[-1]).bit_length()
    packed = number << np.uint64(64 - bits) | ranks[:, 0] >> np.uint64(bits)
    ordered = np.argsort(packed)
    if not _is_new(packed[ordered]).all():  # two ranks begin alike
        ordered = np.lexsort((*ties, ranks[:, 1], ranks[:, 0], owner))
    begins = np.flatnonzero(starts)
    position = np.arange(len(owner)) - np.repeat(begins, np.diff(begins, append=len(owner)))
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
    """The number of entries of each cell."""
    return [int(count) for count in np.bincount(kept_.cells, minlength=cells)]


def cell_digests(names: Sequence[str]) -> Words:
    """The 64-bit digests of the names of cells."""
    return np.array([_digest(name) for name in names], np.uint64)
