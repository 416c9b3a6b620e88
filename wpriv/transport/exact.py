"""Exact transport: by optimal assignment between samples of one size, and in closed form between Gaussians."""

from __future__ import annotations

import math

import torch
from torch import Tensor
from torch.linalg import eigh, eigvalsh

from wpriv.errors import UsageError
from wpriv.transport import costs as differences
from wpriv.transport.costs import full_precision

ROUNDING = 16 * torch.finfo(torch.float64).eps  # of the largest term of a cost, for each coordinate
SMALL = 1e-9  # a share of the mean cost: errors that need no second computation


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
    assignment, which is found in double precision whatever that of the points.

    Args:
        x, y: [n, d] points.
        p: order of the ground cost, p >= 1.
    Raises:
        UsageError: the samples differ in size, type or device, a point is not finite, p is not a finite number of at
            least 1, a cost overflows, or all costs of pairs underflow.
    Source:
        Birkhoff: extreme couplings of uniform samples are permutations. The assignment is solved by the modified
        Jonker-Volgenant algorithm of scipy.

    >>> exact(torch.tensor([[0.0], [1.0]]), torch.tensor([[3.0], [2.0]]), p=1)
    tensor(2.)
    """
    check_same_size(x, y)
    if not 1 <= p < math.inf:
        raise UsageError(f"p must be at least 1 and finite; found {p}")
    with torch.no_grad(), full_precision(x.device):
        partners = _partners(x.double(), y.double(), p)
    gaps = x - y[partners]
    value: Tensor = (gaps.square() if p == 2 else gaps.abs() ** p).sum(1).mean()
    _require_finite(value.detach(), p)
    if float(value.detach()) < torch.finfo(value.dtype).tiny and bool((gaps != 0).any()):
        dtype = str(value.dtype).removeprefix("torch.")
        raise UsageError(f"the {p:g}-th power of the distances underflows {dtype}; multiply the points by a constant")
    return value


def _partners(x: Tensor, y: Tensor, p: float) -> Tensor:
    """Return the partner of each point in an optimal assignment.

    Costs come from a matrix product (p = 2) or from sums over one side (p = 1), whose terms may be far larger than the
    differences between costs. Where their rounding matters, each cost is computed from the differences of the points
    instead. Its error is then relative to itself; no cost is negative, so that all potentials of the assignment are at
    most the sum of the costs of optimal pairs, and its error is relative to the value.
    """
    left, right = x - x.mean(0), y - x.mean(0)
    # for p = 2, terms that depend on one side alone are the same for every assignment
    cost = -(left @ right.T) if p == 2 else differences.pairwise_costs(left, right, p)
    partners = _assignment(cost, p)
    longest, other = (torch.linalg.vector_norm(points, ord=p, dim=1).amax() for points in (left, right))
    largest = float((longest + other) ** p)
    if ROUNDING * x.shape[1] * largest <= SMALL * float((x - y[partners]).abs().pow(p).sum(1).mean()):
        return partners
    return _assignment(torch.cat([(point - y).abs().pow(p).sum(1)[None] for point in x]), p)


def _assignment(cost: Tensor, p: float) -> Tensor:
    from scipy.optimize import linear_sum_assignment

    _require_finite(cost, p)
    return torch.from_numpy(linear_sum_assignment(cost.cpu().numpy())[1]).to(cost.device)


def _require_finite(costs: Tensor, p: float) -> None:
    if not bool(costs.isfinite().all()):
        dtype = str(costs.dtype).removeprefix("torch.")
        raise UsageError(f"the {p:g}-th power of the distances overflows {dtype}; divide the points by a constant")


def squared(mean1: Tensor, cov1: Tensor, mean2: Tensor, cov2: Tensor) -> float:
    """Compute W_2^2 between two Gaussians, in float64.

    It is ``|m1 - m2|^2 + tr(C1 + C2 - 2 (C1^(1/2) C2 C1^(1/2))^(1/2))``.

    Args:
        mean1, mean2: [d] means.
        cov1, cov2: [d, d] covariances, symmetric and positive semidefinite.
    Raises:
        UsageError: the shapes do not match, a number is not finite, or the squares overflow.
    Source:
        Frechet (1957); Dowson, Landau (1982); Bhatia, Jain, Lim (2019).

    >>> squared(torch.zeros(1), torch.eye(1), torch.full((1,), 3.0), 4 * torch.eye(1))
    10.0
    """
    d = mean1.shape[0] if mean1.ndim == 1 else -1
    if mean2.shape != (d,) or cov1.shape != (d, d) or cov2.shape != (d, d):
        shapes = ", ".join(str(list(t.shape)) for t in (mean1, cov1, mean2, cov2))
        raise UsageError(f"wanted means [d] and covariances [d, d]; found {shapes}")
    m1, c1, m2, c2 = (t.detach().double().cpu() for t in (mean1, cov1, mean2, cov2))
    if not all(bool(t.isfinite().all()) for t in (m1, c1, m2, c2)):
        raise UsageError("means and covariances must be finite; found inf or nan among them")
    # negative eigenvalues are rounding errors
    values, vectors = eigh(c1)
    root = (vectors * values.clamp_min(0).sqrt()) @ vectors.T
    cross = eigvalsh(root @ c2 @ root).clamp_min(0).sqrt().sum()
    value = float((m1 - m2).square().sum() + c1.trace() + c2.trace() - 2 * cross)
    if not math.isfinite(value):
        raise UsageError("the squared distance overflows float64; divide the data by a constant")
    return max(0.0, value)
