"""Random allocation: the bracket of a pass against quadrature, simulation, figures of trials and limits."""

from __future__ import annotations

import itertools
import math

import mpmath
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.special import ndtr

import wpriv
from tests import nightly
from wpriv.accounting import evaluate
from wpriv.accounting.accountants import pld
from wpriv.accounting.mechanisms.gauss import GaussPair
from wpriv.accounting.mechanisms.laplace import LaplacePair
from wpriv.core import registry
from wpriv.core.allocation_pair import allocated
from wpriv.core.subsampled_pairs import poisson
from wpriv.errors import Unsupported, UsageError


def process(sigma, steps, passes, **options):
    return wpriv.Process((wpriv.Step(wpriv.Gauss(sigma), steps * passes, wpriv.Allocation(1 / steps)),), **options)


def two_step_delta(mu, eps):
    """delta of a pass of two steps by mpmath: the second step's call has a closed form (Black and Scholes)."""
    strike = 2 * mpmath.e**eps

    def given_first(z):
        first = mpmath.e ** (mu * z - mu * mu / 2)
        rest, density = strike - first, mpmath.npdf(z)
        if rest <= 0:
            return density * (1 - rest)
        at = mpmath.log(rest) / mu
        return density * (mpmath.ncdf(mu / 2 - at) - rest * mpmath.ncdf(-mu / 2 - at))

    # far out, where the second step hardly matters, the first one has a kink as wide as e^-eps
    kink = (mpmath.log(strike) + mu * mu / 2) / mu
    near = [kink + sign * 10**-k for sign in (-1, 1) for k in (0.3, 1, 2, 3, 4, 5, 6)]
    points = sorted([-12, -6, -3, 0, 2, 4, 6, kink, *near, kink + 3, kink + 9, kink + 20])
    return mpmath.quad(given_first, points) / 2


@pytest.mark.parametrize(("mu", "eps"), nightly.sharded(itertools.product([0.25, 1.0, 1.5], [0.1, 1.0, 3.0]), 4))
def test_bracket_holds_the_delta_of_two_steps(mu, eps):
    exact = float(two_step_delta(mu, eps))
    low, high = (math.exp(end.log_delta(eps)) for end in allocated(GaussPair(mu), 2).sandwich(1e-4))
    assert low <= exact * (1 + 1e-12)
    assert high >= exact * (1 - 1e-12)
    assert high - low <= 0.01 * exact + 2e-13
    # the reversed order, from the same quadrature: H_t(Q||P) = 1 - t + t H_{1/t}(P||Q)
    low, high = (math.exp(end.log_delta(-eps)) for end in allocated(GaussPair(mu), 2).reverse().sandwich(1e-4))
    exact = -math.expm1(-eps) + math.exp(-eps) * exact
    assert low <= exact * (1 + 1e-12)
    assert high >= exact * (1 - 1e-12)


# brackets of a separate program, with one lattice of ratios and no tilts
TRIALS = [
    (1, 1000, 1, 1e-6, 0.171725, 0.171730),
    (1, 1000, 10, 1e-6, 0.53982, 0.54028),
    (1.1, 234, 60, 1e-5, 2.33968, 2.34161),
    (0.6, 1000, 1, 1e-6, 2.06813, 2.06839),
]


@pytest.mark.slow
@pytest.mark.parametrize(("sigma", "steps", "passes", "delta", "low", "high"), TRIALS)
def test_bracket_overlaps_that_of_a_trial_and_is_below_poisson_sampling(sigma, steps, passes, delta, low, high):
    row = pld.account(process(sigma, steps, passes), tol=1e-4).at(delta=delta)
    assert row.epsilon.lower <= high
    assert row.epsilon.upper >= low
    assert row.epsilon.upper - row.epsilon.lower <= 1e-4 * row.epsilon.upper
    poisson = wpriv.Process((wpriv.Step(wpriv.Gauss(sigma), steps * passes, wpriv.Poisson(1 / steps)),))
    assert row.epsilon.upper < pld.account(poisson).at(delta=delta).epsilon.lower


def test_bracket_agrees_with_simulation():
    # Monte Carlo with a control variate, 2.7e6 draws: .0024589 with a standard error of 4.8e-6
    low, high = (math.exp(end.log_delta(0.05)) for end in allocated(GaussPair(1.0), 1000).sandwich(1e-4))
    assert high - low < 5e-7
    assert abs(low - 0.0024589) < 3 * 4.8e-6


