"""Exact transport against brute force and closed forms, and the cosine transform against scipy."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.fft import dctn

from wpriv.errors import UsageError
from wpriv.papers.tasks import _denoising_loss
from wpriv.transport import exact, line
from wpriv.transport.sinkhorn import entropic


def sample(n, d, seed=0):
    return torch.from_numpy(np.random.default_rng(seed).normal(size=(n, d)))


@pytest.mark.parametrize("p", [1, 2, 3])
def test_exact_is_the_minimum_over_all_permutations(p):
    x, y = sample(6, 3), sample(6, 3, 1)
    costs = [float((x - y[list(order)]).abs().pow(p).sum(1).mean()) for order in itertools.permutations(range(6))]
    assert float(exact.exact(x, y, p)) == pytest.approx(min(costs), rel=1e-12)


@pytest.mark.parametrize("p", [1, 2])
def test_exact_on_the_line_is_the_cost_of_sorted_pairs(p):
    x, y = sample(50, 1), sample(50, 1, 1) * 2
    assert float(exact.exact(x, y, p)) == pytest.approx(float(line.wasserstein(x, y, p)[0]), rel=1e-12)


@pytest.mark.slow
def test_exact_is_the_limit_of_entropic_transport():
    x, y = sample(20, 2), sample(20, 2, 1)
    near = entropic(x, y, 1e-2, tol=1e-6, max_iterations=100_000).value
    # the entropy is between 0 and log n
    assert float(exact.exact(x, y)) <= float(near) + 1e-6 <= float(exact.exact(x, y)) + 1e-2 * np.log(20) + 1e-6


@given(st.integers(1, 12), st.integers(1, 4), st.integers(0, 99))
@settings(max_examples=15, deadline=None)
def test_exact_of_a_translation_is_its_square_with_twice_it_as_gradient(n, d, seed):
    x = sample(n, d, seed).requires_grad_()
    value = exact.exact(x, x.detach()[torch.randperm(n)] - 3.0)
    assert float(value.detach()) == pytest.approx(9 * d, rel=1e-12)
    (gradient,) = torch.autograd.grad(value, x)
    torch.testing.assert_close(gradient, torch.full_like(x, 6 / n))


def test_the_gradient_of_exact_is_that_of_finite_differences():
    x, y = sample(7, 2).requires_grad_(), sample(7, 2, 1)
    assert torch.autograd.gradcheck(lambda points: exact.exact(points, y, 1.0), (x,))
    assert torch.autograd.gradcheck(lambda points: exact.exact(x.detach(), points, 2.0), (y.requires_grad_(),))


@pytest.mark.parametrize("p", [1.0, 2.0, 3.0])
@pytest.mark.parametrize(("apart", "dtype"), [(1e3, torch.float32), (1e4, torch.float32), (1e5, torch.float64)])
def test_exact_pairs_the_points_of_far_clusters_within_each_cluster(p, apart, dtype):
    """The oracle: each cluster alone, by brute force of scipy in float64 from the differences of the same numbers."""
    from scipy.optimize import linear_sum_assignment

    x, y = (torch.cat([sample(20, 3, seed), sample(20, 3, seed + 1) + apart]).to(dtype) for seed in (0, 5))
    total = 0.0
    for part in (slice(0, 20), slice(20, 40)):
        one, other = x[part].double().numpy(), y[part].double().numpy()
        cost = (np.abs(one[:, None] - other[None]) ** p).sum(2)
        total += cost[linear_sum_assignment(cost)].sum() / 40
    order = torch.randperm(40, generator=torch.Generator().manual_seed(0))
    assert float(exact.exact(x, y[order], p)) == pytest.approx(total, rel=1e-5 if dtype == torch.float32 else 1e-9)


def test_exact_sees_differences_of_one_part_in_10_to_the_18():
    x = torch.tensor([[0.0], [1e-6], [1e12]], dtype=torch.float64)
    y = torch.tensor([[1e12], [2e-6], [1e-6]], dtype=torch.float64)
    for p in (1.0, 2.0, 3.0):
        # on the line sorted pairs are optimal, by hand: 0 to 1e-6, 1e-6 to 2e-6
        assert float(exact.exact(x, y, p)) == pytest.approx(2 * 1e-6**p / 3, rel=1e-9)
    assert float(exact.exact(x, x[[2, 0, 1]])) == 0


@pytest.mark.parametrize(
    ("gap", "dtype", "p"), [(1e-25, torch.float32, 2), (1e-200, torch.float64, 2), (1e-9, torch.float32, 5)]
)
def test_exact_refuses_costs_that_underflow(gap, dtype, p):
    x = torch.zeros(3, 2, dtype=dtype)
    assert float(exact.exact(x, x, p)) == 0
    with pytest.raises(UsageError, match="underflows"):
        exact.exact(x, x + gap, p)


@pytest.mark.parametrize(
    ("x", "y", "fact"),
    [
        (torch.zeros(2, 1), torch.zeros(3, 1), r"\[2, 1\].*\[3, 1\]"),
        (torch.zeros(2, 1), torch.zeros(2, 1, dtype=torch.float64), "float32.*float64"),
        (torch.zeros(0, 1), torch.zeros(0, 1), r"\[0, 1\]"),
        (torch.full((2, 1), torch.nan), torch.zeros(2, 1), "finite"),
    ],
)
def test_exact_refuses_samples_that_do_not_match(x, y, fact):
    with pytest.raises(UsageError, match=fact):
        exact.exact(x, y)
    with pytest.raises(UsageError, match=r"p .*0\.5"):
        exact.exact(torch.zeros(2, 1), torch.zeros(2, 1), 0.5)
    with pytest.raises(UsageError):
        exact.exact(torch.zeros(2, 1), torch.zeros(2, 1), torch.inf)


@pytest.mark.parametrize("p", [2.0, 3.0])
@pytest.mark.parametrize("n", [1, 2])
def test_exact_refuses_points_whose_cost_overflows(n, p):
    x = torch.full((n, 1), 1e30)
    x[0] *= 2
    with pytest.raises(UsageError):
        exact.exact(x, -x, p)


@pytest.mark.parametrize("shape", [(5, 1, 28, 28), (3, 2, 4, 6), (4, 9), (2, 1)])
def test_the_cosine_transform_is_that_of_scipy_and_orthonormal(shape):
    x = torch.from_numpy(np.random.default_rng(0).random(shape))
    coefficients = _denoising_loss.cosine(x)
    # `wpriv privatize --dct` uses scipy's transform
    expected = dctn(x.numpy(), type=2, axes=(-2, -1) if len(shape) > 2 else (-1,), norm="ortho")
    np.testing.assert_allclose(coefficients.numpy(), expected, atol=1e-12)
    torch.testing.assert_close(_denoising_loss.inverse(coefficients), x)
    assert float(coefficients.norm()) == pytest.approx(float(x.norm()), rel=1e-12)


def test_the_cosine_transform_is_differentiable():
    assert torch.autograd.gradcheck(
        _denoising_loss.cosine, (torch.rand(2, 1, 3, 4, dtype=torch.float64, requires_grad=True),)
    )
