"""Renyi divergences and zCDP of discrete Gaussian noise at every order, before and after sampling.

Oracle: the defining sum over integers in 60 digits (mpmath), around the centre of the tilted distribution as well as
around zero; and
Canonne, Kamath, Steinke (2020): D_alpha = alpha s^2 / (2 sigma^2) at whole orders, and at most that at every order.
"""

from __future__ import annotations

import math

import mpmath as mp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import wpriv
from wpriv.accounting.mechanisms.discrete_gauss import DiscreteGauss, LatticePair
from wpriv.core.loss_moments import log_moment
from wpriv.core.subsampled_pairs import fixed, poisson

CASES = [(1.0, 1), (0.3, 1), (0.05, 1), (0.39, 1), (0.41, 2), (0.6, 3), (3.0, 2), (20.0, 1)]


def exact(sigma: float, shift: int, lam: float, rate: float = 1.0) -> mp.mpf:
    """ln E_P[e^(lam L)] = ln sum over k of Q(k) (1 - q + q e^L(k))^(lam + 1) of removing a Poisson-sampled record."""
    with mp.workdps(60):
        s2, power, q = mp.mpf(sigma) ** 2, mp.mpf(lam) + 1, mp.mpf(rate)
        reach = int(20 * sigma) + 30
        weight = {
            k: mp.exp(-(mp.mpf(k) ** 2) / (2 * s2)) for k in range(-reach, int((lam + 1) * shift) + reach + shift)
        }
        total = mp.fsum(weight[k] for k in weight if abs(k) <= reach)
        return mp.log(
            mp.fsum(
                w * (1 - q + q * mp.exp((2 * k - shift) * mp.mpf(shift) / (2 * s2))) ** power for k, w in weight.items()
            )
            / total
        )


@pytest.mark.slow
@pytest.mark.parametrize(("sigma", "shift"), CASES)
@pytest.mark.parametrize("lam", [1e-9, 1e-3, 0.1, 0.5, 1.0, 2.5, 30.3, 99.0])
def test_the_moment_is_its_sum_at_every_order(sigma, shift, lam):
    truth = float(exact(sigma, shift, lam))
    assert float(log_moment(DiscreteGauss(sigma, shift).pair(), np.array([lam]))[0]) == pytest.approx(truth, rel=1e-11)
    assert float(lam * LatticePair(sigma, shift).renyi(np.array([lam + 1]))[0]) == pytest.approx(truth, rel=1e-6)


@pytest.mark.parametrize(("sigma", "order", "truth"), [(1.0, 100, 50.0), (10.0, 1000, 5.0), (5000.0, 1e6, 0.02)])
def test_integer_orders_have_the_divergence_of_the_gauss_mechanism(sigma, order, truth):
    row = wpriv.budget("discrete-gauss", sigma=sigma, accountant=f"renyi:order={order:g}")
    assert row.epsilon.safe == pytest.approx(truth, rel=1e-12)


@pytest.mark.parametrize(("sigma", "shift", "rate"), [(1.0, 1, 0.5), (0.3, 1, 0.01), (3.0, 2, 0.1)])
@pytest.mark.parametrize("lam", [0.5, 2.5, 30.3, 99.0, 300.0])
def test_sampled_moments_reach_as_far_as_their_order_needs(sigma, shift, rate, lam):
    truth = float(exact(sigma, shift, lam, rate))
    pair = poisson(DiscreteGauss(sigma, shift).pair(), rate)
    assert float(log_moment(pair, np.array([lam]))[0]) == pytest.approx(truth, rel=1e-9)
    assert float(lam * pair.renyi(np.array([lam + 1]))[0]) == pytest.approx(truth, rel=1e-9)


@pytest.mark.parametrize("sample", [poisson, fixed])
def test_a_moment_with_too_many_terms_is_infinite_and_never_too_small(sample):
    pair = sample(DiscreteGauss(1.0).pair(), 0.1)
    assert log_moment(pair, np.array([1e9]))[0] == math.inf
    # of large orders, ln((q e^L)^lam) at the tilted centre is a lower bound: D_alpha >= alpha/2 + ln(q) alpha/(alpha-1)
    for order in (50.0, 500.0, 5000.0):
        assert float(pair.renyi(np.array([order]))[0]) >= order / 2 + math.log(0.1) * order / (order - 1) - 1e-9


def test_moments_at_one_high_order_bound_delta_from_above():
    # n = 1, sigma = 1: delta(eps) <= e^(lam D - lam eps) with lam D = lam (lam + 1) / 2 at whole orders
    row = wpriv.budget("discrete-gauss", sigma=1, delta=1e-5, accountant="moments:order=100")
    assert row.epsilon.safe == pytest.approx((100 * 101 / 2 + math.log(1e5)) / 100, rel=1e-12)


@given(st.floats(-1, 4).map(lambda x: 10**x), st.integers(1, 5), st.floats(-3, 3).map(lambda x: 1 + 10**x))
@settings(max_examples=100, deadline=None)
def test_the_divergence_stays_below_rho_times_the_order(sigma, shift, order):
    pair = DiscreteGauss(sigma, shift).pair()
    rho = pair.zcdp_rho()
    assert rho == pytest.approx(shift**2 / (2 * sigma**2), rel=1e-15)
    assert float(pair.renyi(np.array([order]))[0]) <= rho * order * (1 + 1e-12)


@pytest.mark.parametrize("sigma", [0.5, 10.0, 5000.0])
def test_zcdp_of_discrete_gauss_is_that_of_gauss(sigma):
    # Canonne, Kamath, Steinke 2020: rho = 1 / (2 sigma^2); Bun, Steinke 2016: eps = rho + 2 sqrt(rho ln(1/delta))
    rho = 1 / (2 * sigma**2)
    row = wpriv.budget("discrete-gauss", sigma=sigma, delta=1e-5, accountant="zcdp")
    assert row.epsilon.safe == pytest.approx(rho + 2 * math.sqrt(rho * math.log(1e5)), rel=1e-12)


def test_the_profile_beyond_the_atoms_is_bounded_and_not_zero():
    for pair in (
        DiscreteGauss(1.0).pair(),
        poisson(DiscreteGauss(1.0).pair(), 0.1),
        fixed(DiscreteGauss(1.0).pair(), 0.1),
    ):
        beyond = float(pair.log_delta(1000.0))
        assert -850 < beyond < -700
        assert pair.support[1] == math.inf