def test_simulation_of_the_reversed_order_lies_in_the_bracket():
    rng, mu, steps, eps = np.random.default_rng(1), 1.0, 5, 0.2
    ratio = np.exp(mu * rng.standard_normal((400_000, steps)) - mu * mu / 2).mean(axis=1)
    put = np.maximum(1 - math.exp(eps) * ratio, 0)
    error = 4 * put.std() / math.sqrt(put.size)
    low, high = (math.exp(end.log_delta(eps)) for end in allocated(GaussPair(mu), steps).reverse().sandwich(1e-3))
    assert low - error <= put.mean() <= high + error


def test_one_step_a_pass_is_no_sampling():
    assert allocated(GaussPair(0.5), 1) == GaussPair(0.5)
    whole = wpriv.Process((wpriv.Step(wpriv.Gauss(2.0), 7),))
    assert pld.account(process(2.0, 1, 7)).at(delta=1e-5).epsilon == pld.account(whole).at(delta=1e-5).epsilon


@pytest.mark.slow
def test_eps_falls_with_sigma_and_with_the_steps_of_a_pass():
    rows = [[pld.account(process(s, t, 2)).at(delta=1e-5).epsilon for t in (2, 5, 20, 100)] for s in (0.3, 0.7, 1.5)]
    for row in (*rows, *zip(*rows, strict=True)):
        assert all(more.upper > less.lower for more, less in itertools.pairwise(row))


@pytest.mark.parametrize("seed", nightly.sharded(range(12), 3))
def test_brackets_are_ordered_numbers_below_no_sampling(seed):
    rng = np.random.default_rng(seed)
    sigma, steps = float(np.exp(rng.uniform(-0.5, 4))), int(np.exp(rng.uniform(0.7, 7)))
    passes, delta = int(np.exp(rng.uniform(0, 4))), float(np.exp(rng.uniform(-18, -2)))
    row = wpriv.budget(process(sigma, steps, passes), delta=delta, tol=1e-3)
    assert 0 <= row.epsilon.lower <= row.epsilon.upper < math.inf
    unsampled = wpriv.budget("gauss", sigma=sigma, n=passes, delta=delta)
    assert row.epsilon.lower <= unsampled.epsilon.upper * (1 + 1e-9)


def test_the_pairs_of_a_sandwich_are_ordered_at_every_eps():
    for pair in (allocated(GaussPair(0.7), 50), allocated(GaussPair(0.7), 50).reverse()):
        ends = [end.log_delta(np.linspace(-2, 4, 61)) for end in pair.sandwich(1e-3)]
        assert not np.isnan(ends).any()
        assert np.all(ends[0] <= ends[1] + 1e-12)


@pytest.mark.parametrize(("mu", "eps"), nightly.sharded([(1.0, 8.0), (2.0, 20.0), (0.5, 5.0)], 3))
def test_bracket_holds_a_delta_far_below_rounding(mu, eps):
    exact = float(two_step_delta(mpmath.mpf(mu), mpmath.mpf(eps)))
    assert 1e-40 < exact < 1e-12
    pair = allocated(GaussPair(mu), 2).for_delta(exact)
    low, high = (math.exp(end.log_delta(eps)) for end in pair.sandwich(1e-4))
    assert low <= exact * (1 + 1e-9)
    assert high >= exact * (1 - 1e-9)
    assert high - low <= 0.01 * exact


def three_step_delta(mu, eps, spacing):
    """delta of a pass of three steps: the trapezoidal rule over two of them, and the third one's call."""
    z = np.arange(-9, 9 + mu, spacing)
    weight, ratio = np.exp(-z * z / 2) / math.sqrt(2 * math.pi) * spacing, np.exp(mu * z - mu * mu / 2)
    rest = 3 * math.exp(eps) - ratio[:, None] - ratio
    at = np.log(np.maximum(rest, 1e-300)) / mu
    call = ndtr(mu / 2 - at) - rest * ndtr(-mu / 2 - at)
    return float(weight @ np.where(rest > 0, call, 1 - rest) @ weight) / 3


