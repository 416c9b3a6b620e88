"""Binomial probabilities against mpmath's gamma function at 60 digits."""

from __future__ import annotations

import math

import mpmath as mp
import numpy as np
import pytest

from wpriv.numerics.log_space import log_binomial


@pytest.mark.parametrize(
    ("n", "tolerance"), [(1, 1e-12), (2, 1e-12), (37, 1e-12), (4096, 1e-12), (2**20, 1e-12), (2**40, 1e-9)]
)
@pytest.mark.parametrize("logit", [0.0, 1e-9, 1e-3, 1.0, 30.0, 800.0])
def test_the_logarithm_keeps_its_digits_for_any_number_of_trials(n: int, tolerance: float, logit: float) -> None:
    with mp.workdps(60):
        p, q = 1 / (1 + mp.exp(-mp.mpf(logit))), 1 / (1 + mp.exp(mp.mpf(logit)))
        mean, deviation = int(n * p), math.sqrt(n * p * q)
        near = (min(max(int(mean + z * deviation), 0), n) for z in (-12, -3, 0, 3, 12))
        k = sorted({0, 1, n - 1, n, *near})
        log_factorial = mp.loggamma(n + 1)
        truth = [
            float(log_factorial - mp.loggamma(j + 1) - mp.loggamma(n - j + 1) + j * mp.log(p) + (n - j) * mp.log(q))
            for j in k
        ]
    for got, wanted in zip(log_binomial(np.array(k, dtype=float), n, logit), truth, strict=True):
        assert got == pytest.approx(wanted, rel=2e-15, abs=tolerance)


@pytest.mark.parametrize("n", [1, 2, 40])
def test_the_probabilities_add_up_to_one(n: int) -> None:
    assert math.fsum(np.exp(log_binomial(np.arange(n + 1.0), n, 0.7))) == pytest.approx(1.0, rel=1e-13)
