"""Transport on the line against POT, closed forms, autograd on sorted samples, finite differences, golden values."""

from __future__ import annotations

import math
from fractions import Fraction
from itertools import pairwise

import numpy as np
import ot
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from tests.points import GOLDEN
from wpriv.errors import UsageError
from wpriv.transport import line

SIZES = [(1, 1), (1, 9), (9, 1), (5, 5), (5, 3), (6, 4), (12, 4), (1000, 7), (700, 1000), (3000, 3000)]
positions = st.floats(-1e3, 1e3, allow_nan=False, width=32)
samples = st.lists(positions, min_size=1, max_size=12).map(lambda values: torch.tensor(values, dtype=torch.float64))
orders = st.sampled_from([1.0, 1.5, 2.0, 3.0])


def drawn(*shape: int, seed: int = 0, dtype: torch.dtype = torch.float64) -> Tensor:
    return torch.randn(*shape, dtype=torch.float64, generator=torch.Generator().manual_seed(seed)).to(dtype)


def exact(x: list[float], y: list[float]) -> tuple[Fraction, list[Fraction], list[Fraction]]:
    """W_2^2 and both gradients in rational numbers, from the definition of R; no two positions of a sample may tie."""
    n, m = len(x), len(y)
    rank_x, rank_y = ({v: i for i, v in enumerate(sorted(values))} for values in (x, y))
    cost, gx, gy = Fraction(0), [Fraction(0)] * n, [Fraction(0)] * m
    for i, u in enumerate(x):
        for j, v in enumerate(y):
            s, t = rank_x[u], rank_y[v]
            mass = max(Fraction(0), min(Fraction(s + 1, n), Fraction(t + 1, m)) - max(Fraction(s, n), Fraction(t, m)))
            gap = Fraction(u) - Fraction(v)
            cost += mass * gap**2
            gx[i] += 2 * mass * gap
            gy[j] -= 2 * mass * gap
    return cost, gx, gy


@pytest.mark.parametrize("p", [1, 1.5, 2, 3])
@pytest.mark.parametrize(("n", "m"), SIZES)
def test_line_cost_and_gradient_equal_those_of_pot(n, m, p):
    x, y = drawn(n, 3).requires_grad_(), drawn(m, 3, seed=1).requires_grad_()
    ours, theirs = line.wasserstein(x, y, p), ot.wasserstein_1d(x, y, p=p)
    assert torch.allclose(ours, theirs, rtol=1e-10, atol=0)
    upstream = torch.tensor([1.0, -2.0, 0.5], dtype=torch.float64)
    for mine, peer in zip(*(torch.autograd.grad(cost @ upstream, (x, y)) for cost in (ours, theirs)), strict=True):
        # POT's masses are differences of running sums, which cancel where slopes do
        assert torch.allclose(mine, peer, rtol=1e-10, atol=1e-10 * float(peer.abs().max()))


@pytest.mark.parametrize("p", [1, 2, 3.5])
@pytest.mark.parametrize(("n", "m"), SIZES)
def test_weighted_line_cost_and_gradient_equal_those_of_pot(n, m, p):
    x, y = drawn(n, 2).requires_grad_(), drawn(m, 2, seed=1).requires_grad_()
    a, b = drawn(n, 2, seed=2).abs(), drawn(m, seed=3).abs()
    ours = line.wasserstein(x, y, p, x_weights=a, y_weights=b)
    theirs = ot.wasserstein_1d(x, y, a / a.sum(0), (b / b.sum())[:, None].repeat(1, 2), p=p)
    assert torch.allclose(ours, theirs, rtol=1e-10, atol=0)
    for mine, peer in zip(*(torch.autograd.grad(cost.sum(), (x, y)) for cost in (ours, theirs)), strict=True):
        assert torch.allclose(mine, peer, rtol=1e-9, atol=1e-13)


@pytest.mark.slow
@pytest.mark.parametrize(("n", "m"), SIZES)
def test_line_gradients_equal_those_of_pots_plan(n, m):
    x, y = drawn(n), drawn(m, seed=1)
    plan = ot.emd_1d(
        x.numpy(), y.numpy(), metric="sqeuclidean", dense=True
    )  # the matrix R of Prop. 3.1, in the order of the records
    gaps = x.numpy()[:, None] - y.numpy()
    found = line.gradients(x, y)
    assert float(found.cost) == pytest.approx((plan * gaps**2).sum(), rel=1e-10)
    assert found.x.numpy() == pytest.approx(2 * (plan * gaps).sum(1), rel=1e-10, abs=1e-15)
    assert found.y.numpy() == pytest.approx(-2 * (plan * gaps).sum(0), rel=1e-10, abs=1e-15)


