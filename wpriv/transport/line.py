"""Optimal transport on the line: W_p^p between two samples of any sizes, weighted or not, and its derivatives.

Sorting dominates: O((n + m) log(n + m)) time and O(n + m) memory, without an n by m plan. The derivatives are
computed with the value, from the same sorted samples; a backward pass only scales them. Samples on the CPU are handled
as numpy arrays, whose sort is much faster and whose calls cost less; samples on a device remain tensors. Operations
that numpy and torch name differently come first, so that the arithmetic is written once for both.
"""

from __future__ import annotations

import math
from functools import lru_cache, reduce
from operator import add
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from wpriv.errors import UsageError

Array = Any  # np.ndarray or torch.Tensor
_ARGSORT_ENTRIES = 2048  # up to so many entries argsort is as fast
_FREE_BITS = 29  # bits of a float64 that a float32 does not use
_REPAIR_PASSES = 8


def sort_with_indices(rows: Array, *, needs_indices: bool = True) -> tuple[Array, Array]:
    """Sort each row of ``rows`` [k, n]; by default also returns the indices [k, n] in the flat table.

    numpy sorts numbers several times faster than it finds their order. So each number carries its index in its last
    bits while it is sorted. A float32 has unused bits for that as a float64; a float64 loses bits, and the pairs that
    they would have ordered are repaired.
    """
    if not needs_indices:
        return np.sort(rows, axis=-1) if isinstance(rows, np.ndarray) else torch.sort(rows, dim=-1).values, None
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


def _library(array: Array) -> Any:
    """Return numpy or torch, whose functions of these names do the same to their own arrays."""
    return np if isinstance(array, np.ndarray) else torch


def flat_indices(mask: Array) -> Array:
    """Return the indices of the true entries of a mask in the flattened table."""
    return np.flatnonzero(mask) if isinstance(mask, np.ndarray) else mask.reshape(-1).nonzero()[:, 0]


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
    library = _library(pieces)
    return library.asarray(pieces.sum(1, dtype=library.float64), dtype=pieces.dtype)


def row_differences(rows: Array) -> Array:
    """Return the differences along each row, the first one from 0."""
    differences = rows + 0
    differences[:, 1:] -= rows[:, :-1]
    return differences


