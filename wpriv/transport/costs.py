"""Costs ||x - y||_p^p between all pairs of points: as exponents of a Gibbs kernel, and what a coupling pulls the points by."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

import torch
from torch import Tensor

from wpriv.transport import differences


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
    """The exponents -||x_i - y_j||_p^p / lambda, centred over rows and columns; at p = 2 from one matrix product.

    Args:
        x, y: [B, n, d] and [B, m, d] points. lam: > 0, in units of the cost. p: >= 1.
    """
    if p == 2:
        mean_x, mean_y = x.mean(1, keepdim=True), y.mean(1, keepdim=True)
        left, right, shift = x - mean_x, y - mean_y, mean_x - mean_y
        long_x, long_y = torch.linalg.vector_norm(left, dim=2), torch.linalg.vector_norm(right, dim=2)
        matrix = torch.bmm(left, right.mT).mul_(2 / lam)
        row = long_x.square() + 2 * torch.bmm(left, shift.mT)[:, :, 0] + shift.square().sum(2)
        column = long_y.square() - 2 * torch.bmm(right, shift.mT)[:, :, 0]
        return Exponents(matrix, row, column, long_x.amax(1) * long_y.amax(1) * (2 / lam))
    scaled = torch.stack([differences.distances(x[k], y[k], p) for k in range(len(x))]).div_(lam)
    row, column = scaled.mean(2), scaled.mean(1)
    column = column - column.mean(1, keepdim=True)
    matrix = (row[:, :, None] - scaled).add_(column[:, None, :])
    return Exponents(matrix, row * lam, column * lam, scaled.amax((1, 2)))


def pull(plan: Tensor, x: Tensor, y: Tensor, p: float) -> Tensor:
    """The gradient of sum_ij plan_ij ||x_i - y_j||_p^p in x, the plan held fixed.

    At p = 2 it is twice x less its barycentric projection, times the plan's row sums; at p = 1 sum_j plan_ij sign(x_i - y_j), 0 at ties.

    Args:
        plan: [B, n, m]. x, y: [B, n, d] and [B, m, d] points. p: >= 1.
    Returns:
        [B, n, d].
    """
    if p == 2:
        return torch.baddbmm(x * plan.sum(2)[:, :, None], plan, y, beta=2, alpha=-2)
    return torch.stack([differences.pull(plan[k], x[k], y[k], p) for k in range(len(x))])


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
