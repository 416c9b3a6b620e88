"""Classes of labels, ranges and categories of columns: declared as public, or classes that were read from labels."""

from __future__ import annotations

import functools
import itertools
import json
import reprlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from decimal import Decimal, InvalidOperation

import numpy as np

from wpriv.errors import FaultyRecords, UsageError
from wpriv.hints import did_you_mean
from wpriv.numerics.numbers import finite_number
from wpriv.training.data._dataset import FROM_LABELS, FROM_LARGEST, FROM_OUTPUTS, IGNORED, Array, Data

# --- declarations: given by the user, never computed from records ---

RANGES = "{column: [low, high]}: the column is brought from this range to [0, 1] and cut there; public numbers alone"
CATEGORIES = "{column: [word, ...]}: the column becomes one column of zeros and ones for each word; public words alone"
LABELS = (
    "the label of each class, in the order of the network's outputs: whole numbers or words; or names of the labels "
    "0, 1, ... Where left out, whole labels keep their numbers, and words are read from the labels"
)
CLASSES = "names of the classes, in the order of their numbers; read from the labels where left out"


@dataclass(frozen=True)
class Declared:
    """Public facts on a table: ranges of numbers, categories (all words) of columns, classes of the target."""

    ranges: Mapping[str, tuple[float, float]] = field(default_factory=dict)
    categories: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    classes: tuple[str, ...] | None = None

    def require_columns(self, place: str, columns: Sequence[str]) -> None:
        """Refuse a declaration about a column that is none of those given."""
        for key in ("ranges", "categories"):
            for name in getattr(self, key):
                if name not in columns:
                    suggestion = did_you_mean(name, list(columns)) or "."
                    raise UsageError(
                        f"{place}: {key}: no feature called {name[:60]!r}{suggestion} Its features: {listed(columns)}"
                    )


NOTHING = Declared()


def declared(reader: str, *, ranges: object = "", categories: object = "", classes: object = "") -> Declared:
    """Return declarations from the values of a recipe (mappings and lists) or of flags (the same as JSON text)."""
    bounds = {name: _range(f"{reader}: ranges: {name}", value) for name, value in _mapping(reader, "ranges", ranges)}
    words = {
        name: _distinct(f"{reader}: categories: {name}", value)
        for name, value in _mapping(reader, "categories", categories)
    }
    for name in bounds:
        if name in words:
            raise UsageError(f"{reader}: the column {name[:60]!r} has both a range and categories; give it one of them")
    return Declared(bounds, words, class_names(reader, classes))


def class_names(reader: str, given: object) -> tuple[str, ...] | None:
    """Return the declared classes, or None where none are declared."""
    return None if given is None or given in ("", [], ()) else _distinct(f"{reader}: classes", given)


def in_range(values: Array, bounds: tuple[float, float]) -> Array:
    """Return numbers brought from a range to [0, 1] and cut there."""
    low, high = bounds
    with np.errstate(over="ignore"):
        scaled: Array = np.clip((values - low) / (high - low), 0.0, 1.0)
    return scaled


def listed(names: Sequence[str]) -> str:
    """The first names, as messages list them."""
    return f"{', '.join(names[:12])}{', ...' * (len(names) > 12)}"


def indices(cells: Sequence[str], names: Sequence[str], kind: str, place: Callable[[int], str]) -> Array:
    """Return the number of each word among the declared ones, [N] int64."""
    what = f"which is none of the declared {kind}: {listed(names)}. Declare it, or correct it"
    return numbered(cells, names, lambda row: f"{place(row)} {cells[row][:60]!r}, {what}")


def numbered(cells: Sequence[str], names: Sequence[str], fault: Callable[[int], str]) -> Array:
    """Return the number of each word among some, [N] int64; the first other one has the ``fault`` of its row."""
    numbers = {name: number for number, name in enumerate(names)}
    other = next((row for row, cell in enumerate(cells) if cell not in numbers), None)
    if other is not None:
        raise FaultyRecords(fault(other))
    return np.array([numbers[cell] for cell in cells], np.int64)


def _mapping(reader: str, key: str, given: object) -> list[tuple[str, object]]:
    example = '{"age": [17, 90]}' if key == "ranges" else '{"job": ["clerk", "farmer"]}'
    if isinstance(given, str) and given.strip():
        try:
            given = json.loads(given)
        except ValueError as error:
            raise UsageError(f"{reader}: {key} as text must be JSON, such as {example} ({error})") from None
    if given is None or given == "":
        return []
    if not isinstance(given, Mapping):
        raise UsageError(f"{reader}: {key} must be a mapping such as {example}; found {reprlib.repr(given)}")
    return [(str(name), value) for name, value in given.items()]


