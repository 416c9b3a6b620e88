"""Logarithms of differences, against mpmath."""

from __future__ import annotations

import mpmath as mp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from wpriv.numerics.log_space import log1mexp, log_exp_excess


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
