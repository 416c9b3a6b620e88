"""Costs ||x - y||_p^p between all pairs of points, p other than 2, and what a coupling pulls the points by: from n m d differences.

They are taken block by block, in blocks that fit a processor's cache. At p = 1 most need not be taken: where a coordinate of y lies outside
the range that x has there, |x - y| is linear in both, and one matrix product does it for all pairs. Of data under noise wider than
themselves few coordinates are left, and those are taken one by one.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass

import torch
from torch import Tensor

BLOCK = {"cpu": 2**20, "cuda": 2**26}
"""Differences held at a time."""
RUN = 2**17
"""The same of those taken one by one."""
FEW = 0.2
"""The share of coordinates within the range up to which taking them one by one is the quicker way, measured."""


def distances(x: Tensor, y: Tensor, p: float) -> Tensor:
    """[n, m] costs ||x_i - y_j||_p^p of [n, d] and [m, d] points."""
    if p != 1:
        found = x.new_empty(len(x), len(y))
        for i, j, room in _blocks(x, y):
            found[i, j] = torch.sub(x[i, None], y[None, j], out=room).abs_().pow_(p).sum(2)
        return found
    centre = (x.mean(0) + y.mean(0)) / 2
    x, y = x - centre, y - centre
    if (split := Split.of(x, y)) is not None:
        return _split_distances(x, y, split)
    if (split := Split.of(y, x)) is not None:
        return _split_distances(y, x, split).mT
    # |s - t| = 2 max(s, t) - s - t: one pass over the pairs less
    found = x.new_empty(len(x), len(y))
    for i, j, room in _blocks(x, y):
        found[i, j] = torch.maximum(x[i, None], y[None, j], out=room).sum(2)
    return found.mul_(2).sub_(x.sum(1)[:, None]).sub_(y.sum(1))


def pull(plan: Tensor, x: Tensor, y: Tensor, p: float) -> Tensor:
    """[n, d] gradient of <plan, cost> in x: sum over j of plan_ij p |x_i - y_j|^(p-1) sign(x_i - y_j), 0 at ties."""
    if p == 1 and (split := Split.of(x, y)) is not None:
        return _split_pull(plan, x, y, split)
    found = torch.zeros_like(x)
    for i, j, room in _blocks(x, y):
        apart = torch.sub(x[i, None], y[None, j], out=room)
        slope = apart.sign_() if p == 1 else apart.sign() * apart.abs_().pow_(p - 1).mul_(p)
        found[i] += torch.bmm(plan[i, None, j], slope)[:, 0]
    return found


@dataclass(frozen=True)
class Split:
    """[m, d] points against the ranges of others: side is 1 above, -1 below, 0 within; row and column list the coordinates within."""

    side: Tensor
    row: Tensor
    column: Tensor

    @staticmethod
    def of(narrow: Tensor, wide: Tensor) -> Split | None:
        """None where many coordinates lie within, and on a GPU, where sums by index differ from run to run."""
        if wide.device.type != "cpu":
            return None
        side = (wide > narrow.amax(0)).to(wide.dtype).sub_((wide < narrow.amin(0)).to(wide.dtype))
        if int(side.count_nonzero()) < (1 - FEW) * side.numel():
            return None
        row, column = (side == 0).nonzero(as_tuple=True)
        return Split(side, row, column)

    def runs(self, points: int) -> Iterator[tuple[Tensor, Tensor]]:
        """The coordinates within, as many at a time as RUN allows differences from so many points."""
        for start in range(0, len(self.row), max(1, RUN // points)):
            run = slice(start, start + max(1, RUN // points))
            yield self.row[run], self.column[run]


def _split_distances(x: Tensor, y: Tensor, split: Split) -> Tensor:
    """[n, m] l1 distances: y - x above the range of x, x - y below it, |x - y| within."""
    found = torch.addmm((split.side * y).sum(1)[:, None], split.side, x.mT, alpha=-1)
    columns = x.mT.contiguous()
    for row, column in split.runs(len(x)):
        found.index_add_(0, row, columns[column].sub_(y[row, column][:, None]).abs_())
    return found.mT


def _split_pull(plan: Tensor, x: Tensor, y: Tensor, split: Split) -> Tensor:
    """[n, d] gradient of <plan, l1 distance> in x: -1, 1 or the sign within, weighed by the plan."""
    found = (split.side.mT @ plan.mT).neg_()
    columns, across = x.mT.contiguous(), plan.mT.contiguous()
    for row, column in split.runs(len(x)):
        found.index_add_(0, column, columns[column].sub_(y[row, column][:, None]).sign_().mul_(across[row]))
    return found.mT


def _blocks(x: Tensor, y: Tensor) -> Iterator[tuple[slice, slice, Tensor]]:
    """Pairs of points in blocks, each with room for its differences: at most BLOCK of them, or one pair where the points are longer."""
    side = max(1, math.isqrt(BLOCK.get(x.device.type, BLOCK["cpu"]) // x.shape[1]))
    room = x.new_empty(min(side, len(x)), min(side, len(y)), x.shape[1])
    for i in range(0, len(x), side):
        for j in range(0, len(y), side):
            yield slice(i, i + side), slice(j, j + side), room[: len(x) - i, : len(y) - j]