# W_p^p of many pairs of samples on the line, one a row, with its slopes; shared by ``line`` and ``sliced``.
#
# Both quantile functions are step functions, so the quantile form of the cost is a sum over the pieces on which both
# are constant. Without weights their ends are i/n and j/m, held as the integers i m and j n: they have no rounding
# error for any sample size, and do not depend on the data. No gradients are recorded here.

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
    """
    on_host = x.device.type == "cpu"
    x_array, y_array = (x.numpy(), y.numpy()) if on_host else (x, y)
    masses = None if weights is None else [w.numpy() for w in weights] if on_host else list(weights)
    library = _library(x_array)
    cost = library.empty_like(x_array[:, 0])
    slopes = [
        library.empty_like(array) if need else None for array, need in zip((x_array, y_array), needs, strict=True)
    ]
    with np.errstate(over="ignore", invalid="ignore"):  # the check below raises an error instead
        _fill(x_array, y_array, p, masses, cost, slopes)
    if not library.isfinite(cost).all():
        if not (library.isfinite(x_array).all() and library.isfinite(y_array).all()):
            raise UsageError("positions must be finite; found inf or nan among them")
        dtype = str(x.dtype).removeprefix("torch.")
        raise UsageError(f"the {p:g}-th power of the distances overflows {dtype}; divide the positions by a constant")
    x_slopes, y_slopes = (None if slope is None else torch.as_tensor(slope) for slope in slopes)
    return CostAndSlopes(torch.as_tensor(cost), x_slopes, y_slopes)


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
    (xs, x_indices), (ys, y_indices) = (
        sort_with_indices(rows, needs_indices=target is not None) for rows, target in zip((x, y), targets, strict=True)
    )
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
    target.reshape(-1)[indices] = _library(target).asarray(slopes, dtype=target.dtype)


def _pieces(xs: Array, ys: Array, p: float) -> tuple[Array, Array]:
    """Return gaps [k, c, n] between each sorted x and the c sorted y that its cell overlaps, and their slopes."""
    n, m = xs.shape[1], ys.shape[1]
    if n == m:
        gaps = (xs - ys)[:, None]
        return gaps, _slope(gaps, p, 1 / n)
    index, share = _overlaps(n, m, xs.dtype, xs.device if isinstance(xs, Tensor) else None)
    gaps = xs[:, None] - (np.take(ys, index, axis=1) if isinstance(ys, np.ndarray) else ys[:, index])
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
    signs = _library(gaps).sign(gaps)
    return signs * share if p == 1 else signs * (abs(gaps) ** (p - 1) * (p * share))


def _weighted(x: Array, y: Array, p: float, masses: list[Array], targets: list[Array]) -> Array:
    """Return the costs of a block with masses [1 or k, n] and [1 or k, m]; write the slopes into ``targets``."""
    n, m, library = x.shape[1], y.shape[1], _library(x)
    (xs, x_indices), (ys, y_indices) = sort_with_indices(x), sort_with_indices(y)
    # a single row of masses applies to all rows
    x_mass, y_mass = (
        mass.reshape(-1)[at % mass.shape[1] if len(mass) == 1 else at]
        for mass, at in zip(masses, (x_indices, y_indices), strict=True)
    )
    levels = [mass.cumsum(1) for mass in (x_mass, y_mass)]
    # normalised, so that rounding does not let one sample end before the other
    ends, indices = sort_with_indices(library.concatenate([level / level[:, -1:] for level in levels], 1))
    lengths, is_x = row_differences(ends), indices % (n + m) < n
    # the piece up to the t-th end lies in the first cell of each sample that does not end before it
    x_ended = is_x.cumsum(1) - 1 * is_x
    y_ended = (~is_x).cumsum(1) - 1 * ~is_x
    row = library.ones_like(x_ended[:, :1]).cumsum(0) - 1
    x_cell, y_cell = x_ended.clip(0, n - 1) + n * row, y_ended.clip(0, m - 1) + m * row
    first, second = (library.asarray(values, dtype=library.float64).reshape(-1) for values in (xs, ys))
    gaps = first[x_cell] - second[y_cell]
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


def _share_ties(values: Array, slopes: Array, masses: Array = None) -> None:
    """Replace the ``slopes`` [k, n] of equal neighbours in the sorted ``values`` [k, n] by their mean, in place.

    With masses the mean is weighted by them. The slope of a position depends on its rank, and tied positions have
    arbitrary ranks: with shared slopes the result depends on the samples only, not on the order of their records.
    """
    same = values[:, 1:] == values[:, :-1]
    if not same.any():
        return
    false_column, concatenate = same[:, :1] & ~same[:, :1], _library(same).concatenate
    equals_previous = concatenate([false_column, same], 1)
    tied = concatenate([same, false_column], 1) | equals_previous
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


class Gradients(NamedTuple):
    """W_p^p and its derivatives in both samples, in the shapes of the samples."""

    cost: Tensor
    x: Tensor
    y: Tensor


def wasserstein(
    x: Tensor, y: Tensor, p: float = 2.0, *, x_weights: Tensor | None = None, y_weights: Tensor | None = None
) -> Tensor:
    """W_p^p between two samples on the line; with two dimensions, one value per column.

    Differentiable (once) in the positions, by the weights of ``gradients``.

    Args:
        x: [n] or [n, k] positions in the units of the data, float32 or float64, on any device; each column is its own
            problem.
        y: [m] or [m, k] positions, with the dtype and device of ``x``; m need not be n.
        p: order of the ground cost, p >= 1.
        x_weights, y_weights: [n] or [n, k], [m] or [m, k] nonnegative masses, normalised to sum 1; equal by default.
    Returns:
        A scalar or [k] costs, in units**p: the p-th power and not the distance.
    Raises:
        UsageError: shapes, dtypes, devices or weights do not match; p < 1; a position is not finite; the power
            overflows.
    Source:
        The quantile form of transport on the line (Santambrogio 2015, Prop. 2.17); p = 2: Rodriguez-Vitores et al.
        2025, Prop. 3.1.

    >>> wasserstein(torch.tensor([0.0, 1.0]), torch.tensor([3.0, 2.0, 2.0, 5.0]), p=1)
    tensor(2.5000)
    """
    weights = _check(x, y, p, x_weights, y_weights)
    cost: Tensor = _Wasserstein.apply(x, y, float(p), weights)  # type: ignore[no-untyped-call]
    return cost


def gradients(
    x: Tensor, y: Tensor, p: float = 2.0, *, x_weights: Tensor | None = None, y_weights: Tensor | None = None
) -> Gradients:
    """W_p^p together with the derivative in every position of both samples; arguments and errors as in ``wasserstein``.

    For p = 2 the derivative in x_i is ``2 sum_j R_ij (x_i - y_j)`` with the optimal plan R. The plan is not unique if
    positions tie: ties get the mean over their ranks (by weight), so that the result is invariant under permutations
    of the records, which the sensitivity of a private gradient requires. For p = 1 it is a subgradient, 0 where two
    matched positions coincide.

    Returns:
        The cost, a scalar or [k], and the derivatives in the shapes of ``x`` and ``y``, in units**(p - 1). Autograd
        records nothing.
    Source:
        Rodriguez-Vitores et al. 2025, Prop. 3.2; the rule for ties is our addition.

    >>> found = gradients(torch.tensor([0.0, 0.0]), torch.tensor([-1.0, 2.0]))
    >>> found.cost, found.x, found.y
    (tensor(2.5000), tensor([-0.5000, -0.5000]), tensor([-1.,  2.]))
    """
    weights = _check(x, y, p, x_weights, y_weights)
    result = solve(_as_rows(x), _as_rows(y), float(p), (True, True), weights)
    return Gradients(_like(result.cost, x), _like(result.x, x), _like(result.y, y))


class _Wasserstein(torch.autograd.Function):
    """Compute the cost and the required derivatives in the forward pass; scale the derivatives in the backward pass."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, y: Tensor, p: float, weights: tuple[Tensor, Tensor] | None) -> Tensor:
        needs = (ctx.needs_input_grad[0], ctx.needs_input_grad[1])
        result = solve(_as_rows(x), _as_rows(y), p, needs, weights)
        slopes = ((result.x, x), (result.y, y))
        ctx.save_for_backward(*(None if slope is None else _like(slope, sample) for slope, sample in slopes))
        return _like(result.cost, x)

    @staticmethod
    @once_differentiable  # type: ignore[untyped-decorator]
    def backward(ctx: Any, upstream: Tensor) -> tuple[Tensor | None, Tensor | None, None, None]:
        x, y = (None if slope is None else slope * upstream for slope in ctx.saved_tensors)
        return x, y, None, None


