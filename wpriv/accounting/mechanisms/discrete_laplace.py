"""Discrete Laplace (two-sided geometric) noise on an integer-valued query."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from wpriv.core.atomic_pair import AtomicPair
from wpriv.core.kinds import Release
from wpriv.core.loss_pair import LossPair
from wpriv.core.mechanism import AdditiveNoise, Mechanism
from wpriv.core.parameters import parameter
from wpriv.errors import Unsupported
from wpriv.numerics.numbers import decimal, quotient_up

MAX_SENSITIVITY = 2**20


@dataclass(frozen=True)
class DiscreteLaplace(Mechanism):
    """Release an integer-valued query plus noise k with probability proportional to ``e^(-|k|/scale)``.

    Pure (sensitivity/scale)-DP. The noise can be drawn exactly, unlike floating-point Laplace noise.

    Source:
        Ghosh, Roughgarden, Sundararajan (2009); Canonne, Kamath, Steinke (2020) for drawing it exactly.
    """

    release: ClassVar[Release] = Release.WHOLE
    noise: ClassVar[str | None] = "scale"
    ratios: ClassVar[tuple[tuple[str, str], ...]] = (("sensitivity", "scale"),)
    source: ClassVar[str] = "Ghosh, Roughgarden, Sundararajan 2009; Canonne, Kamath, Steinke 2020"

    scale: float = parameter("scale b of the noise, P(k) ~ exp(-|k|/b), in the units of the query", exclusive_minimum=0)
    sensitivity: int = parameter("largest change of the integer-valued query between neighbours", default=1, minimum=1)

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.sensitivity > MAX_SENSITIVITY:
            raise Unsupported(
                f"discrete-laplace: sensitivity, the number of distinct losses, must be at most 2^20; found "
                f"{self.sensitivity}. Release the query in coarser units, or use laplace"
            )

    def additive_noise(self) -> AdditiveNoise:
        return AdditiveNoise("laplace", self.scale, self.sensitivity, discrete=True)

    def pair(self) -> LossPair:
        """Return sensitivity + 1 atoms: all outcomes on either side of both centres, and each one between them."""
        b, s = self.scale, self.sensitivity
        side = -math.log1p(math.exp(-1 / b))
        step = math.log(-math.expm1(-1 / b))
        between = np.arange(1, s)
        log_p = np.concatenate([[side - s / b], side + step - (s - between) / b, [side]])
        losses = (2 * np.arange(s + 1) - s) / b
        losses[-1] = quotient_up(s, b)
        losses[0] = -losses[-1]
        pair = DiscreteLaplacePair(losses, log_p, symmetric=True, log_q=log_p[::-1])
        pair.largest = decimal(s) / decimal(b)
        return pair


class DiscreteLaplacePair(AtomicPair):
    """Discrete Laplace noise around two whole numbers."""

    def zcdp_rho(self) -> float:
        """The mean loss, the least rho (docs/theory/classical-bounds.md, the rho of pure DP)."""
        return self.mean_loss()
