"""Records of any form as one structured array: a tree of arrays with one first dimension, packed row by row.

A row holds all that belongs to one record, so that records are counted, split, selected and named as rows of numbers
are. ``form`` is the tree with the names of the fields in the place of the arrays.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from wpriv.errors import FaultyRecords

Array = NDArray[Any]


def map_tree(value: Any, function: Callable[[Any], Any]) -> Any:
    """Return a tree of dictionaries, tuples and lists with a function applied to each leaf."""
    if isinstance(value, Mapping):
        return {key: map_tree(part, function) for key, part in value.items()}
    if isinstance(value, tuple) and hasattr(value, "_fields"):
        return type(value)(*(map_tree(part, function) for part in value))
    if isinstance(value, (tuple, list)):
        return type(value)(map_tree(part, function) for part in value)
    return function(value)


def named_leaves_of(value: Any, path: str = "") -> Iterator[tuple[str, Any]]:
    """Yield the leaves of a tree with the keys that lead to them, such as ``text.input_ids``; "" for a leaf alone."""
    items: Iterable[tuple[object, Any]]
    if isinstance(value, Mapping):
        items = value.items()
    elif isinstance(value, (tuple, list)):
        items = enumerate(value)
    else:
        yield path, value
        return
    for key, part in items:
        yield from named_leaves_of(part, f"{path}.{key}" if path else str(key))


@dataclass(frozen=True, eq=False)
class Packed:
    """Records as rows of a structured array [N], with the tree of the names of their fields."""

    rows: Array
    form: Any

    def unpacked(self) -> Any:
        """Return the tree of arrays [N, ...]."""
        return map_tree(self.form, lambda name: self.rows[name])

    def empty(self) -> Packed:
        """Return no records in the same form."""
        return Packed(self.rows[:0].copy(), self.form)


def pack(what: str, tree: Any) -> Packed:
    """Pack a tree of arrays [N, ...]: whole numbers as int64, floats as float32, switches as they are.

    Raises:
        FaultyRecords: a leaf holds no numbers or one that is not finite, or leaves differ in their number of records.
    """
    leaves = [(path, _numbers(what, path, leaf)) for path, leaf in named_leaves_of(tree)]
    counts = list(dict.fromkeys(len(leaf) for _, leaf in leaves))
    if len(counts) != 1:
        parts = ", ".join(f"{path} {list(leaf.shape)}" for path, leaf in leaves) or "nothing"
        raise FaultyRecords(
            f"{what}: all parts must have one number of records in their first dimension; found {parts}"
        )
    # names of fields: the keys are the user's, and may be anything
    fields = [(f"f{place}", leaf.dtype, leaf.shape[1:]) for place, (_, leaf) in enumerate(leaves)]
    rows = np.empty(counts[0], dtype=fields)
    for (name, *_), (_, leaf) in zip(fields, leaves, strict=True):
        rows[name] = leaf
    names = iter(rows.dtype.names or ())
    return Packed(rows, map_tree(tree, lambda leaf: next(names)))


def _numbers(what: str, path: str, leaf: Any) -> Array:
    """Return a leaf as an array of float32, int64 or bool."""
    where = f"{what}, {path}" if path else what
    try:
        array = np.asarray(leaf)
    except (TypeError, ValueError) as error:
        raise FaultyRecords(f"{where}: wanted an array of numbers [N, ...]; found none ({error})") from None
    if array.dtype.kind not in "biuf" or not array.ndim or 0 in array.shape[1:]:
        raise FaultyRecords(
            f"{where}: wanted an array of numbers [N, ...]; found {array.dtype} {list(array.shape)}. Give words as "
            f"numbers, and leave other things out"
        )
    if array.dtype.kind == "b":
        return array
    if array.dtype.kind in "iu":
        return array.astype(np.int64)
    with np.errstate(over="ignore"):
        array = array.astype(np.float32)
    if not np.isfinite(array).all():
        index = tuple(np.argwhere(~np.isfinite(array))[0].tolist())
        raise FaultyRecords(f"{where}: every number must be finite; found {array[index]} in record {index[0]}")
    return array


def of_persons(what: str, persons: Any, count: int, limit: int) -> tuple[Array, Array]:
    """Return the records of each person, up to a public limit, in the order in which the persons first appear.

    Args:
        persons: [count] whose each record is: numbers or words. limit: the most records that are kept of a person: the
            first ones of a person with more, whatever other persons have.
    Returns:
        The places [P, limit] of the records, and [P, limit] true for records and false for padding, which repeats the
        first record of the same person.
    """
    ids = np.asarray(persons)
    if ids.shape != (count,) or ids.dtype.kind not in "biuUSO":
        raise FaultyRecords(
            f"{what}: `person` must say of each record whose it is, by a whole number or a word, [{count}]; found "
            f"{ids.dtype} {list(ids.shape)}"
        )
    _, first, owner = np.unique(
        ids.astype(str) if ids.dtype.kind == "O" else ids, return_index=True, return_inverse=True
    )
    rank = np.argsort(np.argsort(first))[owner]
    order, counts = np.argsort(rank, kind="stable"), np.bincount(rank)
    begins = (np.cumsum(counts) - counts)[:, None]
    steps = np.arange(limit)
    present = steps < counts[:, None]
    return order[np.where(present, begins + steps, begins)], present
