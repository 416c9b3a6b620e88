"""Costs ||x - y||_p^p between all pairs of points, and gradients of couplings.

For p != 2 they are computed from n m d differences, in blocks that fit the cache of a processor. For p = 1 most
differences are not needed: if a coordinate of y lies outside the range of that coordinate in x, |x - y| is linear in
both, and one matrix product covers all pairs. If the noise on y is wider than the data, few coordinates remain, and
those are handled one by one.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

import torch
from torch import Tensor

BLOCK = {"cpu": 2**20, "cuda": 2**26}
"""Number of differences held at a time, by device."""
RUN = 2**17
"""Number of differences held at a time for coordinates that are handled one by one."""
FEW = 0.2
"""Share of coordinates within the range up to which it is faster to handle them one by one (measured)."""


def pairwise_costs(x: Tensor, y: Tensor, p: float) -> Tensor:
    """Return the [n, m] costs ||x_i - y_j||_p^p of [n, d] and [m, d] points."""
    costs = x.new_empty(len(x), len(y))
    if p != 1:
        for i, j, buffer in _blocks(x, y):
            costs[i, j] = torch.sub(x[i, None], y[None, j], out=buffer).abs_().pow_(p).sum(2)
        return costs
    centre = (x.mean(0) + y.mean(0)) / 2
    x, y = x - centre, y - centre
    if (split := RangeSplit.of(x, y)) is not None:
        return _split_costs(x, y, split)
    if (split := RangeSplit.of(y, x)) is not None:
        return _split_costs(y, x, split).mT
    # |s - t| = 2 max(s, t) - s - t saves one pass over the pairs
    for i, j, buffer in _blocks(x, y):
        costs[i, j] = torch.maximum(x[i, None], y[None, j], out=buffer).sum(2)
    return costs.mul_(2).sub_(x.sum(1)[:, None]).sub_(y.sum(1))


def plan_gradient_of_differences(plan: Tensor, x: Tensor, y: Tensor, p: float) -> Tensor:
    """Return the [n, d] gradient of <plan, cost> in x: sum_j plan_ij p |x_i - y_j|^(p-1) sign(x_i - y_j), 0 at ties."""
    if p == 1 and (split := RangeSplit.of(x, y)) is not None:
        return _split_gradient(plan, x, y, split)
    gradient = torch.zeros_like(x)
    for i, j, buffer in _blocks(x, y):
        gaps = torch.sub(x[i, None], y[None, j], out=buffer)
        slopes = gaps.sign_() if p == 1 else gaps.sign() * gaps.abs_().pow_(p - 1).mul_(p)
        gradient[i] += torch.bmm(plan[i, None, j], slopes)[:, 0]
    return gradient


@dataclass(frozen=True)
class RangeSplit:
    """The position of [m, d] points relative to the coordinate ranges of other points.

    ``side`` [m, d] is 1 above the range, -1 below, 0 within; ``row`` and ``column`` are the indices of the zeros.
    """

    side: Tensor
    row: Tensor
    column: Tensor

    @staticmethod
    def of(narrow: Tensor, wide: Tensor) -> RangeSplit | None:
        """Split ``wide`` by the ranges of ``narrow``, or return None if the split does not pay.

        It does not if many coordinates lie within; and on a GPU, where indexed sums are not deterministic, it is not
        used.
        """
        if wide.device.type != "cpu":
            return None
        side = (wide > narrow.amax(0)).to(wide.dtype).sub_((wide < narrow.amin(0)).to(wide.dtype))
        if int(side.count_nonzero()) < (1 - FEW) * side.numel():
            return None
        row, column = (side == 0).nonzero(as_tuple=True)
        return RangeSplit(side, row, column)

    def runs(self, points: int) -> Iterator[tuple[Tensor, Tensor]]:
        """Yield the coordinates within the range, as many at a time as ``RUN`` allows for that number of points."""
        for start in range(0, len(self.row), max(1, RUN // points)):
            run = slice(start, start + max(1, RUN // points))
            yield self.row[run], self.column[run]


def _split_costs(x: Tensor, y: Tensor, split: RangeSplit) -> Tensor:
    """Return [n, m] l1 distances: y - x above the range of x, x - y below it, |x - y| within."""
    transposed = torch.addmm((split.side * y).sum(1)[:, None], split.side, x.mT, alpha=-1)
    columns = x.mT.contiguous()
    for row, column in split.runs(len(x)):
        transposed.index_add_(0, row, columns[column].sub_(y[row, column][:, None]).abs_())
    return transposed.mT


def _split_gradient(plan: Tensor, x: Tensor, y: Tensor, split: RangeSplit) -> Tensor:
    """Return the [n, d] gradient of <plan, l1 distance> in x: -1, 1 or the sign within, weighted by the plan."""
    transposed = (split.side.mT @ plan.mT).neg_()
    columns, plan_rows = x.mT.contiguous(), plan.mT.contiguous()
    for row, column in split.runs(len(x)):
        signs = columns[column].sub_(y[row, column][:, None]).sign_()
        transposed.index_add_(0, column, signs.mul_(plan_rows[row]))
    return transposed.mT


def _blocks(x: Tensor, y: Tensor) -> Iterator[tuple[slice, slice, Tensor]]:
    """Yield blocks of pairs of points, of at most ``BLOCK`` differences or one pair, each with a buffer."""
    side = max(1, math.isqrt(BLOCK.get(x.device.type, BLOCK["cpu"]) // x.shape[1]))
    buffer = x.new_empty(min(side, len(x)), min(side, len(y)), x.shape[1])
    for i in range(0, len(x), side):
        for j in range(0, len(y), side):
            yield slice(i, i + side), slice(j, j + side), buffer[: len(x) - i, : len(y) - j]


@dataclass(frozen=True)
class Exponents:
    """Cost matrices C_ij = row_i + column_j - lambda E_ij of B problems: row [B, n], column [B, m], matrix E [B, n, m].

    Terms that depend on i or on j alone belong to the potentials of a coupling; the remaining matrix is small, so that
    float32 can represent its exponential. ``largest`` [B] is the largest number that was rounded in the computation of
    E, in units of lambda; its rounding error is that of the plan.
    """

    matrix: Tensor
    row: Tensor
    column: Tensor
    largest: Tensor


def exponents(x: Tensor, y: Tensor, lam: float, p: float) -> Exponents:
    """Compute -||x_i - y_j||_p^p / lambda, centred over rows and columns; for p = 2 by one matrix product.

    Args:
        x, y: [B, n, d] and [B, m, d] points. lam: > 0, in units of the cost. p: >= 1.
    """
    if p == 2:
        mean_x, mean_y = x.mean(1, keepdim=True), y.mean(1, keepdim=True)
        left, right, shift = x - mean_x, y - mean_y, mean_x - mean_y
        norm_x, norm_y = torch.linalg.vector_norm(left, dim=2), torch.linalg.vector_norm(right, dim=2)
        matrix = torch.bmm(left, right.mT).mul_(2 / lam)
        row = norm_x.square() + 2 * torch.bmm(left, shift.mT)[:, :, 0] + shift.square().sum(2)
        column = norm_y.square() - 2 * torch.bmm(right, shift.mT)[:, :, 0]
        return Exponents(matrix, row, column, norm_x.amax(1) * norm_y.amax(1) * (2 / lam))
    scaled = torch.stack([pairwise_costs(x[k], y[k], p) for k in range(len(x))]).div_(lam)
    row, column = scaled.mean(2), scaled.mean(1)
    column = column - column.mean(1, keepdim=True)
    matrix = (row[:, :, None] - scaled).add_(column[:, None, :])
    return Exponents(matrix, row * lam, column * lam, scaled.amax((1, 2)))


def plan_gradient(plan: Tensor, x: Tensor, y: Tensor, p: float) -> Tensor:
    """Compute the gradient of sum_ij plan_ij ||x_i - y_j||_p^p in x at a fixed plan.

    For p = 2 it is 2 (x - barycentric projection of x) times the row sums of the plan; for p = 1 it is
    sum_j plan_ij sign(x_i - y_j), 0 at ties.

    Args:
        plan: [B, n, m]. x, y: [B, n, d] and [B, m, d] points. p: >= 1.
    Returns:
        [B, n, d].
    """
    if p == 2:
        return torch.baddbmm(x * plan.sum(2)[:, :, None], plan, y, beta=2, alpha=-2)
    return torch.stack([plan_gradient_of_differences(plan[k], x[k], y[k], p) for k in range(len(x))])


@contextmanager
def full_precision(device: torch.device) -> Iterator[None]:
    """Disable TF32, bfloat16 and autocast for matrix products within the context, whatever the program has enabled."""
    previous = torch.get_float32_matmul_precision()
    torch.set_float32_matmul_precision("highest")
    try:
        with torch.autocast(device.type, enabled=False):
            yield
    finally:
        torch.set_float32_matmul_precision(previous)
