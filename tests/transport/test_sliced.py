"""Sliced transport against POT, averages of one-dimensional problems, closed forms of Gaussians, golden values."""

from __future__ import annotations

import math

import ot
import pytest
import torch
from torch import Tensor

from tests.points import GOLDEN
from wpriv.errors import UsageError
from wpriv.transport import line, sliced

CASES = [(20, 20, 3, 10), (20, 13, 30, 10), (7, 40, 5, 4), (1, 9, 2, 3)]


def seeded(seed: int) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def closed_form(apart: float, d: int, sigma: float, s1: float, s2: float, p: int) -> float:
    """The smoothed SW_p^p between N(m1, s1^2 I) and N(m2, s2^2 I) in d dimensions with |m1 - m2| = ``apart``.

    A projection is N(u.m, s^2 + sigma^2). On the line, W_2^2 of two Gaussians is (u.(m1 - m2))^2 plus the square of the
    difference of their standard deviations, and E (u.m)^2 = |m|^2 / d. For p = 1 and equal standard deviations, W_1 is
    |u.(m1 - m2)|.
    """
    if p == 2:
        return apart**2 / d + (math.hypot(s1, sigma) - math.hypot(s2, sigma)) ** 2
    assert s1 == s2
    return apart * math.exp(math.lgamma(d / 2) - math.lgamma((d + 1) / 2)) / math.sqrt(math.pi)


def problem(n: int, m: int, d: int, k: int, dtype: torch.dtype = torch.float64) -> tuple[Tensor, Tensor, Tensor]:
    """Two samples that ask for gradients, and directions."""
    x, y = (
        torch.randn(size, d, dtype=torch.float64, generator=seeded(s)).to(dtype).requires_grad_()
        for s, size in enumerate((n, m))
    )
    return x, y, sliced.random_directions(d, k, seeded(2), dtype=dtype)


@pytest.mark.parametrize("p", [1, 2, 3])
@pytest.mark.parametrize("case", CASES, ids=str)
def test_sliced_cost_and_gradient_equal_those_of_pot(case, p):
    x, y, u = problem(*case)
    ours, theirs = (
        sliced.wasserstein(x, y, p, directions=u),
        ot.sliced_wasserstein_distance(x, y, projections=u, p=p) ** p,
    )
    assert float(ours.detach()) == pytest.approx(float(theirs.detach()), rel=1e-10)
    for mine, peer in zip(*(torch.autograd.grad(cost, (x, y)) for cost in (ours, theirs)), strict=True):
        assert torch.allclose(mine, peer, rtol=1e-10, atol=1e-10 * float(peer.abs().max()))
    most = ot.max_sliced_wasserstein_distance(x, y, projections=u, p=p) ** p
    assert float(sliced.max_wasserstein(x, y, p, directions=u, steps=0).cost.detach()) == pytest.approx(
        float(most.detach()), rel=1e-10
    )


@pytest.mark.parametrize("case", CASES, ids=str)
def test_sliced_gradient_is_the_average_of_line_gradients(case):
    x, y, u = problem(*case)
    found = line.gradients(x.detach() @ u, y.detach() @ u)
    cost = sliced.wasserstein(x, y, directions=u)
    gradients = torch.autograd.grad(cost, (x, y))
    assert float(cost.detach()) == pytest.approx(float(found.cost.mean()), rel=1e-12)
    for mine, slopes in zip(gradients, found[1:], strict=True):
        assert torch.allclose(mine, slopes @ u.T / u.shape[1], rtol=1e-10, atol=1e-14)


@pytest.mark.slow
@pytest.mark.parametrize("p", [1.5, 2.0])
@pytest.mark.parametrize("case", [(6, 6, 2, 5), (6, 4, 5, 3)], ids=str)
def test_sliced_gradient_in_samples_and_directions_equals_finite_differences(case, p):
    x, y, u = problem(*case)
    weights = torch.arange(1.0, 7, dtype=torch.float64)
    assert torch.autograd.gradcheck(
        lambda x, y, u: sliced.wasserstein(x, y, p, directions=u), (x, y, u.requires_grad_())
    )
    assert torch.autograd.gradcheck(
        lambda x, y: sliced.wasserstein(x, y, p, directions=u.detach(), x_weights=weights), (x, y)
    )


@pytest.mark.parametrize("sigma", [0.0, 1.3])
@pytest.mark.parametrize("case", [(30, 20, 12, 8), (30, 20, 5, 17)], ids=str)
def test_the_memory_budget_does_not_change_the_result(case, sigma):
    x, y, u = problem(*case)
    found = []
    for budget in (1, 3000, 2**30):
        cost = sliced.wasserstein(x, y, directions=u, sigma=sigma, generator=seeded(5), budget=budget)
        found.append((cost.detach(), *torch.autograd.grad(cost, (x, y))))
    for other in found[1:]:
        for mine, first in zip(other, found[0], strict=True):
            assert torch.allclose(mine, first, rtol=1e-12, atol=1e-15)


