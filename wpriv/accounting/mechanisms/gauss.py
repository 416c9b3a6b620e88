"""Gaussian noise on a query of bounded l2 sensitivity."""

from __future__ import annotations

import math
from collections.abc import Hashable, Sequence
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
from numpy.typing import ArrayLike
from scipy.special import erfc, log_ndtr

from wpriv.core.kinds import Release
from wpriv.core.loss_pair import LossPair, Tails, as_column, symmetric_log_delta
from wpriv.core.mechanism import AdditiveNoise, Mechanism
from wpriv.core.parameters import parameter
from wpriv.numerics.arrays import Array, CellParts
from wpriv.numerics.conversions import log_mills_drop

# Gauss-Legendre quadrature on [0, 1]: right to rounding where the density changes by at most e^MAX_FALL in a cell
_NODES, _WEIGHTS = np.polynomial.legendre.leggauss(8)
_NODES, _WEIGHTS = (_NODES + 1) / 2, _WEIGHTS / 2
MAX_FALL = 3.0


@dataclass(frozen=True)
class Gauss(Mechanism):
    """Release f(D) + N(0, sigma^2 I); P = N(sensitivity, sigma^2), Q = N(0, sigma^2) along the worst direction.

    Source:
        Sommer, Meiser, Mohammadi (2019), Lemma 11 and Theorem 5 (corrected); Balle and Wang (2018).
    """

    release: ClassVar[Release] = Release.GAUSS
    noise: ClassVar[str | None] = "sigma"
    norm: ClassVar[str] = "l2"
    ratios: ClassVar[tuple[tuple[str, str], ...]] = (("sensitivity", "sigma"),)
    source: ClassVar[str] = "Sommer, Meiser, Mohammadi 2019, Theorem 5"

    sigma: float = parameter("standard deviation of the noise, in the units of the query", exclusive_minimum=0)
    sensitivity: float = parameter(
        "l2 sensitivity of the query between neighbours, in its units", default=1.0, exclusive_minimum=0
    )

    def additive_noise(self) -> AdditiveNoise:
        return AdditiveNoise("gauss", self.sigma, self.sensitivity)

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

    def probabilities(self, eps: Array) -> Tails:
        a = (np.asarray(eps, dtype=float) / self.mu - self.mu / 2) * math.sqrt(0.5)
        return Tails(*_both_tails(a), *_both_tails(a + self.mu * math.sqrt(0.5)))

    def cell_parts(self, low: Array, high: Array) -> CellParts:
        """Integrate the density times 1 - e^(low-y) and e^(high-y) - 1; from a tail where ``low`` is -inf."""
        lowest = np.isneginf(low)
        first = np.where(lowest, 0.0, low)
        width = np.where(lowest, 0.0, high) - first
        start, span = first / self.mu - self.mu / 2, width / self.mu
        known = ~lowest & ((np.maximum(np.abs(start), np.abs(start + span)) + span) * span < MAX_FALL)
        width, start, span = (np.where(known, values, 0.0) for values in (width, start, span))
        above, below = np.zeros((2, *span.shape))
        end = np.where(lowest & np.isfinite(high), high, 0.0)
        # the part below a cell's end is unknown where e^width is no double
        with np.errstate(over="ignore", invalid="ignore"):
            for node, weight in zip(_NODES.tolist(), _WEIGHTS.tolist(), strict=True):
                outcome = start + node * span
                density = weight * np.exp(-outcome * outcome / 2)
                above -= density * np.expm1(-node * width)
                below += density * np.expm1((1 - node) * width)
            scale = np.where(known, span / math.sqrt(2 * math.pi), np.nan)
            parts = CellParts(scale * above, scale * below)
            if not lowest.any():
                return parts
            tail = np.exp(self.tails(end).cdf_p), np.exp(end + self.log_delta(-end))
        whole = (np.where(np.isneginf(high), 0.0, part) for part in tail)
        return CellParts(*(np.where(lowest, one, other) for one, other in zip(whole, parts, strict=True)))

    def batch_key(self) -> tuple[Hashable, tuple[float, ...]]:
        return "gauss", (self.mu,)

    def batched(self, pairs: Sequence[GaussPair]) -> LossPair:
        return GaussPair(as_column([pair.mu for pair in pairs]))

    def self_compose(self, n: int) -> GaussPair:
        return GaussPair(self.mu * math.sqrt(n))

    def compose_with(self, other: LossPair) -> GaussPair | None:
        return GaussPair(math.hypot(self.mu, other.mu)) if isinstance(other, GaussPair) else None

    def renyi(self, orders: Array) -> Array:
        return np.asarray(orders) * (self.mu * self.mu / 2)  # inf, where a power would raise

    def zcdp_rho(self) -> float:
        return self.mu * self.mu / 2

    def log_delta(self, eps: ArrayLike) -> Array:
        """Compute ln delta of Theorem 5, right to about 1e-13 relative for every eps and mu."""
        y = np.asarray(eps, dtype=float)
        with np.errstate(divide="ignore", over="ignore", invalid="ignore"):
            above = log_mills_drop(np.abs(y) / self.mu - self.mu / 2, self.mu)
        # beyond 1e150 standard deviations the logarithms themselves overflow
        above = np.where(np.isnan(above), -np.inf, above)
        return symmetric_log_delta(y, above)


def _both_tails(a: Array) -> tuple[Array, Array]:
    """P(N > sqrt(2) a) and P(N <= sqrt(2) a) of a standard normal N; the larger is the complement of the smaller."""
    smaller = np.asarray(np.abs(a))
    erfc(smaller, out=smaller)
    smaller *= 0.5
    larger, above = 1 - smaller, a > 0
    return np.where(above, smaller, larger), np.where(above, larger, smaller)
