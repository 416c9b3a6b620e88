"""Costs ||x - y||_p^p between all pairs of points: as exponents of a Gibbs kernel, and what a coupling's cost pulls the points by.

At p = 2 one matrix product does both. At other p the n m d differences are taken block by block, in blocks that fit a processor's cache.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

import torch
from torch import Tensor

BLOCK = {"cpu": 2**20, "cuda": 2**26}
"""Differences held at a time."""


@dataclass(frozen=True)
class Exponents:
    """A cost matrix as C_ij = row_i + column_j - lambda E_ij, for B problems: row [B, n], column [B, m], matrix E [B, n, m].

    What depends on i or on j alone belongs to the potentials of a coupling; what is left is small, so float32 holds its exponential.
    ``largest`` [B] is the largest number that was rounded on the way to E, in units of lambda: its rounding is that of the plan.
    """

    matrix: Tensor
    row: Tensor
    column: Tensor
    largest: Tensor


def exponents(x: Tensor, y: Tensor, lam: float, p: float) -> Exponents:
    """The exponents -||x_i - y_j||_p^p / lambda, centred over rows and columns.

    Args:
        x, y: [B, n, d] and [B, m, d] points. lam: > 0, in units of the cost. p: >= 1.
    """
    if p == 2:
        mean_x, mean_y = x.mean(1, keepdim=True), y.mean(1, keepdim=True)
        left, right = x - mean_x, (y - mean_y) * (2 / lam)
        shift = (mean_x - mean_y).square().sum(2)
        largest = left.square().sum(2).amax(1).sqrt() * right.square().sum(2).amax(1).sqrt()
        with full_precision(x.device):
            matrix = left @ right.mT
        return Exponents(matrix, (x - mean_y).square().sum(2), (y - mean_x).square().sum(2) - shift, largest)
    scaled = distances(x, y, p).div_(lam)
    largest = scaled.amax((1, 2))
    row, column = scaled.mean(2), scaled.mean(1)
    column = column - column.mean(1, keepdim=True)
    matrix = (row[:, :, None] - scaled).add_(column[:, None, :])
    return Exponents(matrix, row * lam, column * lam, largest)


def distances(x: Tensor, y: Tensor, p: float) -> Tensor:
    """[B, n, m] costs ||x_i - y_j||_p^p, from the differences themselves."""
    found = x.new_empty(len(x), x.shape[1], y.shape[1])
    if p == 1:
        # |s - t| = 2 max(s, t) - s - t is one pass over the pairs less; about a common centre the sums are as small as may be
        centre = (x.mean(1, keepdim=True) + y.mean(1, keepdim=True)) / 2
        x, y = x - centre, y - centre
    for one, i, j in _blocks(x, y):
        if p == 1:
            found[one, i, j] = torch.maximum(x[one, i, None], y[one, None, j]).sum(-1)
        else:
            found[one, i, j] = (x[one, i, None] - y[one, None, j]).abs_().pow_(p).sum(-1)
    return found.mul_(2).sub_(x.sum(2)[:, :, None]).sub_(y.sum(2)[:, None, :]) if p == 1 else found


def pull(plan: Tensor, x: Tensor, y: Tensor, p: float) -> Tensor:
    """The gradient of sum_ij plan_ij ||x_i - y_j||_p^p in x, the plan held fixed.

    At p = 2 it is twice x less its barycentric projection, times the plan's row sums; at p = 1 sum_j plan_ij sign(x_i - y_j), 0 at ties.

    Args:
        plan: [B, n, m]. x, y: [B, n, d] and [B, m, d] points. p: >= 1.
    Returns:
        [B, n, d].
    """
    if p == 2:
        centre = y.mean(1, keepdim=True)
        with full_precision(x.device):
            return ((x - centre) * plan.sum(2)[:, :, None] - plan @ (y - centre)).mul_(2)
    found = torch.zeros_like(x)
    with full_precision(x.device):
        for one, i, j in _blocks(x, y):
            apart = x[one, i, None] - y[one, None, j]
            slope = apart.sign_() if p == 1 else apart.sign() * apart.abs_().pow_(p - 1).mul_(p)
            found[one, i] += torch.bmm(plan[one, i, None, j], slope)[:, 0]
    return found


def _blocks(x: Tensor, y: Tensor) -> Iterator[tuple[int, slice, slice]]:
    """Pairs of points in blocks of at most BLOCK differences, or of one pair where the points are longer."""
    side = max(1, math.isqrt(BLOCK.get(x.device.type, BLOCK["cpu"]) // x.shape[2]))
    for one in range(len(x)):
        for i in range(0, x.shape[1], side):
            for j in range(0, y.shape[1], side):
                yield one, slice(i, i + side), slice(j, j + side)


@contextmanager
def full_precision(device: torch.device) -> Iterator[None]:
    """Products of float32 matrices in float32, whatever the program allows elsewhere: no TF32, no bfloat16, no autocast."""
    before = torch.get_float32_matmul_precision()
    torch.set_float32_matmul_precision("highest")
    try:
        with torch.autocast(device.type, enabled=False):
            yield
    finally:
        torch.set_float32_matmul_precision(before)
