"""Public declarations about columns (ranges, categories, classes): given by the user, never computed from records."""

from __future__ import annotations

import json
import reprlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from wpriv.data._dataset import Array
from wpriv.errors import FaultyRecords, UsageError
from wpriv.hints import did_you_mean
from wpriv.numerics.parse_numbers import finite_number

RANGES = "{column: [low, high]}: the column is brought from this range to [0, 1] and cut there; public numbers alone"
CATEGORIES = "{column: [word, ...]}: the column becomes one column of zeros and ones for each word; public words alone"
LABELS = (
    "the label of each class, in the order of the network's outputs: whole numbers or words; or names of the labels "
    "0, 1, ... Where left out, whole labels keep their numbers, and words are read from the labels"
)
CLASSES = "names of the classes, in the order of their numbers; read from the labels where left out"


@dataclass(frozen=True)
class Declared:
    """What is publicly known of the columns of a table.

    Args:
        ranges: low and high end of numeric columns. categories: all words of columns of words. classes: of the target.
    """

    ranges: Mapping[str, tuple[float, float]] = field(default_factory=dict)
    categories: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    classes: tuple[str, ...] | None = None

    def require_columns(self, place: str, columns: Sequence[str]) -> None:
        """Refuse a declaration about a column that is none of those given.

        Raises:
            UsageError: there is such a declaration; the message suggests the nearest column.
        """
        for key in ("ranges", "categories"):
            for name in getattr(self, key):
                if name not in columns:
                    known = f"{', '.join(columns[:12])}{', ...' * (len(columns) > 12)}"
                    suggestion = did_you_mean(name, list(columns)) or "."
                    raise UsageError(
                        f"{place}: {key}: no feature called {name[:60]!r}{suggestion} Its features: {known}"
                    )


NOTHING = Declared()


def declared(reader: str, *, ranges: Any = "", categories: Any = "", classes: Any = "") -> Declared:
    """Return declarations from the values of a recipe (mappings and lists) or of flags (the same as JSON text).

    Raises:
        UsageError: a range is no pair of numbers in ascending order, categories are repeated or fewer than two, or a
            column has both.
    """
    bounds = {name: _range(f"{reader}: ranges: {name}", value) for name, value in _mapping(reader, "ranges", ranges)}
    words = {
        name: _distinct(f"{reader}: categories: {name}", value)
        for name, value in _mapping(reader, "categories", categories)
    }
    for name in bounds:
        if name in words:
            raise UsageError(f"{reader}: the column {name[:60]!r} has both a range and categories; give it one of them")
    return Declared(bounds, words, class_names(reader, classes))


def class_names(reader: str, given: Any) -> tuple[str, ...] | None:
    """Return the declared classes, or None where none are declared.

    Raises:
        UsageError: they are no words, repeated, or fewer than two.
    """
    return None if given is None or given in ("", [], ()) else _distinct(f"{reader}: classes", given)


def in_range(values: Array, bounds: tuple[float, float]) -> Array:
    """Return numbers brought from a range to [0, 1] and cut there."""
    low, high = bounds
    with np.errstate(over="ignore"):
        scaled: Array = np.clip((values - low) / (high - low), 0.0, 1.0)
    return scaled


def indices(cells: Sequence[str], names: Sequence[str], kind: str, place: Callable[[int], str]) -> Array:
    """Return the number of each word among the declared ones, [N] int64.

    Args:
        kind: of the words, for messages: ``categories`` or ``classes``. place: the file and line of a row.
    Raises:
        FaultyRecords: a word is not declared.
    """
    numbers = {name: number for number, name in enumerate(names)}
    for row, cell in enumerate(cells):
        if cell not in numbers:
            known = f"{', '.join(names[:12])}{', ...' * (len(names) > 12)}"
            raise FaultyRecords(
                f"{place(row)} {cell[:60]!r}, which is none of the declared {kind}: {known}. Declare it, or correct it"
            )
    return np.array([numbers[cell] for cell in cells], np.int64)


def _mapping(reader: str, key: str, given: Any) -> list[tuple[str, Any]]:
    if isinstance(given, str) and given.strip():
        try:
            given = json.loads(given)
        except ValueError as error:
            raise UsageError(f"{reader}: {key} as text must be JSON, such as {_example(key)} ({error})") from None
    if given is None or given == "":
        return []
    if not isinstance(given, Mapping):
        raise UsageError(f"{reader}: {key} must be a mapping such as {_example(key)}; found {reprlib.repr(given)}")
    return [(str(name), value) for name, value in given.items()]


def _example(key: str) -> str:
    return '{"age": [17, 90]}' if key == "ranges" else '{"job": ["clerk", "farmer"]}'


def _range(what: str, given: Any) -> tuple[float, float]:
    if not isinstance(given, Sequence) or isinstance(given, str) or len(given) != 2:
        raise UsageError(f"{what} must be two numbers, [low, high]; found {reprlib.repr(given)}")
    low, high = (float(finite_number(value, what)) for value in given)
    if not low < high or not np.isfinite(high - low):
        raise UsageError(f"{what} must be [low, high] with low < high; found [{low:g}, {high:g}]")
    return low, high


def _distinct(what: str, given: Any) -> tuple[str, ...]:
    """Return at least two different words, from a list or from text with commas."""
    if isinstance(given, str):
        given = json.loads(given) if _is_json_list(given) else given.split(",")
    if not isinstance(given, Sequence):
        raise UsageError(f"{what} must be a list of words; found {reprlib.repr(given)}")
    for value in given:
        if isinstance(value, bool) or not isinstance(value, (str, int, float)):
            raise UsageError(f"{what} must be a list of words, in quotes where needed; found {reprlib.repr(value)}")
    words = tuple(str(value).strip() for value in given)
    if len(words) < 2 or "" in words or len(set(words)) < len(words):
        raise UsageError(f"{what} must be at least two different words; found {reprlib.repr(list(words))}")
    return words


def _is_json_list(text: str) -> bool:
    try:
        return isinstance(json.loads(text), list)
    except ValueError:
        return False