def test_line_golden_values_of_cost_and_gradients():
    for name, other in (("003-w2-0", ("003-gU-0", "003-gV-0")), ("003-w2-1", ())):
        x, y = (torch.tensor([float(v) for v in GOLDEN[name]["inputs"][side]], dtype=torch.float64) for side in "UV")
        found = line.gradients(x, y)
        assert float(found.cost) == pytest.approx(float(GOLDEN[name]["value"]), rel=1e-12)
        for golden, mine in zip(other, found[1:], strict=False):
            assert mine.tolist() == pytest.approx([float(v) for v in GOLDEN[golden]["value"]], rel=1e-12)


@pytest.mark.parametrize("name", ["003-R-0", "003-R-1"])
def test_line_golden_plans_between_ranks(name):
    n, m = (GOLDEN[name]["inputs"][k] for k in "nm")
    index, share = line._overlaps(n, m, np.dtype("float64"), None)
    plan = np.zeros((n, m))
    np.add.at(plan, (np.arange(n)[None].repeat(len(index), 0), index), share)
    assert plan.ravel() == pytest.approx([float(v) for v in GOLDEN[name]["value"]], rel=1e-12, abs=1e-300)


@pytest.mark.slow
@settings(deadline=None)
@given(
    st.lists(positions, min_size=1, max_size=9, unique=True),
    st.lists(positions, min_size=1, max_size=9, unique=True),
)
def test_line_cost_and_gradients_equal_those_in_rational_arithmetic(x, y):
    cost, gx, gy = exact(x, y)
    found = line.gradients(torch.tensor(x, dtype=torch.float64), torch.tensor(y, dtype=torch.float64))
    assert float(found.cost) == pytest.approx(float(cost), rel=1e-12)
    scale = 1e-13 * max(map(abs, x + y))
    assert found.x.tolist() == pytest.approx([float(g) for g in gx], rel=1e-12, abs=scale)
    assert found.y.tolist() == pytest.approx([float(g) for g in gy], rel=1e-12, abs=scale)


@settings(deadline=None)
@given(positions, positions, orders)
def test_line_cost_of_two_diracs_is_the_power_of_their_distance(a, b, p):
    x, y = torch.full((3,), a, dtype=torch.float64), torch.full((5,), b, dtype=torch.float64)
    assert float(line.wasserstein(x, y, p)) == pytest.approx(abs(a - b) ** p, rel=1e-12)


@pytest.mark.slow
@settings(deadline=None)
@given(samples, positions, orders, st.randoms(use_true_random=False))
def test_line_cost_of_a_translation_is_the_power_of_its_length(x, shift, p, random):
    order = list(range(len(x)))
    random.shuffle(order)
    moved = (x + shift)[order]
    # what rounding makes of x + shift is part of the question
    assert float(line.wasserstein(x, moved, p)) == pytest.approx(abs(shift) ** p, rel=1e-9, abs=1e-9)
    assert float(line.wasserstein(x, x[order], p)) == 0.0


@pytest.mark.slow
@settings(deadline=None)
@given(samples, samples, orders)
def test_line_cost_is_symmetric_and_bounded_by_means_and_extremes(x, y, p):
    cost = float(line.wasserstein(x, y, p))
    assert cost == pytest.approx(float(line.wasserstein(y, x, p)), rel=1e-12, abs=1e-300)
    least, most = abs(float(x.mean() - y.mean())), max(abs(float(x.max() - y.min())), abs(float(y.max() - x.min())))
    assert least * (1 - 1e-9) - 1e-9 <= cost ** (1 / p) <= most * (1 + 1e-9)


@pytest.mark.parametrize(("n", "m"), [(4000, 4000), (4000, 2500)])
def test_line_cost_of_gaussian_quantiles_is_that_of_the_distributions(n, m):
    quantiles = [torch.special.ndtri((torch.arange(k, dtype=torch.float64) + 0.5) / k) for k in (n, m)]
    cost = float(line.wasserstein(1 + 2 * quantiles[0], -0.5 + 0.7 * quantiles[1]))
    assert cost == pytest.approx(1.5**2 + 1.3**2, rel=5e-3)  # (m1 - m2)^2 + (s1 - s2)^2; the tails are cut at 1/n


