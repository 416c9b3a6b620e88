"""Brackets of compositions in which few steps have a large loss, against quadrature and conditional sampling."""

from __future__ import annotations

import math

import mpmath
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.special import ndtr

from tests import nightly
from wpriv.accounting.mechanisms.gauss import GaussPair
from wpriv.accounting.pld import rare_losses
from wpriv.accounting.pld.composition import Composition
from wpriv.core.subsampled_pairs import poisson
from wpriv.errors import Unsupported


def two_steps(q: float, sigma: float, eps: float) -> float:
    """delta at eps of two Poisson-sampled Gaussian steps by quadrature in 30 digits: E_P of one step's delta."""
    with mpmath.workdps(30):
        q, sigma, eps = mpmath.mpf(q), mpmath.mpf(sigma), mpmath.mpf(eps)
        low = mpmath.log(1 - q)

        def loss(x):
            return mpmath.log(1 - q + q * mpmath.exp((2 * x - 1) / (2 * sigma**2)))

        def delta(e):
            if e <= low:
                return -mpmath.expm1(e)
            x = sigma**2 * mpmath.log((mpmath.exp(e) - 1 + q) / q) + mpmath.mpf(1) / 2
            q_tail, p_tail = (mpmath.erfc((x - mean) / (sigma * mpmath.sqrt(2))) / 2 for mean in (0, 1))
            return (1 - q) * q_tail + q * p_tail - mpmath.exp(e) * q_tail

        def integrand(x):
            density = (1 - q) * mpmath.npdf(x, 0, sigma) + q * mpmath.npdf(x, 1, sigma)
            return density * delta(eps - loss(x))

        at = sigma**2 * mpmath.log((mpmath.exp(eps) - 1 + q) / q) + mpmath.mpf(1) / 2
        near = [m + k * sigma for m in (0, 1) for k in (-8, -4, -2, -1, 0, 1, 2, 4)]
        points = [-30 * sigma, *near, *(at + k * sigma / 4 for k in range(-8, 9)), at + 4 * sigma, at + 30 * sigma]
        return float(mpmath.quad(integrand, sorted(points)))