def test_sliced_cost_of_a_translation_is_that_of_its_projections():
    x, _, u = problem(15, 1, 4, 7)
    shift = torch.tensor([1.0, -2.0, 0.5, 3.0], dtype=torch.float64)
    for p in (1.0, 2.0, 3.0):
        assert float(sliced.wasserstein(x.detach(), x.detach() + shift, p, directions=u)) == pytest.approx(
            float((shift @ u).abs().pow(p).mean()), rel=1e-12
        )


@pytest.mark.parametrize(("k", "d"), [(4, 9), (9, 4)])
def test_sliced_cost_and_gradients_of_equal_samples_are_zero(k, d):
    x, _, u = problem(12, 1, d, k)
    cost = sliced.wasserstein(x, x.detach().flip(0), directions=u)
    cost.backward()
    assert abs(cost.item()) <= 1e-28  # the projections of a product may round differently by row
    assert x.grad is not None
    assert float(x.grad.abs().max()) <= 1e-14


@pytest.mark.slow
def test_directions_are_uniform_on_the_sphere():
    u = sliced.random_directions(5, 200_000, seeded(0), dtype=torch.float64)
    assert torch.allclose(u.norm(dim=0), torch.ones(1, dtype=torch.float64))
    square = u[0].square()  # Beta(1/2, (d-1)/2): mean 1/d, variance 2(d-1)/(d^2(d+2)), golden 001-beta-0 at d = 784
    error = 5 / math.sqrt(200_000)
    assert float(square.mean()) == pytest.approx(1 / 5, abs=error * math.sqrt(8 / 175))
    assert float(square.var()) == pytest.approx(8 / 175, rel=5 * error)
    assert torch.equal(u.float(), sliced.random_directions(5, 200_000, seeded(0)))


@pytest.mark.parametrize("name", ["001-swd2-0", "001-swd2-1", "001-swd1-0"])
def test_golden_values_of_the_smoothed_distance_between_gaussians(name):
    given = {key: float(value) for key, value in GOLDEN[name]["inputs"].items()}
    d = int(given["d"])
    apart = math.sqrt(given["m2"]) if "m2" in given else given["c"] * math.sqrt(d)
    found = closed_form(
        apart, d, given["sigma"], given.get("s1", 1.0), given.get("s2", 1.0), p=1 if "swd1" in name else 2
    )
    assert found == pytest.approx(float(GOLDEN[name]["value"]), rel=1e-12)


@pytest.mark.slow
@pytest.mark.parametrize(("p", "second"), [(2, 1.0), (2, 2.0), (1, 1.0)])
def test_noisy_projections_of_gaussians_agree_with_the_closed_form(p, second):
    n, d, k, sigma = 20_000, 3, 400, 0.5
    x = torch.randn(n, d, generator=seeded(0), dtype=torch.float64)
    y = second * torch.randn(n, d, generator=seeded(1), dtype=torch.float64) + torch.tensor([1.0, -0.5, 0.5])
    apart = math.sqrt(1.5)
    u = sliced.random_directions(d, k, seeded(2), dtype=torch.float64)
    found = float(sliced.wasserstein(x, y, p, directions=u, sigma=sigma, generator=seeded(3)))
    # Monte Carlo over directions: the spread of (u.m)^2 is |m|^2 sqrt(v_d), about .45 at d = 3, so 5 standard errors
    # are .11
    assert found == pytest.approx(closed_form(apart, d, sigma, 1.0, second, p=p), abs=0.11)


def test_the_added_noise_has_the_given_sigma():
    zeros, u = torch.zeros(4000, 2), sliced.random_directions(2, 40, seeded(0))
    apart = sliced.wasserstein(zeros, zeros + torch.tensor([30.0, 40.0]), directions=u, sigma=3.0, generator=seeded(1))
    plain = sliced.wasserstein(zeros, zeros + torch.tensor([30.0, 40.0]), directions=u)
    assert float(apart) == pytest.approx(
        float(plain), rel=5e-3
    )  # the same noise on both sides moves no quantile but by sampling
    one = sliced.wasserstein(zeros, torch.zeros(1, 2), directions=u, sigma=3.0, generator=seeded(1))
    # E |a - b|^2 of two draws; b is one draw for each of the 40 directions, whose mean square is off by sqrt(2/40)
    # relative
    assert float(one) == pytest.approx(2 * 9, abs=4 * 9 * math.sqrt(2 / 40))


def test_the_maximising_direction_of_a_translation_is_its_own():
    x, _, u = problem(15, 1, 6, 3)
    shift = torch.tensor([1.0, -2.0, 0.5, 3.0, 0.0, 1.0], dtype=torch.float64)
    for p in (1.0, 2.0, 3.0):
        found = sliced.max_wasserstein(x.detach(), x.detach() + shift, p, directions=u)
        assert float(found.cost) == pytest.approx(float(shift.norm()) ** p, rel=1e-6)
        assert torch.allclose(found.direction.abs(), (shift / shift.norm()).abs(), atol=1e-3)


