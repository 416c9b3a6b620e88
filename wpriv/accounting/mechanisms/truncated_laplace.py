"""Laplace noise truncated at a bound; outcomes near the ends are possible under one neighbour only."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
from numpy.typing import ArrayLike

from wpriv.core.atomic_pair import disjoint_pair
from wpriv.core.kinds import Release
from wpriv.core.loss_pair import KeyedPair, LossPair, Tails, bounded_tails, symmetric_log_delta
from wpriv.core.mechanism import AdditiveNoise, Mechanism
from wpriv.core.parameters import parameter
from wpriv.numerics.arrays import Array
from wpriv.numerics.bracket import positive_exp
from wpriv.numerics.log_space import log1mexp


@dataclass(frozen=True)
class TruncatedLaplace(Mechanism):
    """Release one number plus Laplace noise conditioned on lying in [-bound, bound].

    The noise is log-concave, so the pair at the full sensitivity dominates those of smaller changes. A larger bound
    always means more privacy; a larger scale at the same bound need not: it puts more mass near the ends, where
    outcomes are possible under one distribution only. At bound <= sensitivity/2 the supports are disjoint and delta is
    1 at every eps.

    Source:
        Geng, Ding, Guo, Kumar (2020), "Tight Analysis of Privacy and Utility Tradeoff in Approximate Differential
        Privacy".
    """

    release: ClassVar[Release] = Release.BOUNDED
    noise: ClassVar[str | None] = "bound"
    ratios: ClassVar[tuple[tuple[str, str], ...]] = (("sensitivity", "scale"), ("bound", "scale"))
    source: ClassVar[str] = "Geng, Ding, Guo, Kumar 2020 (truncated Laplace noise)"
    example: ClassVar[dict[str, object]] = {"bound": 3.0}

    scale: float = parameter(
        "scale b of the noise before truncation, density ~ exp(-|x|/b), in the units of the query", exclusive_minimum=0
    )
    bound: float = parameter("largest size of the noise, in the units of the query", exclusive_minimum=0)
    sensitivity: float = parameter(
        "largest change of the released number between neighbours, in its units", default=1.0, exclusive_minimum=0
    )

    def additive_noise(self) -> AdditiveNoise:
        return AdditiveNoise("laplace", self.scale, self.sensitivity, truncated=True)

    def pair(self) -> LossPair:
        if 2 * self.bound <= self.sensitivity:
            return disjoint_pair()
        return TruncatedLaplacePair(self.sensitivity / self.scale, self.bound / self.scale)


class TruncatedLaplacePair(KeyedPair):
    """Laplace distributions of scale 1 around t and 0, each truncated to its centre +- beta.

    The loss is |x| - |x - t| on the overlap of the supports. If beta > t, the overlap extends beyond both centres and
    the losses -t and t are atoms; else the loss stays between t - 2 beta and 2 beta - t, where its density jumps.
    """

    symmetric = True

    def __init__(self, t: float, beta: float):
        self.key = (t, beta)
        self.t, self.beta = t, beta
        self._overlap = 2 * beta - t
        top = min(t, self._overlap)
        self.support, self.atoms = (-top, top), np.array([-top, top])
        self._log_mass = float(log1mexp(-beta))
        # the mass of the noise in the last interval of length t, which may contain the centre
        log_upper = t - beta + log1mexp(-t) - math.log(2) - self._log_mass
        self.log_infinity = float(
            log_upper if beta > t else log1mexp(self._upper(np.array(t - beta), np.array(-self._overlap)))
        )
        self.mass_at_plus_infinity = self.mass_at_minus_infinity = positive_exp(self.log_infinity)

    def _upper(self, u: Array, beyond: Array) -> Array:
        """Return ln of the probability that the noise is above u, 0 <= u <= beta; ``beyond`` is u - beta unrounded."""
        return np.asarray(-u + log1mexp(np.minimum(beyond, 0.0)) - math.log(2) - self._log_mass)

    def tails(self, eps: Array) -> Tails:
        y = np.asarray(eps, dtype=float)
        top = self.support[1]
        inner = np.clip(y, -top, top)
        # in the support the outcome x = (y + t)/2 is between the two centres: below that of P, above that of Q
        below_p = self._upper((self.t - inner) / 2, -(inner + self._overlap) / 2)
        above_q = self._upper((self.t + inner) / 2, (inner - self._overlap) / 2)
        inside = (log1mexp(below_p), below_p, above_q, log1mexp(above_q))
        below = (y < -top) if self.beta > self.t else (y <= -top)
        return bounded_tails(inside, below, y >= top, self.log_infinity)

    def log_delta(self, eps: ArrayLike) -> Array:
        """ln of [1 - e^((eps-t)/2) + e^-beta (e^eps - 1)/2]/(1 - e^-beta); above, the mass at infinity."""
        y = np.asarray(eps, dtype=float)
        size = np.minimum(np.abs(y), self.support[1])
        truncation = size - self.beta + log1mexp(-size) - math.log(2)
        inner = np.minimum(
            np.logaddexp(log1mexp(np.minimum((size - self.t) / 2, 0.0)), truncation) - self._log_mass, 0.0
        )
        above = np.where(np.abs(y) >= self.support[1], self.log_infinity, inner)
        return symmetric_log_delta(y, above)
