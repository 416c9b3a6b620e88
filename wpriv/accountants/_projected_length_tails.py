"""Tail bounds of the squared projected length H, as in the sliced Wasserstein paper, and the tail and density of H.

H is the sum of k independent Beta(1/2, (d-1)/2) variables: the squared length of a unit vector of R^d after k random
projections. The bounds are functions of k, d and ln(1/p), where p is the probability that H exceeds the returned value.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
from scipy.special import betaincc, betainccinv, gammaln, ndtri

from wpriv.numerics.arrays import Array
from wpriv.numerics.projected_length import log_moment, tilted
from wpriv.numerics.root_finding import minimize_quasiconvex

# from this number of directions on, the characteristic function of H falls fast enough to be inverted
MIN_INVERTED = 30


def variance(d: int) -> float:
    """Variance of one squared projection: 2 (d-1) / (d^2 (d+2)); its mean is 1/d."""
    return 2 * (d - 1) / (d * d * (d + 2))


def bernstein(k: int, d: int, log_inverse: float) -> float:
    """w with P(H > w) <= p by Bernstein's inequality as printed; rigorous, and very loose.

    Source:
        Rakotomamonjy, Ralaivola (2021), Lemma 2.
    """
    return k / d + 2 / 3 * log_inverse + math.sqrt(2 * k * variance(d) * log_inverse)


def bernstein_code(k: int, d: int, log_inverse: float) -> float:
    """Lemma 2 as in the authors' program, with k^2 instead of k under the root: still an upper bound, and larger."""
    return k / d + 2 / 3 * log_inverse + k * math.sqrt(2 * variance(d) * log_inverse)


def bernstein_root(k: int, d: int, log_inverse: float) -> float:
    """The exact root of Lemma 2's quadratic, with 1 - 1/d instead of 1, and at most k, which H cannot exceed."""
    slope = (1 - 1 / d) * log_inverse / 3
    return min(k / d + slope + math.sqrt(slope**2 + 2 * k * variance(d) * log_inverse), float(k))


def clt(k: int, d: int, log_inverse: float) -> float:
    """The quantile of a normal distribution with H's mean and variance: no bound, as H is skewed."""
    return k / d + float(-ndtri(math.exp(-log_inverse))) * math.sqrt(k * variance(d))


def quantile(k: int, d: int, log_inverse: float) -> float:
    """The upper quantile of H, to about 1e-9.

    For 2 to 29 directions it is Chernoff's bound with the exact moments, which is rigorous.
    """
    if k == 1:
        return float(betainccinv(0.5, (d - 1) / 2, math.exp(-log_inverse)))
    if k < MIN_INVERTED:
        return _chernoff(k, d, log_inverse)
    low, high = k / d, _chernoff(k, d, log_inverse)
    if log_tail(k, d, low) < -log_inverse:
        low = 0.0
    for _ in range(60):
        middle = (low + high) / 2
        if log_tail(k, d, middle) > -log_inverse:
            low = middle
        else:
            high = middle
        if high - low < 1e-10 * high:
            break
    return min(high, float(k))


WIDTHS: dict[str, Callable[[int, int, float], float]] = {
    "bernstein": bernstein,
    "bernstein-code": bernstein_code,
    "root": bernstein_root,
    "clt": clt,
    "quantile": quantile,
}


def _chernoff(k: int, d: int, log_inverse: float) -> float:
    """The smallest w with E[e^(s (H - w))] <= p for some s > 0."""

    def width(s: Array) -> Array:
        return (k * log_moment(d, s) + log_inverse) / s

    return min(float(minimize_quasiconvex(width, 1e-6, 1e9 * d)[1]), float(k))


def log_tail(k: int, d: int, w: float) -> float:
    """ln P(H > w), to about 1e-9; for k >= 30 by inverting the moment generating function along its saddle.

    The error of the trapezoid rule on that line is the tail at w shifted by whole periods, below 1e-15 at this spacing.
    """
    if k == 1:
        return float(np.log(betaincc(0.5, (d - 1) / 2, min(w, 1.0))))
    s = _saddle(k, d, w)
    y, weight = tilted(d, s)
    log_scale = k * float(log_moment(d, np.array([s]))[0]) - s * w
    spread = math.sqrt(k * float(weight @ (y - weight @ y) ** 2))
    period = max(12 * spread, (45 - log_scale) / s)
    u = 2 * math.pi / period * np.arange(1, _terms(k, d, period))
    ratio = np.exp(1j * np.outer(u, y)) @ weight
    values = np.exp(k * np.log(ratio) - 1j * u * w) / (s + 1j * u)
    return log_scale + math.log((0.5 / s + float(values.real.sum())) * 2 / period)


def density(k: int, d: int, w: Array) -> Array:
    """The density of H at w [m], for k >= 30: its characteristic function, inverted by the trapezoid rule."""
    y, weight = tilted(d, 0.0)
    period = 2 * max(float(np.max(w)), k / d + 12 * math.sqrt(k * variance(d)))
    u = 2 * math.pi / period * np.arange(1, _terms(k, d, period))
    values = np.exp(k * np.log(np.exp(1j * np.outer(u, y)) @ weight))
    return np.asarray((0.5 + np.real(np.exp(-1j * np.outer(w, u)) @ values)) * 2 / period)


def _terms(k: int, d: int, period: float) -> int:
    """Terms until |1 + 2iu/d|^(-k/2), about the size of the characteristic function, falls below 1e-17."""
    reach = d / 2 * math.sqrt(math.expm1(4 * 39 / k))
    return min(max(math.ceil(2 * reach * period / (2 * math.pi)), 64), 20_000)


def _saddle(k: int, d: int, w: float) -> float:
    """The tilt s > 0 at which H has mean w, to one percent; 1 / (standard deviation of H) where w is below the mean."""
    smallest = 1 / math.sqrt(k * variance(d))
    low = high = smallest

    def mean(s: float) -> float:
        y, weight = tilted(d, s)
        return k * float(weight @ y)

    while mean(high) < w and high < 1e12 * smallest:
        low, high = high, 2 * high
    while high > 1.01 * low:
        middle = math.sqrt(low * high)
        low, high = (middle, high) if mean(middle) < w else (low, middle)
    return high


def fixed_size_moment(order: int, rate: float, rho: float) -> float:
    """ln E[e^((a-1) L)] of one step of fixed-size sampling by the published accountant, at a whole order a >= 2.

    Args:
        rate: batch / records. rho: the unsampled step has Renyi divergence a rho at order a and an unbounded loss.
    Source:
        Wang, Balle, Kasiviswanathan (2019), Theorem 9, with its infinite order unbounded.
    """
    if rate == 1:
        return (order - 1) * order * rho
    j = np.arange(2, order + 1, dtype=float)
    log_terms = (j - 1) * j * rho + math.log(2)
    if 2 * rho < math.log(2):
        log_terms[0] = math.log(4) + math.log(math.expm1(2 * rho))
    choose = gammaln(order + 1) - gammaln(j + 1) - gammaln(order - j + 1)
    return float(np.logaddexp(0.0, np.logaddexp.reduce(choose + j * math.log(rate) + log_terms)))
