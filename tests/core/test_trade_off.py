"""Error rates of the best test against exact trade-off functions."""

from __future__ import annotations

import math

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.special import ndtr, ndtri

import wpriv
from wpriv import Gauss, Laplace, Poisson, Process, Step
from wpriv.core.membership import Membership
from wpriv.errors import UsageError


@settings(max_examples=60, deadline=None)
@given(st.floats(-4, 0.9), st.floats(1e-12, 1.0, exclude_max=True))
def test_two_normals_are_bracketed_at_every_rate(log10_mu, fpr):
    mu = 10**log10_mu
    rates = wpriv.curve(Process((Step(Gauss(sigma=1 / mu)),))).trade_off(fpr=fpr)
    fnr = float(ndtr(-ndtri(fpr) - mu))
    assert rates.fnr_lower <= fnr * (1 + 1e-9) + 1e-12
    assert rates.fnr_upper >= fnr * (1 - 1e-9) - 1e-12
    assert rates.tpr_upper - rates.tpr_lower <= 2e-3 * rates.tpr_upper + 1e-12


@pytest.mark.parametrize("fpr", [1e-6, 0.01, 0.3, 0.7, 0.99])
def test_the_worse_order_of_one_poisson_step_is_bracketed(fpr):
    sigma, rate = 0.8, 0.2
    c = -sigma * ndtri(fpr)
    remove = (1 - rate) * ndtr(c / sigma) + rate * ndtr((c - 1) / sigma)
    low, high = -60.0, 60.0
    for _ in range(200):
        middle = (low + high) / 2
        over = (1 - rate) * ndtr(middle / sigma) + rate * ndtr((middle - 1) / sigma) > fpr
        low, high = (low, middle) if over else (middle, high)
    truth = min(remove, ndtr(-low / sigma))
    rates = wpriv.curve(Process((Step(Gauss(sigma=sigma), 1, Poisson(rate)),))).trade_off(fpr=fpr)
    assert rates.fnr_lower <= truth * (1 + 1e-9)
    assert rates.fnr_upper >= truth * (1 - 1e-9)
    assert rates.fnr_upper - rates.fnr_lower <= 2e-3


def test_error_rates_fall_together_and_end_at_no_error():
    membership = Membership(wpriv.curve(Process((Step(Laplace(scale=2), 10),)), tol=1e-4))
    points = membership.error_rates([1e-6, 1e-4, 1e-2, 0.1, 0.5, 0.9, 0.999, 1.0])
    for end in ("fnr_lower", "fnr_upper"):
        values = [getattr(point, end) for point in points]
        assert values == sorted(values, reverse=True)
    assert all(0 <= p.fnr_lower <= p.fnr_upper <= 1 - p.fpr + 1e-12 for p in points)
    assert points[-1].tpr_lower == points[-1].tpr_upper == 1


@pytest.mark.parametrize("fpr", [0.0, 1.5, -0.1, math.nan])
def test_a_rate_outside_its_range_is_refused(fpr):
    with pytest.raises(UsageError, match="false-positive rate"):
        wpriv.curve(Process((Step(Laplace(scale=2)),))).trade_off(fpr=fpr)
