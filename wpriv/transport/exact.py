"""Exact optimal transport: between two samples of one size by assignment, and between Gaussians by their closed form."""

from __future__ import annotations

import math

import torch
from torch import Tensor

from wpriv.errors import UsageError

MOST = 5000
"""Points a side: the assignment takes time n^3 and memory n^2."""


def assignment(x: Tensor, y: Tensor, p: float = 2.0) -> float:
    """W_p^p between two samples of n points, (1/n) min over permutations of sum_i ||x_i - y_pi(i)||_p^p, in float64.

    Between samples of a few thousand points in many dimensions it is far above that of the laws they came from, and least for a law
    more narrow than the truth: read it beside the distance of two real samples of that size, or use ``sinkhorn.divergence``.

    Args:
        x, y: [n, d] finite points, n at most MOST. p: >= 1.
    Raises:
        UsageError: shapes or ranges are wrong, or a number is not finite.
    Source:
        Crouse (2016), the shortest augmenting paths of scipy's linear_sum_assignment.

    >>> assignment(torch.tensor([[0.0], [1.0]]), torch.tensor([[4.0], [3.0]]))
    9.0
    """
    if x.ndim != 2 or x.shape != y.shape or not 1 <= len(x) <= MOST or x.shape[1] == 0:
        raise UsageError(f"wanted two samples [n, d] of one size, n at most {MOST}; found {list(x.shape)} and {list(y.shape)}")
    if not 1 <= p < math.inf:
        raise UsageError(f"p must be at least 1 and finite; found {p}")
    from scipy.optimize import linear_sum_assignment

    first, second = (points.detach().double().cpu() for points in (x, y))
    if not (first.isfinite().all() and second.isfinite().all()):
        raise UsageError("x and y must be finite; found inf or nan among the points")
    if p == 2:
        # the matching is that of the inner products: norms add the same to every permutation
        rows, columns = linear_sum_assignment(((first - first.mean(0)) @ (second - second.mean(0)).T).numpy(), maximize=True)
    else:
        rows, columns = linear_sum_assignment(torch.cdist(first, second, p=p).pow_(p).numpy())
    moved = (first[torch.from_numpy(rows)] - second[torch.from_numpy(columns)]).abs().pow(p)
    return float(moved.sum(1).mean())


def gaussians(mean1: Tensor, cov1: Tensor, mean2: Tensor, cov2: Tensor) -> float:
    """W_2^2 between two Gaussian laws: |m1 - m2|^2 + tr(C1 + C2 - 2 (C1^(1/2) C2 C1^(1/2))^(1/2)), in float64.

    Args:
        mean1, mean2: [d]. cov1, cov2: [d, d] symmetric, at least 0 (singular is fine).
    Raises:
        UsageError: shapes do not fit.
    Source:
        Frechet (1957); Dowson, Landau (1982); Bhatia, Jain, Lim (2019).

    >>> gaussians(torch.zeros(1), torch.eye(1), torch.full((1,), 3.0), 4 * torch.eye(1))
    10.0
    """
    d = mean1.shape[0] if mean1.ndim == 1 else -1
    if mean2.shape != (d,) or cov1.shape != (d, d) or cov2.shape != (d, d):
        told = ", ".join(str(list(t.shape)) for t in (mean1, cov1, mean2, cov2))
        raise UsageError(f"wanted means [d] and covariances [d, d]; found {told}")
    m1, c1, m2, c2 = (t.detach().double().cpu() for t in (mean1, cov1, mean2, cov2))
    root = _root(c1)
    # eigenvalues below 0 are rounding
    cross = torch.linalg.eigvalsh(root @ c2 @ root).clamp_min(0).sqrt().sum()
    return max(0.0, float((m1 - m2).square().sum() + c1.trace() + c2.trace() - 2 * cross))


def _root(cov: Tensor) -> Tensor:
    values, vectors = torch.linalg.eigh(cov)
    root: Tensor = (vectors * values.clamp_min(0).sqrt()) @ vectors.T
    return root
