"""Approximate PMFs only steer, so they are held to about a percent; but they never fail, and keep their moments."""

from __future__ import annotations

import math

import numpy as np
import pytest
from scipy.integrate import trapezoid

from wpriv.accounting.mechanisms.discrete_gauss import DiscreteGauss
from wpriv.accounting.mechanisms.gauss import GaussPair
from wpriv.accounting.mechanisms.laplace import LaplacePair
from wpriv.accounting.mechanisms.truncated_gauss import TruncatedGauss
from wpriv.accounting.mechanisms.truncated_laplace import TruncatedLaplace
from wpriv.accounting.mechanisms.uniform import Uniform
from wpriv.accounting.pld.saddle_point import approximate_pmf, cumulants, log_tail_factor, tilt_for_delta, tilt_for_eps
from wpriv.core.atomic_pair import AtomicPair
from wpriv.core.loss_moments import log_moment, loss_class
from wpriv.core.loss_pair import LossPair
from wpriv.core.subsampled_pairs import fixed, poisson

PAIRS: dict[str, LossPair] = {
    "gauss": GaussPair(0.7),
    "tiny gauss": GaussPair(1e-6),
    "huge gauss": GaussPair(1e3),
    "poisson gauss": poisson(GaussPair(0.25), 0.01),
    "poisson gauss reversed": poisson(GaussPair(0.25), 0.01).reverse(),
    "rare large losses": poisson(GaussPair(1 / 0.6), 1e-4),
    "rarest": poisson(GaussPair(2.0), 1e-7),
    "fixed gauss": fixed(GaussPair(1.0), 0.05),
    "laplace": LaplacePair(0.3),
    "tiny laplace": LaplacePair(1e-7),
    "poisson laplace": poisson(LaplacePair(1.0), 0.1),
    "truncated gauss": TruncatedGauss(sigma=1.0, bound=3.0).pair(),
    "truncated laplace": TruncatedLaplace(scale=1.0, bound=3.0).pair(),
    "discrete gauss": DiscreteGauss(sigma=3.0).pair(),
    "uniform": Uniform(outcomes=10).pair(),
    "two atoms": AtomicPair(np.array([-1e-9, 1e-9]), np.log([0.5, 0.5])),
}


@pytest.mark.parametrize("name", PAIRS)
def test_approximate_pmfs_hold_the_finite_mass_on_increasing_losses(name):
    pair = PAIRS[name]
    p = approximate_pmf(pair)
    assert np.all(np.diff(p.y) > 0) or p.y.size == 1
    assert p.mass.sum() == pytest.approx(1 - pair.mass_at_plus_infinity, abs=1e-9)


@pytest.mark.parametrize("name", [name for name in PAIRS if name not in ("uniform", "huge gauss", "two atoms")])
def test_mean_and_variance_agree_with_quadrature(name):
    # oracle: the loss class, from integrals of the profile (core/loss_moments.py)
    pair = PAIRS[name]
    exact = loss_class(pair)
    c = cumulants([approximate_pmf(pair)], [np.array([1])], 0.0)
    assert c.variance / (1 - pair.mass_at_plus_infinity) == pytest.approx(exact.variance, rel=0.06)
    assert c.mean == pytest.approx(
        exact.mean * (1 - pair.mass_at_plus_infinity), abs=0.06 * exact.variance + 0.01 * abs(exact.mean)
    )


@pytest.mark.parametrize(
    "name", ["gauss", "poisson gauss", "rare large losses", "fixed gauss", "laplace", "discrete gauss"]
)
def test_cumulants_agree_with_quadrature(name):
    pair = PAIRS[name]
    orders = np.array([0.5, 2.0, 4.0])
    exact = log_moment(pair, orders)
    found = [cumulants([approximate_pmf(pair)], [np.array([7])], float(s)).cgf / 7 for s in orders]
    assert found == pytest.approx(exact, rel=0.06)


@pytest.mark.slow
def test_the_tail_factor_is_the_expectation_it_names():
    # oracle: Gauss-Hermite-free quadrature of (1 - e^-x) e^{-tilt x} over the normal density
    x = np.linspace(0, 40, 2_000_001)
    for tilt, deviation in ((0.0, 1.0), (3.0, 0.2), (10.0, 2.0), (0.01, 0.001)):
        z = x * deviation * min(1.0, 5 / (1 + tilt * deviation))
        value = -np.expm1(-z) * np.exp(-tilt * z - (z / deviation) ** 2 / 2) / (deviation * math.sqrt(2 * math.pi))
        assert log_tail_factor(tilt, deviation) == pytest.approx(math.log(trapezoid(value, z)), abs=1e-4)
    assert log_tail_factor(1.0, 0.0) == -math.inf


@pytest.mark.parametrize("delta", [0.3, 1e-5, 1e-30, 1e-100])
@pytest.mark.parametrize("mu", [1e-3, 1.0, 30.0])
def test_the_tilt_for_a_delta_puts_the_mean_near_eps(mu, delta):
    # oracle: closed form of the Gaussian mechanism; the tilted mean is mu^2 (tilt + 1/2)
    pair = GaussPair(mu)
    tilt = tilt_for_delta([approximate_pmf(pair)], [np.array([1])], math.log(delta))
    eps = mu * mu * (tilt + 0.5)
    reached = float(pair.log_delta(eps))
    assert tilt >= 0
    if tilt > 0:
        assert reached == pytest.approx(math.log(delta), rel=0.05, abs=0.2)
    else:
        assert reached <= math.log(delta) + 0.2


def test_the_tilt_for_an_eps_inverts_the_mean():
    pair = poisson(GaussPair(0.25), 0.01)
    probes, counts = [approximate_pmf(pair)], [np.array([65536])]
    tilt = tilt_for_eps(probes, counts, 2.0)
    assert cumulants(probes, counts, tilt).mean == pytest.approx(2.0, rel=0.02)
    assert tilt_for_eps(probes, counts, -1.0) == 0.0
