"""Conversions between notions of privacy, and sigma of one Gaussian release; deltas are natural logarithms."""

from __future__ import annotations

import math

import numpy as np
from scipy.special import erfcx, gammainc, gammaincc, log_ndtr

from wpriv.errors import UsageError
from wpriv.numerics.arrays import Array
from wpriv.numerics.log_space import log1mexp
from wpriv.numerics.root_finding import smallest_meeting

# relative rounding of a moment, and of an order times eps: four units in the last place
ROUNDING = 2.0**-50
# relative error of chi-square tails, with a margin
SCALES_ROUNDING = 1e-8
# the largest eps for which that is asked
MOST_EPS = 600.0
_NODES, _WEIGHTS = np.polynomial.legendre.leggauss(20)


def rdp_to_log_delta(lam: Array, log_moment: Array, eps: float) -> Array:
    """Convert Renyi moments to delta at eps.

    Args:
        lam: [k] Renyi orders less one, > 0.
        log_moment: [k] lam D_(lam+1) = ln E_P[e^(lam L)] of the whole composition, in nats; +inf where unknown.
    Returns:
        [k] ln delta; every entry is an upper bound, the rounding of both large terms included, so the smallest holds.
    Source: Canonne, Kamath, Steinke (2020), Proposition 12: (1 - e^-x)_+ <= e^(lam x) lam^lam / (1+lam)^(1+lam), whose
        constant is the best possible.
    """
    return log_moment - lam * eps + ROUNDING * (np.abs(log_moment) + lam * abs(eps)) + _constant(lam)


def rdp_to_epsilon(lam: Array, log_moment: Array, log_delta: float) -> Array:
    """Renyi moments to [k] eps at delta: the inverse of ``rdp_to_log_delta`` (Asoodeh et al. 2020, Lemma 1)."""
    return (log_moment - log_delta + _constant(lam)) / lam


def rdp_limit_epsilon(lam: Array | float, log_delta: float) -> Array:
    """Compute the eps of the limit (eps, delta) whose best order for Gaussian noise is 1 + lam.

    ``rdp_to_epsilon`` allows a divergence B_a = eps + (ln delta - k) / lam at order a = 1 + lam, with k = ln(lam^lam /
    (1+lam)^(1+lam)), whose derivative is -ln(1 + 1/lam). The derivative of B_a / a vanishes where B_a = (1+lam) [ln(1 +
    1/lam) / lam - (ln delta - k) / lam^2]. This is solved for eps here, and in ``rdp_limit_log_delta`` for ln delta.

    Args:
        lam: orders less one, > 0; eps decreases in lam and may be negative.
    """
    lam = np.asarray(lam)
    return (1 + 1 / lam) * np.log1p(1 / lam) + (_constant(lam) - log_delta) * (1 + 2 * lam) / lam**2


def rdp_limit_log_delta(lam: Array | float, eps: float) -> Array:
    """Compute the ln delta of the limit (eps, delta) whose best order for Gaussian noise is 1 + lam."""
    lam = np.asarray(lam)
    return _constant(lam) - lam**2 / (1 + 2 * lam) * (eps - (1 + 1 / lam) * np.log1p(1 / lam))


def _constant(lam: Array) -> Array:
    """ln of lam^lam / (1+lam)^(1+lam)."""
    return -lam * np.log1p(1 / lam) - np.log1p(lam)


def tail_to_log_delta(lam: Array, log_moment: Array, eps: float) -> Array:
    """Compute [k] ln of the Chernoff bound of P(L > eps), which bounds delta; arguments as for ``rdp_to_log_delta``.

    Source: Abadi et al. (2016), Theorem 2.2; the same bound as Mironov (2017), Proposition 3.
    """
    return log_moment - lam * eps


def tail_to_epsilon(lam: Array, log_moment: Array, log_delta: float) -> Array:
    """Compute [k] eps at delta by ``tail_to_log_delta``: D_(lam+1) + ln(1/delta)/lam."""
    return (log_moment - log_delta) / lam


def zcdp_to_epsilon(rho: float, log_delta: float) -> float:
    """Compute eps = rho + 2 sqrt(rho ln(1/delta)): Bun and Steinke (2016), Proposition 1.3."""
    return rho + 2 * math.sqrt(-rho * log_delta)


def zcdp_to_log_delta(rho: float, eps: float) -> float:
    """Compute ln delta = -(eps - rho)^2 / (4 rho) for eps >= rho, else 0: the inverse of ``zcdp_to_epsilon``."""
    if rho == 0:
        return -math.inf
    return -((eps - rho) ** 2) / (4 * rho) if eps > rho else 0.0


def normal_log_delta(eps: float, mean: float, variance: float) -> float:
    """Compute ln delta = ln E (1 - e^(eps - Y))_+ of a normal privacy loss Y, without cancellation at any magnitude.

    With variance = 2 mean it is the delta of mu-GDP at mu^2 = variance. A variance of 0 is the constant loss ``mean``.

    Source: Sommer, Meiser, Mohammadi (2019), Lemma 12; Dong, Roth, Su (2019), Corollary 1.
    """
    if variance == 0:
        return float(log1mexp(min(eps - mean, 0.0)))
    sigma = math.sqrt(variance)
    a = (eps - mean) / sigma
    if a > 1e6:  # far below every positive double; the omitted factor is below 1
        return -a * a / 2
    return float(log_mills_drop(np.array(a), sigma))


