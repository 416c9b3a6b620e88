"""Wasserstein differential privacy (Yang et al. 2024): the formulas as printed.

A function named ``published_*`` gives the number of the paper. None of them is a differential privacy guarantee, and
most are not even bounds of the Wasserstein distance that they are stated for.
eps of WDP has the unit of the output: multiply the output by 1000 and eps grows by 1000 while nothing about privacy has
changed.
``distance`` stands for the sensitivity.
"""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import ArrayLike
from scipy.special import logsumexp

from wpriv.errors import UsageError
from wpriv.numerics.arrays import Array
from wpriv.numerics.wasserstein_1d import check_order, log_absolute_moment


def published_laplace(distance: float, scale: float, order: float) -> float:
    """Proposition 7 and Table 1: (1/2) Delta sqrt(2 [1/b + e^(-1/b) - 1])^(1/mu); the exact budget is Delta."""
    t = 1 / _positive(scale, "scale")
    # t + e^-t - 1 by its series where it would cancel
    kl = t * t / 2 - t**3 / 6 + t**4 / 24 - t**5 / 120 if t < 1e-3 else t + math.expm1(-t)
    return distance / 2 * math.pow(2 * kl, 0.5 / check_order(order))


def published_gauss(distance: float, sigma: float, order: float) -> float:
    """Proposition 8 and Table 1: (1/2) (Delta/sigma)^(1/mu), whose unit is wrong. The exact budget is Delta."""
    return 0.5 * math.pow(distance / _positive(sigma, "sigma"), 1 / check_order(order))


def published_from_dp(eps: float, distance: float, order: float) -> float:
    """Proposition 9, eps-DP to WDP: (1/2) Delta (2 eps (e^eps - 1))^(1/(2 mu)).

    False: within outputs of diameter D the smallest bound is D tanh(eps/2)^(1/mu), attained by randomized response on
    {0, D}.
    """
    check_order(order)
    log_inside = math.log(2 * eps) + (eps if eps > 700 else math.log(math.expm1(eps))) if eps > 0 else -math.inf
    return distance / 2 * math.exp(log_inside / (2 * order))


def published_from_rdp(eps: float, distance: float, order: float) -> float:
    """Proposition 10, RDP to WDP: (1/2) Delta (2 eps)^(1/(2 mu)). False: Pinsker gives D min(1, sqrt(eps/2))^(1/mu)."""
    return distance / 2 * math.pow(2 * eps, 0.5 / check_order(order))


def published_to_rdp(eps: float, lipschitz: float, order: float, alpha: float = math.inf) -> float:
    """Proposition 11, WDP to (alpha, .)-RDP and, at alpha = inf, to DP: alpha/(alpha-1) L eps^(mu/(mu+1)).

    L is the Lipschitz constant of the log density. False, and beyond repair for finite mu: distributions with
    1-Lipschitz log densities can have W_mu near 0 and a loss of any size. Additive noise has L Delta.
    """
    if not alpha > 1:
        raise UsageError(f"a Renyi order alpha must exceed 1; found {alpha}")
    factor = 1.0 if math.isinf(alpha) else alpha / (alpha - 1)
    return factor * lipschitz * math.pow(eps, check_order(order) / (order + 1))


def published_step(distances: ArrayLike, rate: float, sigma: float, order: float, coordinates: int = 1) -> float:
    """Theorem 2: (sum over the coordinates of E|Z|^mu)^(1/mu), Z ~ N(q d, (2 - 2q + 2q^2) sigma^2), at the smallest d.

    Args:
        distances: [pairs] ||g - g'|| of one step, in the units of the output. coordinates: how many the gradient has.
    Returns:
        W in those units. It grows with sigma, is positive at q = 0, and can lie far below the exact W_mu.
    """
    least = float(np.min(np.asarray(distances, dtype=float)))
    return math.exp((math.log(coordinates) + float(_log_moment(least, rate, sigma, order))) / order)


def code_step(distances: ArrayLike, rate: float, sigma: float, order: float) -> float:
    """The step loss of the authors' program: a sum over sampled pairs, not coordinates (see ``published_step``)."""
    return math.exp(float(logsumexp(_log_moment(np.ravel(distances), rate, sigma, order))) / order)


def _log_moment(distance: ArrayLike, rate: float, sigma: float, order: float) -> Array:
    if not 0 <= rate <= 1:
        raise UsageError(f"the sampling rate must lie in [0, 1]; found {rate}")
    spread = math.sqrt(2 - 2 * rate + 2 * rate * rate)
    return log_absolute_moment(rate * np.asarray(distance, dtype=float), spread * sigma, order)


def published_epsilon(total: float, beta: float, log_delta: float) -> float:
    """Corollary 1: eps = sum of the step losses - ln(delta)/beta, beta free. Its proof reverses Jensen's inequality."""
    return total - log_delta / _positive(beta, "beta")


def published_log_delta(total: float, beta: float, eps: float) -> float:
    """Theorem 3: ln delta = beta (sum of the step losses - eps), at most 0."""
    return min(_positive(beta, "beta") * (total - eps), 0.0)


def _positive(value: float, name: str) -> float:
    if not value > 0:
        raise UsageError(f"{name} must be greater than 0; found {value}")
    return value
