"""Discrete Gaussian noise on an integer-valued query."""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import lru_cache
from typing import ClassVar

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.special import erfcx, log_ndtr

from wpriv.accounting.mechanisms.gauss import GaussPair
from wpriv.core.atomic_pair import AtomicPair
from wpriv.core.kinds import Release
from wpriv.core.loss_pair import KeyedPair, LossPair, Tails, symmetric_log_delta
from wpriv.core.mechanism import AdditiveNoise, Mechanism
from wpriv.core.parameters import parameter
from wpriv.numerics.arrays import Array
from wpriv.numerics.log_space import log1mexp

REACH = 40.0
LOG_BEYOND = -799.0  # the mass of the noise beyond 40 sigma is below 2 e^-800
MAX_ATOMS = 2**17
MARGIN = 10.0  # the mass of a tilted distribution beyond 10 sigma from its centre is below e^-50
_TERMS = np.arange(160.0)
# Euler-Maclaurin at the midpoint, with the signs of the odd derivatives of exp(-x^2/2)
_MIDPOINT = (1 / 24, -7 / 5760, 31 / 967680, -127 / 154828800, 73 / 3503554560, -1414477 / 2678117105664000)


@dataclass(frozen=True)
class DiscreteGauss(Mechanism):
    """Release an integer-valued query plus noise k with probability proportional to exp(-k^2/(2 sigma^2)).

    The noise can be drawn exactly, unlike floating-point Gaussian noise. It is log-concave, so the pair at the full
    sensitivity dominates those of smaller changes. Its standard deviation is slightly below sigma.

    Source:
        Canonne, Kamath, Steinke (2020), "The Discrete Gaussian for Differential Privacy": Theorem 7 for delta, Theorem
        4 for zCDP.
    """

    release: ClassVar[Release] = Release.WHOLE
    noise: ClassVar[str | None] = "sigma"
    ratios: ClassVar[tuple[tuple[str, str], ...]] = (("sensitivity", "sigma"),)
    source: ClassVar[str] = "Canonne, Kamath, Steinke 2020, Theorem 7"

    sigma: float = parameter(
        "parameter of the noise, P(k) ~ exp(-k^2/(2 sigma^2)), in the units of the query", exclusive_minimum=0
    )
    sensitivity: int = parameter("largest change of the integer-valued query between neighbours", default=1, minimum=1)

    def additive_noise(self) -> AdditiveNoise:
        return AdditiveNoise("gauss", self.sigma, self.sensitivity, discrete=True)

    def pair(self) -> LossPair:
        """Return the lattice of losses s (2k - s)/(2 sigma^2): atoms if there are few, else closed-form tails."""
        reach = math.ceil(REACH * self.sigma)
        if 2 * reach + self.sensitivity > MAX_ATOMS:
            return LatticePair(self.sigma, self.sensitivity)
        return NearPair(self.sigma, self.sensitivity, reach)


class _Divergences(LossPair):
    """The Renyi divergences of the discrete Gaussian pair in closed form."""

    sigma: float
    shift: float

    def renyi(self, orders: Array) -> Array:
        lam = np.asarray(orders, dtype=float) - 1
        return np.asarray(_log_moment(lam, self.sigma, self.shift) / lam)

    def zcdp_rho(self) -> float:
        return (self.shift / self.sigma) ** 2 / 2


class NearPair(_Divergences, AtomicPair):
    """The discrete Gaussian pair as atoms: its losses within ``reach`` of either centre.

    The losses further out do not matter to any delta. Moments include them: the moment of order lambda has its mass
    around (lambda + 1) x sensitivity, beyond any fixed reach.
    """

    def __init__(self, sigma: float, sensitivity: int, reach: int):
        self.sigma, self.shift, self.reach = sigma, sensitivity, reach
        k = np.arange(-reach, reach + sensitivity + 1.0)
        log_q = -((k / sigma) ** 2) / 2 - _log_normaliser(sigma)
        super().__init__(_losses(k, sigma, sensitivity), log_q[::-1], symmetric=True, log_q=log_q)
        # the tilted distribution is nearly normal around its centre: its mass beyond MARGIN sigma is negligible
        self.max_lam = max((reach - MARGIN * sigma) / sensitivity, 0.0)
        self.support, self.log_beyond = (-math.inf, math.inf), LOG_BEYOND

    def extended_to(self, lam: float) -> AtomicPair | None:
        if lam <= self.max_lam:
            return self
        reach = self.reach
        while (reach - MARGIN * self.sigma) / self.shift < lam:
            reach *= 2
            if 2 * reach + self.shift > MAX_ATOMS:
                return None
        return _near(self.sigma, self.shift, reach)

    def log_moment(self, lam: Array) -> Array:
        return _log_moment(lam, self.sigma, self.shift)


