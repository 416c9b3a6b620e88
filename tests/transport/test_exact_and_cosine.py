"""Exact transport between samples of one size, and the cosine transform, against what is known of them."""

from __future__ import annotations

import doctest
import itertools

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.fft import dctn

from wpriv.errors import UsageError
from wpriv.transport import cosine, exact, line
from wpriv.transport.sinkhorn import entropic


def sample(n, d, seed=0):
    return torch.from_numpy(np.random.default_rng(seed).normal(size=(n, d)))


def test_the_example_prints_what_it_shows():
    found = doctest.testmod(exact, extraglobs={"torch": torch})
    assert (found.attempted, found.failed) == (1, 0)


@pytest.mark.parametrize("p", [1, 2, 3])
def test_the_best_pairing_is_that_of_trying_all(p):
    x, y = sample(6, 3), sample(6, 3, 1)
    every = [float((x - y[list(order)]).abs().pow(p).sum(1).mean()) for order in itertools.permutations(range(6))]
    assert float(exact.exact(x, y, p)) == pytest.approx(min(every), rel=1e-12)


@pytest.mark.parametrize("p", [1, 2])
def test_on_the_line_it_is_the_cost_of_sorted_pairs(p):
    x, y = sample(50, 1), sample(50, 1, 1) * 2
    assert float(exact.exact(x, y, p)) == pytest.approx(float(line.wasserstein(x, y, p)[0]), rel=1e-12)


def test_it_is_what_entropic_transport_tends_to():
    x, y = sample(20, 2), sample(20, 2, 1)
    near = entropic(x, y, 1e-2, tol=1e-6, most=100_000).value
    # the entropy is between 0 and log n
    assert float(exact.exact(x, y)) <= float(near) + 1e-6 <= float(exact.exact(x, y)) + 1e-2 * np.log(20) + 1e-6


@given(st.integers(1, 12), st.integers(1, 4), st.integers(0, 99))
@settings(max_examples=15, deadline=None)
def test_a_translation_costs_its_square_and_its_gradient_is_twice_it(n, d, seed):
    x = sample(n, d, seed).requires_grad_()
    value = exact.exact(x, x.detach()[torch.randperm(n)] - 3.0)
    assert float(value.detach()) == pytest.approx(9 * d, rel=1e-12)
    (found,) = torch.autograd.grad(value, x)
    torch.testing.assert_close(found, torch.full_like(x, 6 / n))


def test_its_gradient_is_that_of_finite_differences():
    x, y = sample(7, 2).requires_grad_(), sample(7, 2, 1)
    assert torch.autograd.gradcheck(lambda points: exact.exact(points, y, 1.0), (x,))
    assert torch.autograd.gradcheck(lambda points: exact.exact(x.detach(), points, 2.0), (y.requires_grad_(),))


@pytest.mark.parametrize(
    ("x", "y", "told"),
    [
        (torch.zeros(2, 1), torch.zeros(3, 1), r"as many points.*\[2, 1\].*\[3, 1\]"),
        (torch.zeros(2, 1), torch.zeros(2, 1, dtype=torch.float64), "of one type"),
        (torch.zeros(0, 1), torch.zeros(0, 1), "as many points"),
        (torch.full((2, 1), torch.nan), torch.zeros(2, 1), "must be finite"),
    ],
)
def test_samples_that_cannot_be_paired_are_refused(x, y, told):
    with pytest.raises(UsageError, match=told):
        exact.exact(x, y)
    with pytest.raises(UsageError, match="p must be at least 1"):
        exact.exact(torch.zeros(2, 1), torch.zeros(2, 1), 0.5)


@pytest.mark.parametrize("shape", [(5, 1, 28, 28), (3, 2, 4, 6), (4, 9), (2, 1)])
def test_the_cosine_transform_is_that_of_scipy_and_orthonormal(shape):
    x = torch.from_numpy(np.random.default_rng(0).random(shape))
    found = cosine.cosine(x)
    expected = dctn(
        x.numpy(), type=2, axes=(-2, -1) if len(shape) > 2 else (-1,), norm="ortho"
    )  # what `wpriv privatize --dct` applies
    np.testing.assert_allclose(found.numpy(), expected, atol=1e-12)
    torch.testing.assert_close(cosine.inverse(found), x)
    assert float(found.norm()) == pytest.approx(float(x.norm()), rel=1e-12)


def test_gradients_pass_the_cosine_transform():
    assert torch.autograd.gradcheck(cosine.cosine, (torch.rand(2, 1, 3, 4, dtype=torch.float64, requires_grad=True),))
