"""Gaussian noise on a query of bounded l2 sensitivity."""

from __future__ import annotations

import math
from collections.abc import Hashable, Sequence
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
from numpy.typing import ArrayLike
from scipy.special import erfcx, log_ndtr

from wpriv.core.pair import Array, LossPair, Tails, column, log1mexp, mirrored
from wpriv.core.process import Mechanism, parameter

_NODES, _WEIGHTS = np.polynomial.legendre.leggauss(20)


@dataclass(frozen=True)
class Gauss(Mechanism):
    """Releases f(D) + N(0, sigma^2 I); P = N(sensitivity, sigma^2), Q = N(0, sigma^2) along the worst direction.

    Source:
        Sommer, Meiser, Mohammadi (2019), Lemma 11 and Theorem 5 (with errata E-002-9); Balle and Wang (2018).
    """

    noise: ClassVar[str | None] = "sigma"
    source: ClassVar[str] = "Sommer, Meiser, Mohammadi 2019, Theorem 5"

    sigma: float = parameter("standard deviation of the noise, in the units of the query", above=0)
    sensitivity: float = parameter("l2 sensitivity of the query between neighbours, in its units", default=1.0, above=0)

    def pair(self) -> LossPair:
        return GaussPair(self.sensitivity / self.sigma)


@dataclass(frozen=True)
class GaussPair(LossPair):
    """N(mu, 1) against N(0, 1): the loss is N(mu^2/2, mu^2) under P and N(-mu^2/2, mu^2) under Q."""

    mu: float
    symmetric = True

    def tails(self, eps: Array) -> Tails:
        a = np.asarray(eps, dtype=float) / self.mu - self.mu / 2
        b = a + self.mu
        return Tails(log_ndtr(-a), log_ndtr(a), log_ndtr(-b), log_ndtr(b))

    def family(self) -> tuple[Hashable, tuple[float, ...]]:
        return "gauss", (self.mu,)

    def stacked(self, alike: Sequence[GaussPair]) -> LossPair:
        return GaussPair(column([pair.mu for pair in alike]))

    def power(self, n: int) -> GaussPair:
        return GaussPair(self.mu * math.sqrt(n))

    def join(self, other: LossPair) -> GaussPair | None:
        return GaussPair(math.hypot(self.mu, other.mu)) if isinstance(other, GaussPair) else None

    def renyi(self, orders: Array) -> Array:
        return np.asarray(orders) * self.mu**2 / 2

    def log_delta(self, eps: ArrayLike) -> Array:
        """ln delta of Theorem 5, right to about 1e-13 relative for every eps and mu.

        delta = phi(a) [R(a) - R(a + mu)], R the Mills ratio and a = eps/mu - mu/2; for small mu the difference is the
        integral of 1 - x R(x), which has one sign, so nothing cancels.
        """
        y = np.asarray(eps, dtype=float)
        with np.errstate(divide="ignore", over="ignore", invalid="ignore"):
            above = self._log_delta_above(np.abs(y))
        above = np.where(np.isnan(above), -np.inf, above)  # beyond 1e150 standard deviations the logs themselves overflow
        return np.where(y < 0, mirrored(np.minimum(y, 0.0), above), above)

    def _log_delta_above(self, eps: Array) -> Array:
        a = eps / self.mu - self.mu / 2
        if self.mu > 0.5:
            tail = log_ndtr(-a)
            return np.asarray(tail + log1mexp(np.minimum(eps + log_ndtr(-a - self.mu) - tail, 0.0)))
        x = a[..., None] + self.mu / 2 * (_NODES + 1)
        integral = self.mu / 2 * (_one_minus_x_mills(x) @ _WEIGHTS)
        return np.asarray(-a * a / 2 - 0.5 * math.log(2 * math.pi) + np.log(integral))


def _one_minus_x_mills(x: Array) -> Array:
    """1 - x R(x) with R(x) = Phi(-x)/phi(x); by its asymptotic series where the difference would cancel."""
    near = 1 - x * math.sqrt(math.pi / 2) * erfcx(np.minimum(x, 40.0) / math.sqrt(2))
    inverse = 1 / np.maximum(x, 40.0) ** 2
    far = inverse * (1 - 3 * inverse * (1 - 5 * inverse * (1 - 7 * inverse)))
    return np.where(x > 40.0, far, near)