@pytest.mark.parametrize(("n", "m"), [(7, 7), (7, 5), (1, 6), (40, 3)])
def test_line_gradient_equals_autograd_on_sorted_samples(n, m):
    x, y = drawn(n).requires_grad_(), drawn(m, seed=1).requires_grad_()
    copies = math.lcm(n, m)
    pairs = x.sort().values.repeat_interleave(copies // n) - y.sort().values.repeat_interleave(copies // m)
    for ours, theirs in zip(
        torch.autograd.grad(line.wasserstein(x, y), (x, y)),
        torch.autograd.grad(pairs.square().mean(), (x, y)),
        strict=True,
    ):
        assert torch.allclose(ours, theirs, rtol=1e-12, atol=1e-15)


@pytest.mark.slow
@pytest.mark.parametrize("p", [1.0, 1.3, 2.0, 4.0])
@pytest.mark.parametrize("weighted", [False, True])
def test_line_gradient_equals_finite_differences(p, weighted):
    x, y = drawn(6, 2).requires_grad_(), drawn(9, 2, seed=1).requires_grad_()
    weights = {"x_weights": drawn(6, seed=2).abs(), "y_weights": drawn(9, 2, seed=3).abs()} if weighted else {}
    assert torch.autograd.gradcheck(lambda x, y: line.wasserstein(x, y, p, **weights), (x, y))


@pytest.mark.slow
@settings(deadline=None)
@given(
    st.lists(st.sampled_from([-1.0, 0.0, 1.0]), min_size=1, max_size=12),
    samples,
    orders,
    st.booleans(),
    st.randoms(use_true_random=False),
)
def test_line_gradients_are_equivariant_under_permutations(x, y, p, weighted, random):
    x = torch.tensor(x, dtype=torch.float64)
    order = list(range(len(x)))
    random.shuffle(order)
    a = 1 + torch.arange(len(x), dtype=torch.float64) if weighted else None
    before = line.gradients(x, y, p, x_weights=a)
    after = line.gradients(x[order], y, p, x_weights=None if a is None else a[order])
    assert torch.allclose(before.x[order], after.x, rtol=1e-9, atol=1e-9 * 1e3**p)
    share = before.x if a is None else before.x / a
    for value in (-1.0, 0.0, 1.0):
        tied = share[x == value]
        assert torch.allclose(tied, tied.mean().expand_as(tied), rtol=1e-12, atol=0) or len(tied) == 0


def test_ties_get_the_mean_gradient_over_their_ranks():
    x, y = torch.tensor([0.5, -1.0, 0.5, 0.5], dtype=torch.float64), drawn(6, seed=4)
    apart = x + torch.tensor([0.0, 0, 1e-13, 2e-13], dtype=torch.float64)
    tied, split = line.gradients(x, y).x, line.gradients(apart, y).x
    assert tied[[0, 2, 3]].tolist() == pytest.approx([float(split[[0, 2, 3]].mean())] * 3, rel=1e-9)
    assert float(tied[1]) == pytest.approx(float(split[1]), rel=1e-9)


@pytest.mark.slow
@pytest.mark.parametrize(("n", "m"), [(6, 6), (6, 9), (2000, 2000)])
@pytest.mark.parametrize("weighted", [False, True])
def test_ties_of_one_sample_do_not_affect_the_other(n, m, weighted):
    x, y = drawn(n).sign(), drawn(m, seed=1)
    weights = {"x_weights": torch.ones(n), "y_weights": torch.ones(m)} if weighted else {}
    plan = ot.emd_1d(x.numpy(), y.numpy(), metric="sqeuclidean", dense=True)
    pull = -2 * (plan * (x.numpy()[:, None] - y.numpy())).sum(0)
    assert line.gradients(x, y, **weights).y.numpy() == pytest.approx(pull, rel=1e-9, abs=1e-13)
    assert line.gradients(y, x).x.numpy() == pytest.approx(pull, rel=1e-9, abs=1e-13)


def test_the_gradient_of_clipped_scores_does_not_depend_on_their_order():
    """With ties broken by position, reversing the records would change this sum by 4 M L, whatever n."""
    scores, other = torch.zeros(100, dtype=torch.float64), torch.cat([-torch.ones(50), torch.ones(50)]).double()
    jacobians = other.flip(0)
    assert float(line.gradients(scores, other).x @ jacobians) == pytest.approx(0.0, abs=1e-12)


@pytest.mark.parametrize("p", [1.0, 1.5, 2.0, 3.0])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_line_cost_and_gradients_of_equal_samples_are_zero(p, dtype):
    x = drawn(50, dtype=dtype).requires_grad_()
    cost = line.wasserstein(x, x.detach().flip(0), p)
    cost.backward()
    assert cost.item() == 0.0
    assert x.grad is not None
    assert not x.grad.any()


def test_for_p_1_coincident_positions_get_the_subgradient_0():
    found = line.gradients(torch.tensor([0.0, 1.0, 5.0]), torch.tensor([0.0, 2.0, 5.0]), p=1)
    assert found.x.tolist() == pytest.approx([0, -1 / 3, 0])
    assert found.y.tolist() == pytest.approx([0, 1 / 3, 0])


@pytest.mark.slow
@pytest.mark.parametrize(("n", "m"), [(10**6, 10**6), (10**6, 700_001), (10**6, 1000), (1000, 10**6)])
def test_float32_gradients_of_a_million_records_are_accurate_to_1e_5(n, m):
    x, y = drawn(n, dtype=torch.float32), drawn(m, seed=1, dtype=torch.float32)
    single, double = line.gradients(x, y), line.gradients(x.double(), y.double())
    assert float(single.cost) == pytest.approx(float(double.cost), rel=1e-5)
    for ours, truth in zip(single[1:], double[1:], strict=True):
        assert float((ours - truth).abs().max()) <= 1e-5 * float(truth.abs().max())
        assert float((ours - truth).norm()) <= 1e-6 * float(truth.norm())


def test_float32_positions_far_from_0_keep_their_digits():
    x, y = (drawn(1000, seed=s, dtype=torch.float32) + 2**20 for s in (0, 1))
    single, double = line.gradients(x, y), line.gradients(x.double(), y.double())
    assert float(single.cost) == pytest.approx(float(double.cost), rel=1e-6)
    assert torch.allclose(single.x.double(), double.x, rtol=1e-5, atol=1e-9)


@pytest.mark.parametrize("scale", [1e-310, 5e-324, 1e-160, 1e150])
def test_line_distinguishes_tiny_and_huge_positions(scale):
    x = torch.tensor([3.0, 1.0, 2.0] * 1000, dtype=torch.float64) * scale
    y = torch.tensor([2.0, 4.0, 3.0] * 1000, dtype=torch.float64) * scale
    found = line.gradients(x, y, p=1)
    assert float(found.cost) == pytest.approx(float(torch.tensor(scale, dtype=torch.float64)), rel=1e-12)


@settings(deadline=None, max_examples=30)
@given(st.integers(1, 4), st.integers(700, 3000), st.sampled_from([0, 20, 40, 50]), st.integers(0, 10**6))
def test_sort_with_indices_is_correct_for_any_last_bits(k, n, offset, seed):
    """The index of a number occupies its last bits during the sort: with large offsets, numbers differ only there."""
    from wpriv.transport.line import sort_with_indices

    for dtype in (torch.float64, torch.float32):
        rows = (drawn(k, n, seed=seed) + 2.0**offset * (offset > 0)).to(dtype).numpy()
        values, indices = sort_with_indices(rows)
        assert np.array_equal(values, np.sort(rows, axis=-1))
        assert np.array_equal(rows.ravel()[indices], values)
        assert np.array_equal(np.sort(indices, axis=-1), np.arange(k * n).reshape(k, n))


@pytest.mark.parametrize(("n", "m"), [(300, 300), (300, 200), (5, 400)])
@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_tensors_and_arrays_give_the_same_costs_and_slopes(n, m, weighted, dtype):
    """The code path of a device, on the CPU: torch's sort and sums instead of numpy's."""
    x, y = (drawn(4, size, seed=s, dtype=dtype).mul(8).round() / 8 for s, size in enumerate((n, m)))
    masses = [drawn(1, n, seed=2).abs(), drawn(4, m, seed=3).abs()] if weighted else None
    weights = None if masses is None else tuple(mass / mass.sum(1, keepdim=True) for mass in masses)
    host = line.solve(x, y, 2.0, (True, True), weights)
    cost, slopes = torch.empty(4, dtype=dtype), [torch.empty_like(x), torch.empty_like(y)]
    line._fill(x, y, 2.0, None if weights is None else list(weights), cost, slopes)
    rtol, atol = (1e-5, 1e-7) if dtype == torch.float32 else (1e-12, 1e-14)
    for ours, device in zip(host, (cost, *slopes), strict=True):
        assert torch.allclose(ours, device, rtol=rtol, atol=atol)


@pytest.mark.cuda
@pytest.mark.skipif(not torch.cuda.is_available(), reason="no GPU here")
@pytest.mark.parametrize(("n", "m"), [(1000, 1000), (1000, 700), (10**6, 10**6)])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_line_on_a_gpu_equals_the_cpu(n, m, dtype):
    x, y = drawn(n, dtype=dtype), drawn(m, seed=1, dtype=dtype)
    here, there = line.gradients(x, y), line.gradients(x.cuda(), y.cuda())
    for ours, device in zip(here, there, strict=True):
        assert device.is_cuda
        assert float((ours - device.cpu()).norm()) <= (1e-5 if dtype == torch.float32 else 1e-12) * float(ours.norm())


def test_line_treats_columns_as_separate_problems():
    x, y = drawn(700, 900), drawn(300, 900, seed=1)  # more than one block of rows
    together = line.gradients(x, y)
    for column in (0, 261, 262, 899):
        alone = line.gradients(x[:, column], y[:, column])
        assert float(together.cost[column]) == pytest.approx(float(alone.cost), rel=1e-13)
        assert torch.allclose(together.x[:, column], alone.x, rtol=1e-12, atol=0)


def test_integer_weights_equal_repeated_records():
    x, y = drawn(5), drawn(4, seed=1)
    counts = torch.tensor([1, 3, 2, 0, 4])
    weighted = line.gradients(x, y, 3.0, x_weights=counts)
    repeated = line.gradients(x.repeat_interleave(counts), y, 3.0)
    assert float(weighted.cost) == pytest.approx(float(repeated.cost), rel=1e-12)
    sums = torch.zeros(5, dtype=torch.float64).index_add_(0, torch.arange(5).repeat_interleave(counts), repeated.x)
    assert torch.allclose(weighted.x, sums, rtol=1e-12, atol=1e-15)


def test_the_cost_does_not_depend_on_the_requested_gradients():
    for n, m in pairwise((40, 40, 25, 90)):
        x, y = drawn(n), drawn(m, seed=1)
        both = float(line.gradients(x, y).cost)
        for needs in ((False, False), (True, False), (False, True)):
            found = line.wasserstein(x.clone().requires_grad_(needs[0]), y.clone().requires_grad_(needs[1]))
            assert found.item() == pytest.approx(both, rel=1e-13)


ONE = torch.ones(3)


@pytest.mark.parametrize(
    ("call", "fact"),
    [
        (lambda: line.wasserstein(ONE, ONE[:0]), r"\[0\]"),
        (lambda: line.wasserstein(ONE, torch.ones(3, 2)), r"found x \[3\] and y \[3, 2\]"),
        (lambda: line.wasserstein(torch.ones(3, 2), torch.ones(3, 4)), r"found x \[3, 2\] and y \[3, 4\]"),
        (lambda: line.wasserstein(ONE, ONE.double()), "float32.*float64"),
        (lambda: line.wasserstein(ONE.int(), ONE.int()), "found torch.int32"),
        (lambda: line.wasserstein([1.0], ONE), "found list"),
        (lambda: line.wasserstein(ONE, ONE, 0.5), "p .*found 0.5"),
        (lambda: line.wasserstein(ONE, ONE, math.inf), "p .*found inf"),
        (lambda: line.wasserstein(ONE, ONE, math.nan), "p .*found nan"),
        (lambda: line.wasserstein(ONE, ONE * math.nan), "finite"),
        (lambda: line.gradients(ONE, ONE * math.inf), "finite"),
        (lambda: line.gradients(torch.full((3000,), math.nan), torch.full((3000,), -math.inf)), "finite"),
        (lambda: line.wasserstein(ONE, ONE * 1e30), "float32"),
        (lambda: line.wasserstein(ONE, ONE, x_weights=-ONE), "x_weights"),
        (lambda: line.wasserstein(ONE, ONE, y_weights=0 * ONE), "y_weights"),
        (lambda: line.wasserstein(ONE, ONE, y_weights=ONE * math.nan), "y_weights"),
        (lambda: line.wasserstein(ONE, ONE, x_weights=torch.ones(2)), r"x_weights must be \[3\]"),
        (lambda: line.wasserstein(ONE, ONE, x_weights=torch.ones(3, requires_grad=True)), r"x_weights\.detach"),
    ],
)
def test_line_refuses_invalid_arguments(call, fact):
    with pytest.raises(UsageError, match=fact):
        call()