@lru_cache(maxsize=16)
def _near(sigma: float, sensitivity: int, reach: int) -> NearPair:
    return NearPair(sigma, sensitivity, reach)


class LatticePair(_Divergences, KeyedPair):
    """The discrete Gaussian pair at any sigma and sensitivity; tails by Euler-Maclaurin or by summing first terms."""

    symmetric = True

    def __init__(self, sigma: float, sensitivity: int):
        self.key = (sigma, sensitivity)
        self.sigma, self.shift = sigma, float(sensitivity)

    def tails(self, eps: Array) -> Tails:
        first = self._first_above(np.asarray(eps, dtype=float))
        above_p, below_p = self._two_sides(first - self.shift)
        above_q, below_q = self._two_sides(first)
        return Tails(above_p, below_p, above_q, below_q)

    def _first_above(self, eps: Array) -> Array:
        """Return the smallest k with a loss above eps."""
        with np.errstate(over="ignore"):
            k = np.floor(eps / self.shift * self.sigma * self.sigma + self.shift / 2)
        return k + 1

    def _two_sides(self, first: Array) -> tuple[Array, Array]:
        """Return ln of the probability that the noise is at least ``first``, and that it is less."""
        upper = first >= 1
        smaller = _log_tail(np.asarray(np.where(upper, first, 1 - first)), self.sigma)
        return np.where(upper, smaller, log1mexp(smaller)), np.where(upper, log1mexp(smaller), smaller)

    def log_delta(self, eps: ArrayLike) -> Array:
        y = np.asarray(eps, dtype=float)
        size = np.asarray(np.abs(y))
        above = np.array(super().log_delta(size))
        smooth = _is_smooth(self._first_above(size), self.sigma)
        above[smooth] = self._smooth_profile(size[smooth])
        return symmetric_log_delta(y, above)

    def _smooth_profile(self, eps: Array) -> Array:
        """Compute ln delta where the tails of P and Q nearly cancel: that of the Gaussian, with corrections."""
        first, mu = self._first_above(eps), self.shift / self.sigma
        u = (first - 0.5) / self.sigma
        edge = mu * u - mu * mu / 2
        gauss = GaussPair(mu).log_delta(edge)
        density = -((u - mu) ** 2) / 2 - 0.5 * math.log(2 * math.pi)
        with np.errstate(over="ignore", invalid="ignore"):
            inside = np.expm1(eps - edge) * np.exp(edge + log_ndtr(-u) - gauss)
            correction = _correction(u - mu, self.sigma) - np.exp(eps - edge) * _correction(u, self.sigma)
            corrected = gauss + np.log1p(-inside - correction * np.exp(density - gauss))
        # further out the logarithms have no digits left for a correction, and delta is practically 0
        return np.where(gauss > -1e4, corrected, gauss)


def _log_moment(lam: Array, sigma: float, sensitivity: float) -> Array:
    """Compute ln E_P[e^(lam L)] = lam (lam+1) s^2 / (2 sigma^2) + ln(theta(lam s) / theta(0)).

    Here theta(c) is the sum over k of e^{-(k-c)^2/(2 sigma^2)}. Completing the square moves the centre to (lam+1) s; s
    is an integer, so only the distance c of lam s from the nearest integer matters to theta. The second term is at most
    0 (Canonne, Kamath, Steinke 2020, Fact 18 and Theorem 4), and 0 at integer orders.
    """
    shift = np.asarray(lam, dtype=float) * sensitivity
    normal = (shift / sigma) * ((shift + sensitivity) / sigma) / 2
    return np.asarray(normal + _log_theta_ratio(shift - np.rint(shift), sigma))


