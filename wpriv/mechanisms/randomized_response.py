"""Approximate randomized response: the worst mechanism at a given (eps0, delta0)."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
from scipy.special import gammaln

from wpriv.core.atomic_pair import AtomicPair
from wpriv.core.loss_pair import LossPair
from wpriv.core.mechanism import Mechanism
from wpriv.core.parameters import parameter
from wpriv.mechanisms._validation import given_response
from wpriv.numerics.arrays import Array

MAX_POWER = 2**20


@dataclass(frozen=True)
class RandomizedResponse(Mechanism):
    """Reveal one bit with probability delta0, else report it with probability e^eps0/(1 + e^eps0), or its opposite.

    Its pair dominates that of every (eps0, delta0)-DP mechanism, so composing it gives the optimal composition theorem.
    ``dp`` is the same pair for a release of which nothing but (eps0, delta0)-DP is known.

    Source:
        Sommer, Meiser, Mohammadi (2019), Example 1 (corrected); Kairouz, Oh, Viswanath (2015).
    """

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
        log_p = log_keep + _log_binomial(n, eps0)
        infinity = -math.expm1(log_keep)
        super().__init__(eps0 * np.arange(-n, n + 1.0, 2), log_p, infinity, infinity, symmetric=True, log_q=log_p[::-1])

    def self_compose(self, n: int) -> LossPair | None:
        if n == 1:
            return self
        return ResponsePair(self.eps0, n * self.log_keep, n * self.n) if n * self.n <= MAX_POWER else None

    def compose_with(self, other: LossPair) -> LossPair | None:
        if not isinstance(other, ResponsePair) or other.eps0 != self.eps0 or self.n + other.n > MAX_POWER:
            return super().compose_with(other)
        return ResponsePair(self.eps0, self.log_keep + other.log_keep, self.n + other.n)


def _log_binomial(n: int, logit: float) -> Array:
    """Compute [n+1] ln of the Binomial(n, p) masses with p = e^logit/(1 + e^logit), by saddle point (Loader 2000).

    Differences of ln n! would lose nine digits at n = 2^20; here every term is as small as the result.
    """
    odds = math.exp(-logit)
    p, q = 1 / (1 + odds), odds / (1 + odds)
    log_p, log_q = -math.log1p(odds), -logit - math.log1p(odds)
    k = np.arange(1.0, n)
    rest = n - k
    inner = _stirling_error(np.array([float(n)])) - _stirling_error(k) - _stirling_error(rest)
    excess = rest - n * q  # of the rarer outcome, whose mean keeps its digits
    inner = inner - _deviance(k, -excess, n * p, math.log(n) + log_p)
    inner = inner - _deviance(rest, excess, n * q, math.log(n) + log_q)
    inner = inner + 0.5 * np.log(n / (2 * math.pi * k * rest))
    return np.concatenate([[n * log_q], inner, [n * log_p]])


def _stirling_error(n: Array) -> Array:
    """Compute ln n! - ln(sqrt(2 pi n) (n/e)^n) for n >= 1."""
    x = np.maximum(n, 16.0)
    square = 1 / (x * x)
    inner = 1 / 1260 - square * (1 / 1680 - square * (1 / 1188 - square * 691 / 360360))
    series = (1 / 12 - square * (1 / 360 - square * inner)) / x
    m = np.minimum(n, 16.0)
    return np.where(n < 16, gammaln(m + 1) - (m + 0.5) * np.log(m) + m - 0.5 * math.log(2 * math.pi), series)


def _deviance(x: Array, excess: Array, mean: float, log_mean: float) -> Array:
    """Compute x ln(x/mean) + mean - x with excess = x - mean, by its series near the mean."""
    if mean < 1e-290:  # the mean itself may underflow
        return x * (np.log(x) - log_mean) - excess
    near = np.clip(excess / mean, -0.1, 0.1)
    series = np.zeros_like(near)
    for j in range(17, 1, -1):
        series = 1 / (j * (j - 1)) - near * series
    return np.where(np.abs(near) < 0.1, mean * near * near * series, x * np.log(x / mean) - excess)
