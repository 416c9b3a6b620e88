"""W_p^p of many pairs of samples on the line, one a row, with its slopes; shared by ``line`` and ``sliced``.

Both quantile functions are step functions, so the quantile form of the cost is a sum over the pieces on which both are
constant. Without weights their ends are i/n and j/m, held as the integers i m and j n: they have no rounding error for
any sample size, and do not depend on the data. No gradients are recorded here.
"""

from __future__ import annotations

import math
from functools import lru_cache
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from wpriv.errors import UsageError
from wpriv.transport._arrays import (
    Array,
    arange_like,
    as_tensor,
    cast_like,
    concatenate,
    empty_like,
    flat_indices,
    group_sums,
    isfinite,
    row_differences,
    sign,
    sort_rows,
    sort_with_indices,
    sum_middle_axis,
    take_columns,
    to_double,
)

# entries sorted at once: few enough to stay in the cache, so many that the overhead of the calls is negligible
ENTRIES_PER_BLOCK = 2**18


class CostAndSlopes(NamedTuple):
    """Costs [k] and their slopes in x [k, n] and in y [k, m], None if not requested."""

    cost: Tensor
    x: Tensor | None
    y: Tensor | None


def solve(
    x: Tensor, y: Tensor, p: float, needs: tuple[bool, bool], weights: tuple[Tensor, Tensor] | None = None
) -> CostAndSlopes:
    """W_p^p between row i of ``x`` [k, n] and row i of ``y`` [k, m], and its derivatives in the requested positions.

    Args:
        x, y: contiguous rows. needs: whether the derivatives in x, and in y, are requested.
        weights: [1 or k, n] and [1 or k, m] in float64, each row summing to 1; ties share (see ``_share_ties``).
    Raises:
        UsageError: a position is infinite or NaN, or a cost overflows.
    """
    on_host = x.device.type == "cpu"
    x_array, y_array = (x.numpy(), y.numpy()) if on_host else (x, y)
    masses = None if weights is None else [w.numpy() for w in weights] if on_host else list(weights)
    cost = empty_like(x_array[:, 0])
    slopes = [empty_like(array) if need else None for array, need in zip((x_array, y_array), needs, strict=True)]
    with np.errstate(over="ignore", invalid="ignore"):  # the check below raises an error instead
        _fill(x_array, y_array, p, masses, cost, slopes)
    if not isfinite(cost).all():
        if not (isfinite(x_array).all() and isfinite(y_array).all()):
            raise UsageError("positions must be finite; found inf or nan among them")
        dtype = str(x.dtype).removeprefix("torch.")
        raise UsageError(f"the {p:g}-th power of the distances overflows {dtype}; divide the positions by a constant")
    return CostAndSlopes(as_tensor(cost), *(None if slope is None else as_tensor(slope) for slope in slopes))


