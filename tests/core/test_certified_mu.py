"""mu of Gaussian DP against closed forms, one step of subsampled noise, and the grid of another library."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.special import ndtr, ndtri

import wpriv
from tests import nightly
from wpriv import Gauss, Laplace, Poisson, Process, Step
from wpriv.accounting import build_process
from wpriv.accounting.mechanisms.gauss import GaussPair
from wpriv.core.trade_off import TradeOff, least_mu
from wpriv.errors import Unsupported, UsageError


def mu_of(process: Process, fpr: float = 1e-9, accountant: str = "pld"):
    return wpriv.curve(process, accountant, tol=1e-4).mu(fpr=fpr)


def supremum(tpr, fpr: float) -> float:
    """sup of Phi^-1(TPR) - Phi^-1(a) over a dense grid of [fpr, 1/2]."""
    a = np.concatenate([np.geomspace(fpr, 0.5, 20_001), [0.5]])
    return float(np.max(ndtri(tpr(a)) - ndtri(a)))


@settings(max_examples=60, deadline=None)
@given(st.floats(-6, 1), st.floats(-15, -0.302))
def test_the_mu_of_two_normals_is_bracketed_at_every_cut(log10_mu, log10_fpr):
    mu, pair = 10**log10_mu, GaussPair(10**log10_mu)

    def delta(eps: float) -> tuple[float, float]:
        value = math.exp(float(pair.log_delta(eps)))
        return value, value

    low, high = least_mu(TradeOff(delta, delta), delta(0.0)[0], 10**log10_fpr)
    assert low <= mu <= high
    assert high <= mu * (1 + 4e-4)


def test_gaussian_steps_have_their_exact_mu_at_every_rate():
    mu = mu_of(Process((Step(Gauss(sigma=4), 10), Step(Gauss(sigma=2)))))
    assert mu.exact
    assert mu.lower == mu.upper == pytest.approx(math.sqrt(10 / 16 + 1 / 4), rel=1e-14)


@pytest.mark.parametrize("fpr", [0.5, 1e-3, 1e-9, 1e-12])
@pytest.mark.parametrize(("sigma", "rate"), [(1.0, 0.1), (0.7, 0.01), (3.0, 0.5)])
def test_both_orders_of_one_poisson_step_contain_the_truth(sigma, rate, fpr):
    # Neyman and Pearson: the best test of the mixture against N(0, s^2) is a threshold c in either order
    def remove(a):
        c = -sigma * ndtri(a)
        return (1 - rate) * a + rate * ndtr((1 - c) / sigma)

    def add(a):
        low, high = np.full_like(a, -60.0 * sigma), np.full_like(a, 60.0 * sigma)
        for _ in range(90):
            c = (low + high) / 2
            over = (1 - rate) * ndtr(c / sigma) + rate * ndtr((c - 1) / sigma) > a
            low, high = np.where(over, low, c), np.where(over, c, high)
        return ndtr(low / sigma)

    mu = mu_of(Process((Step(Gauss(sigma=sigma), 1, Poisson(rate)),)), fpr)
    for (name, low, high), truth in zip(mu.orders, (supremum(remove, fpr), supremum(add, fpr)), strict=True):
        assert low * (1 - 1e-9) <= truth <= high * (1 + 1e-9), name
        assert high - low <= 1e-3 * high, name


@pytest.mark.parametrize("fpr", [0.5, 0.1, 1e-6])
def test_laplace_noise_contains_the_truth(fpr):
    t = 0.7

    def tpr(a):
        # Dong, Roth, Su (2019), Proposition A.6
        return np.where(a < math.exp(-t) / 2, math.exp(t) * a, 1 - math.exp(-t) / (4 * a))

    mu = mu_of(Process((Step(Laplace(scale=1 / t)),)), fpr)
    # the maximum at the kink lies between points of the grid
    assert mu.lower <= supremum(tpr, fpr) * (1 + 1e-5)
    assert mu.upper >= supremum(tpr, fpr) * (1 - 1e-9)
    assert mu.upper - mu.lower <= 1e-3 * mu.upper


def test_randomized_response_has_the_mu_of_its_one_vertex():
    mu = mu_of(build_process.process([{"mech": "randomized-response", "eps0": 1.0}]))
    truth = 2 * float(ndtri(math.e / (1 + math.e)))
    assert mu.lower <= truth <= mu.upper
    assert mu.upper - mu.lower <= 1e-9


def test_a_distinguishing_event_makes_mu_grow_without_bound_as_the_cut_falls():
    # with chance 1/5 the answer is revealed at no false alarm: TPR = a + 1/5
    process = build_process.process([{"mech": "uniform", "outcomes": 5}])
    uppers = []
    for fpr in (1e-3, 1e-9, 1e-15):
        mu = mu_of(process, fpr)
        truth = supremum(lambda a: 0.2 + a, fpr)
        assert mu.lower <= truth * (1 + 1e-9)
        assert mu.upper >= truth * (1 - 1e-9)
        uppers.append(mu.upper)
    assert uppers[0] < uppers[1] < uppers[2]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("sigma", "rate", "n", "published"),
    nightly.sharded(
        [
            (4, 0.01, 65536, (0.650, 0.651, 0.651, 0.652)),
            (1.1, 256 / 60000, 14040, (0.571, 0.581, 0.587, 0.593)),
            (0.8, 0.001, 10000, (0.193, 0.208, 0.238, 0.329)),
        ],
        3,
    ),
)
def test_dp_sgd_agrees_with_the_grid_of_dp_accounting(sigma, rate, n, published):
    # vertices of dp_accounting's pessimistic PLD, rounded to three digits
    process = Process((Step(Gauss(sigma=sigma), n, Poisson(rate)),))
    for fpr, figure in zip((0.5, 1e-3, 1e-6, 1e-9), published, strict=True):
        mu = mu_of(process, fpr)
        assert mu.lower - 6e-4 <= figure <= mu.upper + 6e-4
        assert mu.upper - mu.lower <= 1e-3 * mu.upper


@pytest.mark.slow
@settings(max_examples=5, deadline=None)
@given(st.floats(0.5, 8), st.floats(-4, -0.05), st.integers(1, 300), st.floats(-7, -0.302), st.floats(-7, -0.302))
def test_ends_are_ordered_and_mu_falls_as_the_cut_rises(sigma, log10_rate, n, cut, other):
    curve = wpriv.curve(Process((Step(Gauss(sigma=sigma), n, Poisson(10**log10_rate)),)), tol=1e-4)
    low, high = sorted((10**cut, 10**other))
    deep, shallow = curve.mu(fpr=low), curve.mu(fpr=high)
    assert 0 <= deep.lower <= deep.upper
    assert 0 <= shallow.lower <= shallow.upper
    assert shallow.lower <= deep.upper
    # sampling never does harm: at most the mu of the same steps without it
    assert deep.lower <= math.sqrt(n) / sigma * (1 + 1e-9)


def test_an_upper_bound_of_the_curve_gives_an_upper_bound_of_mu():
    process = Process((Step(Gauss(sigma=2), 100, Poisson(0.01)),))
    exact, bound = mu_of(process, 1e-6), mu_of(process, 1e-6, "rdp")
    assert bound.lower == 0
    assert exact.lower <= bound.upper < 5 * exact.upper


def test_figures_that_are_no_proven_bounds_have_no_mu():
    process = Process((Step(Gauss(sigma=2), 100, Poisson(0.01)),))
    for accountant in ("gdp-clt", "pdp"):
        with pytest.raises(Unsupported, match=r"`accountant='pld'`"):
            mu_of(process, 1e-6, accountant)


@pytest.mark.parametrize("fpr", [0.0, -1.0, 0.6, 1.0, math.nan, math.inf])
def test_a_cut_outside_its_range_is_refused(fpr):
    with pytest.raises(UsageError, match="fpr"):
        mu_of(Process((Step(Laplace(scale=2)),)), fpr)


def test_large_mu_is_at_most_that_of_the_same_steps_without_sampling():
    mu = mu_of(Process((Step(Gauss(sigma=0.5), 3000, Poisson(0.9)),)))
    assert mu.upper <= math.sqrt(3000) / 0.5 * (1 + 1e-9)
    assert mu.lower > 5
