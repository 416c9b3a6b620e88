"""The n-fold composition of randomized response: a binomial sum in log space, for n up to 2^40."""

from __future__ import annotations

import math

import numpy as np
from scipy.special import gammaln

from wpriv.numerics.arrays import Array
from wpriv.numerics.log_space import log1mexp

_MAX_TERMS = 2**14  # up to this number the terms are summed one by one; more terms are bounded from above in blocks
_BLOCKS = 2**12


def response_log_delta(n: int, eps0: float, log_delta0: float, eps: float) -> float:
    """ln delta(eps) of n-fold randomized response with parameters (eps0, delta0), the worst (eps0, delta0)-DP case.

    Exact to about 1e-12 in the log up to n about 1.8e6; for larger n an upper bound within 1e-4 relative.

    Args:
        eps0: loss of one release in nats, >= 0. log_delta0: ln of the probability that it reveals its input; -inf for
            0.
    Source:
        Kairouz, Oh, Viswanath (2017), Theorem 3.3; Sommer, Meiser, Mohammadi (2019), Example 1 with the exponent
        corrected.
    """
    if log_delta0 > -1e-15:
        return 0.0
    log_kept = n * math.log1p(-math.exp(log_delta0)) if log_delta0 > -36 else -n * math.exp(log_delta0)
    # where it is small, the probability that some release reveals its input is n delta0 to rounding, which does not
    # underflow
    log_any = math.log(n) + log_delta0
    events = log_any if log_any < -36 else float(log1mexp(min(log_kept, 0.0)))
    inner = _log_sum(n, eps0, eps)
    return float(np.logaddexp(events, log_kept + inner))


def _log_sum(n: int, eps0: float, eps: float) -> float:
    """ln of the sum over k of Binomial(k; n, p) (1 - e^(eps - eps0 (2k-n)))_+, p = 1/(1+e^-eps0)."""
    if eps0 == 0 or eps >= n * eps0:
        return -math.inf
    p, q = 1 / (1 + math.exp(-eps0)), 1 / (1 + math.exp(min(eps0, 700.0)))
    # terms farther below the mean, or farther above both it and the first term, add up to less than e^-70 of the sum
    reach = 12 * math.sqrt(n * p * q) + 60
    first = math.floor((eps / eps0 + n) / 2) + 1
    start = max(first, math.floor(n * p - reach), 0)
    stop = min(n, math.ceil(max(first, n * p) + reach))
    if stop < start:
        return -math.inf

    def term(k: Array) -> Array:
        return _log_pmf(k, n, p, q) + log1mexp(np.minimum(eps - eps0 * (2 * k - n), 0.0))

    if stop - start < _MAX_TERMS:
        return _log_total(term(np.arange(start, stop + 1, dtype=float)))
    # ln of the terms is concave in k, so that a block lies below the geometric series of its first two terms; the
    # blocks are short where the hinge function is curved, then a small part of the standard deviation
    span = stop - start + 1
    growing = np.floor(128 * (1 + 1 / 64) ** np.arange(64 * math.log(span)))
    growing = growing[np.diff(growing, append=np.inf) < span / _BLOCKS]
    edges = np.concatenate([np.arange(128), growing, np.arange(growing[-1], span, span / _BLOCKS).round(), [span]])
    at = np.unique(np.minimum(edges, span))
    length, at = np.diff(at), start + at[:-1]
    head = term(at)
    slope = np.where(at < n, term(np.minimum(at + 1, n)) - head, -1.0)
    slope = np.where(np.abs(slope) < 1e-12, 1e-12, slope)
    return _log_total(head + np.log(np.expm1(length * slope) / np.expm1(slope)))


def _log_total(logs: Array) -> float:
    peak = float(logs.max())
    return peak + math.log(float(np.exp(logs - peak).sum())) if math.isfinite(peak) else -math.inf


def _log_pmf(k: Array, n: int, p: float, q: float) -> Array:
    """ln Binomial(k; n, p) by its saddle point (Loader 2000), without differences of large ln n!; q = 1 - p."""
    rest = n - k
    with np.errstate(divide="ignore", invalid="ignore"):
        stirling = _stirling(np.array([float(n)]))[0] - _stirling(k) - _stirling(rest)
        inside = stirling - _deviance(k, n * p) - _deviance(rest, n * q)
        inside = inside + 0.5 * np.log(n / (2 * math.pi * k * rest))
    return np.where(k == 0, n * math.log(q), np.where(rest == 0, n * math.log1p(-q), inside))


def _deviance(x: Array, mean: float) -> Array:
    """x ln(x/mean) + mean - x, by its series where x is near the mean."""
    u = (x - mean) / mean
    v = np.where(np.abs(u) < 0.01, u, 0.0)
    near = v * v * (1 / 2 - v * (1 / 6 - v * (1 / 12 - v * (1 / 20 - v * (1 / 30 - v * (1 / 42 - v / 56))))))
    return mean * np.where(np.abs(u) < 0.01, near, (1 + u) * np.log1p(u) - u)


def _stirling(x: Array) -> Array:
    """ln x! - ln(sqrt(2 pi x) (x/e)^x)."""
    small = np.clip(x, 1.0, 16.0)
    exact = gammaln(small + 1) - (small + 0.5) * np.log(small) + small - 0.5 * math.log(2 * math.pi)
    y = 1 / np.maximum(x, 16.0)
    z = y * y
    series = y * (1 / 12 - z * (1 / 360 - z * (1 / 1260 - z * (1 / 1680 - z / 1188))))
    return np.where(x < 16, exact, series)