def _range(what: str, given: object) -> tuple[float, float]:
    if not isinstance(given, Sequence) or isinstance(given, str) or len(given) != 2:
        raise UsageError(f"{what} must be two numbers, [low, high]; found {reprlib.repr(given)}")
    low, high = (float(finite_number(value, what)) for value in given)
    if not low < high or not np.isfinite(high - low):
        raise UsageError(f"{what} must be [low, high] with low < high; found [{low:g}, {high:g}]")
    return low, high


def _distinct(what: str, given: object) -> tuple[str, ...]:
    """Return at least two different words, from a list or from text with commas."""
    if isinstance(given, str):
        try:
            listed = json.loads(given)
        except ValueError:
            listed = None
        given = listed if isinstance(listed, list) else given.split(",")
    if not isinstance(given, Sequence):
        raise UsageError(f"{what} must be a list of words; found {reprlib.repr(given)}")
    for value in given:
        if isinstance(value, bool) or not isinstance(value, (str, int, float)):
            raise UsageError(f"{what} must be a list of words, in quotes where needed; found {reprlib.repr(value)}")
    words = tuple(str(value).strip() for value in given)
    if len(words) < 2 or "" in words or len(set(words)) < len(words):
        raise UsageError(f"{what} must be at least two different words; found {reprlib.repr(list(words))}")
    return words


# --- the classes of labels: whole numbers are those of their classes, other labels are looked up in a list ---
#
# A list that was read from the labels depends on the records: one record of a new class could move the numbers of all
# classes behind it. Such a list is taken as public, which notes and statements say; a declared one needs no such trust.

MAX_CLASSES = 10_000
READ = "the set of classes was read from the labels: it is taken as public"
COUNTED = "the number of classes, {count}, is one more than the largest label: it is taken as public"
IGNORE = "; records without a class have the label -100, or the loss's ignore_index"
# spellings, in lower case, of a missing value or of no finite number
MISSING = frozenset(
    ["nan", "-nan", "na", "n/a", "#n/a", "#na", "<na>", "null", "nat", "inf", "-inf", "1.#ind", "-1.#ind", "1.#qnan"]
)


@dataclass(frozen=True)
class Classes:
    """The names of classes by number, that of each record, and their ``origin`` (as of ``Data``)."""

    names: tuple[str, ...]
    train: Array
    test: Array
    origin: str = ""
    notes: tuple[str, ...] = ()


def of_whole(
    name: str, y: Array, y_test: Array, *, declared: Sequence[str] | None = None, ignored: int | None = IGNORED
) -> Classes | None:
    """Return the classes of whole labels, [N] int64, which keep their numbers unless other classes are declared.

    Args:
        declared: the label of each class, where all are whole numbers; else names of the classes 0, 1, ...
        ignored: the label of records without a class, which stays as it is.
    Returns:
        None where labels are below 0, or too large to be numbers of classes, and none are declared.
    """
    both = np.concatenate([y, y_test])
    labels = both[both != ignored]
    if declared is not None:
        values = _whole_values(declared)
        _require_unambiguous(name, values, declared, ignored)
        train = _looked_up(name, "training", y, values, declared, ignored)
        return Classes(tuple(declared), train, _looked_up(name, "test", y_test, values, declared, ignored))
    smallest, largest = int(labels.min(initial=0)), int(labels.max(initial=0))
    if smallest < 0 or largest >= MAX_CLASSES:
        return None
    count = largest + 1
    return Classes(tuple(map(str, range(count))), y, y_test, FROM_LARGEST, (COUNTED.format(count=count),))


def _require_unambiguous(name: str, values: dict[int, int], declared: Sequence[str], ignored: int | None) -> None:
    """Refuse a label to ignore that is the place of another class, which the loss would ignore in its stead."""
    if ignored is not None and 0 <= ignored < len(declared) and values.get(ignored) != ignored:
        raise UsageError(
            f"{name}: ignore_index = {ignored} of the loss is the place of the class {declared[ignored]!r} among the "
            f"declared ones, and not its label. Give an ignore_index that is no place of a class, such as -100, to the "
            f"loss, and to the records without a class"
        )


