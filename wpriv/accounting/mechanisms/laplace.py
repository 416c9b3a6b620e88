"""Laplace noise on a query of bounded l1 sensitivity."""

from __future__ import annotations

import math
from dataclasses import dataclass
from fractions import Fraction
from typing import ClassVar

import numpy as np
from numpy.typing import ArrayLike

from wpriv.core.kinds import Release
from wpriv.core.loss_pair import LOSS_ROUNDING, KeyedPair, LossPair, Tails, bounded_tails, symmetric_log_delta
from wpriv.core.mechanism import AdditiveNoise, Mechanism
from wpriv.core.parameters import parameter
from wpriv.numerics.arrays import Array, CellParts, atom_parts, clipped_parts
from wpriv.numerics.log_space import log1mexp, log_exp_excess
from wpriv.numerics.numbers import decimal, quotient_up

# of the exponential and the logarithm in rho
RHO_ROUNDING = 1e-14


@dataclass(frozen=True)
class Laplace(Mechanism):
    """Release f(D) + Laplace(scale) on every coordinate; P and Q are Laplace distributions ``sensitivity`` apart.

    Pure (sensitivity/scale)-DP; the standard deviation of the noise is sqrt(2) scale.

    Source:
        Sommer, Meiser, Mohammadi (2019), Appendix A.3 (corrected); Dwork, McSherry, Nissim, Smith (2006).
    """

    release: ClassVar[Release] = Release.LAPLACE
    noise: ClassVar[str | None] = "scale"
    norm: ClassVar[str] = "l1"
    ratios: ClassVar[tuple[tuple[str, str], ...]] = (("sensitivity", "scale"),)
    source: ClassVar[str] = "Sommer, Meiser, Mohammadi 2019, Appendix A.3"

    scale: float = parameter(
        "scale b of the noise, density exp(-|x|/b)/(2b), in the units of the query", exclusive_minimum=0
    )
    sensitivity: float = parameter(
        "l1 sensitivity of the query between neighbours, in its units", default=1.0, exclusive_minimum=0
    )

    def additive_noise(self) -> AdditiveNoise:
        return AdditiveNoise("laplace", self.scale, self.sensitivity)

    def pair(self) -> LossPair:
        return LaplacePair.of_ratio(self.sensitivity, self.scale)


class LaplacePair(KeyedPair):
    """Laplace distributions of scale 1 around t and 0: atoms at -t and t, under P e^((y-t)/2)/4 between them."""

    symmetric = True

    def __init__(self, t: float, rest: float = 0.0):
        self.key = (t, rest)
        self.t, self.rest = t, rest
        self.support, self.atoms = (-t, t), np.array([-t, t])

    @classmethod
    def of_ratio(cls, sensitivity: float, scale: float) -> LaplacePair:
        """The pair of a sensitivity and a scale, whose largest loss is the quotient of their decimals."""
        t, exact = quotient_up(sensitivity, scale), Fraction(sensitivity) / Fraction(scale)
        pair = cls(t, float(exact - Fraction(t)))
        pair.largest = decimal(sensitivity) / decimal(scale)
        return pair

    def tails(self, eps: Array) -> Tails:
        y = np.asarray(eps, dtype=float)
        inner = np.clip(y, -self.t, self.t)
        below_p, above_q = (inner - self.t) / 2 - math.log(2), -(inner + self.t) / 2 - math.log(2)
        inside = (log1mexp(below_p), below_p, above_q, log1mexp(above_q))
        return bounded_tails(inside, y < -self.t, y >= self.t)

    def cell_parts(self, low: Array, high: Array) -> CellParts:
        """Integrate the density between the two atoms in closed form, and add the atoms."""
        a, b = np.clip(low, -self.t, self.t), np.clip(high, -self.t, self.t)
        fall = -np.expm1((a - b) / 2)
        inside = np.exp((b - self.t) / 2) / 2 * fall
        # the part below a cell's end is unknown where e^(b-a) is no double
        with np.errstate(over="ignore", invalid="ignore"):
            inner = CellParts(inside * fall, inside * np.expm1((b - a) / 2))
        parts = clipped_parts(low, high, -self.t, self.t, inner, inside)
        for loss, mass in ((-self.t, math.exp(-self.t) / 2), (self.t, 0.5)):
            parts = parts.plus(atom_parts(loss, mass, low, high))
        return parts

    def log_delta_error(self, eps: float) -> float:
        # eps - t has the rounding of t alone, which is that of a quotient
        return super().log_delta_error(eps) + math.log(2.0**-52 / LOSS_ROUNDING)

    def log_delta(self, eps: ArrayLike) -> Array:
        """Compute ln(1 - e^((eps-t)/2)) for 0 <= eps <= t; delta is 0 above."""
        y = np.asarray(eps, dtype=float)
        above = log1mexp(np.minimum((np.abs(y) - self.t - self.rest) / 2, 0.0))
        return symmetric_log_delta(y, above)

    def zcdp_rho(self) -> float:
        """t - 1 + e^-t, the mean loss, rounded up (docs/theory/classical-bounds.md, the rho of pure DP)."""
        return math.exp(float(log_exp_excess(np.asarray(-self.t)))) * (1 + RHO_ROUNDING)

    def renyi(self, orders: Array) -> Array:
        """Evaluate Mironov (2017), Table II, without its cancelling first-order terms; right to rounding at any t."""
        s = np.asarray(orders, dtype=float) - 1
        low, high = log_exp_excess(-(s + 1) * self.t), log_exp_excess(s * self.t)
        excess = np.logaddexp(np.log1p(s) + high, np.log(s) + low) - np.log1p(2 * s)
        return np.asarray(np.logaddexp(0.0, excess) / s)
