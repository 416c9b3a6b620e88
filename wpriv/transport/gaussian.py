"""W_2 between Gaussian distributions, in closed form."""

from __future__ import annotations

import math

from torch import Tensor
from torch.linalg import eigh, eigvalsh

from wpriv.errors import UsageError


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
    root = _square_root(c1)
    # negative eigenvalues are rounding errors
    cross = eigvalsh(root @ c2 @ root).clamp_min(0).sqrt().sum()
    value = float((m1 - m2).square().sum() + c1.trace() + c2.trace() - 2 * cross)
    if not math.isfinite(value):
        raise UsageError("the squared distance overflows float64; divide the data by a constant")
    return max(0.0, value)


def _square_root(cov: Tensor) -> Tensor:
    """Return the symmetric square root of a positive semidefinite matrix."""
    values, vectors = eigh(cov)
    root: Tensor = (vectors * values.clamp_min(0).sqrt()) @ vectors.T
    return root
