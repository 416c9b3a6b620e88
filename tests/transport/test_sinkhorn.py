"""Entropic transport against closed forms, POT in float64, finite differences and autograd through the iteration."""

from __future__ import annotations

import math

import numpy as np
import ot
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.special import rel_entr

from tests.points import POINTS
from wpriv.errors import Unsupported, UsageError
from wpriv.transport import costs, sinkhorn
from wpriv.transport.sinkhorn import divergence, entropic

GOLDEN = {
    point["id"]: (float(point["value"]), {k: float(v) for k, v in point["inputs"].items()})
    for point in POINTS
    if "eot" in point["id"]
}
TIGHT = {"tol": 1e-13, "max_iterations": 50_000}


def draw(seed: int, *shape: int, dtype: torch.dtype = torch.float64) -> torch.Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64).to(dtype)


def weights(seed: int, *shape: int) -> torch.Tensor:
    return torch.softmax(draw(seed, *shape), -1)


def normal_grid(scale: float, mean: float = 0.0) -> tuple[torch.Tensor, torch.Tensor]:
    """N(mean, scale^2) on an even grid: sums over it are integrals, right to rounding."""
    z = torch.linspace(-9, 9, 181, dtype=torch.float64)
    return mean + scale * z[:, None], torch.softmax(-z * z / 2, 0)


def cost_matrix(x: torch.Tensor, y: torch.Tensor, p: float) -> torch.Tensor:
    return (x[:, None] - y[None]).abs().pow(p).sum(2)


def gaussians(m: float, s1: float, s2: float, lam: float) -> float:
    """W_{2,lambda} between N(0, s1^2) and N(m, s2^2): the best Gaussian coupling."""
    c = -lam / 4 + math.sqrt(lam**2 / 16 + (s1 * s2) ** 2)
    return m**2 + s1**2 + s2**2 - 2 * c - lam / 2 * math.log1p(-((c / (s1 * s2)) ** 2))


def test_entropic_golden_values():
    value, at = GOLDEN["004-eot-0"]
    (x, a), (y, b) = normal_grid(at["s1"]), normal_grid(at["s2"], at["m"])
    assert float(entropic(x, y, at["lam"], a=a, b=b, **TIGHT).value) == pytest.approx(value, rel=1e-12)
    value, at = GOLDEN["004-eot-1"]
    (x, a), (y, b) = normal_grid(at["s"]), normal_grid(math.hypot(at["s"], at["sigma"]))
    assert float(entropic(x, y, 2 * at["sigma"] ** 2, a=a, b=b, **TIGHT).value) == pytest.approx(value, rel=1e-12)
    value, at = GOLDEN["004-eot-2"]
    x = torch.tensor([[0.0], [1.0]], dtype=torch.float64)
    for p in (1, 2, 3.5):
        assert float(entropic(x, x, at["lam"], p, **TIGHT).value) == pytest.approx(value, rel=1e-12)


@pytest.mark.parametrize("lam", [0.1, 1.0, 30.0])
@pytest.mark.parametrize(("m", "s1", "s2"), [(0.0, 1.0, 1.0), (-2.0, 0.5, 2.0), (5.0, 3.0, 0.7)])
def test_entropic_cost_of_gaussians_has_its_closed_form(m, s1, s2, lam):
    (x, a), (y, b) = normal_grid(s1), normal_grid(s2, m)
    assert float(entropic(x, y, lam, a=a, b=b, **TIGHT).value) == pytest.approx(gaussians(m, s1, s2, lam), rel=1e-10)


@pytest.mark.slow
@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("lam", [0.1, 0.5, 20.0])
@pytest.mark.parametrize("p", [1, 1.5, 2, 3])
def test_entropic_plan_and_value_equal_those_of_pot(p, lam, weighted):
    x, y = draw(1, 9, 3), draw(2, 7, 3) + 0.5
    a, b = (
        (weights(3, 9), weights(4, 7))
        if weighted
        else (torch.full((9,), 1 / 9, dtype=torch.float64), torch.full((7,), 1 / 7, dtype=torch.float64))
    )
    cost = cost_matrix(x, y, p).numpy()
    plan = ot.bregman.sinkhorn_log(a.numpy(), b.numpy(), cost, lam, numItermax=50_000, stopThr=1e-13)
    value = (plan * cost).sum() + lam * rel_entr(plan, np.outer(a, b)).sum()
    found = entropic(x, y, lam, p, a=a, b=b, **TIGHT)
    assert found.converged
    assert float(found.value) == pytest.approx(value, rel=1e-10)
    assert np.allclose(found.plan.numpy(), plan, rtol=1e-8, atol=1e-12)


