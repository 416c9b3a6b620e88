"""Absolute normal moments against closed forms at mu = 2 and 4, mpmath, golden values and Monte Carlo; never NaN."""

from __future__ import annotations

import math

import mpmath
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.points import POINTS
from wpriv.errors import UsageError
from wpriv.numerics.wasserstein_1d import absolute_moment, log_absolute_moment

GOLDEN = [p for p in POINTS if "-lem1-" in p["id"]]


def test_there_are_golden_moments():
    assert len(GOLDEN) >= 6


@pytest.mark.parametrize("point", GOLDEN, ids=lambda p: p["id"])
def test_the_golden_moments(point):
    q, d, sigma, mu = (float(point["inputs"][k]) for k in ("q", "d", "sigma", "mu"))
    found = absolute_moment(q * d, math.sqrt(2 - 2 * q + 2 * q * q) * sigma, mu)
    assert float(found) == pytest.approx(float(point["value"]), rel=1e-12)


@given(m=st.floats(0, 1e6), s=st.floats(1e-6, 1e6))
@settings(max_examples=60, deadline=None)
def test_orders_2_and_4_are_polynomials(m, s):
    assert float(log_absolute_moment(m, s, 2)) == pytest.approx(math.log(m * m + s * s), abs=1e-12)
    assert float(log_absolute_moment(m, s, 4)) == pytest.approx(
        math.log(m**4 + 6 * m * m * s * s + 3 * s**4), abs=1e-12
    )


@pytest.mark.parametrize("mu", [1, 1.7, 3, 16, 37.3, 1000])
@pytest.mark.parametrize("ratio", [0, 1e-8, 0.3, 5, 19, 25, 38, 1e4])
def test_moments_are_those_of_mpmath_for_every_order_and_distance(mu, ratio):
    with mpmath.workdps(40):
        x, order = mpmath.mpf(ratio) ** 2 / 2, mpmath.mpf(mu)
        kummer = mpmath.hyp1f1(-order / 2, 0.5, -x)
        exact = (
            order / 2 * mpmath.log(2)
            + mpmath.loggamma((order + 1) / 2)
            - mpmath.log(mpmath.pi) / 2
            + mpmath.log(kummer)
        )
    assert float(log_absolute_moment(0.7 * ratio, 0.7, mu)) == pytest.approx(
        float(exact) + mu * math.log(0.7), rel=1e-12, abs=1e-12
    )


@pytest.mark.parametrize("mu", [1.5, 4])
def test_moments_are_those_of_a_monte_carlo_run(mu):
    """Within five standard errors of 400,000 draws."""
    z = np.abs(np.random.default_rng(1).normal(1.3, 0.8, 400_000)) ** mu
    assert abs(float(absolute_moment(1.3, 0.8, mu)) - z.mean()) < 5 * z.std() / math.sqrt(z.size)


@given(mu=st.floats(1, 900), m=st.floats(0, 1e300), s=st.floats(1e-300, 1e300))
@settings(max_examples=100, deadline=None)
def test_the_norm_grows_with_the_order_and_is_never_nan(mu, m, s):
    low, high = float(log_absolute_moment(m, s, mu)) / mu, float(log_absolute_moment(m, s, mu * 1.1)) / (mu * 1.1)
    assert math.isfinite(low)
    assert low <= high + 1e-9 * max(1.0, abs(high))
    assert low >= math.log(max(m, 1e-320)) - 1e-9 * abs(math.log(max(m, 1e-320)))  # Jensen


def test_a_moment_beyond_the_largest_double_is_inf_with_a_warning_and_finite_in_logs():
    q, d, sigma = 0.01, 1e6, 1e-6
    assert float(log_absolute_moment(q * d, sigma, 1000)) == pytest.approx(1000 * math.log(q * d), rel=1e-12)
    with pytest.warns(RuntimeWarning, match="log_absolute_moment"):
        assert math.isinf(float(absolute_moment(q * d, sigma, 1000)))


def test_moments_without_noise_are_powers_of_the_mean():
    assert list(absolute_moment([0.0, 2.0], 0.0, 3)) == pytest.approx([0.0, 8.0], rel=1e-14)


def test_moments_of_an_array_of_means_equal_those_one_by_one():
    means = np.array([[0.0, 0.5, 30.0], [400.0, 1e9, 3.0]])
    found = log_absolute_moment(means, 1.0, 17.5)
    assert found.shape == means.shape
    assert found.ravel() == pytest.approx([float(log_absolute_moment(m, 1.0, 17.5)) for m in means.ravel()], rel=1e-14)


@pytest.mark.parametrize(("mean", "sigma"), [(math.nan, 1), (math.inf, 1), (1, -1), (1, math.nan)])
def test_log_absolute_moment_refuses_means_and_sigmas_that_are_not_finite(mean, sigma):
    with pytest.raises(UsageError, match="sigma"):
        log_absolute_moment(mean, sigma, 2)
