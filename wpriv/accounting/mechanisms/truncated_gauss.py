"""Gaussian noise truncated at a bound; outcomes near the ends are possible under one neighbour only."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
from numpy.typing import ArrayLike
from scipy.special import log_ndtr, ndtr

from wpriv.accounting.mechanisms.gauss import GaussPair
from wpriv.core.atomic_pair import disjoint_pair
from wpriv.core.kinds import Release
from wpriv.core.loss_pair import KeyedPair, LossPair, Tails, bounded_tails, symmetric_log_delta
from wpriv.core.mechanism import AdditiveNoise, Mechanism
from wpriv.core.parameters import parameter
from wpriv.numerics.arrays import Array, CellParts, clipped_parts
from wpriv.numerics.bracket import positive_exp
from wpriv.numerics.log_space import log1mexp

_NODES, _WEIGHTS = np.polynomial.legendre.leggauss(16)


@dataclass(frozen=True)
class TruncatedGauss(Mechanism):
    """Release one number plus Gaussian noise conditioned on lying in [-bound, bound].

    The noise is log-concave, so the pair at the full sensitivity dominates those of smaller changes. A larger bound
    always means more privacy; a larger sigma at the same bound need not: it puts more mass near the ends, where
    outcomes are possible under one distribution only. At bound <= sensitivity/2 the supports are disjoint and delta is
    1 at every eps.

    Source:
        Sommer, Meiser, Mohammadi (2019), Section 5 and Figure 4.
    """

    release: ClassVar[Release] = Release.BOUNDED
    noise: ClassVar[str | None] = "bound"
    ratios: ClassVar[tuple[tuple[str, str], ...]] = (("sensitivity", "sigma"), ("bound", "sigma"))
    source: ClassVar[str] = "Sommer, Meiser, Mohammadi 2019, Figure 4"
    example: ClassVar[dict[str, object]] = {"bound": 2.5}

    sigma: float = parameter(
        "standard deviation of the noise before truncation, in the units of the query", exclusive_minimum=0
    )
    bound: float = parameter("largest size of the noise, in the units of the query", exclusive_minimum=0)
    sensitivity: float = parameter(
        "largest change of the released number between neighbours, in its units", default=1.0, exclusive_minimum=0
    )

    def additive_noise(self) -> AdditiveNoise:
        return AdditiveNoise("gauss", self.sigma, self.sensitivity, truncated=True)

    def pair(self) -> LossPair:
        if 2 * self.bound <= self.sensitivity:
            return disjoint_pair()
        return TruncatedGaussPair(self.sensitivity / self.sigma, self.bound / self.sigma)


class TruncatedGaussPair(KeyedPair):
    """N(mu, 1) truncated to mu +- beta against N(0, 1) truncated to +- beta: loss mu x - mu^2/2 on the overlap."""

    symmetric = True

    def __init__(self, mu: float, beta: float):
        self.key = (mu, beta)
        self.mu, self.beta = mu, beta
        top = mu * (beta - mu / 2)
        self.support = (-top, top)
        self.atoms = np.array([-top, top])  # the density of the loss jumps there
        self._log_mass = float(_log_interval(np.array(-beta), np.array(2 * beta)))
        self.log_infinity = float(_log_interval(np.array(beta - mu), np.array(mu))) - self._log_mass
        self.mass_at_plus_infinity = self.mass_at_minus_infinity = positive_exp(self.log_infinity)

    def tails(self, eps: Array) -> Tails:
        y = np.asarray(eps, dtype=float)
        top = self.support[1]
        # the outcome of loss eps, measured from the middle of the two centres
        x = np.clip(y, -top, top) / self.mu
        inside = (*self._two_sides(x - self.mu / 2), *self._two_sides(x + self.mu / 2))
        return bounded_tails(inside, y <= -top, y >= top, self.log_infinity)

    def _two_sides(self, x: Array) -> tuple[Array, Array]:
        """Return ln of the probabilities that the noise is above x and below it, the larger from the smaller."""
        x = np.clip(x, -self.beta, self.beta)
        smaller = np.minimum(_log_interval(np.abs(x), self.beta - np.abs(x)) - self._log_mass, -math.log(2))
        return np.where(x > 0, smaller, log1mexp(smaller)), np.where(x > 0, log1mexp(smaller), smaller)

    def cell_parts(self, low: Array, high: Array) -> CellParts:
        ends = np.clip(low, *self.support), np.clip(high, *self.support)
        inner = GaussPair(self.mu).cell_parts(*ends).times(math.exp(-self._log_mass))
        return clipped_parts(low, high, *self.support, inner, inner.mass(ends[1] - ends[0]))

    def log_delta(self, eps: ArrayLike) -> Array:
        """ln of [delta_Gauss(eps) + Phi(-beta) (e^eps - 1)]/Phi([-beta, beta]); the mass at infinity above it."""
        y = np.asarray(eps, dtype=float)
        size = np.minimum(np.abs(y), self.support[1])
        truncation = log_ndtr(-self.beta) + size + log1mexp(-size)
        inner = np.minimum(np.logaddexp(GaussPair(self.mu).log_delta(size), truncation) - self._log_mass, 0.0)
        above = np.where(np.abs(y) >= self.support[1], self.log_infinity, inner)
        return symmetric_log_delta(y, above)


def _log_interval(low: Array, width: Array) -> Array:
    """Compute ln of the standard normal mass of [low, low + width], whose middle is at or above 0."""
    is_narrow = (width < 1) & (width * (np.abs(low) + width) < 2)
    with np.errstate(divide="ignore"):
        around = np.log1p(-ndtr(np.minimum(low, 0.0)) - ndtr(-low - width))
        tail = log_ndtr(-low) + log1mexp(np.minimum(log_ndtr(-low - width) - log_ndtr(-low), 0.0))
        # where the density changes little the two tails nearly cancel: integrate it instead
        nodes = np.where(is_narrow, width, 0.0)[..., None] / 2 * (_NODES + 1)
        shape = np.exp(-nodes * (low[..., None] + nodes / 2)) @ _WEIGHTS
        narrow = np.log(width / 2 * shape) - low * low / 2 - 0.5 * math.log(2 * math.pi)
    return np.where(is_narrow, narrow, np.where(low < 0, around, tail))