@pytest.mark.parametrize("p", [1, 2])
def test_entropic_tends_to_plain_transport_for_small_lambda(p):
    x, y = draw(5, 20, 2), draw(6, 25, 2)
    plain = ot.emd2([], [], cost_matrix(x, y, p).numpy())
    found = entropic(x, y, 1e-3, p, tol=1e-6, max_iterations=50_000)
    assert found.converged
    # from above by at most lambda times the largest mutual information
    assert plain - 1e-9 <= float(found.value) <= plain + 1e-3 * math.log(20)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("lam", [1e4, 1e8, 1e12])
@pytest.mark.parametrize("p", [1, 2])
def test_entropic_tends_to_the_independent_coupling_for_large_lambda(p, lam, dtype):
    x, y = draw(7, 6, 4, dtype=dtype), draw(8, 5, 4, dtype=dtype) + 1
    found = entropic(x, y, lam, p)
    cost = cost_matrix(x, y, p).double()
    # the second order: minus the variance of the doubly centred cost over 2 lambda
    centred = cost - cost.mean(0) - cost.mean(1, keepdim=True) + cost.mean()
    exact = float(cost.mean() - centred.square().mean() / (2 * lam))
    assert float(found.value) == pytest.approx(exact, rel=2e-6 if dtype == torch.float32 else 1e-7)
    assert torch.allclose(found.plan, torch.full_like(found.plan, 1 / 30), rtol=1e-2)