def log_mills_drop(a: Array, width: float | Array) -> Array:
    """Compute ln of phi(a) [R(a) - R(a + width)], with the Mills ratio R(x) = Phi(-x) / phi(x).

    It is ln E (1 - e^(a sigma - Y))_+ for Y = N(0, sigma^2), width = sigma. For a small width the difference is the
    integral of -R' = 1 - x R(x), which has one sign, so nothing cancels.

    Args:
        a: any shape. width: > 0, of a shape that broadcasts with a.
    """
    tail = log_ndtr(-a)
    by_tails = tail + log1mexp(np.minimum(width * (a + width / 2) + log_ndtr(-a - width) - tail, 0.0))
    if np.min(width) > 0.5:
        return np.asarray(by_tails)
    half = np.asarray(np.minimum(width, 0.5) / 2)
    x = np.maximum(a, -30.0)[..., None] + half[..., None] * (_NODES + 1)
    integral = half * (_one_minus_x_mills(x) @ _WEIGHTS)
    by_integral = -a * a / 2 - 0.5 * math.log(2 * math.pi) + np.log(integral)
    return np.where((a < -30) | (np.asarray(width) > 0.5), by_tails, by_integral)


def _one_minus_x_mills(x: Array) -> Array:
    """1 - x R(x); by its asymptotic series where the difference would cancel."""
    near = 1 - x * math.sqrt(math.pi / 2) * erfcx(np.minimum(x, 40.0) / math.sqrt(2))
    inverse = 1 / np.maximum(x, 40.0) ** 2
    far = inverse * (1 - 3 * inverse * (1 - 5 * inverse * (1 - 7 * inverse)))
    return np.where(x > 40.0, far, near)


# Sigma of Gaussian noise for one release at (eps, delta) and l2 sensitivity 1: exact, and by older closed forms.


def exact(eps: float, delta: float) -> float:
    """Compute the smallest sigma that is (eps, delta)-DP at sensitivity 1, by root search on the exact profile.

    Args:
        eps: at least 0.
        delta: in (0, 1).
    Returns:
        sigma, above the exact value by at most 1e-12 relative. 1/sigma is the largest mu for which mu-GDP implies
        (eps, delta)-DP.
    Source:
        Balle, Wang (2018), Theorem 8.
    """
    target, guess = math.log(delta), classical(max(eps, 1.0), delta)
    return smallest_meeting(lambda sigma: _log_delta(eps, sigma) - target, guess)


def _log_delta(eps: float, sigma: float) -> float:
    """ln delta at sensitivity 1, by sigma itself, whose square may overflow or underflow."""
    a = eps * sigma - 1 / (2 * sigma)
    # far below every positive double; the omitted factor is below 1
    return -a * a / 2 if a > 1e6 else float(log_mills_drop(np.array(a), 1 / sigma))


def epsilon(sigma: float, delta: float) -> float:
    """Compute the smallest eps >= 0 of Gaussian noise sigma at delta and sensitivity 1: the inverse of ``exact``."""
    target, mean = math.log(delta), 1 / (2 * sigma**2)
    return smallest_meeting(lambda eps: normal_log_delta(eps, mean, 2 * mean) - target, guess=max(mean, 1e-12))


def classical(eps: float, delta: float) -> float:
    """Compute sigma = sqrt(2 ln(1.25/delta))/eps, proven for 0 < eps <= 1 only: Dwork, Roth (2014), Theorem A.1."""
    return math.sqrt(2 * (math.log(1.25) - math.log(delta))) / eps  # 1.25 / delta may overflow


def zhao(eps: float, delta: float) -> float:
    """Compute sigma = (c + sqrt(c^2 + eps))/(eps sqrt 2), c^2 = ln(2/(sqrt(16 delta + 1) - 1)).

    It suffices at every eps > 0 but is not the smallest.

    Source: Zhao et al. (2019), quoted as equation (4) of Reshetova, Chen, Ozgur (2023).
    """
    if not 0 < delta < 0.5:
        raise UsageError(f"equation (4) requires 0 < delta < 1/2; found delta {delta:g}")
    # sqrt(16 delta + 1) - 1, without cancellation
    root = 16 * delta / (math.sqrt(16 * delta + 1) + 1)
    square = math.log(2) - math.log(root)  # 2 / root may overflow
    return (math.sqrt(square) + math.sqrt(square + eps)) / (eps * math.sqrt(2))


# Noise whose size differs between neighbours: a mean that is divided by a number of the data.


def delta_of_scales(eps: float, larger: float, smaller: float, count: int) -> float:
    """Compute delta at eps between N(0, s^2 I) and N(0, t^2 I) in ``count`` coordinates, s/t = larger/smaller.

    It is that of the worse order, rounded down by more than its rounding error: with a scale of noise that follows a
    secret size of the data, no smaller delta holds. The sum of squares is chi-square.

    Args:
        eps: at least 0. larger, smaller: two divisors, above 0. count: coordinates of all releases, at least 1.
    """
    ratio, half = math.log(larger / smaller), count / 2
    wide = math.exp(2 * ratio)
    slope, weight = -math.expm1(-2 * ratio) / 2, math.exp(min(eps, 700.0))
    above, below = (eps + count * ratio) / slope, max(count * ratio - eps, 0.0) / slope
    one = gammaincc(half, above / wide / 2) - weight * gammaincc(half, above / 2)
    other = gammainc(half, below / 2) - weight * gammainc(half, below / wide / 2)
    return max(float(one), float(other), 0.0) * (1 - SCALES_ROUNDING)


def epsilon_of_scales(delta: float, larger: float, smaller: float, count: int) -> float:
    """Compute an eps, at most MOST_EPS, at which ``delta_of_scales`` exceeds delta: a lower end; 0 where none does."""
    low, high = 0.0, MOST_EPS
    for _ in range(60):
        middle = (low + high) / 2
        low, high = (middle, high) if delta_of_scales(middle, larger, smaller, count) > delta else (low, middle)
    return low
