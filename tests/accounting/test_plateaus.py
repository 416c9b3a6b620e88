"""Targets beyond a plateau of equal values are reached, and one sampled release has both ends of its curve.

Oracles: closed forms of Neyman-Pearson tests, of pure DP and of bounded range; binomial sums.
"""

from __future__ import annotations

import math

import mpmath as mp
import pytest
from scipy.special import ndtr, ndtri

import wpriv


def test_a_rate_below_that_of_the_plateau_is_reached():
    # with little noise a member that was sampled is always seen: TPR = q + (1 - q) FPR
    rate, tpr, fpr = 6.69e-5, 4.4879e-6, 1e-6
    sigma = float(wpriv.calibrate("gauss", sampling="poisson", rate=rate, tpr=tpr, fpr=fpr))

    def best(noise: float) -> float:
        return float((1 - rate) * fpr + rate * ndtr(ndtri(fpr) + 1 / noise))

    assert best(sigma) <= tpr < best(sigma * (1 - 1e-5))


@pytest.mark.parametrize("kind", ["poisson", "fixed"])
@pytest.mark.parametrize(("mech", "noise"), [("truncated-gauss", "sigma"), ("truncated-laplace", "scale")])
def test_an_advantage_below_the_rate_is_reached_by_truncated_noise(kind, mech, noise):
    found = wpriv.calibrate(mech, **{noise: 3.0}, sampling=kind, rate=0.1, advantage=0.06)
    bound = float(found)
    # the total variation distance of two truncated distributions one apart is the mass within 1/2 of the middle
    whole, half = ((2 * ndtr(x / 3) - 1) if noise == "sigma" else -math.expm1(-x / 3) for x in (bound, 0.5))
    assert 0.1 * half / whole == pytest.approx(0.06, rel=1e-6)


@pytest.mark.parametrize("delta", [1e-25, 1e-50, 1e-200])
@pytest.mark.parametrize(("scale", "rate"), [(70.7, 1e-9), (18.550988854485002, 5.029117169211721e-06)])
def test_pure_dp_has_an_eps_at_every_delta(scale, rate, delta):
    largest = math.log1p(rate * math.expm1(1 / scale))
    found = wpriv.budget("laplace", scale=scale, sampling="fixed", rate=rate, delta=delta)
    assert found.epsilon.safe == pytest.approx(largest, rel=1e-12)


@pytest.mark.parametrize("kind", ["poisson", "fixed"])
def test_one_sampled_selection_is_known_from_both_sides(kind):
    # q (e^(r/2) - e^(t/2))^2 / (e^r - 1) at e^t = (e^eps - 1 + q) / q
    r, rate, eps = 1.0, 0.1, 0.05
    t = math.log((math.expm1(eps) + rate) / rate)
    truth = rate * (math.exp(r / 2) - math.exp(t / 2)) ** 2 / math.expm1(r)
    found = wpriv.budget("exponential", eps0=r, sampling=kind, rate=rate, eps=eps)
    assert found.claim == "exact"
    assert found.delta.safe == pytest.approx(truth, rel=1e-12)


def test_one_sampled_threshold_release_is_known_from_both_sides():
    # the worse of a known key and of one that nobody else has, which is released with probability Phi(1 - threshold)
    rate, eps, leak = 0.1, 0.5, float(ndtr(-4.0))
    t = math.log((math.expm1(eps) + rate) / rate)
    known = rate * (ndtr(0.5 - t) - math.exp(t) * ndtr(-0.5 - t))
    found = wpriv.budget("gauss-threshold", sigma=1.0, threshold=5.0, sampling="poisson", rate=rate, eps=eps)
    assert found.claim == "exact"
    assert found.delta.safe == pytest.approx(max(known, rate * leak), rel=1e-9)


@pytest.mark.parametrize(("eps0", "steps", "eps"), [(0.0632, 64, 0.001), (1.659, 7, 0.3), (3.4, 300, 0.05)])
def test_a_pass_of_randomised_response_is_a_binomial_sum(eps0, steps, eps):
    low = 1 / (1 + mp.exp(eps0))
    terms = [
        (
            (k * mp.exp(eps0) + (steps - k) * mp.exp(-eps0)) / steps,
            mp.binomial(steps, k) * low**k * (1 - low) ** (steps - k),
        )
        for k in range(steps + 1)
    ]
    x = mp.exp(eps)
    truth = max(sum(q * max(s - x, 0) for s, q in terms), sum(q * max(1 - x * s, 0) for s, q in terms))
    given = {"sampling": "allocation", "rate": 1 / steps, "n": steps, "eps": eps}
    for found in (wpriv.budget(name, eps0=eps0, **given) for name in ("randomized-response", "dp")):
        assert found.claim == "exact"
        assert found.delta.safe == pytest.approx(float(truth), rel=1e-11)


def test_a_pass_of_many_steps_of_pure_dp_has_a_lower_end():
    # at least one step of the pass alone
    rate = 1 / 2263
    found = wpriv.budget("discrete-laplace", scale=16.1, sampling="allocation", rate=rate, n=2263, eps=1e-4)
    alone = wpriv.budget("discrete-laplace", scale=16.1, sampling="poisson", rate=rate, eps=1e-4)
    assert found.delta.lower >= alone.delta.safe
    assert found.delta.lower >= 0.99 * found.delta.safe
