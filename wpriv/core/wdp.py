"""Wasserstein differential privacy (Yang et al. 2024): the formulas as printed, and beside each what does hold.

A function named ``published_*`` gives the number of the paper. None of them is a differential privacy guarantee, and most are not even
bounds of the Wasserstein distance they are stated for; the plain names are repaired. eps of WDP has the unit of the output: multiply
the output by 1000 and eps grows by 1000 while nothing about privacy has changed. ``distance`` stands for the sensitivity.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
from numpy.typing import ArrayLike
from scipy.special import erf, logsumexp

from wpriv.core.absolute import log_absolute_moment
from wpriv.core.convert import normal_log_delta
from wpriv.core.pair import Array
from wpriv.core.wasserstein import check_order
from wpriv.errors import UsageError


def published_laplace(distance: float, scale: float, order: float) -> float:
    """Proposition 7 and Table 1: (1/2) Delta sqrt(2 [1/b + e^(-1/b) - 1])^(1/mu). The exact budget is Delta, for every b and mu."""
    t = 1 / _positive(scale, "scale")
    # t + e^-t - 1 by its series where it would cancel
    kl = t * t / 2 - t**3 / 6 + t**4 / 24 - t**5 / 120 if t < 1e-3 else t + math.expm1(-t)
    return distance / 2 * math.pow(2 * kl, 0.5 / check_order(order))


def published_gauss(distance: float, sigma: float, order: float) -> float:
    """Proposition 8 and Table 1: (1/2) (Delta/sigma)^(1/mu), which has lost its unit. The exact budget is Delta."""
    return 0.5 * math.pow(distance / _positive(sigma, "sigma"), 1 / check_order(order))


def published_from_dp(eps: float, distance: float, order: float) -> float:
    """Proposition 9, eps-DP to WDP: (1/2) Delta (2 eps (e^eps - 1))^(1/(2 mu)). False: see ``from_dp``."""
    check_order(order)
    log_inside = math.log(2 * eps) + (eps if eps > 700 else math.log(math.expm1(eps))) if eps > 0 else -math.inf
    return distance / 2 * math.exp(log_inside / (2 * order))


def from_dp(eps: float, diameter: float, order: float) -> float:
    """eps-DP to WDP for outputs within a set of this diameter: D tanh(eps/2)^(1/mu), attained by randomized response on {0, D}."""
    return diameter * math.pow(math.tanh(eps / 2), 1 / check_order(order))


def published_from_rdp(eps: float, distance: float, order: float) -> float:
    """Proposition 10, (alpha, eps)-RDP to WDP: (1/2) Delta (2 eps)^(1/(2 mu)). False: see ``from_rdp``."""
    return distance / 2 * math.pow(2 * eps, 0.5 / check_order(order))


def from_rdp(eps: float, diameter: float, order: float) -> float:
    """(alpha, eps)-RDP to WDP for outputs within this diameter: D min(1, sqrt(eps/2))^(1/mu), by Pinsker's inequality."""
    return diameter * math.pow(min(1.0, math.sqrt(eps / 2)), 1 / check_order(order))


def published_to_rdp(eps: float, lipschitz: float, order: float, alpha: float = math.inf) -> float:
    """Proposition 11, WDP to (alpha, .)-RDP and, at alpha = inf, to DP: alpha/(alpha-1) L eps^(mu/(mu+1)).

    L is the Lipschitz constant of the log density. False, and beyond repair for finite mu: laws with 1-Lipschitz log densities can have
    W_mu near 0 and a loss of any size. See ``noise_to_dp`` and ``max_distance_to_dp``.
    """
    if not alpha > 1:
        raise UsageError(f"a Renyi order alpha must exceed 1; found {alpha}")
    factor = 1.0 if math.isinf(alpha) else alpha / (alpha - 1)
    return factor * lipschitz * math.pow(eps, check_order(order) / (order + 1))


def published_to_zcdp(eps: float, lipschitz: float, order: float) -> float:
    """Proposition 11 through eps^2/2-zCDP (the paper's discussion): rho = (L eps^(mu/(mu+1)))^2 / 2. Inherits its fault."""
    return published_to_rdp(eps, lipschitz, order) ** 2 / 2


def noise_to_dp(distance: float, lipschitz: float) -> float:
    """Pure DP of additive noise whose log density is L-Lipschitz: L Delta (Laplace: L = 1/b). Replaces Proposition 11."""
    return lipschitz * distance


def max_distance_to_dp(distance: float, lipschitz: float, dimension: int = 1) -> float:
    """Pure DP where W_inf <= w and both log densities on R^k are L-Lipschitz: min over h > 0 of L (2h + w) + k ln(1 + w/h)."""
    w, slope, k = distance, lipschitz, dimension
    if w == 0:
        return 0.0
    h = (-w + math.sqrt(w * w + 2 * k * w / _positive(slope, "lipschitz"))) / 2  # 2 L = k w / (h (h + w))
    return slope * (2 * h + w) + k * math.log1p(w / h)


