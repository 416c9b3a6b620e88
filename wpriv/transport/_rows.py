"""The work of line and sliced: W_p^p of many pairs of samples on the line, one a row, with its slopes. No gradients are recorded here.

Both quantile functions are steps, so the quantile form of the cost is a sum over the pieces on which both are constant. Without weights
their ends are i/n and j/m, held as the integers i m and j n: no rounding, however many there are, and nothing that hangs on the data.
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
    ascending,
    cast,
    columns,
    counted,
    double,
    empty,
    folded,
    group_sums,
    isfinite,
    joined,
    ordered,
    places,
    signs,
    steps,
    tensor,
)

BLOCK = 2**18  # entries sorted at once: few enough to stay in the cache, many enough that the calls cost nothing


class Solved(NamedTuple):
    """Costs [k] and their slopes in x [k, n] and in y [k, m], None where they were not asked for."""

    cost: Tensor
    x: Tensor | None
    y: Tensor | None


def solve(
    x: Tensor, y: Tensor, p: float, needs: tuple[bool, bool], weights: tuple[Tensor, Tensor] | None = None
) -> Solved:
    """W_p^p between row i of ``x`` [k, n] and row i of ``y`` [k, m], and its derivatives in the positions that ``needs`` asks for.

    ``weights`` are [1 or k, n] and [1 or k, m] in float64, each row summing to 1. Ties share (see ``_share_ties``). Rows are contiguous.

    Raises:
        UsageError: a position is infinite or nan, or a cost overflows.
    """
    on_host = x.device.type == "cpu"
    x_array, y_array = (x.numpy(), y.numpy()) if on_host else (x, y)
    heavy = None if weights is None else [w.numpy() for w in weights] if on_host else list(weights)
    cost = empty(x_array[:, 0])
    into = [empty(array) if need else None for array, need in zip((x_array, y_array), needs, strict=True)]
    with np.errstate(over="ignore", invalid="ignore"):  # told below
        fill(x_array, y_array, p, heavy, cost, into)
    if not isfinite(cost).all():
        if not (isfinite(x_array).all() and isfinite(y_array).all()):
            raise UsageError("positions must be finite; found inf or nan among them")
        raise UsageError(
            f"the {p:g}-th power of the distances overflows {str(x.dtype).removeprefix('torch.')}; divide the positions by a constant"
        )
    return Solved(tensor(cost), *(None if slopes is None else tensor(slopes) for slopes in into))


def fill(x: Array, y: Array, p: float, masses: list[Array] | None, cost: Array, into: list[Array]) -> None:
    """Writes the costs, and the slopes that have somewhere to go, a few rows at a time; all arrays are numpy's, or all are torch's."""
    block = max(1, BLOCK // (x.shape[1] + y.shape[1]))
    for start in range(0, len(x), block):
        part = slice(start, start + block)
        own = [None if slopes is None else slopes[part] for slopes in into]
        if masses is None:
            cost[part] = _uniform(x[part], y[part], p, own)
        else:
            cost[part] = _weighted(
                x[part], y[part], p, [mass if len(mass) == 1 else mass[part] for mass in masses], own
            )


def _uniform(x: Array, y: Array, p: float, into: list[Array]) -> Array:
    """The costs of a block of unweighted rows; writes the slopes."""
    xs, x_places = (ascending(x), None) if into[0] is None else ordered(x)
    ys, y_places = (ascending(y), None) if into[1] is None else ordered(y)
    gaps, slopes = _side(xs, ys, p)
    # the gap times its slope is p times its cost; the pieces of one side are all there is to pay
    cost = (gaps * slopes).sum((-2, -1)) / p
    if into[1] is not None:
        _scatter(into[1], y_places, ys, folded(-slopes if x.shape == y.shape else _side(ys, xs, p)[1]))
    # last, for ties of x change its slopes in place
    if into[0] is not None:
        _scatter(into[0], x_places, xs, folded(slopes))
    return cost


def _scatter(into: Array, stood: Array, values: Array, slopes: Array, masses: Array = None) -> None:
    """Shares the slopes among ties and brings them back to where their positions stood."""
    _share_ties(values, slopes, masses)
    into.reshape(-1)[stood] = cast(slopes, into)


def _side(xs: Array, ys: Array, p: float) -> tuple[Array, Array]:
    """Gaps [k, c, n] between each sorted x and the c sorted y that its quantile cell meets, and what each adds to the slope."""
    n, m = xs.shape[1], ys.shape[1]
    if n == m:
        gaps = (xs - ys)[:, None]
        return gaps, _slope(gaps, p, 1 / n)
    index, share = _overlaps(n, m, xs.dtype, xs.device if isinstance(xs, Tensor) else None)
    gaps = xs[:, None] - columns(ys, index)
    return gaps, _slope(gaps, p, share)


@lru_cache(maxsize=8)
def _overlaps(n: int, m: int, dtype: Any, device: torch.device | None) -> tuple[Array, Array]:
    """For each of the n cells (i/n, (i+1)/n] the cells (j/m, (j+1)/m] it meets, and the lengths in common: both [c, n], c about m/n + 1.

    In units of 1/(nm) the cells end at the integers (i+1) m and (j+1) n. Where a cell meets fewer than c others the lengths end in zeros.
    """
    most = (2 * n - math.gcd(n, m) + m - 1) // n
    i = np.arange(n)
    j = i * m // n + np.arange(most)[:, None]
    common = np.minimum((i + 1) * m, (j + 1) * n) - np.maximum(i * m, j * n)
    index, share = np.minimum(j, m - 1), np.maximum(common, 0) / (n * m)
    if device is None:
        return index, share.astype(dtype)
    return torch.from_numpy(index).to(device), torch.from_numpy(share).to(device, dtype)


def _slope(gaps: Array, p: float, share: Array | float) -> Array:
    """``share`` times the derivative of |gap|^p; for p = 1 it is 0 at 0, the middle of the subgradients."""
    if p == 2:
        return gaps * (2 * share)
    return signs(gaps) * share if p == 1 else signs(gaps) * (abs(gaps) ** (p - 1) * (p * share))


def _weighted(x: Array, y: Array, p: float, masses: list[Array], into: list[Array]) -> Array:
    """The costs of a block of rows with weights [1 or k, n] and [1 or k, m]; writes the slopes."""
    n, m = x.shape[1], y.shape[1]
    (xs, x_places), (ys, y_places) = ordered(x), ordered(y)
    x_mass, y_mass = (_at(mass, where) for mass, where in zip(masses, (x_places, y_places), strict=True))
    levels = [mass.cumsum(1) for mass in (x_mass, y_mass)]
    # rounding must not leave one sample ending before the other
    ends, stood = ordered(joined(*(level / level[:, -1:] for level in levels)))
    lengths, of_x = steps(ends), stood % (n + m) < n
    # the piece up to the t-th end lies in the first cell of each sample that does not end before it
    x_ended = of_x.cumsum(1) - 1 * of_x
    y_ended = counted(n + m, like=x_ended) - x_ended
    row = counted(len(x), like=x_ended)[:, None]
    x_cell, y_cell = x_ended.clip(0, n - 1) + n * row, y_ended.clip(0, m - 1) + m * row
    gaps = double(xs).reshape(-1)[x_cell] - double(ys).reshape(-1)[y_cell]
    slopes = _slope(gaps, p, lengths)
    for out, values, where, mass, cell, pieces in (
        (into[0], xs, x_places, x_mass, x_cell, slopes),
        (into[1], ys, y_places, y_mass, y_cell, -slopes),
    ):
        if out is not None:
            flat = cell.reshape(-1)
            sums = group_sums(pieces.reshape(-1), places(steps(flat[None] + 1)), flat)
            _scatter(out, where, values, sums.reshape(values.shape), mass)
    return (gaps * slopes).sum(1) / p


def _at(mass: Array, where: Array) -> Array:
    """The masses of sorted positions; one row of masses serves all."""
    return mass.reshape(-1)[where % mass.shape[1] if len(mass) == 1 else where]


def _share_ties(values: Array, slopes: Array, masses: Array = None) -> None:
    """Gives equal neighbours in the sorted ``values`` [k, n] the mean of their ``slopes`` [k, n] (by mass, if given), in place.

    A slope hangs on the rank of its position, and ties have no ranks of their own: shared, the slopes are a function of the samples and
    not of the order in which their records came.
    """
    same = values[:, 1:] == values[:, :-1]
    if not same.any():
        return
    never = same[:, :1] & ~same[:, :1]
    follows = joined(never, same)
    tied = joined(same, never) | follows
    members = places(tied)
    first = ~follows.reshape(-1)[members]
    starts, group = places(first), first.cumsum(0) - 1
    flat = slopes.reshape(-1)
    mine = flat[members]
    mass = mine * 0 + 1 if masses is None else masses.reshape(-1)[members]
    total = group_sums(mass, starts, group)
    mean = group_sums(mine, starts, group) / (total + 1 * (total == 0))
    mine[:] = mean[group] * mass
    flat[members] = mine
