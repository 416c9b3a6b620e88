"""Questions at the ends of the doubles: right, or refused, without a warning of NumPy and without a crash.

Oracles: closed forms of the total variation distance (delta at an eps of 0 to rounding), and that delta of bounded or
Gaussian losses is 0 at an eps of 1e308.
"""

from __future__ import annotations

import math
import warnings

import pytest

from tests import nightly
from wpriv import budget
from wpriv.accounting.mechanisms.discrete_gauss import DiscreteGauss
from wpriv.errors import Unsupported


@pytest.fixture(autouse=True)
def _warnings_are_errors():
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        yield


@pytest.mark.parametrize(
    ("keywords", "truth"),
    [
        # the record takes part in a step with the rate, and then no noise hides it
        ({"mech": "gauss", "sigma": 1e-6, "sampling": "poisson", "rate": 0.046, "n": 2}, 1 - 0.954**2),
        ({"mech": "laplace", "scale": 2e-3, "sampling": "poisson", "rate": 1.2e-10, "n": 3}, 3.6e-10),
        ({"mech": "dp", "eps0": 7.8e-5, "sampling": "poisson", "rate": 2.26e-15}, 2.26e-15 * math.tanh(7.8e-5 / 2)),
        ({"mech": "gauss", "sigma": 1.0, "sampling": "poisson", "rate": 0.01}, 0.01 * math.erf(0.5 / math.sqrt(2))),
        ({"mech": "gauss", "sigma": 1.0}, math.erf(0.5 / math.sqrt(2))),
    ],
)
def test_delta_at_an_eps_next_to_0_is_the_total_variation_distance(keywords, truth):
    delta = budget(**keywords, eps=1e-300).delta
    assert delta.lower <= truth * (1 + 1e-9)
    assert delta.upper >= truth * (1 - 1e-9)
    assert delta.upper == pytest.approx(truth, rel=1e-4)


def test_delta_of_a_billion_releases_at_an_eps_next_to_0_is_that_at_0():
    process = {"mech": "dp", "eps0": 7.8e-5, "n": 2**30, "sampling": "poisson", "rate": 2.26e-15}
    assert budget(**process, eps=1e-300).delta.upper == budget(**process, eps=0.0).delta.upper


@pytest.mark.parametrize(
    "process",
    [
        {"mech": "gauss", "sigma": 1e6, "sampling": "fixed", "rate": 3e-4},
        {"mech": "gdp", "mu": 1e8, "sampling": "fixed", "rate": 2e-15, "n": 3},
        {"mech": "gauss", "sigma": 3.6e60, "n": 2**30},
        {"mech": "gauss", "sigma": 1.0, "sampling": "poisson", "rate": 0.01, "n": 10},
    ],
)
def test_delta_is_negligible_at_the_largest_eps(process):
    assert budget(**process, eps=1.7e308).delta.upper <= 1e-300


def test_noise_that_hides_nothing_at_an_eps_below_the_loss():
    # oracle: the three steps take the record with 1 - (1-q)^3, and nothing hides it then
    row = budget("discrete-gauss", sensitivity=1000, sigma=4.96e-6, sampling="poisson", rate=2.05e-4, n=3, eps=1e-12)
    truth = -math.expm1(3 * math.log1p(-2.05e-4))
    assert row.delta.lower <= truth <= row.delta.upper * (1 + 1e-12)
    assert row.delta.upper == pytest.approx(truth, rel=1e-9)


@pytest.mark.parametrize(
    "process",
    nightly.sharded(
        [
            {"mech": "laplace", "scale": 6e-5, "sampling": "poisson", "rate": 7e-10, "n": 2**30},
            {"mech": "laplace", "scale": 4e6, "sensitivity": 7.0, "n": 2**30},
            {"mech": "laplace", "scale": 5e-63, "sampling": "poisson", "rate": 6e-4, "n": 3},
            {"mech": "dp", "eps0": 5e-9, "n": 1000, "sampling": "fixed", "rate": 7e-15},
        ],
        2,
    ),
)
def test_eps_at_the_least_delta_is_answered_without_a_warning(process):
    assert budget(**process, delta=5e-324).epsilon.upper > 0


def test_losses_beyond_64_bit_lattices_are_refused_or_bounded():
    try:
        row = budget(
            "gauss", sigma=9.436537923397352e-26, n=2**30, sampling="fixed", rate=0.07718092527492346, delta=1e-5
        )
    except Unsupported:
        return
    assert row.epsilon.upper > 1e50


@pytest.mark.parametrize("sigma", [1e9, 1e45, 6e70, 1e99])
def test_discrete_gauss_of_huge_sigma_is_the_continuous_one(sigma):
    # oracle: sums of a density that is constant to 1/sigma^2 over a step are its integrals; delta(0) is erf(1/(2 sigma
    # sqrt 2)), which is 1/(sigma sqrt(2 pi)) to rounding
    delta = budget(DiscreteGauss(sigma), eps=0.0).delta
    assert delta.upper == pytest.approx(1 / (sigma * math.sqrt(2 * math.pi)), rel=1e-6)
