"""The rows of a table as a plan reads them: persons, keys, and the integers of each output, block by block."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Hashable, Iterable, Sequence
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from wpriv.files.columns import Block, Cells
from wpriv.randomness import Keystream
from wpriv.releases import bounding, values
from wpriv.releases.bounding import MISSING, Cell, Coded, Codes, Contributions, canonical, normalised
from wpriv.releases.outputs import PERSONS, ROWS, BinCounts, Mean, Output
from wpriv.releases.plan import ROW, Plan, Question
from wpriv.releases.values import Mask

CHOICE = 2**63  # the part of the key's stream that chooses among a person's rows
Narrow = NDArray[np.int32]


class _Keys:
    """The keys of rows as numbers: declared ones by their order, unknown ones by first appearance."""

    def __init__(self, question: Question):
        self.question = question
        self.shown: dict[str, str] = {}
        self._declared = question.canonical_keys
        self._other = MISSING if question.other is None else len(self._declared)
        self._order: dict[str, int] = {}

    def add(self, cells: Cells) -> Narrow:
        """The codes of the keys of some rows."""
        distinct, codes = cells.coded()
        return np.array([*map(self._code, distinct), self._of(None, None)], np.int32)[codes]

    def _code(self, cell: Cell) -> int:
        form = normalised(cell, self.question.normalise)
        return self._of(canonical(form), form)

    def _of(self, name: str | None, form: Cell) -> int:
        if not self.question.has_unknown_keys:
            return self._declared.get(name, MISSING if name is None else self._other)
        if name is None:
            return MISSING
        self.shown.setdefault(name, bounding.printable(form))
        return self._order.setdefault(name, len(self._order))

    def order(self) -> tuple[list[str], Narrow]:
        """The unknown keys in order, and the place of each code."""
        known = sorted(self._order, key=bounding.order)
        places = np.full(len(known) + 1, MISSING, np.int32)
        places[[self._order[name] for name in known]] = np.arange(len(known))
        return known, places


class _Equals:
    """Numbers that equal cells of a column have in common."""

    def __init__(self) -> None:
        self._known: dict[object, int] = {}

    def add(self, cells: Cells) -> Narrow:
        """The numbers of some rows."""
        distinct, codes = cells.coded()
        marks = [(type(value), value) for value in distinct]
        places = [self._known.setdefault(mark, len(self._known)) for mark in marks]
        return np.array([*places, MISSING], np.int32)[codes]


def _reading(output: Output) -> Hashable:
    """What outputs of the same values have in common."""
    if isinstance(output, BinCounts):
        return output.column, tuple(output.ends), output.dates
    return output.columns, output.grid


def _read(output: Output, cells: Cells) -> tuple[Codes, Mask]:
    """The values of an output: steps of its grid, or bins; and which cells have one."""
    if isinstance(output, BinCounts):
        return values.bins(cells, output.ends, dates=output.dates)
    assert output.grid is not None  # a column with bounds
    return values.steps(cells, output.grid)


class Rows:
    """The rows of a table: who, under which key, and the values of each output."""

    def __init__(self, plan: Plan, blocks: Iterable[Block], key: bytes):
        question = self.question = plan.question
        self.key = Keystream(key, CHOICE << 64).read(32)
        self.count = 0
        self._persons, self._keys = bounding.Persons(), _Keys(question)
        codes: list[Narrow] = []
        read: dict[Hashable, list[tuple[Codes, Mask]]] = defaultdict(list)
        equals: dict[str, _Equals] = defaultdict(_Equals)
        self._marks: dict[str, list[Narrow]] = defaultdict(list)
        readers = {_reading(output): output for output in question.outputs if output.columns}
        for block in blocks:
            self.count += block.count
            cells = {name: column.without(question.null) for name, column in block.cells.items()}
            if question.person != ROW:
                self._persons.add(cells[question.person])
            if question.by is not None:
                codes.append(self._keys.add(cells[question.by]))
            for reading, output in readers.items():
                read[reading].append(_read(output, cells[output.columns[0]]))
            for name in cells.keys() - {question.person} if question.distinct else ():
                self._marks[name].append(equals[name].add(cells[name]))
        self._codes: Narrow = _joined(codes, np.int32)
        self._values: dict[Hashable, tuple[Codes, Mask]] = {}
        for reading in readers:
            parts = read.pop(reading, [])
            some = _joined([each for each, _ in parts], np.int64), _joined([each for _, each in parts], np.bool_)
            self._values[reading] = some

    @cached_property
    def persons(self) -> Coded:
        """The person of each row; with ``distinct``, of the first of a person's equal rows only."""
        persons = Coded.rows(self.count) if self.question.person == ROW else self._persons.coded()
        if not self.question.distinct or not self.count:
            return persons
        marks = [*(np.concatenate(parts) for parts in self._marks.values()), persons.codes]
        order = np.lexsort(marks)
        is_new = np.zeros(self.count, bool)
        is_new[0] = True
        for each in marks:
            is_new[1:] |= np.diff(each[order]) != 0
        codes = persons.codes.copy()
        codes[order[~is_new]] = MISSING
        return Coded(codes, persons.digests)

    @cached_property
    def keys(self) -> tuple[tuple[str, ...], tuple[str, ...], Narrow]:
        """The keys as they are shown and as they are ranked, in order, and the code of each row."""
        if not self.question.has_unknown_keys:
            return self.question.names, self.question.names, self._codes
        known, places = self._keys.order()
        return tuple(self._keys.shown[name] for name in known), tuple(known), places[self._codes]

    def of_output(self, output: Output) -> tuple[Contributions, int]:
        """What is kept for an output, and its number of cells: bins within keys."""
        keyed, limits = self.question.has_keys(output), self.question.limits
        names, known, codes = self.keys if keyed else (("",), ("",), np.zeros(self.count, np.int32))
        numbers: Codes | None = None
        cells: Codes = codes.astype(np.int64)
        bins = output.bins() if isinstance(output, BinCounts) else [""]
        if output.columns:
            numbers, inside = self._values[_reading(output)]
            if isinstance(output, BinCounts):
                places, inside = _placed(output, numbers, inside)
                inside, cells, numbers = inside & (cells >= 0), cells * len(bins) + places, None
            elif isinstance(output, Mean):
                numbers = numbers - output.middle
            cells[~inside] = MISSING
        marks = bounding.cell_digests([f"{name} {bin_}" for name in known for bin_ in bins])
        groups = 1 if self.question.person == ROW else output.groups(limits, keyed)
        persons = getattr(output, "of", ROWS) == PERSONS
        rows = 1 if persons or self.question.person == ROW else limits.require_rows(output.name)
        kept = bounding.kept(self.key, self.persons, cells, marks, numbers, groups=groups, rows=rows)
        return kept, len(names) * len(bins)


def _placed(output: BinCounts, places: Codes, inside: Mask) -> tuple[Codes, Mask]:
    """The bin of each row, and whether it has one; values beyond the edges are treated as the output says."""
    last = len(output.ends) - 2
    if output.outside == "bins":
        return places + 1, inside
    if output.outside == "clip":
        return np.clip(places, 0, last), inside
    return places, inside & (places >= 0) & (places <= last)


def _joined(parts: Sequence[NDArray[Any]], kind: type) -> NDArray[Any]:
    return np.concatenate([np.zeros(0, kind), *parts])