@pytest.mark.slow
@pytest.mark.parametrize("p", [1, 1.5, 2, 3])
def test_entropic_gradient_equals_finite_differences(p):
    x, y = draw(9, 5, 2).requires_grad_(), (draw(10, 6, 2) + 1).requires_grad_()
    a, b = weights(11, 5), weights(12, 6)

    def value(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        return entropic(x, y, 0.7, p, a=a, b=b, **TIGHT).value

    assert torch.autograd.gradcheck(value, (x, y), eps=1e-6, atol=1e-7)


@pytest.mark.slow
@pytest.mark.parametrize("p", [1, 2])
def test_entropic_gradient_equals_autograd_through_the_iteration(p):
    x, y = draw(13, 8, 3).requires_grad_(), draw(14, 6, 3).requires_grad_()
    lam = 0.5
    cost = cost_matrix(x, y, p)
    g = torch.zeros(6, dtype=torch.float64)
    for _ in range(2000):  # unrolled in the log domain, nothing absorbed or relaxed
        f = -lam * torch.logsumexp((g - cost) / lam - math.log(6), 1)
        g = -lam * torch.logsumexp((f[:, None] - cost) / lam - math.log(8), 0)
    through = torch.autograd.grad(f.mean() + g.mean(), (x, y))
    envelope = torch.autograd.grad(entropic(x, y, lam, p, **TIGHT).value, (x, y))
    for one, other in zip(through, envelope, strict=True):
        assert torch.allclose(one, other, rtol=1e-9, atol=1e-12)


@pytest.mark.slow
def test_float32_agrees_with_float64_on_noisy_images():
    x, noise = draw(15, 100, 784).abs().clamp(max=1), draw(16, 100, 784)
    for p, lam in ((2, 8.0), (2, 2.0), (1, 5.0)):
        y = x.roll(1, 0) + lam * noise
        single, double = x.float().requires_grad_(), x.clone().requires_grad_()
        entropic(single, y.float(), lam, p, tol=1e-5).value.backward()
        entropic(double, y, lam, p, tol=1e-8, max_iterations=20_000).value.backward()
        assert float((single.grad - double.grad).norm() / double.grad.norm()) < 1e-4


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("lam", [0.02, 1.0])
@pytest.mark.parametrize("p", [1, 2])
def test_entropic_plan_has_the_reported_marginals(p, lam, dtype):
    x, y, a, b = (
        draw(17, 30, 3, dtype=dtype),
        draw(18, 40, 3, dtype=dtype),
        weights(19, 30).to(dtype),
        weights(20, 40).to(dtype),
    )
    found = entropic(x, y, lam, p, a=a, b=b, tol=1e-4, max_iterations=20_000)
    assert found.converged
    assert found.marginal_error <= 1e-4
    assert torch.allclose(found.plan.sum(1), a, rtol=2e-5)
    assert float((found.plan.sum(0) - b).abs().sum()) == pytest.approx(float(found.marginal_error), abs=2e-6)
    made = a[:, None] * b * torch.exp((found.f[:, None] + found.g - cost_matrix(x, y, p)) / lam)
    assert torch.allclose(made, found.plan, rtol=1e-2, atol=1e-6)


def test_too_few_iterations_leave_converged_false():
    x, y = draw(21, 50, 2), draw(22, 50, 2) + 3
    enough = entropic(x, y, 0.1, tol=1e-6, max_iterations=20_000)
    few = entropic(x, y, 0.1, tol=1e-6, max_iterations=7)
    assert enough.converged
    assert not few.converged
    assert few.iterations <= 7
    assert float((few.plan.sum(0) - 1 / 50).abs().sum()) == pytest.approx(float(few.marginal_error), rel=1e-9)
    assert few.value < enough.value  # the dual value comes from below


def test_a_warm_start_reaches_the_same_plan_in_fewer_iterations():
    x, y = draw(23, 60, 5), draw(24, 60, 5)
    moved = x + 1e-4 * draw(55, 60, 5)
    first = entropic(x, y, 0.3)
    again = entropic(moved, y, 0.3, start=first.g)
    cold = entropic(moved, y, 0.3)
    assert again.iterations < cold.iterations / 2
    assert float(again.value) == pytest.approx(float(cold.value), rel=1e-6)


@pytest.mark.parametrize("p", [1, 2])
def test_entropic_is_symmetric_and_translation_invariant(p):
    x, y, shift = draw(25, 10, 3), draw(26, 12, 3), torch.tensor([100.0, -50.0, 7.0], dtype=torch.float64)
    one, other = entropic(x, y, 0.4, p, **TIGHT), entropic(y, x, 0.4, p, **TIGHT)
    assert float(one.value) == pytest.approx(float(other.value), rel=1e-12)
    assert torch.allclose(one.plan, other.plan.T, rtol=1e-8)
    assert float(entropic(x + shift, y + shift, 0.4, p, **TIGHT).value) == pytest.approx(float(one.value), rel=1e-11)


def test_a_translation_of_one_side_adds_its_square_for_equal_means():
    x, y = draw(27, 10, 2), draw(28, 10, 2)
    x, y = x - x.mean(0), y - y.mean(0)
    shift = torch.tensor([3.0, 4.0], dtype=torch.float64)
    apart = entropic(x, y + shift, 0.5, **TIGHT).value - entropic(x, y, 0.5, **TIGHT).value
    assert float(apart) == pytest.approx(25.0, rel=1e-11)


@pytest.mark.parametrize("p", [1, 2])
def test_a_batch_equals_its_problems_one_by_one(p):
    x, y = draw(29, 2, 3, 8, 2).requires_grad_(), draw(30, 2, 3, 9, 2)
    a, b = weights(31, 8), weights(32, 2, 3, 9)
    found = entropic(x, y, 0.3, p, a=a, b=b, **TIGHT)
    (slope,) = torch.autograd.grad(found.value.sum(), x)
    assert found.value.shape == found.marginal_error.shape == (2, 3)
    for i in range(2):
        for j in range(3):
            own = x[i, j].detach().requires_grad_()
            alone = entropic(own, y[i, j], 0.3, p, a=a, b=b[i, j], **TIGHT)
            assert found.value[i, j].item() == pytest.approx(alone.value.item(), rel=1e-12)
            assert torch.allclose(found.plan[i, j], alone.plan, rtol=1e-8)
            assert torch.allclose(slope[i, j], torch.autograd.grad(alone.value, own)[0], rtol=1e-8, atol=1e-11)


def test_a_problem_that_is_tiny_beside_another_of_its_batch_keeps_its_digits():
    # oracle: the same problem in float64, where no rounding of lambda is as large as its value
    x, y = (draw(seed, 2, 6, 2) * torch.tensor([1.0, 1e-4])[:, None, None] for seed in (33, 34))
    both = entropic(x.float(), y.float(), 1.0)
    for k in range(2):
        alone = entropic(x[k], y[k], 1.0, tol=1e-12)
        assert float(both.value[k]) == pytest.approx(float(alone.value), rel=1e-5)


def test_points_of_weight_zero_have_no_effect():
    x, y, far = draw(33, 6, 2), draw(34, 5, 2), torch.full((1, 2), 200.0, dtype=torch.float64)
    a, b = weights(35, 6), weights(36, 5)
    none = torch.zeros(1, dtype=torch.float64)
    plain = entropic(x, y, 0.2, a=a, b=b, **TIGHT)
    padded = entropic(
        torch.cat([x, far]), torch.cat([y, -far]), 0.2, a=torch.cat([a, none]), b=torch.cat([b, none]), **TIGHT
    )
    assert padded.converged
    assert float(padded.value) == pytest.approx(float(plain.value), rel=1e-10)
    assert torch.allclose(padded.plan[:6, :5], plain.plan, rtol=1e-8)


@pytest.mark.slow
@pytest.mark.parametrize("p", [1, 1.5, 2])
def test_the_divergence_is_0_for_equal_samples_and_else_positive(p):
    x, y = draw(37, 12, 2).requires_grad_(), draw(38, 15, 2)
    same = divergence(x, x.detach().clone(), 0.5, p, **TIGHT)
    assert same.converged
    assert abs(same.value.item()) < 1e-12
    assert torch.autograd.grad(same.value, x)[0].abs().max() < 1e-10
    found = divergence(x, y, 0.5, p, **TIGHT)
    parts = [float(entropic(*two, 0.5, p, **TIGHT).value) for two in ((x, y), (x, x), (y, y))]
    assert float(found.value) == pytest.approx(parts[0] - parts[1] / 2 - parts[2] / 2, rel=1e-10)
    assert found.value > 0


def test_the_divergence_of_gaussians_of_one_width_is_the_square_of_their_distance():
    # both widths equal: the entropic parts cancel, and the means are left
    (x, a), (y, b) = normal_grid(1.3), normal_grid(1.3, 2.0)
    assert float(divergence(x, y, 0.8, a=a, b=b, **TIGHT).value) == pytest.approx(4.0, rel=1e-10)


@pytest.mark.slow
@settings(max_examples=60, deadline=None)
@given(
    n=st.integers(1, 8),
    m=st.integers(1, 8),
    d=st.integers(1, 4),
    seed=st.integers(0, 10_000),
    size=st.floats(-6, 6),
    lam=st.floats(-9, 9),
    p=st.sampled_from([1.0, 1.3, 2.0, 4.0]),
    dtype=st.sampled_from([torch.float32, torch.float64]),
)
def test_entropic_is_finite_for_any_points_and_lambda(n, m, d, seed, size, lam, p, dtype):
    x, y = (draw(seed, n, d) * 10**size).to(dtype).requires_grad_(), (draw(seed + 1, m, d) * 10**size).to(dtype)
    try:
        found = entropic(x, y, 10**lam, p, max_iterations=60)
    except Unsupported:
        return  # the rounding of the cost exceeds lambda
    found.value.backward()
    for told in (found.value, found.marginal_error, found.f, found.g, found.plan, x.grad):
        assert torch.isfinite(told).all()
    cost = cost_matrix(x.detach().double(), y.double(), p)
    # the independent coupling costs no less; potentials are rounded as numbers of the size of lambda
    assert float(found.value.double()) <= float(cost.mean()) * (1 + 1e-4) + 10**lam * torch.finfo(dtype).eps
    assert bool(found.converged) == bool(found.marginal_error <= 1e-4)
    assert torch.allclose(found.plan.double().sum(1), torch.tensor(1 / n).double(), rtol=1e-3)


def test_float32_refuses_a_lambda_that_float64_accepts():
    x, y = draw(39, 20, 784, dtype=torch.float32), draw(40, 20, 784, dtype=torch.float32)
    for p in (1, 2):
        with pytest.raises(Unsupported, match=r"torch\.float32.*float64, or lambda >= "):
            entropic(x, y, 1e-4, p)
        assert entropic(x.double(), y.double(), 1e-4, p, max_iterations=20_000).converged


@pytest.mark.slow
@pytest.mark.parametrize("p", [1, 2])
def test_float32_annealed_to_a_small_lambda_agrees_with_float64(p):
    x, y = draw(41, 20, 20), draw(42, 20, 20)
    single = entropic(x.float(), y.float(), 0.1, p, max_iterations=20_000)
    assert single.converged
    assert float(single.value) == pytest.approx(
        float(entropic(x, y, 0.1, p, tol=1e-6, max_iterations=20_000).value), rel=1e-4
    )


@pytest.mark.parametrize("wide", ["x", "y", "neither"])
def test_l1_costs_and_gradients_equal_plain_sums_also_at_ties(wide):
    x, y, plan = draw(43, 30, 40), draw(44, 25, 40), draw(45, 30, 25).abs()
    x, y = x * (50 if wide == "x" else 1), y * (50 if wide == "y" else 1)
    y[3], x[4] = x[4], y[5]
    y[6, :10] = x[:, :10].amax(0)  # ties at the end of the range
    assert torch.allclose(costs.pairwise_costs(x, y, 1), cost_matrix(x, y, 1), rtol=1e-12)
    exact = (plan[:, :, None] * (x[:, None] - y[None]).sign()).sum(1)
    assert torch.allclose(costs.plan_gradient_of_differences(plan, x, y, 1), exact, rtol=1e-12, atol=1e-12)


def test_blocks_do_not_change_the_costs(monkeypatch):
    x, y, plan = draw(46, 13, 6), draw(47, 11, 6), draw(48, 13, 11)
    whole = [(costs.pairwise_costs(x, y, p), costs.plan_gradient_of_differences(plan, x, y, p)) for p in (1, 3)]
    monkeypatch.setitem(costs.BLOCK, "cpu", 50)
    for p, (cost, pulled) in zip((1, 3), whole, strict=True):
        assert torch.allclose(costs.pairwise_costs(x, y, p), cost)
        assert torch.allclose(costs.plan_gradient_of_differences(plan, x, y, p), pulled)


def test_relaxation_needs_fewer_iterations_where_the_plain_one_is_slow(monkeypatch):
    x, y = draw(49, 40, 2), draw(50, 40, 2)
    quick = entropic(x, y, 0.1, tol=1e-6, max_iterations=20_000)
    monkeypatch.setattr(sinkhorn, "MAX_RELAXATION", 1.0)
    plain = entropic(x, y, 0.1, tol=1e-6, max_iterations=20_000)
    assert quick.converged
    assert plain.converged
    assert quick.iterations < plain.iterations / 3
    assert float(quick.value) == pytest.approx(float(plain.value), rel=1e-6)


def test_the_plan_is_in_full_precision_whatever_the_program_allows():
    x, y = draw(51, 50, 100, dtype=torch.float32), draw(52, 50, 100, dtype=torch.float32)
    plain = entropic(x, y, 5.0).plan
    before = torch.get_float32_matmul_precision()
    torch.set_float32_matmul_precision("medium")
    try:
        with torch.autocast("cpu", dtype=torch.bfloat16):
            found = entropic(x, y, 5.0).plan
        assert torch.get_float32_matmul_precision() == "medium"
    finally:
        torch.set_float32_matmul_precision(before)
    assert torch.equal(plain, found)


@pytest.mark.skipif(not torch.cuda.is_available(), reason="no GPU here")
@pytest.mark.parametrize("p", [1, 2])
def test_entropic_on_a_gpu_equals_the_cpu(p):
    x, y = draw(53, 2, 60, 784, dtype=torch.float32), draw(54, 2, 50, 784, dtype=torch.float32)
    here, there = x.clone().requires_grad_(), x.cuda().requires_grad_()
    one, other = entropic(here, y, 100.0, p, tol=1e-5), entropic(there, y.cuda(), 100.0, p, tol=1e-5)
    one.value.sum().backward()
    other.value.sum().backward()
    assert torch.allclose(one.value, other.value.cpu(), rtol=1e-5)
    assert torch.allclose(here.grad, there.grad.cpu(), rtol=1e-2, atol=1e-4 * float(here.grad.abs().max()))


X = torch.zeros(3, 2)
WRONG = [
    ({"x": X.half()}, "found torch.float16"),
    ({"y": X.double()}, "found torch.float32.*torch.float64"),
    ({"x": X[0]}, r"found \[2\] and \[3, 2\]"),
    ({"x": X[:0]}, r"found \[0, 2\]"),
    ({"y": torch.zeros(3, 4)}, r"found \[3, 2\] and \[3, 4\]"),
    ({"x": torch.full((3, 2), math.nan)}, "finite"),
    ({"y": torch.full((3, 2), math.inf), "p": 1}, "finite"),
    ({"lam": 0.0}, "lambda .*found 0"),
    ({"lam": math.inf}, "lambda .*found inf"),
    ({"p": 0.5}, "p .*found 0.5"),
    ({"tol": 1e-8}, r"tol .*9\.5e-07.*found 1e-08"),
    ({"max_iterations": 0}, "max_iterations .*found 0"),
    ({"a": torch.ones(3)}, "^a .*minimum of 1 .*sum of 3"),
    ({"b": torch.tensor([1.5, -0.5, 0.0])}, "^b .*minimum of -0.5"),
    ({"a": torch.ones(2) / 2}, r"^a .*\[3\].*found \[2\]"),
    ({"a": (torch.ones(3) / 3).requires_grad_()}, "^a .*gradient"),
    ({"start": torch.zeros(2)}, r"^start .*found \[2\]"),
]


@pytest.mark.parametrize(("arguments", "fact"), WRONG)
def test_entropic_refuses_invalid_arguments(arguments, fact):
    with pytest.raises(UsageError, match=fact):
        entropic(**{"x": X, "y": X, "lam": 1.0, **arguments})
