"""Absolute moments E|Z|^mu of a normal distribution for real mu, in log space."""

from __future__ import annotations

import math
import warnings

import numpy as np
from numpy.typing import ArrayLike
from scipy.special import gammaln, hyp1f1

from wpriv.errors import UsageError
from wpriv.numerics.arrays import Array
from wpriv.numerics.wasserstein_1d import check_order

_LARGEST = 700.0  # e^this is nearly the largest double
_MAX_TERMS, _CHUNK = 2000, 8192


def log_absolute_moment(mean: ArrayLike, sigma: float, order: float) -> Array:
    """Compute ln E|Z|^mu of Z ~ N(mean, sigma^2) for every mean, without overflow or cancellation.

    Args:
        mean: [...] in the units of the output.
        sigma: standard deviation >= 0 in the same units.
        order: mu in [1, 1000], real.
    Returns:
        [...] natural logs; -inf where mean and sigma are both 0.
    Raises:
        UsageError: mu out of range, sigma negative, or something not finite.
    Source:
        Yang et al. (2024), Lemma 1 (Winkelbauer 2012, Equation 17): (2 V)^(mu/2) Gamma((mu+1)/2)/sqrt(pi) 1F1(-mu/2;
        1/2; -x) at x = mean^2/(2V). By Kummer's transformation 1F1(-mu/2; 1/2; -x) = e^-x 1F1((mu+1)/2; 1/2; x), whose
        terms are all positive.
    """
    check_order(order)
    m = np.abs(np.asarray(mean, dtype=float))
    if not (0 <= sigma < math.inf and np.all(np.isfinite(m))):
        raise UsageError(f"means must be finite and sigma must be finite and at least 0; found sigma {sigma}")
    with np.errstate(divide="ignore", over="ignore", invalid="ignore"):
        root = m / (sigma * math.sqrt(2)) if sigma > 0 else np.full(m.shape, np.inf)
        x = root * root
        a = (order + 1) / 2
        near = x + 2 * np.sqrt(a * x) < _LARGEST  # an upper bound of ln 1F1((mu+1)/2; 1/2; x)
        small = np.where(near, x, 0.0)
        scale = order * (math.log(sigma) + math.log(2) / 2) if sigma > 0 else -math.inf
        central = scale + float(gammaln(a)) - 0.5 * math.log(math.pi) - small + np.log(hyp1f1(a, 0.5, small))
        if np.all(near):
            return np.asarray(central)
        far = ~near
        logs = np.array(central)
        logs[far] = order * np.log(m[far]) + np.log(_descending(x[far], order))
        return logs


def _descending(x: Array, order: float) -> Array:
    """Compute E|Z/mean|^mu = sum_k (-mu/2)_k ((1-mu)/2)_k / (k! x^k) for large x.

    The series ends for integer mu, and its terms are positive up to k = mu/2. Its error is of the order of e^-x; here x
    > 200.
    """
    inverse = 1 / np.ravel(x)
    total = np.ones_like(inverse)
    for start in range(0, inverse.size, _CHUNK):  # chunks that fit into the processor's cache
        u, part = inverse[start : start + _CHUNK], total[start : start + _CHUNK]
        term, largest = np.ones_like(u), float(u.max())
        bound = 1.0  # on the terms: the term at the smallest x
        for k in range(_MAX_TERMS):
            factor = (k - order / 2) * (k + (1 - order) / 2) / (k + 1)
            term *= factor
            term *= u
            part += term
            bound *= abs(factor) * largest
            if bound <= 1e-17:
                break
    return total.reshape(np.shape(x))


def absolute_moment(mean: ArrayLike, sigma: float, order: float) -> Array:
    """Compute E|Z|^mu; inf, with a RuntimeWarning, where it exceeds the largest double. See ``log_absolute_moment``."""
    logs = log_absolute_moment(mean, sigma, order)
    largest = float(np.max(logs, initial=-math.inf))
    if largest > math.log(np.finfo(float).max):
        warnings.warn(
            f"E|Z|^{order:g} is e^{largest:.6g}, above the largest double; returning inf. Use log_absolute_moment",
            RuntimeWarning,
            stacklevel=2,
        )
    with np.errstate(over="ignore"):
        return np.asarray(np.exp(logs))
