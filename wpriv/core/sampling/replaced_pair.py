"""Poisson sampling under replace-one, for Gaussian noise on a sum of clipped vectors."""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import ArrayLike
from scipy.special import log_ndtr, ndtr

from wpriv.core.loss_pair import KeyedPair, LossPair, Tails, reversed_log_delta
from wpriv.numerics.arrays import Array
from wpriv.numerics.cell_parts import CellParts


def replaced_gauss(half: LossPair, mu: float, rate: float) -> LossPair:
    """Return the pair ((1-q) N(0, 1) + q N(mu, 1), (1-q) N(0, 1) + q N(-mu, 1)) of replacing a record.

    Args:
        half: the Gauss pair N(mu, 1), N(0, 1) of adding or removing a record.
        mu: distance in standard deviations that adding or removing a record moves the query.
        rate: q in (0, 1).
    Source:
        docs/theory/groups.md, Theorem 5.
    """
    return ReplacedGaussPair(half, mu, rate)


class ReplacedGaussPair(KeyedPair):
    """Two mixtures that are mirror images; their loss is an increasing, odd function of the outcome x."""

    symmetric = True

    def __init__(self, half: LossPair, mu: float, rate: float):
        self.key = (half, mu, rate)
        self.half, self.mu, self.rate = half, mu, rate
        # ln((1-q)/a), where a e^(mu x) is q times the ratio of N(mu, 1) to N(0, 1)
        self.log_ratio = math.log1p(-rate) - math.log(rate) + mu * mu / 2

    def _outcome(self, eps: ArrayLike) -> Array:
        """The outcome x of loss eps: mu x - eps/2 = asinh(((1-q)/a) sinh(eps/2)), whatever the size of eps."""
        y = np.asarray(eps, dtype=float)
        half = np.abs(y) / 2
        with np.errstate(divide="ignore", over="ignore"):
            log_sinh = np.where(half < 20, np.log(np.sinh(np.minimum(half, 20.0))), half - math.log(2))
            size = self.log_ratio + log_sinh
            grown = np.where(size < 300, np.arcsinh(np.exp(np.minimum(size, 300.0))), size + math.log(2))
        return np.asarray(np.sign(y) * (half + grown) / self.mu)

    def tails(self, eps: Array) -> Tails:
        x = self._outcome(eps)
        stays, moves = math.log1p(-self.rate), math.log(self.rate)

        def mixed(at: Array, moved: Array) -> Array:
            return np.asarray(np.minimum(np.logaddexp(stays + log_ndtr(at), moves + log_ndtr(moved)), 0.0))

        return Tails(mixed(-x, self.mu - x), mixed(x, x - self.mu), mixed(-x, -x - self.mu), mixed(x, x + self.mu))

    def probabilities(self, eps: Array) -> Tails:
        x = self._outcome(eps)
        stays = (1 - self.rate) * ndtr(-x), (1 - self.rate) * ndtr(x)
        ends = (self.mu - x, x - self.mu, -x - self.mu, x + self.mu)
        return Tails(*(stays[at % 2] + self.rate * ndtr(end) for at, end in enumerate(ends)))

    def cell_parts(self, low: Array, high: Array) -> CellParts | None:
        # with the ratio r of N(mu, 1) to N(0, 1): q times the integral of r(x) - r(x_a) + e^a (r(-x_a) - r(-x)) over
        # N(0, 1), the second of the half pair at the outcome -x
        first, last = self._outcome(low), self._outcome(high)
        near = self.half.cell_parts(self.mu * (first - self.mu / 2), self.mu * (last - self.mu / 2))
        far = self.half.cell_parts(self.mu * (-last - self.mu / 2), self.mu * (-first - self.mu / 2))
        if near is None or far is None:
            return None
        with np.errstate(over="ignore", invalid="ignore"):
            above, below = near.above + np.exp(low) * far.below, near.below + np.exp(high) * far.above
        return CellParts(self.rate * above, self.rate * below)

    def log_delta(self, eps: ArrayLike) -> Array:
        # q [H of N(mu), N(0) at its ratio in x, plus e^eps times H of N(0), N(-mu) at its own, divided by that ratio]
        y = np.abs(np.asarray(eps, dtype=float))
        x = self._outcome(y)
        near, far = self.mu * (x - self.mu / 2), self.mu * (x + self.mu / 2)
        with np.errstate(invalid="ignore"):
            # no loss is infinite, so that the second term is 0 there
            second = np.where(np.isposinf(far), -np.inf, y - far + self.half.log_delta(far))
        log_sum = np.logaddexp(self.half.log_delta(near), second)
        above = np.minimum(math.log(self.rate) + log_sum, 0.0)
        return np.where(np.asarray(eps) < 0, reversed_log_delta(np.minimum(eps, 0.0), above), above)