@pytest.mark.slow
@pytest.mark.parametrize("mu", [1.0, 2.5, 4.0])
def test_bracket_holds_the_delta_of_three_steps(mu):
    for eps in (0.5, 2.0, 4.0):
        exact, coarse = three_step_delta(mu, eps, 0.01), three_step_delta(mu, eps, 0.02)
        error = abs(exact - coarse) + 1e-12
        assert error < 3e-4 * exact
        low, high = (math.exp(end.log_delta(eps)) for end in allocated(GaussPair(mu), 3).sandwich(1e-4))
        assert low <= exact + error
        assert high >= exact - error
        assert high - low <= 2e-3 * exact


@pytest.mark.slow
@pytest.mark.parametrize(("sigma", "steps"), [(0.3, 1000), (0.2, 50), (0.5, 5000)])
def test_small_noise_has_a_narrow_bracket_below_poisson_sampling_and_above_one_step(sigma, steps):
    row = wpriv.budget(process(sigma, steps, 1), delta=1e-6)
    assert row.epsilon.upper - row.epsilon.lower <= 1e-4 * row.epsilon.upper
    poisson = wpriv.Process((wpriv.Step(wpriv.Gauss(sigma), steps, wpriv.Poisson(1 / steps)),))
    assert row.epsilon.upper < wpriv.budget(poisson, delta=1e-6).epsilon.lower
    one_step = wpriv.Process((wpriv.Step(wpriv.Gauss(sigma), 1, wpriv.Poisson(1 / steps)),))
    assert row.epsilon.upper > wpriv.budget(one_step, delta=1e-6).epsilon.lower


def test_noise_beyond_floating_point_is_bracketed_by_one_step_and_by_no_sampling():
    row = wpriv.budget(process(0.02, 1000, 1), delta=1e-6)
    one_step = wpriv.Process((wpriv.Step(wpriv.Gauss(0.02), 1, wpriv.Poisson(1 / 1000)),))
    assert row.epsilon.lower == pytest.approx(wpriv.budget(one_step, delta=1e-6).epsilon.lower, rel=1e-6)
    assert row.epsilon.upper == pytest.approx(wpriv.budget("gauss", sigma=0.02, delta=1e-6).epsilon.upper, rel=1e-6)


@pytest.mark.slow
@pytest.mark.parametrize("delta", [1e-12, 1e-30])
def test_tiny_deltas_have_brackets_between_one_step_and_no_sampling(delta):
    row = wpriv.budget(process(1.0, 200, 3), delta=delta, tol=1e-3)
    assert row.epsilon.upper - row.epsilon.lower <= 2e-3 * row.epsilon.upper
    assert row.epsilon.upper < wpriv.budget("gauss", sigma=1.0, n=3, delta=delta).epsilon.lower
    back = wpriv.budget(process(1.0, 200, 3), eps=row.epsilon.upper, tol=1e-3)
    assert back.delta.lower <= delta * (1 + 1e-6)
    assert 0.8 * delta < back.delta.upper < 1.2 * delta


@pytest.mark.slow
@settings(max_examples=40, deadline=None)
@given(
    mu=st.floats(0.05, 8),
    steps=st.integers(2, 5000),
    tol=st.sampled_from([1e-2, 1e-3]),
    eps=st.lists(st.floats(-3, 60), min_size=1, max_size=8),
)
def test_sandwiches_are_ordered_and_lie_below_one_release_and_above_one_step(mu, steps, tol, eps):
    base = GaussPair(mu)
    remove = allocated(base, steps), base, poisson(base, 1 / steps)
    for one, whole, alone in (remove, [pair.reverse() for pair in remove]):
        pairs = (*one.sandwich(tol), whole, alone)
        low, high, most, least = (np.exp(pair.log_delta(np.array(eps))) for pair in pairs)
        assert not np.isnan([low, high]).any()
        for smaller, larger in ((low, high), (low, most), (least, high)):
            assert np.all(smaller <= larger * (1 + 1e-9))


def test_laplace_noise_has_a_bracket():
    row = wpriv.budget("laplace", scale=2.0, n=100, sampling=wpriv.Allocation(0.1), delta=1e-5, tol=1e-3)
    assert 0 < row.epsilon.lower <= row.epsilon.upper <= 10 * 0.5
    assert allocated(LaplacePair(0.5), 10).support == (-0.5, 0.5)


