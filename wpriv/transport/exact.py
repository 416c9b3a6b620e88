"""Exact W_p^p between two samples of the same size, by optimal assignment, with the gradient in the points."""

from __future__ import annotations

import math

import torch
from torch import Tensor

from wpriv.errors import UsageError
from wpriv.transport import differences
from wpriv.transport.costs import full_precision


def check_same_size(x: Tensor, y: Tensor) -> None:
    """Raise UsageError unless the samples have the same size and type and are finite."""
    if x.ndim != 2 or x.shape != y.shape or not x.numel() or x.dtype != y.dtype or x.device != y.device:
        description = f"{x.dtype} {list(x.shape)} on {x.device} and {y.dtype} {list(y.shape)} on {y.device}"
        raise UsageError(f"x and y must be points [n, d] of the same number, type and device; found {description}")
    if not (torch.isfinite(x).all() and torch.isfinite(y).all()):
        raise UsageError("x and y must be finite; found inf or nan among the points")


def exact(x: Tensor, y: Tensor, p: float = 2.0) -> Tensor:
    """Compute W_p^p between two samples of the same size, with cost ``||x - y||_p^p``.

    It is the minimum over permutations s of the mean of ``||x_i - y_s(i)||_p^p``.
    Differentiable in both arguments at the optimal pairs. Takes O(n^2 d) time for the costs, and up to O(n^3) for the
    assignment.

    Args:
        x, y: [n, d] points.
        p: order of the ground cost, p >= 1.
    Raises:
        UsageError: the samples differ in size, type or device, a point is not finite, p is not a finite number of at
            least 1, or a cost overflows.
    Source:
        Birkhoff: extreme couplings of uniform samples are permutations. The assignment is solved by the modified
        Jonker-Volgenant algorithm of scipy.

    >>> exact(torch.tensor([[0.0], [1.0]]), torch.tensor([[3.0], [2.0]]), p=1)
    tensor(2.)
    """
    check_same_size(x, y)
    if not 1 <= p < math.inf:
        raise UsageError(f"p must be at least 1 and finite; found {p}")
    from scipy.optimize import linear_sum_assignment

    with torch.no_grad(), full_precision(x.device):
        # for p = 2, terms that depend on one side alone are the same for every assignment
        cost = -((x - x.mean(0)) @ (y - y.mean(0)).T) if p == 2 else differences.pairwise_costs(x, y, p)
    _require_finite(cost, p)
    _, partners = linear_sum_assignment(cost.cpu().numpy())
    gaps = x - y[torch.from_numpy(partners).to(y.device)]
    value: Tensor = (gaps.square() if p == 2 else gaps.abs() ** p).sum(1).mean()
    _require_finite(value.detach(), p)
    return value


def _require_finite(costs: Tensor, p: float) -> None:
    if not bool(costs.isfinite().all()):
        dtype = str(costs.dtype).removeprefix("torch.")
        raise UsageError(f"the {p:g}-th power of the distances overflows {dtype}; divide the points by a constant")
