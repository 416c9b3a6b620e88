"""Logarithms that keep their digits: sums, differences, and binomial probabilities."""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.special import gammaln, logsumexp

from wpriv.numerics.arrays import Array


def safe_log(x: float) -> float:
    """Return ln x for x > 0, and -inf for x <= 0."""
    return math.log(x) if x > 0 else -math.inf


def log1mexp(x: ArrayLike) -> Array:
    """Compute ln(1 - e^x) for x <= 0, without cancellation at either end (Maechler 2012)."""
    y = np.asarray(x, dtype=float)
    with np.errstate(divide="ignore", invalid="ignore"):
        return np.asarray(np.where(y > -0.6931471805599453, np.log(-np.expm1(y)), np.log1p(-np.exp(y))))


def log_exp_excess(x: Array) -> Array:
    """Compute ln(e^x - 1 - x) for real x of any size, right to rounding also near 0, where it is ln(x^2/2)."""
    inner, series = np.clip(x, -0.5, 0.5), np.ones_like(x)
    for k in range(18, 2, -1):
        series = 1 + inner / k * series
    with np.errstate(divide="ignore", over="ignore"):
        near = 2 * np.log(np.abs(inner)) - math.log(2) + np.log(series)
        outer = np.where(np.abs(x) < 0.5, 1.0, np.minimum(x, 30.0))
        far = np.where(x > 30, x + np.log1p(-(1 + np.abs(x)) * np.exp(-np.abs(x))), np.log(np.expm1(outer) - outer))
    return np.where(np.abs(x) < 0.5, near, far)


def log_mixture(x: Array, rate: float) -> Array:
    """ln(1 - q + q e^x), q = ``rate`` in (0, 1), any x: the loss of a mixture where x is that with the record."""
    with np.errstate(over="ignore"):
        near = np.log1p(rate * np.expm1(np.clip(x, -0.7, 700.0)))
    far = np.logaddexp(np.log1p(-rate), np.log(rate) + x)
    return np.where((x > -0.7) & (x < 700.0), near, far)


def inverse_log_mixture(y: Array, rate: float) -> Array:
    """Compute the x with ``log_mixture(x, rate) = y``; -inf where y is at or below its minimum ln(1-q)."""
    # e^x = 1 + (t - 1)/q with t = e^y where that keeps its digits, else t/q (1 - (1-q)/t)
    with np.errstate(over="ignore"):
        ratio = np.expm1(np.clip(y, -1.0, 600.0)) / rate
    x = np.asarray(np.log1p(np.maximum(ratio, -0.5)))
    far = (ratio <= -0.5) | (ratio >= 1e250)
    if far.any():
        far_y, far_rate = (np.broadcast_to(values, x.shape)[far] for values in (y, rate))
        x[far] = far_y - np.log(far_rate) + log1mexp(np.minimum(np.log1p(-far_rate) - far_y, 0.0))
    return x


def log_binomial_excess(a: Array, k: Array, rate: float, log_moment: Array) -> Array:
    """Compute ln of the sum over k of Binom(k; a, q) (e^m_k - 1) without cancellation.

    Args:
        a: [..., 1] integer orders. k: [k] terms to sum. rate: q in (0, 1]. log_moment: [..., k] m_k >= 0.
    Returns:
        [...], summed over the last axis.
    """
    rest = a - k
    with np.errstate(divide="ignore", invalid="ignore"):
        log_rest = np.where(rest == 0, 0.0, rest * (math.log1p(-rate) if rate < 1 else -math.inf))
        choose = gammaln(a + 1) - gammaln(k + 1) - gammaln(np.maximum(rest, 0.0) + 1) + k * math.log(rate) + log_rest
        small, large = np.minimum(log_moment, 1.0), np.maximum(log_moment, 1.0)
        grown = np.where(log_moment > 1, log_moment + log1mexp(-large), np.log(np.expm1(small)))
    return np.asarray(logsumexp(np.where(rest >= 0, choose + grown, -np.inf), axis=-1))


def log_one_plus(z: NDArray[np.complex128]) -> tuple[Array, Array]:
    """ln |1 + z| and the argument of 1 + z, without cancellation near one (``numpy.log1p`` rounds a complex 1 + z)."""
    square = np.maximum(2 * z.real + np.abs(z) ** 2, -1.0)
    with np.errstate(divide="ignore"):
        log = np.where(square > -0.5, 0.5 * np.log1p(square), np.log(np.abs(1 + z)))
    return log, np.arctan2(z.imag, 1 + z.real)


# Binomial probabilities in log space by the saddle point, for numbers of trials up to 2^53.
#
# Differences of ln n! lose nine digits at n = 2^20; here every term is as small as the result.
#
# Source:
#     Loader (2000), Fast and accurate computation of binomial probabilities.


def log_binomial(k: Array, n: int, logit: float) -> Array:
    """[k] ln Binomial(k; n, p) with p = e^logit/(1 + e^logit), logit >= 0, for whole k in [0, n], n >= 1."""
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