def _as_rows(sample: Tensor) -> Tensor:
    """Convert [n] or [n, k] to contiguous [k, n]."""
    return sample.detach()[None].contiguous() if sample.ndim == 1 else sample.detach().T.contiguous()


def _like(rows: Tensor | None, sample: Tensor) -> Tensor:
    """Convert [k, n] to the shape of its sample, and [k] to a scalar if the sample is one column."""
    assert rows is not None
    return rows[0] if sample.ndim == 1 else rows.mT if rows.ndim == 2 else rows


def _check(
    x: Tensor, y: Tensor, p: float, x_weights: Tensor | None, y_weights: Tensor | None
) -> tuple[Tensor, Tensor] | None:
    """Validate the arguments; return the weights as rows that sum to 1, or None if there are none."""
    check_pair(x, y, p)
    if x.ndim not in (1, 2) or x.ndim != y.ndim or x.shape[1:] != y.shape[1:]:
        raise UsageError(
            f"wanted x [n] and y [m], or x [n, k] and y [m, k]; found x {list(x.shape)} and y {list(y.shape)}"
        )
    return as_masses(x, y, x_weights, y_weights)


def check_pair(x: Tensor, y: Tensor, p: float) -> None:
    """Raise UsageError unless x and y are samples of the same type and p is a valid order."""
    for name, sample in (("x", x), ("y", y)):
        if not isinstance(sample, Tensor) or sample.dtype not in (torch.float32, torch.float64):
            kind = sample.dtype if isinstance(sample, Tensor) else type(sample).__name__
            raise UsageError(f"{name} must be a tensor of float32 or float64; found {kind}")
    if x.dtype != y.dtype or x.device != y.device:
        raise UsageError(
            f"x and y must share dtype and device; found {x.dtype} on {x.device} and {y.dtype} on {y.device}"
        )
    if 0 in x.shape or 0 in y.shape:
        raise UsageError(f"a sample needs at least one position; found x {list(x.shape)} and y {list(y.shape)}")
    if not 1 <= p < math.inf:
        raise UsageError(f"the order p must be a finite number of at least 1; found {p}")


def as_masses(x: Tensor, y: Tensor, x_weights: Tensor | None, y_weights: Tensor | None) -> tuple[Tensor, Tensor] | None:
    """Return the weights as rows [1 or k, n] that sum to 1, or None if neither sample has any."""
    if x_weights is None and y_weights is None:
        return None
    return _masses("x", x, x_weights), _masses("y", y, y_weights)


def _masses(name: str, sample: Tensor, weights: Tensor | None) -> Tensor:
    n = len(sample)
    if weights is None:
        return torch.full((1, n), 1 / n, dtype=torch.float64, device=sample.device)
    if weights.device != sample.device or weights.shape not in ((n,), sample.shape):
        shapes = f"[{n}]" if sample.ndim == 1 else f"[{n}] or {list(sample.shape)}"
        raise UsageError(
            f"{name}_weights must be {shapes} on {sample.device}; found {list(weights.shape)} on {weights.device}"
        )
    if weights.requires_grad:
        raise UsageError(
            f"{name}_weights must not require a gradient, only positions may; pass {name}_weights.detach()"
        )
    rows = _as_rows(weights.double())
    total = rows.sum(1, keepdim=True)
    if not bool((rows >= 0).all() and ((total > 0) & total.isfinite()).all()):
        raise UsageError(f"{name}_weights must be finite, nonnegative and not all 0")
    return rows / total