def _log_theta_ratio(c: Array, sigma: float) -> Array:
    """Compute ln(theta(c) / theta(0)) for |c| <= 1/2, of second order in c; by Poisson summation if sigma > 0.4."""
    if sigma > 0.4:
        j = np.arange(1.0, 9.0)
        weight = np.exp(-2 * (math.pi * sigma * j) ** 2)
        return np.asarray(np.log1p(-4 * (np.sin(math.pi * c[..., None] * j) ** 2 @ weight) / (1 + 2 * weight.sum())))
    # terms k and -k together, relative to the one at k = 0: e^{-k^2/(2 sigma^2)} cosh(k c/sigma^2)
    k = np.arange(1.0, 7.0)
    grown = np.abs(c[..., None]) * k / sigma**2
    exponent = -((k / sigma) ** 2) / 2
    theta_zero = 1 + 2 * np.exp(exponent).sum()
    increase = 2 * (np.exp(exponent + grown) * (np.expm1(-grown) / 2) ** 2 * 2).sum(axis=-1)
    return np.asarray(-((c / sigma) ** 2) / 2 + np.log1p(increase / theta_zero))


def _losses(k: Array, sigma: float, sensitivity: int) -> Array:
    """Privacy losses s (2k - s)/(2 sigma^2) of the outcomes k."""
    return (2 * k - sensitivity) / 2 * (sensitivity / sigma / sigma)


def _log_normaliser(sigma: float) -> float:
    """Compute ln of the sum of exp(-k^2/(2 sigma^2)) over all integers k; by Poisson summation for sigma > 1."""
    if sigma > 1:
        excess = 2 * sum(math.exp(-2 * (math.pi * sigma * j) ** 2) for j in (1, 2))
        return math.log(sigma) + 0.5 * math.log(2 * math.pi) + math.log1p(excess)
    return math.log1p(2 * sum(math.exp(-((k / sigma) ** 2) / 2) for k in range(1, 10)))


def _is_smooth(first: Array, sigma: float) -> NDArray[np.bool_]:
    """Mask of the ``first`` >= 1 from which on the terms decrease so slowly that Euler-Maclaurin sums them."""
    return (first < 0.25 * sigma * sigma) & (sigma > 16)


def _log_tail(first: Array, sigma: float) -> Array:
    """Compute ln of the probability that the noise is at least ``first``, an integer of at least 1."""
    smooth = _is_smooth(first, sigma)
    tail = np.empty(first.shape)
    u = (first[smooth] - 0.5) / sigma
    # the density at the edge relative to the integral beyond it; the normaliser is sigma sqrt(2 pi) to rounding here
    hazard = math.sqrt(2 / math.pi) / erfcx(u / math.sqrt(2))
    tail[smooth] = log_ndtr(-u) + np.log1p(-hazard * _correction(u, sigma))
    m = np.minimum(first[~smooth] / sigma, 1e200)
    with np.errstate(over="ignore"):
        terms = np.exp(-(_TERMS / sigma) * (m[..., None] + _TERMS / sigma / 2)).sum(axis=-1)
        tail[~smooth] = -m * m / 2 + np.log(terms) - _log_normaliser(sigma)
    return tail


def _correction(u: Array, sigma: float) -> Array:
    """Integral from u on less the midpoint sum of step 1/sigma, relative to the density at u.

    It is the sum of c_k He_{2k-1}(u)/sigma^{2k} over k; He_j is divided by sigma^j, so that neither overflows.
    """
    x, square = u / sigma, sigma**-2.0
    total, before, hermite = np.zeros_like(u), np.ones_like(u), x
    for k, c in enumerate(_MIDPOINT, start=1):
        total = total + c * hermite / sigma
        before, hermite = hermite, x * hermite - (2 * k - 1) * square * before
        before, hermite = hermite, x * hermite - 2 * k * square * before
    return total