def group(eps: float, size: int) -> float:
    """Proposition 13: k eps for groups of k records, by the triangle inequality. Right."""
    return size * eps


def post_processing(eps: float, lipschitz: float) -> float:
    """K eps after a K-Lipschitz map. Proposition 12 claims eps for every map, which scaling by 1000 refutes."""
    return lipschitz * eps


def sequential(budgets: Sequence[float]) -> float:
    """Proposition 6: the sum. Right for mechanisms fixed in advance; false for adaptive ones, which the paper claims too."""
    return math.fsum(budgets)


def parallel(budgets: Sequence[float]) -> float:
    """Proposition 5: the largest. Right where the partition is fixed in advance and neighbours differ within one part."""
    return max(budgets)


def published_step(distances: ArrayLike, rate: float, sigma: float, order: float, coordinates: int = 1) -> float:
    """Theorem 2: (sum over the coordinates of E|Z|^mu)^(1/mu), Z ~ N(q d, (2 - 2q + 2q^2) sigma^2), at the least d (the ``inf``).

    Args:
        distances: [pairs] ||g - g'|| of one step, in the units of the output. coordinates: how many the gradient has.
    Returns:
        W in those units. It grows with sigma, is positive at q = 0, and can lie far below the exact W_mu.
    """
    least = float(np.min(np.asarray(distances, dtype=float)))
    return math.exp((math.log(coordinates) + float(_log_moment(least, rate, sigma, order))) / order)


def code_step(distances: ArrayLike, rate: float, sigma: float, order: float) -> float:
    """The step loss of the authors' program: the sum runs over the sampled pairs instead of the coordinates. See ``published_step``."""
    return math.exp(float(logsumexp(_log_moment(np.ravel(distances), rate, sigma, order))) / order)


def _log_moment(distance: ArrayLike, rate: float, sigma: float, order: float) -> Array:
    if not 0 <= rate <= 1:
        raise UsageError(f"the sampling rate must lie in [0, 1]; found {rate}")
    spread = math.sqrt(2 - 2 * rate + 2 * rate * rate)
    return log_absolute_moment(rate * np.asarray(distance, dtype=float), spread * sigma, order)


def published_epsilon(total: float, beta: float, log_delta: float) -> float:
    """Corollary 1: eps = sum of the step losses - ln(delta)/beta. Its proof turns Jensen's inequality round; beta is free."""
    return total - log_delta / _positive(beta, "beta")


def published_log_delta(total: float, beta: float, eps: float) -> float:
    """Theorem 3: ln delta = beta (sum of the step losses - eps), at most 0."""
    return min(_positive(beta, "beta") * (total - eps), 0.0)


def tail_epsilon(means: Sequence[float], bounds: Sequence[float], log_delta: float) -> float:
    """Theorem 1 repaired (Hoeffding): Pr[sum W_t >= eps] <= delta for independent step losses in [0, w_t] of the given means.

    eps = sum of the means + sqrt(ln(1/delta)/2 sum w_t^2). The chance is over training paths; it is not the delta of DP.
    """
    return math.fsum(means) + math.sqrt(-log_delta / 2 * math.fsum(w * w for w in bounds))


def total_variation_gauss(distance: float, sigma: float) -> float:
    """TV(N(0, sigma^2), N(Delta, sigma^2)) = erf(Delta / (2 sqrt2 sigma))."""
    return float(erf(distance / (2 * math.sqrt(2) * sigma)))


def total_variation_laplace(distance: float, scale: float) -> float:
    """TV(Lap(0, b), Lap(Delta, b)) = 1 - e^(-Delta/(2b))."""
    return -math.expm1(-distance / (2 * scale))


def bounded(distance: float, diameter: float, total_variation: float, order: float) -> float:
    """What Propositions 7 and 8 can say of noise that is cut to outputs of this diameter: W_mu <= min(Delta, D TV^(1/mu))."""
    return min(distance, diameter * math.pow(total_variation, 1 / check_order(order)))


def noise_after(eps: float, order: float, sigma: float, *, at: float, reach: float) -> float:
    """delta of N(0, sigma^2 I) noise added after a (mu, eps)-WDP stage, at a DP eps of ``at``: delta_Gauss(at; t/sigma) + (eps/t)^mu.

    The one way from WDP to (eps, delta)-DP that holds at finite mu: by Markov's inequality the coupled outputs lie within t of each
    other but for a chance of (eps/t)^mu. ``reach`` is t >= eps.
    """
    mu = reach / sigma
    return min(1.0, math.exp(normal_log_delta(at, mu * mu / 2, mu * mu)) + math.pow(eps / reach, check_order(order)))


def _positive(value: float, name: str) -> float:
    if not value > 0:
        raise UsageError(f"{name} must be greater than 0; found {value}")
    return value
