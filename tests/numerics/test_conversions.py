"""Conversions between notions of privacy, against golden values and the definitions they bound."""

from __future__ import annotations

import math

import mpmath as mp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.stats import chi

from tests.points import GOLDEN
from wpriv.numerics import conversions
from wpriv.numerics.root_finding import minimize_quasiconvex


def gauss_moment(lam: np.ndarray) -> np.ndarray:
    """(alpha - 1) D_alpha = lam (lam + 1)/2 of the Gauss mechanism with sigma = 1."""
    return lam * (lam + 1) / 2


def test_the_golden_deltas_of_both_renyi_conversions() -> None:
    for key, bound in (("002-rdp2dp-0", conversions.tail_to_log_delta), ("002-rdp2dp-1", conversions.rdp_to_log_delta)):
        found = minimize_quasiconvex(lambda lam, b=bound: b(lam, gauss_moment(lam), 5.0), 1e-12, 1e12)[1]
        assert math.exp(found) == pytest.approx(float(GOLDEN[key]["value"]), rel=GOLDEN[key]["rtol"])


def test_the_constant_of_the_conversion_is_the_best_there_is() -> None:
    """Oracle: sup over x of (1 - e^{-x}) e^{-lam x}, on a fine grid."""
    x = np.geomspace(1e-9, 1e3, 400_001)
    for lam in (0.01, 0.5, 1.0, 7.0, 300.0):
        supremum = float(np.max(-np.expm1(-x) * np.exp(-lam * x)))
        assert float(conversions.rdp_to_log_delta(np.array([lam]), np.zeros(1), 0.0)[0]) == pytest.approx(
            math.log(supremum), abs=1e-8
        )


@given(
    lam=st.floats(-8, 8).map(lambda x: 10**x),
    moment=st.floats(0, 1e4),
    log_delta=st.floats(-700, -1e-3),
    kind=st.sampled_from(["rdp", "tail"]),
)
def test_eps_and_delta_of_a_conversion_are_inverse(lam: float, moment: float, log_delta: float, kind: str) -> None:
    to_delta, to_eps = getattr(conversions, f"{kind}_to_log_delta"), getattr(conversions, f"{kind}_to_epsilon")
    eps = float(to_eps(np.array([lam]), np.array([moment]), log_delta)[0])
    back = float(to_delta(np.array([lam]), np.array([moment]), eps)[0])
    assert back == pytest.approx(log_delta, rel=1e-9, abs=1e-9 * (1 + moment))


def test_the_golden_eps_of_zcdp_and_its_inverse() -> None:
    point = GOLDEN["002-zcdp-0"]
    eps = conversions.zcdp_to_epsilon(0.5, math.log(1e-50))
    assert eps == pytest.approx(float(point["value"]), rel=1e-12)
    assert conversions.zcdp_to_log_delta(0.5, eps) == pytest.approx(math.log(1e-50), rel=1e-12)
    assert conversions.zcdp_to_log_delta(0.5, 0.4) == 0.0
    assert conversions.zcdp_to_log_delta(0.0, 0.0) == -math.inf


@pytest.mark.parametrize("key", [k for k in GOLDEN if k.startswith("002-thm5-")])
def test_a_normal_loss_has_the_golden_deltas_of_gauss(key: str) -> None:
    i = {name: float(value) for name, value in GOLDEN[key]["inputs"].items()}
    square = i["n"] * (i["s"] / i["sigma"]) ** 2
    found = math.exp(conversions.normal_log_delta(i["eps"], square / 2, square))
    assert found == pytest.approx(float(GOLDEN[key]["value"]), rel=GOLDEN[key]["rtol"])


def test_the_golden_delta_of_lemma_12() -> None:
    i = {name: float(value) for name, value in GOLDEN["002-lem12-0"]["inputs"].items()}
    inner = math.exp(conversions.normal_log_delta(i["eps"], i["mu"], i["var"]))
    assert i["winf"] + (1 - i["winf"]) * inner == pytest.approx(float(GOLDEN["002-lem12-0"]["value"]), rel=1e-12)


@settings(max_examples=150, deadline=None)
@given(sigma=st.floats(-8, 4).map(lambda x: 10**x), z=st.floats(-60, 60), shift=st.floats(-3, 3))
def test_normal_log_delta_agrees_with_eighty_digit_arithmetic(sigma: float, z: float, shift: float) -> None:
    """Oracle: Lemma 12 by mpmath's erfc; the mean differs from variance/2 by some standard deviations."""
    mean = sigma**2 / 2 + shift * sigma
    eps = mean + z * sigma
    with mp.workdps(80):
        m, s, e = mp.mpf(mean), mp.mpf(sigma**2), mp.mpf(eps)
        root = mp.sqrt(2 * s)
        exact = (mp.erfc((e - m) / root) - mp.exp(e - m + s / 2) * mp.erfc((e - m + s) / root)) / 2
        want = float(mp.log(exact))
    # eps - mean is itself a rounded difference, which moves ln delta by z/sigma times its rounding
    slack = 1e-11 + 4e-16 * (abs(z) + 1) * (abs(eps) + abs(mean)) / sigma
    assert conversions.normal_log_delta(eps, mean, sigma**2) == pytest.approx(want, rel=1e-11, abs=slack)


def test_normal_log_delta_of_a_constant_loss_is_exact() -> None:
    assert conversions.normal_log_delta(1.0, 3.0, 0.0) == pytest.approx(math.log(1 - math.exp(-2.0)))
    assert conversions.normal_log_delta(3.0, 3.0, 0.0) == -math.inf


def test_normal_log_delta_far_above_the_loss_is_tiny_and_not_nan() -> None:
    for eps in (1e20, 1e160, 1e300):
        assert conversions.normal_log_delta(eps, 0.5, 1.0) < -1e30


@pytest.mark.parametrize("eps", [0.0, 0.5, 2.0, 5.0])
def test_delta_of_two_scales_is_the_hockey_stick_divergence_of_the_squared_norms(eps: float) -> None:
    """Oracle: quadrature over the chi distribution of the norm, which is sufficient, in both orders."""
    count, wide = 50, 1.5
    norms = np.linspace(0.0, 40.0, 400_001)
    densities = [chi.pdf(norms, count), chi.pdf(norms, count, scale=wide)]
    orders = (densities, densities[::-1])
    want = max(np.trapezoid(np.maximum(p - math.exp(eps) * q, 0), norms) for p, q in orders)
    assert conversions.delta_of_scales(eps, 3, 2, count) == pytest.approx(want, rel=1e-6)


@pytest.mark.parametrize(("count", "eps"), [(1000, 10.29), (10_000, 45.1)])
def test_epsilon_of_two_scales_is_that_of_a_divisor_of_24_and_23(count: int, eps: float) -> None:
    """Oracle: docs/guides/twenty-faults.md, F7, by scipy's chi-square distribution."""
    found = conversions.epsilon_of_scales(1e-5, 24, 23, count)
    assert eps < found < eps + 0.1
    assert conversions.delta_of_scales(found, 24, 23, count) == pytest.approx(1e-5, rel=1e-6)
