"""Exact transport against closed forms (translations, one dimension), POT and finite differences."""

from __future__ import annotations

import math

import ot
import pytest
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
    assert float(exact.exact(x, y, p)) == pytest.approx(float(shift.abs().pow(p).sum()), rel=1e-12)


@pytest.mark.parametrize("p", [1.0, 2.0, 3.0])
def test_on_the_line_sorted_points_are_paired(p):
    x, y = points(2, 50, 1), points(3, 50, 1)
    paired = (x.sort(0).values - y.sort(0).values).abs().pow(p).mean()
    assert float(exact.exact(x, y, p)) == pytest.approx(float(paired), rel=1e-12)


@pytest.mark.parametrize("p", [1.0, 2.0])
def test_cost_is_that_of_the_linear_program_of_pot(p):
    x, y = points(4, 30, 5), points(5, 30, 5) + 100  # far from 0: inner products must be centred
    theirs = ot.emd2([], [], (x[:, None] - y[None]).abs().pow(p).sum(2).numpy())
    assert float(exact.exact(x, y, p)) == pytest.approx(theirs, rel=1e-10)


@pytest.mark.parametrize("p", [1.5, 2.0, 3.0])
def test_gradient_is_that_of_finite_differences(p):
    x, y = points(6, 7, 2).requires_grad_(), points(7, 7, 2).requires_grad_()
    assert torch.autograd.gradcheck(lambda x, y: exact.exact(x, y, p), (x, y))


@pytest.mark.parametrize(
    ("x", "y", "p", "told"),
    [
        (torch.zeros(3, 2), torch.zeros(4, 2), 2.0, "as many points"),
        (torch.zeros(3), torch.zeros(3), 2.0, "as many points"),
        (torch.zeros(0, 2), torch.zeros(0, 2), 2.0, "as many points"),
        (torch.zeros(3, 2), torch.zeros(3, 2, dtype=torch.float64), 2.0, "of one type"),
        (torch.zeros(3, 2), torch.zeros(3, 2), 0.5, "p must be at least 1"),
        (torch.zeros(3, 2), torch.zeros(3, 2), math.nan, "p must be at least 1"),
        (torch.full((3, 2), math.nan), torch.zeros(3, 2), 2.0, "finite"),
        (torch.full((3, 2), math.inf), torch.zeros(3, 2), 1.0, "finite"),
    ],
)
def test_samples_that_cannot_be_paired_are_refused(x, y, p, told):
    with pytest.raises(UsageError, match=told):
        exact.exact(x, y, p)
