"""Exact transport against closed forms (translations, one dimension, commuting covariances) and POT."""

from __future__ import annotations

import math

import numpy as np
import ot
import pytest
import scipy.linalg
import torch

from wpriv.errors import UsageError
from wpriv.transport import exact


def points(seed: int, *shape: int) -> torch.Tensor:
    return torch.randn(*shape, dtype=torch.float64, generator=torch.Generator().manual_seed(seed))


@pytest.mark.parametrize("p", [1.0, 1.5, 2.0, 3.0])
def test_a_shuffled_and_moved_sample_is_as_far_as_it_was_moved(p):
    x, shift = points(0, 40, 3), torch.tensor([3.0, -4.0, 0.5], dtype=torch.float64)
    y = x[torch.randperm(40, generator=torch.Generator().manual_seed(1))] + shift
    # no plan beats a translation (Jensen), and the pairing that undoes the shuffle is one
    assert exact.assignment(x, y, p) == pytest.approx(float(shift.abs().pow(p).sum()), rel=1e-12)


@pytest.mark.parametrize("p", [1.0, 2.0, 3.0])
def test_on_the_line_sorted_points_are_paired(p):
    x, y = points(2, 50, 1), points(3, 50, 1)
    paired = (x.sort(0).values - y.sort(0).values).abs().pow(p).mean()
    assert exact.assignment(x, y, p) == pytest.approx(float(paired), rel=1e-12)


@pytest.mark.parametrize("p", [1.0, 2.0])
def test_cost_is_that_of_the_linear_program_of_pot(p):
    x, y = points(4, 30, 5), points(5, 30, 5) + 100  # far from 0: inner products must be centred
    theirs = ot.emd2([], [], (x[:, None] - y[None]).abs().pow(p).sum(2).numpy())
    assert exact.assignment(x, y, p) == pytest.approx(theirs, rel=1e-10)


@pytest.mark.parametrize(
    ("x", "y", "p", "told"),
    [
        (torch.zeros(3, 2), torch.zeros(4, 2), 2.0, "two samples"),
        (torch.zeros(3), torch.zeros(3), 2.0, "two samples"),
        (torch.zeros(0, 2), torch.zeros(0, 2), 2.0, "two samples"),
        (torch.zeros(exact.MOST + 1, 1), torch.zeros(exact.MOST + 1, 1), 2.0, "at most 5000"),
        (torch.zeros(3, 2), torch.zeros(3, 2), 0.5, "p must be at least 1"),
        (torch.zeros(3, 2), torch.zeros(3, 2), math.nan, "p must be at least 1"),
        (torch.full((3, 2), math.nan), torch.zeros(3, 2), 2.0, "finite"),
        (torch.full((3, 2), math.inf), torch.zeros(3, 2), 1.0, "finite"),
    ],
)
def test_samples_that_cannot_be_matched_are_refused(x, y, p, told):
    with pytest.raises(UsageError, match=told):
        exact.assignment(x, y, p)


def test_gaussians_with_commuting_covariances_differ_by_means_and_standard_deviations():
    turn = torch.linalg.qr(points(6, 4, 4)).Q
    s1, s2 = torch.tensor([1.0, 2.0, 0.0, 3.0], dtype=torch.float64), torch.tensor([2.0, 0.5, 1.0, 3.0], dtype=torch.float64)
    m1, m2 = points(7, 4), points(8, 4)
    c1, c2 = (turn @ torch.diag(s**2) @ turn.T for s in (s1, s2))
    wanted = float((m1 - m2).square().sum() + (s1 - s2).square().sum())
    assert exact.gaussians(m1, c1, m2, c2) == pytest.approx(wanted, rel=1e-7)


def test_gaussians_with_any_covariances_agree_with_the_matrix_root_of_scipy():
    a, b, m1, m2 = points(9, 5, 5), points(10, 5, 5), points(11, 5), points(12, 5)
    c1, c2 = a @ a.T, b @ b.T
    root = scipy.linalg.sqrtm((c1 @ c2).numpy()).real
    wanted = float((m1 - m2).square().sum() + c1.trace() + c2.trace() - 2 * np.trace(root))
    assert exact.gaussians(m1, c1, m2, c2) == pytest.approx(wanted, rel=1e-8)
    assert exact.gaussians(m2, c2, m1, c1) == pytest.approx(wanted, rel=1e-8)
    assert exact.gaussians(m1, c1, m1, c1) == pytest.approx(0, abs=1e-6)


def test_covariances_of_another_size_are_refused():
    with pytest.raises(UsageError, match=r"means \[d\] and covariances"):
        exact.gaussians(torch.zeros(2), torch.eye(2), torch.zeros(2), torch.eye(3))
