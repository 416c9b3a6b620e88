"""Array operations that numpy and torch name differently; the arithmetic in ``_rows`` is written once for both.

Samples on the CPU are handled as numpy arrays, whose sort is much faster and whose calls cost less; samples on a device
remain tensors.
"""

from __future__ import annotations

from functools import reduce
from operator import add
from typing import Any

import numpy as np
import torch

Array = Any  # np.ndarray or torch.Tensor
_ARGSORT_ENTRIES = 2048  # up to so many entries argsort is as fast
_FREE_BITS = 29  # bits of a float64 that a float32 does not use
_REPAIR_PASSES = 8


def sort_with_indices(rows: Array) -> tuple[Array, Array]:
    """Sort each row of ``rows`` [k, n]; also returns the indices [k, n] of its entries in the flattened table.

    numpy sorts numbers several times faster than it finds their order. So each number carries its index in its last
    bits while it is sorted. A float32 has unused bits for that as a float64; a float64 loses bits, and the pairs that
    they would have ordered are repaired.
    """
    if not isinstance(rows, np.ndarray):
        result = torch.sort(rows, dim=-1)
        return result.values, result.indices + rows.shape[1] * torch.arange(len(rows), device=rows.device)[:, None]
    index_bits = rows.size.bit_length()
    if rows.size <= _ARGSORT_ENTRIES or index_bits > _FREE_BITS:
        return _argsort(rows)
    keys = rows.astype(np.float64)
    bits = keys.view(np.int64)
    if rows.dtype == np.float64:
        bits &= -1 << index_bits
    bits |= np.arange(rows.size).reshape(rows.shape)
    keys.sort(axis=-1)
    if np.isnan(keys[:, -1]).any():  # an infinity or NaN, whose last bits numpy may change
        return _argsort(rows)
    bits &= (1 << index_bits) - 1
    values = rows.reshape(-1)[bits]
    return (values, bits) if rows.dtype == np.float32 else _repair(rows, values, bits)


def _repair(rows: Array, values: Array, indices: Array) -> tuple[Array, Array]:
    """Complete the sort of rows that are sorted up to their last bits; few inversions are repaired by swaps."""
    n = rows.shape[1]
    for _ in range(_REPAIR_PASSES):
        inversions = np.flatnonzero(values[:, 1:] < values[:, :-1])
        if len(inversions) == 0:
            return values, indices
        if len(inversions) > values.size // 16:
            break
        at = inversions + inversions // (n - 1)
        at = at[np.diff(at, prepend=-2) > 1]
        for flat in (values.reshape(-1), indices.reshape(-1)):
            flat[at], flat[at + 1] = flat[at + 1], flat[at]
    return _argsort(rows)


def _argsort(rows: Array) -> tuple[Array, Array]:
    indices = np.argsort(rows, axis=-1)
    if len(rows) > 1:
        indices += rows.shape[1] * np.arange(len(rows))[:, None]
    return rows.reshape(-1)[indices], indices


def sort_rows(rows: Array) -> Array:
    """Sort each row of ``rows`` [k, n] in ascending order."""
    return np.sort(rows, axis=-1) if isinstance(rows, np.ndarray) else torch.sort(rows, dim=-1).values


def flat_indices(mask: Array) -> Array:
    """Return the indices of the true entries of a mask in the flattened table."""
    return np.flatnonzero(mask) if isinstance(mask, np.ndarray) else mask.reshape(-1).nonzero()[:, 0]


def take_columns(rows: Array, index: Array) -> Array:
    """Return ``rows[:, index]`` for an index of any shape."""
    return np.take(rows, index, axis=1) if isinstance(rows, np.ndarray) else rows[:, index]


def group_sums(flat: Array, starts: Array, group: Array) -> Array:
    """Sum consecutive entries in double precision: group i begins at ``starts[i]``, entry e is in ``group[e]``."""
    if isinstance(flat, np.ndarray):
        return np.add.reduceat(flat.astype(np.float64), starts)
    return torch.zeros(len(starts), dtype=torch.float64, device=flat.device).index_add_(0, group, flat.double())


def sum_middle_axis(pieces: Array) -> Array:
    """Sum [k, c, n] over c, in double precision if c > 8, since sums of many float32 lose digits."""
    if pieces.shape[1] == 1:
        return pieces[:, 0]
    if pieces.shape[1] <= 8:
        return reduce(add, (pieces[:, c] for c in range(pieces.shape[1])))
    if isinstance(pieces, np.ndarray):
        return pieces.sum(1, dtype=np.float64).astype(pieces.dtype)
    return pieces.sum(1, dtype=torch.float64).to(pieces.dtype)


def sign(numbers: Array) -> Array:
    """Return -1, 0 or 1 for each number."""
    return np.sign(numbers) if isinstance(numbers, np.ndarray) else numbers.sign()


def to_double(numbers: Array) -> Array:
    """Convert numbers to double precision."""
    return numbers.astype(np.float64) if isinstance(numbers, np.ndarray) else numbers.double()


def cast_like(numbers: Array, like: Array) -> Array:
    """Convert numbers to the precision of another array."""
    return numbers.astype(like.dtype, copy=False) if isinstance(numbers, np.ndarray) else numbers.to(like.dtype)


def concatenate(rows: Array, others: Array) -> Array:
    """Put [k, n] and [k, m] side by side."""
    return np.concatenate([rows, others], 1) if isinstance(rows, np.ndarray) else torch.cat([rows, others], 1)


def row_differences(rows: Array) -> Array:
    """Return the differences along each row, the first one from 0."""
    differences = rows + 0
    differences[:, 1:] -= rows[:, :-1]
    return differences


def arange_like(n: int, like: Array) -> Array:
    """Return 0, 1, ..., n - 1 on the device of the array ``like``."""
    return np.arange(n) if isinstance(like, np.ndarray) else torch.arange(n, device=like.device)


def empty_like(like: Array) -> Array:
    """Return an uninitialised array of the same shape and type."""
    return np.empty(like.shape, like.dtype) if isinstance(like, np.ndarray) else torch.empty_like(like)


def isfinite(numbers: Array) -> Array:
    """Return whether each number is finite."""
    return np.isfinite(numbers) if isinstance(numbers, np.ndarray) else numbers.isfinite()


def as_tensor(numbers: Array) -> torch.Tensor:
    """Return the same numbers as a tensor that shares their memory."""
    return torch.from_numpy(numbers) if isinstance(numbers, np.ndarray) else numbers
