"""What the limits and bounds of a release leave out of the rows. It is PRIVATE: nothing here has any noise."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

from wpriv.releases import plan as planning
from wpriv.releases.bounding import Cell, canonical, exact_decimal, exact_value, normalised
from wpriv.releases.outputs import BinCounts, Column, Output
from wpriv.releases.plan import ROW, Question
from wpriv.releases.tables import Query, table

Facts = list[tuple[str, str]]


def diagnosed(data: object, **arguments: Any) -> Facts:
    """Count rows, persons, missing and clipped values, and what the limits leave out; nothing is released.

    Args:
        data: as for ``release``. arguments: the other ones of ``release`` that declare what is released.
    Raises:
        UsageError: as for ``release``.
    """
    read = {name: arguments.pop(name) for name in ("table", "where", "query", "public") if name in arguments}
    source = table(data, str(arguments.get("person")), Query(**read), arguments.get("by"))
    question = planning.checked(planning.asked(**arguments), source)
    cells: dict[str, list[Cell]] = {name: [] for name in question.columns()}
    for block in source.blocks(question.columns()):
        for name, column in block.cells.items():
            values, codes = column.without(question.null).coded()
            cells[name] += [None if code < 0 else values[code] for code in codes.tolist()]
    count = max(map(len, cells.values()), default=0)
    persons = _persons(question, cells, count)
    facts = [("rows", f"{count:,}"), ("persons", f"{len(set(persons) - {None}):,}")]
    if question.person != ROW:
        facts.append((f"rows without {question.person}", f"{persons.count(None):,}"))
    keys: list[str | None] = [""] * count
    if question.by is not None:
        keys = [canonical(normalised(cell, question.normalise)) for cell in cells[question.by]]
        facts += _about_keys(question, keys)
    facts += [fact for output in question.outputs for fact in _about_values(output, cells)]
    return facts + _about_limits(question, persons, keys)


def _persons(question: Question, cells: Mapping[str, Sequence[Cell]], count: int) -> list[str | None]:
    return list(map(str, range(count))) if question.person == ROW else list(map(canonical, cells[question.person]))


def _about_keys(question: Question, keys: Sequence[str | None]) -> Facts:
    facts = [(f"rows without {question.by}", f"{keys.count(None):,}")]
    if question.has_unknown_keys:
        return [*facts, (f"different {question.by}", f"{len(set(keys) - {None}):,}")]
    declared = question.canonical_keys
    return [*facts, ("rows of undeclared keys", f"{sum(key is not None and key not in declared for key in keys):,}")]


def _about_values(output: Output, cells: Mapping[str, Sequence[Cell]]) -> Facts:
    """Missing values of a column, and those beyond its bounds or edges."""
    if not isinstance(output, (Column, BinCounts)):
        return []
    ends = output.limits if isinstance(output, BinCounts) else (output.bounds.lo, output.bounds.hi)
    low, high = exact_decimal(ends[0]), exact_decimal(ends[-1])
    values = [exact_value(cell, dates=output.dates) for cell in cells[output.column]]
    known = [value for value in values if value is not None and not value.is_nan()]
    below, above = sum(value < low for value in known), sum(value > high for value in known)
    what = "outside of the edges" if isinstance(output, BinCounts) else "clipped"
    text = f"{len(values) - len(known):,} missing, {below:,} below and {above:,} above {what}"
    return [(output.name, text)]


def _about_limits(question: Question, persons: Sequence[str | None], keys: Sequence[str | None]) -> Facts:
    """The largest numbers of keys and of rows of a person, and what is beyond the limits."""
    declared = {key for key in question.canonical_keys if question.other is None}
    pairs = Counter(
        (person, key)
        for person, key in zip(persons, keys, strict=True)
        if person is not None and key is not None and (not declared or key in declared)
    )
    groups = Counter(person for person, _ in pairs)
    facts = []
    if question.by is not None:
        most = question.limits.groups
        beyond = sum(max(0, number - most) for number in groups.values()) if most is not None else 0
        largest = max(groups.values(), default=0)
        facts.append(("keys of one person", f"{largest:,} at most; {beyond:,} beyond the limit"))
    most = question.limits.rows
    beyond = sum(max(0, number - most) for number in pairs.values()) if most is not None else 0
    where = "rows of one person" + (" in a key" if question.by is not None else "")
    return [*facts, (where, f"{max(pairs.values(), default=0):,} at most; {beyond:,} beyond the limit")]
