"""Costs ||x - y||_p^p between all pairs of points, as exponents of a Gibbs kernel, and gradients of couplings."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

import torch
from torch import Tensor

from wpriv.transport import differences


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
    scaled = torch.stack([differences.pairwise_costs(x[k], y[k], p) for k in range(len(x))]).div_(lam)
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
    return torch.stack([differences.plan_gradient(plan[k], x[k], y[k], p) for k in range(len(x))])


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