def test_max_wasserstein_is_no_worse_than_a_fine_grid_of_the_circle():
    x, y, u = problem(12, 9, 2, 8)
    angles = torch.linspace(0, math.pi, 20_001, dtype=torch.float64)
    net = torch.stack([angles.cos(), angles.sin()])
    best = float(sliced.max_wasserstein(x, y, directions=net, steps=0).cost.detach())
    found = sliced.max_wasserstein(x, y, directions=u, tol=1e-12, steps=200)
    assert best <= float(found.cost.detach()) <= best * (1 + 1e-4)
    assert float(found.direction.norm()) == pytest.approx(1.0, rel=1e-12)


def test_the_gradient_of_max_wasserstein_is_that_at_its_direction():
    x, y, u = problem(12, 9, 3, 8)
    found = sliced.max_wasserstein(x, y, directions=u)
    there = sliced.wasserstein(x, y, directions=found.direction[:, None])
    for mine, held in zip(*(torch.autograd.grad(cost, (x, y)) for cost in (found.cost, there)), strict=True):
        assert torch.equal(mine, held)


def test_float32_records_far_from_0_keep_their_digits():
    x, y, u = problem(5000, 4000, 20, 10, torch.float32)
    far = [(sample.detach() + 2.0**18).requires_grad_() for sample in (x, y)]
    single = sliced.wasserstein(*far, directions=u)
    exact = [sample.detach().double().requires_grad_() for sample in far]
    double = sliced.wasserstein(*exact, directions=u.double())
    assert single.item() == pytest.approx(double.item(), rel=1e-5)
    for mine, truth in zip(torch.autograd.grad(single, far), torch.autograd.grad(double, exact), strict=True):
        # where two projections are closer than their rounding they may change ranks
        assert float((mine - truth).norm()) <= 1e-3 * float(truth.norm())


@pytest.mark.cuda
@pytest.mark.skipif(not torch.cuda.is_available(), reason="no GPU here")
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("case", [(2000, 1500, 50, 20), (2000, 2000, 10, 50)], ids=str)
def test_sliced_on_a_gpu_equals_the_cpu(case, dtype):
    x, y, u = problem(*case, dtype)
    here = sliced.wasserstein(x, y, directions=u)
    moved = [t.detach().cuda().requires_grad_() for t in (x, y)]
    there = sliced.wasserstein(*moved, directions=u.cuda())
    close = 1e-4 if dtype == torch.float32 else 1e-10
    assert there.is_cuda
    assert there.item() == pytest.approx(here.item(), rel=close)
    for mine, device in zip(torch.autograd.grad(here, (x, y)), torch.autograd.grad(there, moved), strict=True):
        assert float((mine - device.cpu()).norm()) <= close * float(mine.norm())


ONES, EYE = torch.ones(3, 2), torch.eye(2)


@pytest.mark.parametrize(
    ("call", "fact"),
    [
        (lambda: sliced.wasserstein(ONES, torch.ones(3, 4), directions=EYE), r"found x \[3, 2\] and y \[3, 4\]"),
        (lambda: sliced.wasserstein(ONES[0], ONES, directions=EYE), r"found x \[2\]"),
        (lambda: sliced.wasserstein(ONES, ONES, directions=torch.eye(3)), r"d = 2.*\[3, 3\]"),
        (lambda: sliced.wasserstein(ONES, ONES, directions=EYE[:, :0]), r"found \[2, 0\]"),
        (lambda: sliced.wasserstein(ONES, ONES, directions=EYE.double()), "directions .*float32.*float64"),
        (lambda: sliced.wasserstein(ONES, ONES, directions=EYE, sigma=1.0), "generator"),
        (lambda: sliced.wasserstein(ONES, ONES, directions=EYE, sigma=-1.0), "sigma .*-1"),
        (lambda: sliced.wasserstein(ONES, ONES * math.inf, directions=EYE), "finite"),
        (lambda: sliced.wasserstein(ONES, ONES * 1e30, directions=EYE), "float32"),
        (lambda: sliced.wasserstein(ONES, ONES, 0.5, directions=EYE), "p .*0.5"),
        (lambda: sliced.wasserstein(ONES, ONES, directions=EYE, x_weights=torch.ones(2)), r"x_weights must be \[3\]"),
        (lambda: sliced.random_directions(0, 3, seeded(0)), "found 0 and 3"),
        (lambda: sliced.max_wasserstein(ONES, ONES, directions=0 * EYE), "directions"),
    ],
)
def test_sliced_refuses_invalid_arguments(call, fact):
    with pytest.raises(UsageError, match=fact):
        call()
