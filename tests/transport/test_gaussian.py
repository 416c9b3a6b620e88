"""W_2 between Gaussians: in closed form for commuting covariances, else against scipy's matrix square root."""

from __future__ import annotations

import numpy as np
import pytest
import scipy.linalg
import torch

from wpriv.errors import UsageError
from wpriv.transport import exact


def points(seed: int, *shape: int) -> torch.Tensor:
    return torch.randn(*shape, dtype=torch.float64, generator=torch.Generator().manual_seed(seed))


def test_w2_of_gaussians_with_commuting_covariances_has_its_closed_form():
    rotation = torch.linalg.qr(points(6, 4, 4)).Q
    s1 = torch.tensor([1.0, 2.0, 0.0, 3.0], dtype=torch.float64)
    s2 = torch.tensor([2.0, 0.5, 1.0, 3.0], dtype=torch.float64)
    m1, m2 = points(7, 4), points(8, 4)
    c1, c2 = (rotation @ torch.diag(s**2) @ rotation.T for s in (s1, s2))
    expected = float((m1 - m2).square().sum() + (s1 - s2).square().sum())
    assert exact.squared(m1, c1, m2, c2) == pytest.approx(expected, rel=1e-7)


def test_w2_of_gaussians_agrees_with_the_matrix_root_of_scipy():
    a, b, m1, m2 = points(9, 5, 5), points(10, 5, 5), points(11, 5), points(12, 5)
    c1, c2 = a @ a.T, b @ b.T
    root = scipy.linalg.sqrtm((c1 @ c2).numpy()).real
    expected = float((m1 - m2).square().sum() + c1.trace() + c2.trace() - 2 * np.trace(root))
    assert exact.squared(m1, c1, m2, c2) == pytest.approx(expected, rel=1e-8)
    assert exact.squared(m2, c2, m1, c1) == pytest.approx(expected, rel=1e-8)
    assert exact.squared(m1, c1, m1, c1) == pytest.approx(0, abs=1e-6)


def test_gaussian_refuses_covariances_of_another_size():
    with pytest.raises(UsageError, match=r"\[2, 2\].*\[3, 3\]"):
        exact.squared(torch.zeros(2), torch.eye(2), torch.zeros(2), torch.eye(3))


@pytest.mark.parametrize(("mean", "variance"), [(torch.nan, 1.0), (1e200, 1.0), (0.0, torch.nan), (0.0, torch.inf)])
def test_gaussian_refuses_numbers_that_are_not_finite_or_whose_squares_overflow(mean, variance):
    zero, one = torch.zeros(2), torch.eye(2)
    with pytest.raises(UsageError):
        exact.squared(torch.full((2,), mean, dtype=torch.float64), torch.diag(torch.tensor([1.0, variance])), zero, one)