def test_zcdp_counts_a_pass_of_pure_releases_once():
    """A record takes part in one step of a pass, thus t-DP and t tanh(t/2)-zCDP (Harrison, Manurangsi 2025)."""
    steps = wpriv.Process((wpriv.Step(wpriv.Laplace(10.0), 1000, wpriv.Allocation(0.01)),))
    rho = 10 * 0.1 * math.tanh(0.05)
    eps = wpriv.curve(steps, accountant="zcdp").epsilon(delta=1e-6)
    assert eps == pytest.approx(rho + 2 * math.sqrt(rho * math.log(1e6)), rel=1e-12)
    assert eps >= wpriv.curve(steps).epsilon(delta=1e-6)


def test_allocation_composes_with_poisson_sampled_and_unsampled_steps():
    sampled, whole = wpriv.Step(wpriv.Gauss(5.0), 3, wpriv.Poisson(0.1)), wpriv.Step(wpriv.Laplace(20.0), 4)
    mixed = process(1.0, 100, 2) + sampled + whole
    row = wpriv.budget(mixed, delta=1e-5)
    assert row.epsilon.upper - row.epsilon.lower <= 1e-4 * row.epsilon.upper
    alone = wpriv.budget(process(1.0, 100, 2), delta=1e-5).epsilon
    without = wpriv.budget(wpriv.Process((sampled, whole)), delta=1e-5).epsilon
    assert max(alone.upper, without.upper) < row.epsilon.lower
    # basic composition, with half of delta each
    parts = [
        wpriv.budget(part, delta=5e-6).epsilon.upper for part in (process(1.0, 100, 2), wpriv.Process((sampled, whole)))
    ]
    assert row.epsilon.lower < sum(parts)
    # a pass of one step is an unsampled release, so that these two processes are the same
    renamed = process(1.0, 1, 3) + wpriv.Step(wpriv.Laplace(20.0), 4)
    plain = wpriv.Process((wpriv.Step(wpriv.Gauss(1.0), 3), wpriv.Step(wpriv.Laplace(20.0), 4)))
    assert wpriv.budget(renamed, delta=1e-5, tol=1e-4).epsilon == wpriv.budget(plain, delta=1e-5, tol=1e-4).epsilon


def test_accountants_without_a_proof_refuse():
    refused = 0
    for name in registry.names("accountants"):
        if name == "pld":
            continue
        with pytest.raises(Unsupported, match=r"[Uu]se|give"):
            evaluate.curve(process(1.0, 100, 1), name).at(delta=1e-6)
        refused += 1
    assert refused >= 15


def test_what_cannot_be_allocated_is_refused():
    with pytest.raises(UsageError, match="whole number of steps"):
        wpriv.Allocation(0.3)
    for rate in (5e-324, 1e-13):
        with pytest.raises(UsageError, match="2\\^40 steps"):
            wpriv.Allocation(rate)
    with pytest.raises(UsageError, match="multiple of 100"):
        wpriv.Step(wpriv.Gauss(1.0), 150, wpriv.Allocation(0.01))
    with pytest.raises(Unsupported, match="add-remove"):
        process(1.0, 100, 1, adjacency="replace-one")
    with pytest.raises(Unsupported, match="fixed"):
        process(1.0, 100, 1) + wpriv.Step(wpriv.Gauss(1.0), 10, wpriv.FixedSize(0.1))
    for mechanism, words in ((wpriv.TruncatedGauss(1.0, 5.0), "no proven"), (wpriv.Dp(1.0, 1e-6), "finite losses")):
        with pytest.raises(Unsupported, match=words):
            wpriv.Process((wpriv.Step(mechanism, 10, wpriv.Allocation(0.1)),))
    assert wpriv.Allocation(0.0042735).rate == 1 / 234


def test_calibrate_solves_for_sigma_and_for_whole_passes():
    sigma = wpriv.calibrate("gauss", eps=1, delta=1e-6, n=500, sampling=wpriv.Allocation(0.01))
    assert sigma.guarantee.epsilon.upper <= 1
    most = wpriv.calibrate("gauss", sigma=1.5, eps=1, delta=1e-6, sampling="allocation", rate=0.01)
    assert most.value % 100 == 0
    more = wpriv.budget("gauss", sigma=1.5, n=int(most.value) + 100, sampling=wpriv.Allocation(0.01), delta=1e-6)
    assert more.epsilon.lower > 1
    with pytest.raises(UsageError, match="rates 1/t only"):
        wpriv.calibrate("gauss", sigma=1.5, eps=1, delta=1e-6, n=100, sampling="allocation")
