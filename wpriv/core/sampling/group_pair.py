"""Poisson sampling where a person has several records: the dominating pair under add-remove.

A group of m records takes part in a step with j ~ Binomial(m, q) of them, so the pair is the mixture of the pairs of j
records against the distribution without them. docs/theory/groups.md proves that contributions in one direction are the
worst case: their density ratios are increasing functions of one outcome, and sums of such ratios are the largest in
convex order.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
from numpy.typing import ArrayLike
from scipy.special import log_ndtr, ndtr

from wpriv.core.loss_pair import KeyedPair, LossPair, Reversed, Tails, gaussian_mu
from wpriv.numerics.arrays import Array
from wpriv.numerics.cell_parts import CellParts
from wpriv.numerics.log_space import log1mexp

# records of one person that a sampled step may have, since every evaluation adds up one term for each
MAX_SAMPLED_GROUP = 64
NEWTON_STEPS = 60


def gauss_group(pairs: Sequence[LossPair], rate: float) -> LossPair:
    """Return the pair (sum over j of Binom(j; m, q) N(j mu, 1), N(0, 1)) of removing a group of m records.

    Args:
        pairs: the Gauss pairs of 1, ..., m records, of means mu, ..., m mu.
        rate: q in (0, 1), the probability that a record takes part in a step.
    Source:
        Schneider et al. (2024); the proof is in docs/theory/groups.md.
    """
    return GaussGroupPair(tuple(pairs), rate)


def binomial_weights(records: int, rate: float) -> tuple[Array, Array]:
    """Probabilities that 0, ..., m records take part, and their logarithms, which do not underflow."""
    j = np.arange(records + 1)
    choose = np.array([math.comb(records, k) for k in j], dtype=float)
    rest = (records - j) * math.log1p(-rate)
    return choose * rate**j * np.exp(rest), np.log(choose) + j * math.log(rate) + rest


class AlignedGroupPair(KeyedPair):
    """A mixture of pairs (P_j, Q) whose losses are increasing functions of one outcome x, against Q.

    Subclasses give ``position``, the x at which the mixture has a given loss, ``aligned``, the losses of all pairs
    there, and ``tails``.
    """

    def __init__(self, pairs: tuple[LossPair, ...], rate: float):
        self.pairs, self.rate, self.key = pairs, rate, (pairs, rate)
        weights, log_weights = binomial_weights(len(pairs), rate)
        self.weights, self.log_weights = weights[1:], log_weights[1:]
        self.none, self.log_none = float(weights[0]), float(log_weights[0])

    def position(self, eps: Array) -> Array:
        """The outcome at which the mixture has the loss eps, where eps lies inside the support."""
        raise NotImplementedError

    def aligned(self, x: Array) -> Array:
        """The losses of the pairs of 1, ..., m records at the outcome x: [m, *x.shape]."""
        raise NotImplementedError

    def log_delta(self, eps: ArrayLike) -> Array:
        # H_t(sum of w_j P_j || Q) = sum of w_j H_(t_j)(P_j || Q), where t_j is the ratio of P_j at the outcome at which
        # that of the mixture is t: positive terms
        y = np.asarray(eps, dtype=float)
        inside = (y > self.support[0]) & (y < self.support[1])
        loss = self.aligned(self.position(np.where(inside, y, self.inner_loss)))
        terms = [w + pair.log_delta(at) for w, pair, at in zip(self.log_weights, self.pairs, loss, strict=True)]
        low = log1mexp(np.minimum(y, 0.0))
        return np.where(
            inside, np.minimum(np.logaddexp.reduce(terms), 0.0), np.where(y <= self.support[0], low, -np.inf)
        )

    def reversed_log_delta_at(self, eps: Array) -> Array:
        """ln H_{e^eps}(Q || mixture) for eps >= 0: the same sum for the reversed pairs."""
        y = np.asarray(eps, dtype=float)
        inside = (-y > self.support[0]) & (-y < self.support[1])
        loss = self.aligned(self.position(np.where(inside, -y, self.inner_loss)))
        terms = [
            w + at + pair.reverse().log_delta(-at)
            for w, pair, at in zip(self.log_weights, self.pairs, loss, strict=True)
        ]
        return np.where(inside, np.minimum(y + np.logaddexp.reduce(terms), 0.0), -np.inf)

    @property
    def inner_loss(self) -> float:
        """Some loss inside the support."""
        return 0.0

    def reverse(self) -> LossPair:
        return _AlignedReversed(self)


class _AlignedReversed(Reversed):
    """The pair (Q, mixture) of adding a group."""

    forward: AlignedGroupPair

    def log_delta(self, eps: ArrayLike) -> Array:
        y = np.asarray(eps, dtype=float)
        above = self.forward.reversed_log_delta_at(np.maximum(y, 0.0))
        return np.where(y < 0, super().log_delta(np.minimum(y, 0.0)), above)


class GaussGroupPair(AlignedGroupPair):
    """The mixture of N(0, 1), N(mu, 1), ..., N(m mu, 1) against N(0, 1)."""

    def __init__(self, pairs: tuple[LossPair, ...], rate: float):
        super().__init__(pairs, rate)
        self.mu = np.array([gaussian_mu(pair) for pair in pairs], dtype=float)
        self.support = (self.log_none, math.inf)

    def aligned(self, x: Array) -> Array:
        mu = self._column(self.mu, x)
        return np.asarray(mu * (x - mu / 2))

    def position(self, eps: Array) -> Array:
        """Solve ln sum over j >= 1 of w_j e^(mu_j x - mu_j^2/2) = ln(e^eps - w_0), both increasing, the left convex.

        Newton's method from a point above the root falls to it monotonically. A last step uses the loss itself, which
        keeps the digits of small losses.
        """
        y = np.asarray(eps, dtype=float)
        weights, mu = self._column(self.log_weights, y), self._column(self.mu, y)
        target = y + log1mexp(np.minimum(self.log_none - y, -1e-320))
        x = np.min((target - weights) / mu + mu / 2, axis=0)
        for _ in range(NEWTON_STEPS):
            terms = weights + self.aligned(x)
            top = terms.max(axis=0)
            share = np.exp(terms - top)
            total = share.sum(axis=0)
            step = (top + np.log(total) - target) * total / (mu * share).sum(axis=0)
            x = x - step
            if np.all(np.abs(step) <= 1e-9 * (1 + np.abs(x))):
                break
        return np.asarray(self._polished(x, y))

    def _polished(self, x: Array, y: Array) -> Array:
        """One more Newton step for the loss ln(1 + sum of w_j (e^(l_j) - 1)), where it is neither tiny nor large."""
        near = (y > self.log_none / 2) & (y < 500.0)
        loss = np.where(near, self.aligned(x), 0.0)
        weights, log_weights = self._column(self.weights, y), self._column(self.log_weights, y)
        # weights may underflow where their ratios overflow; their products do neither
        ratio = np.exp(log_weights + loss)
        excess = np.where(loss > 1, ratio - weights, weights * np.expm1(np.minimum(loss, 1.0))).sum(axis=0)
        slope = (ratio * self._column(self.mu, y)).sum(axis=0) / (1 + excess)
        return np.asarray(np.where(near, x + (y - np.log1p(np.maximum(excess, -0.999))) / slope, x))

    def tails(self, eps: Array) -> Tails:
        x = self._outcome(eps)
        shifted = x - self._column(self.mu, x)
        weights = self._column(self.log_weights, x)
        sf_q, cdf_q = log_ndtr(-x), log_ndtr(x)
        sf_p = np.logaddexp(np.logaddexp.reduce(weights + log_ndtr(-shifted)), self.log_none + sf_q)
        cdf_p = np.logaddexp(np.logaddexp.reduce(weights + log_ndtr(shifted)), self.log_none + cdf_q)
        return Tails(np.minimum(sf_p, 0.0), np.minimum(cdf_p, 0.0), sf_q, cdf_q)

    def probabilities(self, eps: Array) -> Tails:
        x = self._outcome(eps)
        shifted = x - self._column(self.mu, x)
        weights, none = self._column(self.weights, x), self.none
        sf_q, cdf_q = ndtr(-x), ndtr(x)
        sf_p = none * sf_q + (weights * ndtr(-shifted)).sum(axis=0)
        return Tails(sf_p, none * cdf_q + (weights * ndtr(shifted)).sum(axis=0), sf_q, cdf_q)

    def cell_parts(self, low: Array, high: Array) -> CellParts | None:
        # P - e^a Q is the sum of w_j (P_j - e^(l_j) Q), where the losses l_j of P_j are those at the outcome of a
        inside = (low > self.support[0]) & (high < self.support[1])
        ends = [self.aligned(self.position(np.where(inside, y, self.inner_loss))) for y in (low, high)]
        total = CellParts(*np.zeros((2, low.size)))
        for weight, pair, first, last in zip(self.weights.tolist(), self.pairs, *ends, strict=True):
            parts = pair.cell_parts(first, last)
            if parts is None:
                return None
            total = total.plus(parts.times(weight))
        return CellParts(*(np.where(inside, part, np.nan) for part in total))

    def _outcome(self, eps: Array) -> Array:
        """The outcome above which the loss exceeds eps, -inf below the support and inf at eps = inf."""
        y = np.asarray(eps, dtype=float)
        inside = (y > self.log_none) & (y < np.inf)
        return np.where(inside, self.position(np.where(inside, y, 0.0)), np.where(y == np.inf, np.inf, -np.inf))

    @staticmethod
    def _column(values: Array, x: Array) -> Array:
        """One value for each number of records, along an axis in front of those of x."""
        return values.reshape(-1, *[1] * np.ndim(x))