def sampled(q: float, sigma: float, n: int, eps: float, draws: int) -> tuple[float, float]:
    """An unbiased estimate of delta at eps and its standard error, conditional on all losses but the largest.

    delta = n E[(1 - e^(eps - S))_+; the last loss is the largest], whose inner expectation over the last loss is known
    in closed form (Asmussen and Kroese 2006).
    """
    rng = np.random.default_rng(5)
    values = []
    for _ in range(draws // 1000):
        x = rng.normal(0, sigma, (1000, n - 1)) + (rng.random((1000, n - 1)) < q)
        losses = np.log1p(q * np.expm1((2 * x - 1) / (2 * sigma**2)))
        rest = eps - losses.sum(axis=1)
        above = np.maximum(losses.max(axis=1), rest)
        place = sigma**2 * np.log1p((np.expm1(above)) / q) + 0.5
        q_tail, p_part = ndtr(-place / sigma), ndtr(-(place - 1) / sigma)
        values.append(n * ((1 - q) * q_tail + q * p_part - np.exp(rest) * q_tail))
    estimates = np.concatenate(values)
    return float(estimates.mean()), float(estimates.std() / math.sqrt(estimates.size))


def composition(q: float, sigma: float, n: int) -> Composition:
    return Composition([(poisson(GaussPair(1 / sigma), q), n)])


@pytest.mark.parametrize(
    ("q", "sigma", "eps"),
    nightly.sharded(
        [(1e-6, 0.5, 0.3), (1e-3, 0.6, 2.0), (1e-8, 0.6, 1.0), (1e-12, 0.6, 1.0), (0.01, 1.0, 1.5), (0.01, 1.0, 2.5)], 2
    ),
)
def test_brackets_of_two_steps_hold_the_truth_by_quadrature(q, sigma, eps):
    truth = two_steps(q, sigma, eps)
    low, high = composition(q, sigma, 2).delta(eps, 1e-5)
    assert low * (1 - 1e-9) <= truth <= high * (1 + 1e-9)
    assert high - low <= 1e-3 * high
    low, high = composition(q, sigma, 2).epsilon(truth, 1e-5)
    assert low * (1 - 1e-9) <= eps <= high * (1 + 1e-9)
    assert high - low <= 1e-4 * high


@pytest.mark.slow
@pytest.mark.parametrize(
    ("q", "sigma", "n", "eps"), [(1e-6, 0.5, 100, 0.295867), (1e-5, 0.5, 1000, 0.91), (1e-3, 1.0, 100, 2.0)]
)
def test_brackets_of_many_steps_hold_a_sampled_delta(q, sigma, n, eps):
    estimate, error = sampled(q, sigma, n, eps, 20_000)
    assert error < 0.01 * estimate
    low, high = composition(q, sigma, n).delta(eps, 1e-5)
    assert low - 5 * error <= estimate <= high + 5 * error
    assert high - low <= 1e-3 * high


@pytest.mark.parametrize(
    ("q", "sigma", "n", "delta", "width"),
    [
        (1e-6, 0.5, 100, 1e-12, 1.5e-6),
        (1e-6, 0.5, 10_000, 1e-12, 1e-5),
        (1e-5, 0.5, 1000, 1e-9, 1e-4),
        (1e-10, 0.6, 100, 1e-19, 3e-3),
    ],
)
def test_eps_is_narrow_where_a_single_rare_loss_decides(q, sigma, n, delta, width):
    low, high = composition(q, sigma, n).epsilon(delta, 1e-6)
    assert 0 < low <= high <= low * (1 + width)


def test_a_delta_far_below_the_rounding_of_probabilities_is_bracketed():
    # the loss of one step alone is below: dropping all others is post-processing
    pair = poisson(GaussPair(1 / 0.6), 1e-16)
    low, high = composition(1e-16, 0.6, 100).delta(1.0, 1e-5)
    assert 99 * math.exp(float(pair.log_delta(1.0))) <= high <= 101 * math.exp(float(pair.log_delta(1.0)))
    assert low >= 0.99 * high


@pytest.mark.slow
@settings(max_examples=10, deadline=None)
@given(
    st.floats(-8, -1.5), st.floats(0.3, 3), st.integers(2, 300), st.floats(0.02, 4), st.sampled_from([1e-3, 1e-5, 1e-6])
)
def test_brackets_are_ordered_and_hold_one_step_and_the_other_methods(log_q, sigma, n, eps, tol):
    q = 10.0**log_q
    pair = poisson(GaussPair(1 / sigma), q)
    try:
        low, high = composition(q, sigma, n).delta(eps, tol)
    except Unsupported:
        return
    assert 0 <= low <= high <= 1
    assert high >= math.exp(float(pair.log_delta(eps))) * (1 - 1e-9)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("wpriv.accounting.pld.composition.rare_losses_delta", lambda *_: None)
        try:
            others = composition(q, sigma, n).delta(eps, 1e-3)
        except Unsupported:
            return
    assert low <= others[1] * (1 + 1e-8)
    assert others[0] <= high * (1 + 1e-8)


def test_bulks_that_matter_are_not_left_out():
    # with noise this large no single loss decides
    steps = Composition([(poisson(GaussPair(1 / 4), 0.01), 65536)])
    steps.delta(1.0, 1e-3)
    assert rare_losses.rare_losses_delta(steps.steps, 1.0) is None


def test_losses_smaller_than_the_rounding_of_probabilities_are_certified():
    # oracle: at eps = 0 delta is at most the sum of the total variation distances, which is 6.0e-11, and at least one
    pair = poisson(GaussPair(1 / 0.6), 1e-12)
    # a total variation distance is that of both orders, and adding a record has no large loss
    low, high = Composition([(pair.reverse(), 100)]).delta(0.0, 1e-5)
    one = math.exp(float(pair.log_delta(0.0)))
    assert one < low <= high <= 100 * one
    assert high - low < 1e-4 * high
    # what is not narrow holds the same number
    lower, upper = composition(1e-12, 0.6, 100).delta(0.0, 1e-5)
    assert lower <= high
    assert low <= upper
