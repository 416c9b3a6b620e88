"""W_p^p between two samples of one size, exactly: the best of all ways to pair them, with the gradient in the points."""

from __future__ import annotations

import torch
from torch import Tensor

from wpriv.errors import UsageError
from wpriv.transport import differences
from wpriv.transport.costs import full_precision


def paired(x: Tensor, y: Tensor) -> None:
    """Raises UsageError where the samples are not of one size, one type and finite."""
    if x.ndim != 2 or x.shape != y.shape or not x.numel() or x.dtype != y.dtype or x.device != y.device:
        told = f"{x.dtype} {list(x.shape)} on {x.device} and {y.dtype} {list(y.shape)} on {y.device}"
        raise UsageError(f"wanted as many points on either side, [n, d] of one type on one device; found {told}")
    if not (torch.isfinite(x).all() and torch.isfinite(y).all()):
        raise UsageError("x and y must be finite; found inf or nan among the points")


def exact(x: Tensor, y: Tensor, p: float = 2.0) -> Tensor:
    """The mean of ||x_i - y_s(i)||_p^p over i at the best permutation s: W_p^p of the two samples with cost ||.||_p^p.

    Differentiable in both arguments, the pairs held fixed. Takes n^2 d time for the costs, and up to n^3 for the pairs.

    Args:
        x, y: [n, d] points. p: >= 1.
    Raises:
        UsageError: see ``paired``; or p < 1.
    Source:
        Birkhoff: extreme couplings of uniform samples are permutations; found by the modified Jonker-Volgenant algorithm of scipy.

    >>> exact(torch.tensor([[0.0], [1.0]]), torch.tensor([[3.0], [2.0]]), p=1)
    tensor(2.)
    """
    paired(x, y)
    if not p >= 1:
        raise UsageError(f"p must be at least 1; found {p}")
    from scipy.optimize import linear_sum_assignment

    with torch.no_grad(), full_precision(x.device):
        # at p = 2 what depends on one side alone is the same for every pairing
        cost = -((x - x.mean(0)) @ (y - y.mean(0)).T) if p == 2 else differences.distances(x, y, p)
    _, own = linear_sum_assignment(cost.cpu().numpy())
    apart = x - y[torch.from_numpy(own).to(y.device)]
    return (apart.square() if p == 2 else apart.abs() ** p).sum(1).mean()