def by_outputs(data: Data, outputs: int) -> Data:
    """Return a data set whose whole labels are places of a network's outputs, so that no class is read from them."""
    labels = [
        y if response is None or response.dtype.kind == "f" else response[:, 0]
        for y, response in ((data.y_train, data.response_train), (data.y_test, data.response_test))
    ]
    for part, values in zip(("training", "test"), labels, strict=True):
        outside = ((values < 0) | (values >= outputs)) & (values != data.ignored)
        if outside.any():
            distinct = np.unique(np.concatenate(labels))
            distinct = distinct[distinct != data.ignored]
            example = ", ".join(map(str, distinct[:5].tolist()))
            raise UsageError(
                f"{data.name}, {part} labels: whole labels from {distinct.min()} to {distinct.max()} are the places of "
                f"outputs, and the network has {outputs}, 0 to {outputs - 1}; found {values[np.argmax(outside)]} at "
                f"record {np.argmax(outside)}. Declare the label of each output by classes, such as "
                f"[{example}{', ...' * (len(distinct) > 5)}], or give the network an output for each number"
                f"{IGNORE * bool((values < 0).any())}"
            )
    names = tuple(map(str, range(outputs)))
    data = replace(data, response=(), response_train=None, response_test=None, notes=())
    return replace(data, y_train=labels[0], y_test=labels[1], classes=names, classes_from=FROM_OUTPUTS)


def of_words(
    name: str,
    y: Sequence[str] | Array,
    y_test: Sequence[str] | Array,
    place: Callable[[int, int], str],
    *,
    apart: bool,
    declared: Sequence[str] | None,
) -> Classes:
    """Return the classes of words: those declared; else those of the training records, sorted, as numbers if all are.

    Args:
        place: the beginning of a message on a label, from the part (0 or 1) and the record.
        apart: the test records were given by themselves. Otherwise they are a share of the same records, and their
            classes count too.
    """
    parts = [[str(cell).strip() for cell in part] for part in (y, y_test)]
    if declared is not None:
        train = indices(parts[0], declared, "classes", functools.partial(place, 0))
        return Classes(tuple(declared), train, indices(parts[1], declared, "classes", functools.partial(place, 1)))
    for part, cells in enumerate(parts):
        refuse_missing(cells, functools.partial(place, part))
    names = sorted_words(name, set(parts[0]) if apart else {*parts[0], *parts[1]})
    train = numbered(parts[0], names, str)
    what = f"a class that no training record has. Their classes: {listed(names)}. Correct its spelling, or declare all"
    test = numbered(parts[1], names, lambda row: f"{place(1, row)} {parts[1][row][:60]!r}, {what} classes")
    return Classes(names, train, test, FROM_LABELS, (READ,))


def refuse_missing(cells: Sequence[str], place: Callable[[int], str]) -> None:
    """Refuse an empty cell and words that stand for a missing value or for no finite number."""
    for row, cell in enumerate(cells):
        if not cell or cell.lower() in MISSING:
            what = f"{cell!r}, which stands for a missing value" if cell else "an empty cell"
            raise FaultyRecords(f"{place(row)} {what}; leave the record out, or declare the word by classes")


def sorted_words(name: str, words: set[str]) -> tuple[str, ...]:
    """Return words in their order: that of numbers where all are numbers."""
    if len(words) > MAX_CLASSES:
        raise FaultyRecords(
            f"{name}: {len(words)} distinct entries; there may be at most {MAX_CLASSES} classes or groups. For a "
            f"number to predict take the task fit with a loss such as squared (a table: number: true)"
        )
    try:
        numbers = {word: Decimal(word) for word in words}
    except InvalidOperation:
        return tuple(sorted(words))
    ordered = sorted(words, key=lambda word: (numbers[word], word))
    for one, other in itertools.pairwise(ordered):
        if numbers[one] == numbers[other]:
            raise FaultyRecords(f"{name}: both {one[:40]!r} and {other[:40]!r}; write each number in one way")
    return tuple(ordered)


def _whole_values(declared: Sequence[str]) -> dict[int, int]:
    """The number of the class of each label: declared numbers are the labels themselves; words name 0, 1, ..."""
    try:
        values = [float(word) for word in declared]
    except ValueError:  # words
        values = []
    whole = bool(values) and all(abs(value) < 2**53 and value.is_integer() for value in values)
    return {(int(values[number]) if whole else number): number for number in range(len(declared))}


def _looked_up(
    name: str, part: str, labels: Array, values: dict[int, int], declared: Sequence[str], ignored: int | None
) -> Array:
    known = values if ignored is None or ignored in values else {**values, ignored: ignored}
    wrong = next((row for row, label in enumerate(labels.tolist()) if label not in known), None)
    if wrong is not None:
        raise FaultyRecords(
            f"{name}, {part} labels: found {labels[wrong]} at record {wrong}, which is none of the declared classes: "
            f"{listed(declared)}"
        )
    return np.array([known[label] for label in labels.tolist()], np.int64)


def declared_words(given: object, what: str) -> tuple[str, ...] | None:
    """Return the classes that a Python program declares, from a list, range or array; None where it declares none."""
    if given is None:
        return None
    values = given.tolist() if isinstance(given, np.ndarray) else given
    if isinstance(values, Sequence) and not isinstance(values, str):
        values = [value.item() if isinstance(value, np.generic) else value for value in values]
    return class_names(what, values)
