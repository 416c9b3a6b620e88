"""Error rates of discrete releases against the randomised likelihood-ratio test (Neyman and Pearson), in 50 digits."""

from __future__ import annotations

import math

import mpmath
import pytest

from wpriv.accounting import evaluate
from wpriv.accounting.mechanisms.discrete_gauss import DiscreteGauss
from wpriv.accounting.mechanisms.randomized_response import RandomizedResponse
from wpriv.core.kinds import Poisson
from wpriv.core.membership import Membership
from wpriv.core.process import Process, Step


def best_rate(p: list[mpmath.mpf], q: list[mpmath.mpf], fpr: float) -> mpmath.mpf:
    """The largest true-positive rate: outcomes by falling likelihood ratio, the last one with a probability."""
    rest, rate = mpmath.mpf(fpr), mpmath.mpf(0)
    for one, other in sorted(zip(p, q, strict=True), key=lambda pair: pair[1] / pair[0]):
        share = min(rest / other, 1)
        rate, rest = rate + share * one, rest - share * other
        if rest <= 0:
            break
    return rate


@pytest.mark.parametrize("fpr", [0.3, 0.01, 1e-4, 1e-6, 0.9])
@pytest.mark.parametrize(("eps0", "n"), [(1.659, 5), (0.3, 1), (0.1, 60)])
def test_the_rates_of_randomized_response_are_exact(eps0, n, fpr):
    with mpmath.workdps(50):
        keep = 1 / (1 + mpmath.exp(-mpmath.mpf(eps0)))
        p = [math.comb(n, k) * keep**k * (1 - keep) ** (n - k) for k in range(n + 1)]
        exact = best_rate(p, p[::-1], fpr)
    process = Process((Step(RandomizedResponse(eps0=eps0), n),))
    (rates,) = Membership(evaluate.curve(process, "pld")).error_rates([fpr])
    assert rates.tpr_lower <= exact <= rates.tpr_upper
    assert rates.tpr_upper - rates.tpr_lower <= 1e-9 * min(rates.tpr_upper, rates.fnr_upper) + 1e-12


@pytest.mark.parametrize("fpr", [0.3, 0.01, 1e-5])
def test_the_rates_of_one_sampled_release_of_discrete_noise_are_exact(fpr):
    sigma, rate = 1.3, 0.2
    with mpmath.workdps(50):
        ks = range(-40, 42)
        total = mpmath.nsum(lambda k: mpmath.exp(-k * k / (2 * mpmath.mpf(sigma) ** 2)), [-60, 60])
        q = [mpmath.exp(-(k**2) / (2 * mpmath.mpf(sigma) ** 2)) / total for k in ks]
        p = [mpmath.exp(-((k - 1) ** 2) / (2 * mpmath.mpf(sigma) ** 2)) / total for k in ks]
        mixed = [(1 - mpmath.mpf(rate)) * b + mpmath.mpf(rate) * a for a, b in zip(p, q, strict=True)]
        exact = max(best_rate(mixed, q, fpr), best_rate(q, mixed, fpr))
    process = Process((Step(DiscreteGauss(sigma=sigma), 1, Poisson(rate)),))
    (rates,) = Membership(evaluate.curve(process, "pld")).error_rates([fpr])
    assert rates.tpr_lower <= exact <= rates.tpr_upper
    assert rates.tpr_upper - rates.tpr_lower <= 1e-9
