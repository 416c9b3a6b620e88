"""The formulas of Reshetova, Chen, Ozgur (2023) as printed, and correct ones beside them.

A function named ``published_*`` gives the number of the paper where that is not the correct one; the others are
correct. Y = X + N with noise of density f_N(x) = (C_N sigma)^-1 exp(-|x|^p / (p sigma^p)) on each coordinate: Laplace
noise of scale sigma for p = 1, Gauss noise for p = 2. Everything here is on the line.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import pairwise

import numpy as np
from scipy.special import logsumexp

from wpriv.numerics.arrays import Array

_NODES, _WEIGHTS = np.polynomial.legendre.leggauss(40)


def normaliser(p: float) -> float:
    """C_N of the noise density: 2 for p = 1, sqrt(2 pi) for p = 2."""
    return 2 * math.pow(p, 1 / p) * math.gamma(1 + 1 / p)


def noise_entropy(p: float, sigma: float) -> float:
    """h(N) = 1/p + ln(sigma C_N), below equation (14)."""
    return 1 / p + math.log(sigma * normaliser(p))


def least_cost(p: float, sigma: float, entropy: float) -> float:
    """W_{p, p sigma^p}(P_X, P_Y) = p sigma^p (h(Y) - ln(C_N sigma)), the least over all generators; above (25)."""
    return p * math.pow(sigma, p) * (entropy - math.log(normaliser(p) * sigma))


def published_least_cost(p: float, sigma: float, entropy: float) -> float:
    """The second line of (14) as printed, whose first term has the wrong sign."""
    return p * math.pow(sigma, p) * (math.log(sigma * normaliser(p)) + entropy)


def laplace_variance_learned(variance: float, scale: float, lam: float) -> float:
    """Variance of the best generator for Laplace noise of scale b and 0 <= lambda <= b: Var X + 2 b^2 - 2 lambda^2.

    The least W_{1, lambda}(P_G, P_Y) is at P_G * Lap(lambda) = P_Y, thus at P_X convolved with the mixture of 0, with
    weight (lambda/b)^2, and Lap(b).
    """
    return variance + 2 * scale**2 - 2 * lam**2


def gauss_variance_learned(variance: float, lam: float) -> float:
    """Variance a^2 of the best generator N(0, a^2) for data N(0, variance) and p = 2, by the root of the slope.

    The optimal coupling of N(0, a^2) and N(0, s^2) has the correlation r that minimises
    a^2 + s^2 - 2 r a s - (lambda/2) ln(1 - r^2); by the envelope theorem the slope in a is 2 a - 2 r s.
    """
    from scipy.optimize import brentq

    s = math.sqrt(variance)

    def slope(a: float) -> float:
        return a - _covariance(a, s, lam) / a

    return float(brentq(slope, 1e-6 * s, s, xtol=1e-15, rtol=1e-14)) ** 2


def gauss_cost(mean: float, s1: float, s2: float, lam: float) -> float:
    """W_{2, lambda} of N(0, s1^2) and N(mean, s2^2): Janati et al. (2020)."""
    c = _covariance(s1, s2, lam)
    return mean**2 + s1**2 + s2**2 - 2 * c - lam / 2 * math.log1p(-((c / (s1 * s2)) ** 2))


def _covariance(s1: float, s2: float, lam: float) -> float:
    """Covariance of the optimal coupling of two normal distributions."""
    # -lam/4 + sqrt(lam^2/16 + s1^2 s2^2), without cancellation
    product = (s1 * s2) ** 2
    return product / (lam / 4 + math.sqrt(lam * lam / 16 + product))


def gauss_divergence(mean: float, variance1: float, variance2: float) -> float:
    """KL(N(mean, variance1) || N(0, variance2))."""
    return (mean**2 / variance2 + variance1 / variance2 - 1 - math.log(variance1 / variance2)) / 2


def largest_loss(x: Sequence[float], other: Sequence[float], scale: float) -> float:
    """Compute the largest log ratio of the densities of a report from x and from ``other``, by search.

    Laplace noise of this scale on every coordinate; the outputs run through all points whose coordinates are those of
    the inputs or lie beyond both, where the ratio has its corners.
    """
    a, b = np.asarray(x, dtype=float), np.asarray(other, dtype=float)
    low, high = np.minimum(a, b), np.maximum(a, b)
    axes = [np.array([low_k - 1, low_k, high_k, high_k + 1]) for low_k, high_k in zip(low, high, strict=True)]
    outputs = np.stack(np.meshgrid(*axes), axis=-1).reshape(-1, len(a))
    losses = (np.abs(outputs - b).sum(1) - np.abs(outputs - a).sum(1)) / scale
    return float(losses.max())


def log_density(y: Array, points: Sequence[float], weights: Sequence[float], p: float, sigma: float) -> Array:
    """Log density of a discrete generator plus noise."""
    gaps = np.abs(np.subtract.outer(y, np.asarray(points, dtype=float)))
    logs = np.log(weights) - gaps**p / (p * sigma**p) - math.log(normaliser(p) * sigma)
    return np.asarray(logsumexp(logs, axis=-1))


def divergence(
    first: tuple[Sequence[float], Sequence[float]],
    second: tuple[Sequence[float], Sequence[float]],
    p: float,
    sigma: float,
) -> float:
    """KL of one discrete generator plus noise from another, by quadrature; both are given as points and weights."""
    points = sorted({*first[0], *second[0]})
    y, w = quadrature(points, (40.0 if p == 1 else 12.0) * sigma)
    one, other = (log_density(y, *generator, p, sigma) for generator in (first, second))
    return float(np.sum(w * np.exp(one) * (one - other)))


def quadrature(points: Sequence[float], reach: float) -> tuple[Array, Array]:
    """Lay Gauss-Legendre nodes and weights from ``reach`` below the first point to ``reach`` above the last one."""
    corners = [points[0] - reach, *points, points[-1] + reach]
    edges = np.concatenate([np.linspace(a, b, 25)[:-1] for a, b in pairwise(corners)])
    edges = np.append(edges, corners[-1])
    half = np.diff(edges)[:, None] / 2
    return (edges[:-1, None] + half * (1 + _NODES)).ravel(), (half * _WEIGHTS).ravel()


def cost_of_two_points(points: tuple[float, float], weights: tuple[float, float], sigma: float) -> float:
    """W_{2, 2 sigma^2} between two points with weights and N(0, sigma^2), by the dual problem in one potential."""
    from scipy.optimize import brentq

    lam = 2 * sigma**2
    y, w = quadrature(sorted({0.0, *points}), 12 * sigma)
    mass = w * np.exp(log_density(y, [0.0], [1.0], 2, sigma))
    costs = np.subtract.outer(y, np.asarray(points)) ** 2

    def exponents(potential: float) -> Array:
        return np.asarray(np.log(weights) + (np.array([0.0, potential]) - costs) / lam)

    def excess(potential: float) -> float:
        logs = exponents(potential)
        return float(np.sum(mass * np.exp(logs[:, 1] - logsumexp(logs, axis=1)))) - weights[1]

    best = float(brentq(excess, -200 * lam, 200 * lam, xtol=1e-14))
    return weights[1] * best - lam * float(np.sum(mass * logsumexp(exponents(best), axis=1)))


def subgaussian(s: float, dimension: int) -> float:
    """sigma of N(0, s^2 I_d) by the definition above Theorem 2: the least with E exp(|X|^2 / (2 d sigma^2)) <= 2.

    The expectation is (1 - s^2 / (d sigma^2))^(-d/2).
    """
    return s / math.sqrt(-dimension * math.expm1(-2 / dimension * math.log(2)))
