"""The order of two curves: known orders of closed forms, and no order that a dense grid contradicts."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.special import ndtr

from wpriv.accounting.claims.order import lies_below, order_curves

MIRROR = {"dominates": "dominated", "dominated": "dominates", "equal": "equal", "crosses": "crosses"}


def gauss(mu):
    """delta of N(mu, 1) and N(0, 1): Balle and Wang 2018, Theorem 8."""
    return lambda eps: float(ndtr(mu / 2 - eps / mu) - math.exp(eps) * ndtr(-mu / 2 - eps / mu))


def laplace(t):
    """delta of Laplace distributions t scales apart."""
    return lambda eps: max(-math.expm1((eps - t) / 2), 0.0)


def response(t):
    """delta of randomised response with pure eps t."""
    return lambda eps: max((math.exp(t) - math.exp(eps)) / (1 + math.exp(t)), 0.0)


def dp(eps0, delta0):
    """delta of the worst (eps0, delta0)-DP release."""
    return lambda eps: delta0 + (1 - delta0) * response(eps0)(eps)


CURVES = st.one_of(
    st.builds(gauss, st.floats(0.2, 3)),
    st.builds(laplace, st.floats(0.1, 4)),
    st.builds(response, st.floats(0.1, 4)),
    st.builds(dp, st.floats(0.1, 3), st.floats(1e-6, 0.2)),
)


def bracketed(curve, width):
    """Ends around a curve, rounded outwards so far that closed forms with cancellation stay inside."""
    return lambda eps: (max(curve(eps) * (1 - width) - 1e-14, 0.0), min(curve(eps) * (1 + width) + 1e-14, 1.0))


def order(a, b, top=2.0, width=1e-6, within=0.01, **more):
    return order_curves(bracketed(a, width), bracketed(b, width), top, within, **more)


@pytest.mark.parametrize(
    ("a", "b", "verdict"),
    [
        (gauss(1), gauss(1.1), "dominates"),
        (laplace(3), laplace(2.5), "dominated"),
        # every t-DP release is dominated by randomised response (Kairouz, Oh, Viswanath 2015)
        (laplace(2.5), response(2.5), "dominates"),
        (response(2.5), dp(2.5, 0.01), "dominates"),
        # the total variation 2 Phi(1/2) - 1 = 0.383 is below 1 - e^-1/2 = 0.393, no eps is enough for Gaussian noise
        (gauss(1), laplace(1), "crosses"),
        (gauss(1), gauss(1), "equal"),
        (gauss(1), gauss(1.0001), "dominates"),
    ],
)
def test_known_orders_are_found(a, b, verdict):
    assert order(a, b).verdict == verdict


def test_the_crossing_of_gauss_and_laplace_is_bracketed():
    # mpmath: findroot(lambda e: gauss - laplace, 0.33) at mu = 1 and t = 1
    import mpmath

    root = mpmath.findroot(
        lambda e: mpmath.ncdf(0.5 - e) - mpmath.exp(e) * mpmath.ncdf(-0.5 - e) - (1 - mpmath.exp((e - 1) / 2)), 0.33
    )
    (crossing,) = order(gauss(1), laplace(1)).crossings
    assert crossing.eps_lower <= root <= crossing.eps_upper <= crossing.eps_lower + 1e-3
    assert crossing.delta_lower <= laplace(1)(float(root)) <= crossing.delta_upper
    assert crossing.first == "A"


@settings(deadline=None, max_examples=60)
@given(CURVES, CURVES, st.floats(0.5, 5), st.sampled_from([1e-9, 1e-4, 1e-2]))
def test_no_verdict_is_contradicted_by_a_dense_grid(a, b, top, width):
    result = order(a, b, top, width)
    grid = np.linspace(0, top, 801)
    differences = np.array([a(eps) - b(eps) for eps in grid])
    if result.verdict == "dominates":
        assert differences.max() <= 1e-13
    if result.verdict == "dominated":
        assert differences.min() >= -1e-13
    if result.verdict == "equal":
        pairs = [(a(eps), b(eps)) for eps in grid]
        assert all(max(pair) <= 1.01 * min(pair) + 1e-13 for pair in pairs)
    if result.verdict == "crosses":
        assert result.crossings
        assert differences.min() < 1e-13
        assert differences.max() > -1e-13


@settings(deadline=None, max_examples=40)
@given(CURVES, CURVES, st.floats(0.5, 5))
def test_the_order_is_antisymmetric(a, b, top):
    one, other = order(a, b, top).verdict, order(b, a, top).verdict
    assert MIRROR.get(one, one) == other


@settings(deadline=None, max_examples=40)
@given(st.lists(CURVES, min_size=3, max_size=3), st.floats(0.5, 4))
def test_dominance_is_transitive(curves, top):
    a, b, c = curves
    if order(a, b, top).verdict == "dominates" and order(b, c, top).verdict == "dominates":
        assert order(a, c, top).verdict in ("dominates", "equal")


@pytest.mark.parametrize("height", [0.0, 1e-3])
def test_a_curve_that_pokes_out_between_two_points_is_not_missed(height):
    """The upper curve is a chord with a kink below it: at the points alone the order would look proven."""
    eps = np.array([0.0, math.log(2), math.log(3)])
    lower = np.array([0.5, 0.2, 0.1])
    # between t = 1 and t = 2 the lower curve may fall as far as its tangents allow, and the upper one is the chord
    upper = lower + np.array([-1e-9, -1e-9, -1e-9]) - height
    assert not lies_below(eps, upper, (lower, lower))[0] or height > 0.05


def test_without_work_only_proven_orders_are_named():
    wide = order(gauss(1), gauss(1.02), work=0.0, within=1e-6)
    assert wide.verdict in ("dominates", "undecided")
    assert order(gauss(1), gauss(1.0001), width=0.1, within=0.01).verdict == "undecided"


def test_curves_of_a_tiny_rate_are_ordered_between_points_next_to_each_other():
    # oracle: delta of a step at rate q is q times that of the noise at ln(1 + (e^eps - 1)/q), which grows with mu
    def sampled(mu, rate=1e-15):
        profile = gauss(mu)

        def bracket(eps):
            value = rate * profile(math.log1p(math.expm1(eps) / rate))
            return value * (1 - 1e-9), value * (1 + 1e-9)

        return bracket

    eps = np.array([0.0, 1e-17, 1e-16, 3e-16, 1e-15, 1.0])
    with np.errstate(all="raise"):
        upper = np.array([sampled(1.0)(x)[1] for x in eps])
        other = np.array([sampled(1.5)(x) for x in eps]).T
        below = lies_below(eps, upper, (other[0], other[1]))
    # cells as narrow as 1e-17 are proven by lines through their ends
    assert below[:3].all()
    above = lies_below(eps, other[1], (upper * (1 - 2e-9), upper))
    assert not above[:4].any()
