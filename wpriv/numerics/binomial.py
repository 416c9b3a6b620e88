"""Binomial probabilities in log space by the saddle point, for numbers of trials up to 2^53.

Differences of ln n! lose nine digits at n = 2^20; here every term is as small as the result.

Source:
    Loader (2000), Fast and accurate computation of binomial probabilities.
"""

from __future__ import annotations

import math

import numpy as np
from scipy.special import gammaln

from wpriv.numerics.arrays import Array


def log_binomial(k: Array, n: int, logit: float) -> Array:
    """Compute [k] ln Binomial(k; n, p) with p = e^logit/(1 + e^logit).

    Args:
        k: whole numbers in [0, n]. n: number of trials, at least 1. logit: ln of the odds, at least 0.
    """
    odds = math.exp(-logit)
    p, q = 1 / (1 + odds), odds / (1 + odds)
    log_p, log_q = -math.log1p(odds), -logit - math.log1p(odds)
    hits, misses = np.maximum(k, 1.0), np.maximum(n - k, 1.0)  # the two ends have a formula of their own
    excess = misses - n * q  # of the rarer outcome, whose mean keeps its digits
    inner = _stirling_error(np.array([float(n)])) - _stirling_error(hits) - _stirling_error(misses)
    inner = inner - _deviance(hits, -excess, n * p, math.log(n) + log_p)
    inner = inner - _deviance(misses, excess, n * q, math.log(n) + log_q)
    inner = inner + 0.5 * np.log(n / (2 * math.pi * hits * misses))
    return np.where(k == 0, n * log_q, np.where(k == n, n * log_p, inner))


def _stirling_error(x: Array) -> Array:
    """Compute ln x! - ln(sqrt(2 pi x) (x/e)^x) for x >= 1."""
    large = np.maximum(x, 16.0)
    square = 1 / (large * large)
    inner = 1 / 1260 - square * (1 / 1680 - square * (1 / 1188 - square * 691 / 360360))
    series = (1 / 12 - square * (1 / 360 - square * inner)) / large
    m = np.minimum(x, 16.0)
    return np.where(x < 16, gammaln(m + 1) - (m + 0.5) * np.log(m) + m - 0.5 * math.log(2 * math.pi), series)


def _deviance(x: Array, excess: Array, mean: float, log_mean: float) -> Array:
    """Compute x ln(x/mean) + mean - x with excess = x - mean, by its series near the mean."""
    if mean < 1e-290:  # the mean itself may underflow
        return x * (np.log(x) - log_mean) - excess
    near = np.clip(excess / mean, -0.1, 0.1)
    series = np.zeros_like(near)
    for j in range(17, 1, -1):
        series = 1 / (j * (j - 1)) - near * series
    return np.where(np.abs(near) < 0.1, mean * near * near * series, x * np.log(x / mean) - excess)
