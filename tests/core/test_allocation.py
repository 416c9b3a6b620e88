"""Random allocation: the bracket of a pass against quadrature, simulation, figures of trials and limits."""

from __future__ import annotations

import itertools
import math

import mpmath
import numpy as np
import pytest

import wpriv
from wpriv.accountants import pld
from wpriv.core import registry
from wpriv.core.sampling.allocation_pair import allocated
from wpriv.errors import Unsupported, UsageError
from wpriv.mechanisms.gauss import GaussPair
from wpriv.mechanisms.laplace import LaplacePair
from wpriv.run.accounting import evaluate


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

    kink = (mpmath.log(strike) + mu * mu / 2) / mu
    return mpmath.quad(given_first, [-12, -6, -3, 0, 2, kink - 0.5, kink, kink + 0.5, kink + 3, kink + 9]) / 2


@pytest.mark.parametrize("eps", [0.1, 1.0, 3.0])
@pytest.mark.parametrize("mu", [0.25, 1.0, 1.5])
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
]


@pytest.mark.parametrize(("sigma", "steps", "passes", "delta", "low", "high"), TRIALS)
def test_bracket_overlaps_that_of_a_trial_and_is_below_poisson_sampling(sigma, steps, passes, delta, low, high):
    row = pld.account(process(sigma, steps, passes), tol=1e-4).at(delta=delta)
    assert row.epsilon.lower <= high
    assert row.epsilon.upper >= low
    assert row.epsilon.upper - row.epsilon.lower <= 6e-4 * row.epsilon.upper
    poisson = wpriv.Process((wpriv.Step(wpriv.Gauss(sigma), steps * passes, wpriv.Poisson(1 / steps)),))
    assert row.epsilon.upper < pld.account(poisson).at(delta=delta).epsilon.lower


def test_bracket_agrees_with_simulation():
    # Monte Carlo with a control variate, 2.7e6 draws: .0024589 with a standard error of 4.8e-6
    low, high = (math.exp(end.log_delta(0.05)) for end in allocated(GaussPair(1.0), 1000).sandwich(1e-5))
    assert high - low < 1e-7
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


def test_eps_falls_with_sigma_and_with_the_steps_of_a_pass():
    rows = [[pld.account(process(s, t, 2)).at(delta=1e-5).epsilon for t in (2, 5, 20, 100)] for s in (1.0, 1.5, 4.0)]
    for row in (*rows, *zip(*rows, strict=True)):
        assert all(more.upper > less.lower for more, less in itertools.pairwise(row))


@pytest.mark.parametrize("seed", range(12))
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


def test_laplace_noise_has_a_bracket():
    row = wpriv.budget("laplace", scale=2.0, n=100, sampling=wpriv.Allocation(0.1), delta=1e-5, tol=1e-3)
    assert 0 < row.epsilon.lower <= row.epsilon.upper <= 10 * 0.5
    assert allocated(LaplacePair(0.5), 10).support == (-0.5, 0.5)


def test_allocation_composes_with_other_steps():
    mixed = process(1.0, 100, 2) + wpriv.Step(wpriv.Gauss(5.0), 3, wpriv.Poisson(0.1))
    alone = pld.account(process(1.0, 100, 2)).at(delta=1e-5).epsilon
    assert pld.account(mixed).at(delta=1e-5).epsilon.upper > alone.lower


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
    with pytest.raises(UsageError, match="multiple of 100"):
        wpriv.Step(wpriv.Gauss(1.0), 150, wpriv.Allocation(0.01))
    with pytest.raises(Unsupported, match="add-remove"):
        process(1.0, 100, 1, adjacency="replace-one")
    with pytest.raises(Unsupported, match="finite losses"):
        wpriv.Process((wpriv.Step(wpriv.TruncatedGauss(1.0, 5.0), 10, wpriv.Allocation(0.1)),))
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
