"""Approximate randomized response: the worst mechanism at a given (eps0, delta0)."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from wpriv.accounting.mechanisms._validation import given_response
from wpriv.core.atomic_pair import AtomicPair
from wpriv.core.kinds import Release
from wpriv.core.loss_pair import LossPair
from wpriv.core.mechanism import Mechanism
from wpriv.core.parameters import parameter
from wpriv.numerics.log_space import log_binomial
from wpriv.numerics.numbers import decimal, total_up

MAX_POWER = 2**20


@dataclass(frozen=True)
class RandomizedResponse(Mechanism):
    """Reveal one bit with probability delta0, else report it with probability e^eps0/(1 + e^eps0), or its opposite.

    Its pair dominates that of every (eps0, delta0)-DP mechanism, so composing it gives the optimal composition theorem.
    ``dp`` is the same pair for a release of which nothing but (eps0, delta0)-DP is known.

    Source:
        Sommer, Meiser, Mohammadi (2019), Example 1 (corrected); Kairouz, Oh, Viswanath (2015).
    """

    release: ClassVar[Release] = Release.RESPONSE
    source: ClassVar[str] = "Sommer, Meiser, Mohammadi 2019, Example 1 (corrected); Kairouz, Oh, Viswanath 2015"

    eps0: float = parameter("privacy loss of one answer, in nats", exclusive_minimum=0)
    delta0: float = parameter("probability that an answer is revealed outright, below 1", default=0.0, minimum=0)

    def __post_init__(self) -> None:
        super().__post_init__()
        given_response(self, self.eps0, self.delta0)

    def pair(self) -> LossPair:
        return ResponsePair(self.eps0, math.log1p(-self.delta0), 1)


class ResponsePair(AtomicPair):
    """n answers at the same eps0: losses eps0 (2k - n), k ~ Bin(n, p); none is revealed with probability e^log_keep."""

    def __init__(self, eps0: float, log_keep: float, n: int):
        self.eps0, self.log_keep, self.n = eps0, log_keep, n
        log_p = log_keep + log_binomial(np.arange(n + 1.0), n, eps0)
        infinity = -math.expm1(log_keep)
        super().__init__(eps0 * np.arange(-n, n + 1.0, 2), log_p, infinity, infinity, symmetric=True, log_q=log_p[::-1])
        top = total_up([(n, eps0)])
        self.support, self.largest = (-top, top), n * decimal(eps0)

    def self_compose(self, n: int) -> LossPair | None:
        if n == 1:
            return self
        return ResponsePair(self.eps0, n * self.log_keep, n * self.n) if n * self.n <= MAX_POWER else None

    def zcdp_rho(self) -> float | None:
        """The mean loss, the least rho (docs/theory/classical-bounds.md, the rho of pure DP)."""
        return self.mean_loss() if self.log_keep == 0 else None

    def compose_with(self, other: LossPair) -> LossPair | None:
        if not isinstance(other, ResponsePair) or other.eps0 != self.eps0 or self.n + other.n > MAX_POWER:
            return super().compose_with(other)
        return ResponsePair(self.eps0, self.log_keep + other.log_keep, self.n + other.n)
