"""W_2 between Gaussians where covariances commute, and against scipy's matrix root where they do not."""

from __future__ import annotations

import numpy as np
import pytest
import scipy.linalg
import torch

from wpriv.errors import UsageError
from wpriv.transport import gaussian


def points(seed: int, *shape: int) -> torch.Tensor:
    return torch.randn(*shape, dtype=torch.float64, generator=torch.Generator().manual_seed(seed))


def test_gaussians_with_commuting_covariances_differ_by_means_and_standard_deviations():
    turn = torch.linalg.qr(points(6, 4, 4)).Q
    s1, s2 = (
        torch.tensor([1.0, 2.0, 0.0, 3.0], dtype=torch.float64),
        torch.tensor([2.0, 0.5, 1.0, 3.0], dtype=torch.float64),
    )
    m1, m2 = points(7, 4), points(8, 4)
    c1, c2 = (turn @ torch.diag(s**2) @ turn.T for s in (s1, s2))
    wanted = float((m1 - m2).square().sum() + (s1 - s2).square().sum())
    assert gaussian.squared(m1, c1, m2, c2) == pytest.approx(wanted, rel=1e-7)


def test_gaussians_with_any_covariances_agree_with_the_matrix_root_of_scipy():
    a, b, m1, m2 = points(9, 5, 5), points(10, 5, 5), points(11, 5), points(12, 5)
    c1, c2 = a @ a.T, b @ b.T
    root = scipy.linalg.sqrtm((c1 @ c2).numpy()).real
    wanted = float((m1 - m2).square().sum() + c1.trace() + c2.trace() - 2 * np.trace(root))
    assert gaussian.squared(m1, c1, m2, c2) == pytest.approx(wanted, rel=1e-8)
    assert gaussian.squared(m2, c2, m1, c1) == pytest.approx(wanted, rel=1e-8)
    assert gaussian.squared(m1, c1, m1, c1) == pytest.approx(0, abs=1e-6)


def test_covariances_of_another_size_are_refused():
    with pytest.raises(UsageError, match=r"means \[d\] and covariances"):
        gaussian.squared(torch.zeros(2), torch.eye(2), torch.zeros(2), torch.eye(3))
