"""Steps of which few have a loss far above all others: narrow brackets at eps near the bulk, and delta of nearly 1.

Oracles: quadrature over one of two steps with the closed form of the other; mpmath sums of binomial terms; the closed
form of Gaussian noise.
"""

from __future__ import annotations

import math
from itertools import pairwise

import mpmath as mp
import numpy as np
import pytest
from scipy.integrate import quad
from scipy.special import ndtr

import wpriv
from wpriv.accounting import budget
from wpriv.accounting.mechanisms.gauss import GaussPair
from wpriv.accounting.mechanisms.randomized_response import ResponsePair
from wpriv.accounting.pld.composition import Composition
from wpriv.accounting.pld.step_groups import epsilon_far_below
from wpriv.numerics import counted_work


def excess(log_t: float, sigma: float, rate: float) -> float:
    """E_Q (T - e^log_t)_+ for the ratio T = 1 - q + q e^{x/sigma - 1/(2 sigma^2)} of one sampled step."""
    t, mu = math.exp(log_t), 1 / sigma
    if t <= 1 - rate:
        return 1 - t
    strike = (t - 1 + rate) / rate
    x = math.log(strike) / mu
    return rate * (ndtr(mu / 2 - x) - strike * ndtr(-mu / 2 - x))


def two_steps(sigma: float, rate: float, eps: float) -> float:
    """delta of two steps in the order "remove": the mean over the first of the excess of the second."""

    def integrand(x: float) -> float:
        ratio = 1 - rate + rate * math.exp(x / sigma - 0.5 / sigma**2)
        return math.exp(-x * x / 2) / math.sqrt(2 * math.pi) * ratio * excess(eps - math.log(ratio), sigma, rate)

    edges = np.linspace(-12, 12 + 1 / sigma, 60)
    return sum(quad(integrand, a, b, epsabs=0, epsrel=1e-11)[0] for a, b in pairwise(edges))


@pytest.mark.parametrize(("sigma", "rate", "eps"), [(0.673, 0.0202, 0.0), (0.673, 0.0202, 0.01), (0.5, 0.01, 0.001)])
def test_two_steps_with_rare_large_losses_have_a_narrow_bracket(sigma, rate, eps):
    truth = two_steps(sigma, rate, eps)
    process = wpriv.Process((wpriv.Step(wpriv.Gauss(sigma), 2, wpriv.Poisson(rate)),))
    curve = budget.curve(process)
    found = curve.at(eps=eps).delta
    assert found.lower <= truth * (1 + 1e-9)
    assert truth <= found.safe * (1 + 1e-9)
    assert found.safe - found.lower <= 2e-5 * found.safe


@pytest.mark.parametrize(("mu", "n"), [(1.0, 900), (0.02, 4_000_000), (6.7, 118_465)])
@pytest.mark.parametrize("deviations", [6.0, 9.0])
def test_far_below_the_mean_loss_delta_is_bounded_from_below_without_composing(mu, n, deviations):
    size = mu * math.sqrt(n)
    eps = size * size / 2 - deviations * size
    start = counted_work.total()
    low, high = Composition([(GaussPair(mu), n)]).delta(eps, 1e-5)
    above, below = mp.mpf(eps) / size - mp.mpf(size) / 2, -mp.mpf(eps) / size - mp.mpf(size) / 2
    miss = mp.ncdf(above) + mp.exp(eps) * mp.ncdf(below)
    assert low <= 1 - miss <= high
    assert high - low <= 1e-5
    assert counted_work.total() - start < 0.1e9


@pytest.mark.parametrize(("eps0", "n"), [(0.3, 2000), (2.0, 300)])
def test_the_same_holds_of_losses_of_few_values(eps0, n):
    p = 1 / (1 + mp.exp(-mp.mpf(eps0)))
    mean, deviation = float(n * eps0 * (2 * p - 1)), float(2 * eps0 * mp.sqrt(n * p * (1 - p)))
    eps = mean - 6 * deviation
    low, high = Composition([(ResponsePair(eps0, 0.0, 1), n)]).delta(eps, 1e-6)
    miss = sum(
        mp.binomial(n, k) * p**k * (1 - p) ** (n - k) * min(1, mp.exp(eps - mp.mpf(eps0) * (2 * k - n)))
        for k in range(n + 1)
    )
    assert low <= 1 - miss <= high
    assert high - low <= 1e-6


def test_a_question_ends_with_its_work():
    start = counted_work.total()
    found = wpriv.budget("discrete-gauss", sigma=0.7488276928151707, sensitivity=5, n=118465, eps=10.381376816777125)
    assert found.delta.lower > 1 - 1e-9
    assert counted_work.total() - start < 0.5e9


@pytest.mark.parametrize("delta", [1e-3, 0.1, 0.9])
@pytest.mark.parametrize(("mu", "n"), [(1.0, 900), (0.02, 4_000_000), (1.7, 2**40)])
def test_an_eps_far_above_zero_is_bounded_from_below_without_composing(mu, n, delta):
    # oracle: the closed form of the normal distribution, in mpmath
    size = mp.mpf(mu) * mp.sqrt(n)
    low = epsilon_far_below([(GaussPair(mu), n)], delta)
    at_low = mp.ncdf(size / 2 - low / size) - mp.exp(low) * mp.ncdf(-size / 2 - low / size)
    assert at_low >= delta
    # eps is the mean of the loss and a few deviations beside it
    assert low >= float((size * size / 2 - 4 * size) * (1 - mp.mpf("2e-3")))


def test_an_eps_beyond_what_is_composed_has_a_narrow_bracket():
    # oracle: the mean of the loss of a step by quadrature; eps is n times that, but for deviations that vanish beside
    found = wpriv.budget("gauss", sigma=0.576, sampling="poisson", rate=0.5, n=2**40, delta=0.1)
    sigma = mp.mpf("0.576")

    def loss(x: mp.mpf) -> mp.mpf:
        return mp.log((1 + mp.exp((2 * x - 1) / (2 * sigma**2))) / 2)

    def density(x: mp.mpf) -> mp.mpf:
        return (mp.npdf(x, 0, sigma) + mp.npdf(x, 1, sigma)) / 2

    mean = 2**40 * mp.quad(lambda x: density(x) * loss(x), [-8, 0, 1, 9])
    assert found.epsilon.lower <= mean * (1 + mp.mpf("1e-5"))
    assert mean * (1 - mp.mpf("1e-5")) <= found.epsilon.upper <= 1.002 * found.epsilon.lower
