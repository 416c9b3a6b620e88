"""Logarithms of differences, against mpmath."""

from __future__ import annotations

import mpmath as mp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from wpriv.numerics.log_space import inverse_log_mixture, log1mexp, log_exp_excess, log_mixture

pytestmark = pytest.mark.slow

RATES = st.one_of(
    st.floats(1e-12, 0.5), st.floats(-12, -0.3).map(lambda v: 1 - 10**v), st.floats(-12, -0.3).map(lambda v: 10**v)
)


@given(st.floats(-1e300, 0.0, exclude_max=True))
@settings(max_examples=300, deadline=None)
def test_log1mexp_is_right_to_rounding(x):
    with mp.workdps(400):
        exact = mp.log(-mp.expm1(mp.mpf(max(x, -800.0))))
    assert float(log1mexp(max(x, -800.0))) == pytest.approx(float(exact), rel=4e-16)


@given(st.one_of(st.floats(-700, 700), st.floats(-1e-3, 1e-3), st.floats(29, 31), st.floats(-0.6, 0.6)))
@settings(max_examples=400, deadline=None)
def test_the_excess_of_the_exponential_is_right_to_rounding(x):
    found = float(log_exp_excess(np.array(x)))
    if abs(x) < 1e-300:
        assert found < -1000
        return
    with mp.workdps(700):
        exact = mp.log(mp.exp(mp.mpf(x)) - 1 - mp.mpf(x))
    assert found == pytest.approx(float(exact), rel=1e-15, abs=2e-15)


@given(st.one_of(st.floats(-700, 700), st.floats(-1e-3, 1e-3)), RATES)
@settings(max_examples=500, deadline=None)
def test_log_mixture_is_right_to_rounding(loss, rate):
    with mp.workdps(60):
        exact = float(mp.log1p(mp.mpf(rate) * mp.expm1(mp.mpf(loss))))
    assert float(log_mixture(np.array(loss), rate)) == pytest.approx(exact, rel=1e-14, abs=1e-300)


@given(st.one_of(st.floats(-40, 700), st.floats(-1e-3, 1e-3)), RATES)
@settings(max_examples=500, deadline=None)
def test_inverse_log_mixture_is_as_accurate_as_its_argument(eps, rate):
    with mp.workdps(60):
        ratio = 1 + mp.expm1(mp.mpf(eps)) / mp.mpf(rate)
        loss = float(inverse_log_mixture(np.array(eps), rate))
        if ratio * rate <= 4e-16 * abs(eps) * mp.exp(eps):  # below the smallest loss, or within a rounding of it
            assert loss < -30
            return
        exact = mp.log1p(mp.expm1(mp.mpf(eps)) / mp.mpf(rate))
        sensitivity = abs(mp.exp(mp.mpf(eps)) / (mp.mpf(rate) * ratio))  # d loss / d eps
        rounding = abs(eps) * sensitivity + abs(exact) + abs(mp.log(rate)) * (abs(exact) > 0.5)
        assert abs(loss - exact) <= 4e-16 * rounding + 1e-300


@pytest.mark.parametrize("rate", [1e-300, 1e-12, 0.3, 1 - 2.0**-53])
def test_log_mixture_and_its_inverse_keep_their_limits(rate):
    ends = np.array([-np.inf, 0.0, np.inf])
    np.testing.assert_array_equal(log_mixture(ends, rate), [np.log1p(-rate), 0.0, np.inf])
    np.testing.assert_array_equal(inverse_log_mixture(ends, rate), ends)
    assert inverse_log_mixture(np.array(np.log1p(-rate) * 1.01 - 1e-15), rate) == -np.inf
