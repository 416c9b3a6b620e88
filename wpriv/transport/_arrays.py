"""What numpy and torch name differently: samples on the CPU are worked on as numpy arrays, whose sort is much faster and whose calls cost
less; samples on a device stay there as tensors. The arithmetic in ``_rows`` is written once for both.
"""

from __future__ import annotations

from functools import reduce
from operator import add
from typing import Any

import numpy as np
import torch

Array = Any  # np.ndarray or torch.Tensor
_FEW, _ROOM = 2048, 29  # below so many entries argsort is as fast; bits of a float64 that a float32 leaves empty
_PASSES = 8


def ordered(rows: Array) -> tuple[Array, Array]:
    """Each row of ``rows`` [k, n] in ascending order, and the places [k, n] where its entries stood in the flat table.

    numpy sorts numbers several times faster than it finds their order. So each number carries its place in its last bits and is sorted
    with it: a float32 has room for that as a float64; a float64 gives up some bits, and what they would have decided is mended.
    """
    if not isinstance(rows, np.ndarray):
        found = torch.sort(rows, dim=-1)
        return found.values, found.indices + rows.shape[1] * torch.arange(len(rows), device=rows.device)[:, None]
    low = rows.size.bit_length()
    if rows.size <= _FEW or low > _ROOM:
        return _argsorted(rows)
    keys = rows.astype(np.float64)
    bits = keys.view(np.int64)
    if rows.dtype == np.float64:
        bits &= -1 << low
    bits |= np.arange(rows.size).reshape(rows.shape)
    keys.sort(axis=-1)
    if np.isnan(keys[:, -1]).any():  # an infinity or nan, whose last bits numpy may change
        return _argsorted(rows)
    bits &= (1 << low) - 1
    values = rows.reshape(-1)[bits]
    return (values, bits) if rows.dtype == np.float32 else _mended(rows, values, bits)


def _mended(rows: Array, values: Array, places: Array) -> tuple[Array, Array]:
    """Rows sorted but for the last bits: a few swaps of neighbours where few stand wrong, else a full sort."""
    n = rows.shape[1]
    for _ in range(_PASSES):
        wrong = np.flatnonzero(values[:, 1:] < values[:, :-1])
        if len(wrong) == 0:
            return values, places
        if len(wrong) > values.size // 16:
            break
        at = wrong + wrong // (n - 1)
        at = at[np.diff(at, prepend=-2) > 1]
        for flat in (values.reshape(-1), places.reshape(-1)):
            flat[at], flat[at + 1] = flat[at + 1], flat[at]
    return _argsorted(rows)


def _argsorted(rows: Array) -> tuple[Array, Array]:
    stood = np.argsort(rows, axis=-1)
    if len(rows) > 1:
        stood += rows.shape[1] * np.arange(len(rows))[:, None]
    return rows.reshape(-1)[stood], stood


def ascending(rows: Array) -> Array:
    """Each row of ``rows`` [k, n] in ascending order."""
    return np.sort(rows, axis=-1) if isinstance(rows, np.ndarray) else torch.sort(rows, dim=-1).values


def places(mask: Array) -> Array:
    """Where a mask holds, as places in the flat table."""
    return np.flatnonzero(mask) if isinstance(mask, np.ndarray) else mask.reshape(-1).nonzero()[:, 0]


def columns(rows: Array, index: Array) -> Array:
    """``rows[:, index]`` for an index of any shape."""
    return np.take(rows, index, axis=1) if isinstance(rows, np.ndarray) else rows[:, index]


def group_sums(flat: Array, starts: Array, group: Array) -> Array:
    """Sums in double precision of neighbouring entries: group i begins at ``starts[i]``, and entry e belongs to ``group[e]``."""
    if isinstance(flat, np.ndarray):
        return np.add.reduceat(flat.astype(np.float64), starts)
    return torch.zeros(len(starts), dtype=torch.float64, device=flat.device).index_add_(0, group, flat.double())


def folded(pieces: Array) -> Array:
    """The sum over the middle axis of [k, c, n]: of many in double precision, as plain sums of float32 would lose digits."""
    if pieces.shape[1] == 1:
        return pieces[:, 0]
    if pieces.shape[1] <= 8:
        return reduce(add, (pieces[:, c] for c in range(pieces.shape[1])))
    if isinstance(pieces, np.ndarray):
        return pieces.sum(1, dtype=np.float64).astype(pieces.dtype)
    return pieces.sum(1, dtype=torch.float64).to(pieces.dtype)


def signs(numbers: Array) -> Array:
    return np.sign(numbers) if isinstance(numbers, np.ndarray) else numbers.sign()


def double(numbers: Array) -> Array:
    return numbers.astype(np.float64) if isinstance(numbers, np.ndarray) else numbers.double()


def cast(numbers: Array, like: Array) -> Array:
    """The same numbers in the precision of another array."""
    return numbers.astype(like.dtype, copy=False) if isinstance(numbers, np.ndarray) else numbers.to(like.dtype)


def joined(rows: Array, others: Array) -> Array:
    """[k, n] and [k, m] side by side."""
    return np.concatenate([rows, others], 1) if isinstance(rows, np.ndarray) else torch.cat([rows, others], 1)


def steps(rows: Array) -> Array:
    """Differences along each row, the first from 0."""
    found = rows + 0
    found[:, 1:] -= rows[:, :-1]
    return found


def counted(n: int, like: Array) -> Array:
    """0, 1, ..., n - 1 beside the array ``like``."""
    return np.arange(n) if isinstance(like, np.ndarray) else torch.arange(n, device=like.device)


def empty(like: Array) -> Array:
    """Room for as many numbers of the same kind."""
    return np.empty(like.shape, like.dtype) if isinstance(like, np.ndarray) else torch.empty_like(like)


def isfinite(numbers: Array) -> Array:
    return np.isfinite(numbers) if isinstance(numbers, np.ndarray) else numbers.isfinite()


def tensor(numbers: Array) -> torch.Tensor:
    """The same numbers as a tensor, sharing memory."""
    return torch.from_numpy(numbers) if isinstance(numbers, np.ndarray) else numbers
