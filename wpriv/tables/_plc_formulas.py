"""Privacy loss classes (Sommer, Meiser, Mohammadi 2019): formulas as printed and pairs, for the table ``claims``.

Each function ``published_*`` gives the number of the paper, which errs at the inputs of the table. The accountants use
the right forms; docs/papers/plc.md lists the differences. ``t`` is sensitivity / scale of Laplace noise.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

import numpy as np
from scipy.special import erfc, erfcinv

from wpriv.core.atomic_pair import AtomicPair
from wpriv.core.loss_moments import LossClass
from wpriv.numerics.arrays import Array

UNIFORM, NONUNIFORM = 0.4748, 25.80  # constants of Lemma 13
# pairs (A, B) of distributions on few outcomes, the simplest first
PAIRS = (
    ([0.9, 0.1], [0.5, 0.5]),
    ([0.2, 0.3, 0.5], [0.4, 0.4, 0.2]),
    ([0.5, 0.3, 0.2, 0.0], [0.4, 0.35, 0.0, 0.25]),
)


def published_response_delta(n: int, xi: float, reveal: float, eps: float) -> float:
    """Example 1: delta of n-fold randomized response, with e^(xi (n-k)) where e^(xi k) is right.

    The index is capped at n, so that a negative term remains where eps > n xi and the sum should be empty.
    """
    first = max(0, min(n, math.ceil((eps + n * xi) / (2 * xi))))
    total = math.fsum(
        math.comb(n, k) * -math.expm1(eps - xi * (2 * k - n)) * math.exp(xi * (n - k)) for k in range(first, n + 1)
    )
    return (1 - reveal) ** n / (1 + math.exp(xi)) ** n * total + 1 - (1 - reveal) ** n


def published_markov_sum(tail: Callable[[float], float], eps: float, step: float, cells: int) -> float:
    """Theorem 3 on the grid eps, eps + step, ..., with [T(y_i) - T(y_(i-1))], which is negative."""
    bound = [tail(eps + step * i) for i in range(cells + 1)]
    return bound[-1] + math.fsum(-math.expm1(-step * i) * (bound[i] - bound[i - 1]) for i in range(1, cells + 1))


def published_renyi_delta(eps: float, sigma: float) -> float:
    """Section 4.6: delta = min over alpha of alpha D_alpha - alpha eps, at the D_alpha of Gauss noise.

    The minimum is at alpha = eps sigma^2, which must exceed 1.
    """
    alpha = eps * sigma**2
    return alpha * alpha / (2 * sigma**2) - alpha * eps


def published_sigma(eps: float, delta: float, n: int = 1, distance: float = 1.0) -> float:
    """Corollary 5.2: the smallest sigma for (eps, delta)-PDP, with sqrt(2 eps) where sqrt(2) eps is right."""
    z = float(erfcinv(2 * delta))
    return distance * math.sqrt(n) / math.sqrt(2 * eps) * (z + math.sqrt(z * z + eps))


def published_normal_bound(eps: float, n: int, loss: LossClass, raw_third: float) -> float:
    """Theorem 6: Delta + beta of one order of the inputs, with z = (eps - n mean) / (sqrt(n) variance).

    The third moment is that of the loss itself; about its mean, and with the standard deviation in z, it is right.
    """
    finite = math.pow(1 - loss.mass_at_plus_infinity, n)
    mean, variance = n * loss.mean, n * loss.variance
    root = math.sqrt(2 * variance)
    normal = float(erfc((eps - mean) / root))
    normal -= math.exp(eps - mean + variance / 2) * float(erfc((eps - mean + variance) / root))
    z = (eps - mean) / (math.sqrt(n) * loss.variance)
    ratio = raw_third / math.pow(loss.variance, 1.5)
    error = min(UNIFORM * ratio, NONUNIFORM * ratio / (1 + z**3)) if z >= 0 else UNIFORM * ratio
    return (1 - finite) + finite * (normal / 2 + error / math.sqrt(n))


def published_laplace_mean(z: float) -> float:
    """Appendix A.4: the mean loss of Laplace noise, e^z - 1 - z at z > 0; it is right at z = -t only."""
    return math.expm1(z) - z


def published_laplace_variance(z: float) -> float:
    """Appendix A.4: the variance of the loss, 3 - e^z (2 - 4z) - e^(2z) at z > 0; it is right at z = -t only."""
    return 3 - math.exp(z) * (2 - 4 * z) - math.exp(2 * z)


def published_laplace_delta(eps: float, t: float) -> float:
    """Appendix A.3: delta_A at 0 <= eps <= t for x0 = 0, x1 = t, b = 1; its factor e^(-x0/b) should be e^(-x1/b)."""
    return 0.5 * (math.exp(eps / 2) - math.exp(t / 2)) ** 2 - 0.5 * math.expm1(eps - t)


def published_rescaled_delta(eps: float, sigma: float) -> float:
    """Section 7: Lemma 12 with mean, standard deviation and eps divided by the mean of the loss, here for Gauss noise.

    The function 1 - e^(eps - y) that delta averages does not allow that.
    """
    mean, deviation, at = 1.0, 2 * sigma, 2 * sigma**2 * eps
    root = math.sqrt(2) * deviation
    variance = deviation**2
    second = math.exp(at - mean + variance / 2) * float(erfc((at - mean + variance) / root))
    return (float(erfc((at - mean) / root)) - second) / 2


def pair_of(p: Sequence[float] | Array, q: Sequence[float] | Array) -> AtomicPair:
    """The loss pair of two distributions on the same outcomes."""
    a, b = np.array(p), np.array(q)
    common = (a > 0) & (b > 0)
    losses, log_p = np.log(a[common] / b[common]), np.log(a[common])
    return AtomicPair(losses, log_p, float(a[b == 0].sum()), float(b[a == 0].sum()), log_q=np.log(b[common]))


def delta_of(p: Array, q: Array, eps: float) -> float:
    """Definition 5: the largest A(S) - e^eps B(S), from the probabilities of all outcomes."""
    return float(np.maximum(p - math.exp(eps) * q, 0).sum())