def _fill(x: Array, y: Array, p: float, masses: list[Array] | None, cost: Array, slopes: list[Array]) -> None:
    """Write the costs, and the requested slopes, block by block; all arrays are numpy's, or all are torch's."""
    block = max(1, ENTRIES_PER_BLOCK // (x.shape[1] + y.shape[1]))
    for start in range(0, len(x), block):
        part = slice(start, start + block)
        targets = [None if slope is None else slope[part] for slope in slopes]
        if masses is None:
            cost[part] = _uniform(x[part], y[part], p, targets)
        else:
            block_masses = [mass if len(mass) == 1 else mass[part] for mass in masses]
            cost[part] = _weighted(x[part], y[part], p, block_masses, targets)


def _uniform(x: Array, y: Array, p: float, targets: list[Array]) -> Array:
    """Return the costs of a block of unweighted rows, and write the slopes into ``targets``."""
    xs, x_indices = (sort_rows(x), None) if targets[0] is None else sort_with_indices(x)
    ys, y_indices = (sort_rows(y), None) if targets[1] is None else sort_with_indices(y)
    gaps, slopes = _pieces(xs, ys, p)
    # a gap times its slope is p times its cost; the pieces seen from one side cover the whole cost
    cost = (gaps * slopes).sum((-2, -1)) / p
    if targets[1] is not None:
        y_slopes = -slopes if x.shape == y.shape else _pieces(ys, xs, p)[1]
        _scatter(targets[1], y_indices, ys, sum_middle_axis(y_slopes))
    # last, since sharing among ties of x changes its slopes in place
    if targets[0] is not None:
        _scatter(targets[0], x_indices, xs, sum_middle_axis(slopes))
    return cost


def _scatter(target: Array, indices: Array, values: Array, slopes: Array, masses: Array = None) -> None:
    """Share the slopes of sorted positions among ties, and write them in the original order."""
    _share_ties(values, slopes, masses)
    target.reshape(-1)[indices] = cast_like(slopes, target)


def _pieces(xs: Array, ys: Array, p: float) -> tuple[Array, Array]:
    """Return gaps [k, c, n] between each sorted x and the c sorted y that its cell overlaps, and their slopes."""
    n, m = xs.shape[1], ys.shape[1]
    if n == m:
        gaps = (xs - ys)[:, None]
        return gaps, _slope(gaps, p, 1 / n)
    index, share = _overlaps(n, m, xs.dtype, xs.device if isinstance(xs, Tensor) else None)
    gaps = xs[:, None] - take_columns(ys, index)
    return gaps, _slope(gaps, p, share)


@lru_cache(maxsize=8)
def _overlaps(n: int, m: int, dtype: Any, device: torch.device | None) -> tuple[Array, Array]:
    """Return, for each of the n cells (i/n, (i+1)/n], the overlapping cells (j/m, (j+1)/m] and the overlap lengths.

    Both are [c, n] with c about m/n + 1. In units of 1/(nm) the cells end at the integers (i+1) m and (j+1) n. If a
    cell overlaps fewer than c others, the lengths end in zeros.
    """
    count = (2 * n - math.gcd(n, m) + m - 1) // n
    i = np.arange(n)
    j = i * m // n + np.arange(count)[:, None]
    common = np.minimum((i + 1) * m, (j + 1) * n) - np.maximum(i * m, j * n)
    index, share = np.minimum(j, m - 1), np.maximum(common, 0) / (n * m)
    if device is None:
        return index, share.astype(dtype)
    return torch.from_numpy(index).to(device), torch.from_numpy(share).to(device, dtype)


def _slope(gaps: Array, p: float, share: Array | float) -> Array:
    """Return ``share`` times the derivative of |gap|^p; for p = 1 it is 0 at 0, the middle of the subgradients."""
    if p == 2:
        return gaps * (2 * share)
    return sign(gaps) * share if p == 1 else sign(gaps) * (abs(gaps) ** (p - 1) * (p * share))


def _weighted(x: Array, y: Array, p: float, masses: list[Array], targets: list[Array]) -> Array:
    """Return the costs of a block with masses [1 or k, n] and [1 or k, m]; write the slopes into ``targets``."""
    n, m = x.shape[1], y.shape[1]
    (xs, x_indices), (ys, y_indices) = sort_with_indices(x), sort_with_indices(y)
    x_mass, y_mass = (_sorted_masses(mass, at) for mass, at in zip(masses, (x_indices, y_indices), strict=True))
    levels = [mass.cumsum(1) for mass in (x_mass, y_mass)]
    # normalised, so that rounding does not let one sample end before the other
    ends, indices = sort_with_indices(concatenate(*(level / level[:, -1:] for level in levels)))
    lengths, is_x = row_differences(ends), indices % (n + m) < n
    # the piece up to the t-th end lies in the first cell of each sample that does not end before it
    x_ended = is_x.cumsum(1) - 1 * is_x
    y_ended = arange_like(n + m, like=x_ended) - x_ended
    row = arange_like(len(x), like=x_ended)[:, None]
    x_cell, y_cell = x_ended.clip(0, n - 1) + n * row, y_ended.clip(0, m - 1) + m * row
    gaps = to_double(xs).reshape(-1)[x_cell] - to_double(ys).reshape(-1)[y_cell]
    slopes = _slope(gaps, p, lengths)
    for target, values, at, mass, cell, pieces in (
        (targets[0], xs, x_indices, x_mass, x_cell, slopes),
        (targets[1], ys, y_indices, y_mass, y_cell, -slopes),
    ):
        if target is not None:
            flat = cell.reshape(-1)
            sums = group_sums(pieces.reshape(-1), flat_indices(row_differences(flat[None] + 1)), flat)
            _scatter(target, at, values, sums.reshape(values.shape), mass)
    return (gaps * slopes).sum(1) / p


def _sorted_masses(mass: Array, indices: Array) -> Array:
    """Return the masses of sorted positions; a single row of masses applies to all rows."""
    return mass.reshape(-1)[indices % mass.shape[1] if len(mass) == 1 else indices]


def _share_ties(values: Array, slopes: Array, masses: Array = None) -> None:
    """Replace the ``slopes`` [k, n] of equal neighbours in the sorted ``values`` [k, n] by their mean, in place.

    With masses the mean is weighted by them. The slope of a position depends on its rank, and the ranks of tied
    positions
    are arbitrary: with shared slopes the result depends on the samples only, not on the order of their records.
    """
    same = values[:, 1:] == values[:, :-1]
    if not same.any():
        return
    false_column = same[:, :1] & ~same[:, :1]
    equals_previous = concatenate(false_column, same)
    tied = concatenate(same, false_column) | equals_previous
    members = flat_indices(tied)
    first = ~equals_previous.reshape(-1)[members]
    starts, group = flat_indices(first), first.cumsum(0) - 1
    flat = slopes.reshape(-1)
    shared = flat[members]
    mass = shared * 0 + 1 if masses is None else masses.reshape(-1)[members]
    total = group_sums(mass, starts, group)
    mean = group_sums(shared, starts, group) / (total + 1 * (total == 0))
    shared[:] = mean[group] * mass
    flat[members] = shared
