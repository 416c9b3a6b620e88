"""Dominating pairs of sampling where a person has several records: j ~ Binomial(m, q) of them take part in a step.

docs/theory/groups.md proves that contributions in one direction are the worst case.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

import numpy as np
from numpy.typing import ArrayLike
from scipy.special import log_ndtr, ndtr

from wpriv.core.loss_pair import KeyedPair, LossPair, ReversedOfBoth, Tails, gaussian_mu, symmetric_log_delta
from wpriv.errors import Unsupported
from wpriv.numerics.arrays import Array, CellParts
from wpriv.numerics.log_space import log1mexp

# records of one person that a sampled step may have, since every evaluation adds up one term for each
MAX_SAMPLED_GROUP = 64
NEWTON_STEPS = 60


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

    Args:
        pairs: the pairs of 1, ..., m records. rate: q in (0, 1), the probability that a record takes part in a step.
    """

    def __init__(self, pairs: Sequence[LossPair], rate: float):
        self.pairs, self.rate = tuple(pairs), rate
        self.key = (self.pairs, rate)
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
        outside = np.where(y <= self.support[0], log1mexp(np.minimum(y, 0.0)), -np.inf)
        return np.where(inside, np.minimum(np.logaddexp.reduce(terms), 0.0), outside)

    def reversed_log_delta_at(self, eps: Array) -> Array:
        # the same sum for the reversed pairs
        y = np.asarray(eps, dtype=float)
        inside = (-y > self.support[0]) & (-y < self.support[1])
        loss = self.aligned(self.position(np.where(inside, -y, self.inner_loss)))
        each = zip(self.log_weights, self.pairs, loss, strict=True)
        terms = [w + at + pair.reverse().log_delta(-at) for w, pair, at in each]
        return np.where(inside, np.minimum(y + np.logaddexp.reduce(terms), 0.0), -np.inf)

    @property
    def inner_loss(self) -> float:
        """Some loss inside the support."""
        return 0.0

    def reverse(self) -> LossPair:
        return ReversedOfBoth(self)


class GaussGroupPair(AlignedGroupPair):
    """The pair (sum over j of Binom(j; m, q) N(j mu, 1), N(0, 1)) of removing m records (docs/theory/groups.md)."""

    def __init__(self, pairs: Sequence[LossPair], rate: float):
        super().__init__(pairs, rate)
        self.mu = np.array([gaussian_mu(pair) for pair in pairs], dtype=float)
        self.support = (self.log_none, math.inf)

    def aligned(self, x: Array) -> Array:
        mu = _column(self.mu, x)
        return np.asarray(mu * (x - mu / 2))

    def position(self, eps: Array) -> Array:
        """Solve ln sum over j >= 1 of w_j e^(mu_j x - mu_j^2/2) = ln(e^eps - w_0), both increasing, the left convex.

        Newton's method from a point above the root falls to it monotonically. A last step uses the loss itself, which
        keeps the digits of small losses.
        """
        y = np.asarray(eps, dtype=float)
        weights, mu = _column(self.log_weights, y), _column(self.mu, y)
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
        weights, log_weights = _column(self.weights, y), _column(self.log_weights, y)
        # weights may underflow where their ratios overflow; their products do neither
        ratio = np.exp(log_weights + loss)
        excess = np.where(loss > 1, ratio - weights, weights * np.expm1(np.minimum(loss, 1.0))).sum(axis=0)
        slope = (ratio * _column(self.mu, y)).sum(axis=0) / (1 + excess)
        return np.asarray(np.where(near, x + (y - np.log1p(np.maximum(excess, -0.999))) / slope, x))

    def tails(self, eps: Array) -> Tails:
        x = self._outcome(eps)
        shifted = x - _column(self.mu, x)
        weights = _column(self.log_weights, x)
        sf_q, cdf_q = log_ndtr(-x), log_ndtr(x)
        sf_p = np.logaddexp(np.logaddexp.reduce(weights + log_ndtr(-shifted)), self.log_none + sf_q)
        cdf_p = np.logaddexp(np.logaddexp.reduce(weights + log_ndtr(shifted)), self.log_none + cdf_q)
        return Tails(np.minimum(sf_p, 0.0), np.minimum(cdf_p, 0.0), sf_q, cdf_q)

    def probabilities(self, eps: Array) -> Tails:
        x = self._outcome(eps)
        shifted = x - _column(self.mu, x)
        weights, none = _column(self.weights, x), self.none
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


# Poisson sampling where a person has several records, for Laplace noise; as above.

# largest loss (nats) of all records of a person together
MAX_LOSS = 600.0


class LaplaceGroupPair(AlignedGroupPair):
    """The mixture of Laplace distributions of scale 1 around 0, t, ..., m t against the one around 0.

    The ratio is a constant where x <= 0 and where x >= m t, and a + b e^(2x) between two neighbouring centres.
    """

    def __init__(self, pairs: Sequence[LossPair], rate: float):
        if pairs[-1].support[1] > MAX_LOSS:
            raise Unsupported(
                f"a sampled group with Laplace noise is accounted for up to a privacy loss of {MAX_LOSS:g} nats; found "
                f"{pairs[-1].support[1]:g}. Add noise, or ask without sampling"
            )
        super().__init__(pairs, rate)
        self.centres = np.array([0.0, *(pair.support[1] for pair in pairs)])
        weights = self.weights
        low, high = weights * np.expm1(-self.centres[1:]), weights * np.expm1(self.centres[1:])
        # on the piece between centres k and k + 1: ratio - 1 = constant[k] + slope[k] (e^(2x) - 1)
        self.constant = np.array([high[:k].sum() + low[k:].sum() for k in range(len(pairs) + 1)])
        self.slope = np.array([(weights[k:] * np.exp(-self.centres[k + 1 :])).sum() for k in range(len(pairs))])
        pieces = self.constant[:-1] + self.slope * np.expm1(2 * self.centres[:-1])
        self.atoms = np.log1p(np.append(pieces, self.constant[-1]))
        self.support = (float(self.atoms[0]), float(self.atoms[-1]))

    @property
    def inner_loss(self) -> float:
        return float((self.atoms[0] + self.atoms[-1]) / 2)

    def aligned(self, x: Array) -> Array:
        centres = _column(self.centres[1:], x)
        return np.asarray(np.clip(2 * x - centres, -centres, centres))

    def position(self, eps: ArrayLike) -> Array:
        y = np.asarray(eps, dtype=float)
        piece = np.clip(np.searchsorted(self.atoms, y, side="right") - 1, 0, len(self.pairs) - 1)
        growth = (np.expm1(y) - self.constant[piece]) / self.slope[piece]
        x = np.log1p(np.maximum(growth, 0.0)) / 2
        return np.asarray(np.clip(x, self.centres[piece], self.centres[piece + 1]))

    def tails(self, eps: Array) -> Tails:
        with np.errstate(divide="ignore"):
            return Tails(*(np.log(tail) for tail in self.probabilities(eps)))

    def probabilities(self, eps: Array) -> Tails:
        y = np.asarray(eps, dtype=float)
        inside = (y >= self.support[0]) & (y < self.support[1])
        distance = self.position(np.where(inside, y, self.inner_loss)) - _column(self.centres, y)
        smaller = np.exp(-np.abs(distance)) / 2
        above = np.where(distance > 0, smaller, 1 - smaller)
        below = np.where(distance > 0, 1 - smaller, smaller)
        weights = _column(np.array([self.none, *self.weights]), y)
        # above all losses below the support, and below all from its end on
        outside = np.where(y < self.support[0], 1.0, 0.0), np.where(y < self.support[0], 0.0, 1.0)
        tails = ((weights * above).sum(axis=0), (weights * below).sum(axis=0), above[0], below[0])
        return Tails(*(np.where(inside, tail, end) for tail, end in zip(tails, 2 * outside, strict=True)))


# Fixed-size sampling where a person has several records: a dominating pair under replace-one, for Gaussian noise.
#
# Of m records of a person among N, a batch of b holds j with a hypergeometric probability w_j. Batches with the records
# of one data set are compared with those of the other and with batches without them, each count of records by itself
# (docs/theory/groups.md).


def hypergeometric_weights(group: int, batch: int, records: int) -> Array:
    """The probabilities that a batch holds 0, ..., m of m records, each right to rounding."""
    count = math.comb(records, group)
    ways = [math.comb(batch, j) * math.comb(records - batch, group - j) for j in range(group + 1)]
    return np.array([way / count for way in ways])


class FixedGaussGroupPair(KeyedPair):
    """The pair of profile F(t) = min of the sum over j of w_j H_(t_j)(N(j mu, 1) || N(0, 1)) at losses ln t >= 0.

    The minimum is over t_j >= t with the sum over j >= 1 of w_j t_j equal to t - w_0. It is attained where t_j is t or
    the ratio at one common outcome x, whichever is larger. At losses below 0 the pair is its mirror image.

    Args:
        pairs: the Gauss pairs of 1, ..., m replaced records, of means mu, ..., m mu.
        batch: records b of a step, below N. records: size N of the data set, at least m.
    Source: docs/theory/groups.md, Theorem 3.
    """

    symmetric = True

    def __init__(self, pairs: Sequence[LossPair], batch: int, records: int):
        self.key = (tuple(pairs), batch, records)
        weights = hypergeometric_weights(len(pairs), batch, records)
        self.none = float(weights[0])
        kept = np.flatnonzero(weights[1:] > 0)
        self.pairs, self.weights = [pairs[int(at)] for at in kept], weights[1:][kept]
        self.mu = np.array([gaussian_mu(pair) for pair in self.pairs], dtype=float)
        self.atoms = np.zeros(1)

    def tails(self, eps: Array) -> Tails:
        def total(terms: Array) -> Array:
            with np.errstate(divide="ignore"):
                weights = np.log([self.none, *self.weights])
            return np.asarray(np.minimum(np.logaddexp.reduce(_column(weights, eps) + terms), 0.0))

        return self._mirrored(eps, log_ndtr, total)

    def probabilities(self, eps: Array) -> Tails:
        weights = _column(np.array([self.none, *self.weights]), eps)
        return self._mirrored(eps, ndtr, lambda terms: (weights * terms).sum(axis=0))

    def _mirrored(self, eps: Array, cdf: Callable[[Array], Array], total: Callable[[Array], Array]) -> Tails:
        y = np.asarray(eps, dtype=float)
        ends = self._outcomes(np.abs(y))
        shifted = ends - _column(np.array([0.0, *self.mu]), y)
        sf_p, cdf_p, sf_q, cdf_q = (total(cdf(at)) for at in (-shifted, shifted, -ends, ends))
        each = ((sf_p, cdf_q), (cdf_p, sf_q), (sf_q, cdf_p), (cdf_q, sf_p))
        return Tails(*(np.where(y >= 0, above, below) for above, below in each))

    def log_delta(self, eps: ArrayLike) -> Array:
        y = np.asarray(eps, dtype=float)
        mu = _column(self.mu, y)
        losses = mu * (self._outcomes(np.abs(y))[1:] - mu / 2)
        terms = [math.log(w) + pair.log_delta(at) for w, pair, at in zip(self.weights, self.pairs, losses, strict=True)]
        above = np.logaddexp.reduce(terms)
        return symmetric_log_delta(y, above)

    def _outcomes(self, eps: Array) -> Array:
        """The outcomes above which the losses count, for 0, ..., m records of the batch, at eps >= 0: [m + 1, ...].

        The first is the root x of the sum over j of w_j (e^((l_j(x) - eps)_+) - 1) = w_0 (1 - e^-eps), with l_j(x) =
        mu_j (x - mu_j/2); the others are the larger of x and the outcome at which l_j is eps. The logarithm of the sum
        of w_j e^((l_j(x) - eps)_+) is convex in x, so that Newton's method falls to the root from above.
        """
        mu, weights = _column(self.mu, eps), _column(self.weights, eps)
        finite = np.minimum(eps, 1e300)
        at_eps = finite / mu + mu / 2
        first = at_eps.min(axis=0)
        if self.none == 0:
            return np.concatenate([first[None], at_eps])
        target = log1mexp(np.minimum(math.log(self.none) - finite, -1e-320))
        x = np.min(at_eps + (target - np.log(weights)) / mu, axis=0)
        for _ in range(NEWTON_STEPS):
            excess = np.maximum(mu * (x - at_eps), 0.0)
            terms = np.log(weights) + excess
            top = terms.max(axis=0)
            share = np.exp(terms - top)
            total, slope = share.sum(axis=0), (mu * share * (x >= at_eps)).sum(axis=0)
            step = np.where(slope > 0, (top + np.log(total) - target) * total / np.where(slope > 0, slope, 1.0), 0.0)
            x = np.maximum(x - step, first)
            if np.all(np.abs(step) <= 1e-9 * (1 + np.abs(x))):
                break
        # a last step for the sum itself, which keeps the digits of small eps
        excess = np.minimum(np.maximum(mu * (x - at_eps), 0.0), 500.0)
        slope = (weights * mu * np.exp(excess) * (x >= at_eps)).sum(axis=0)
        missing = -self.none * np.expm1(-finite) - (weights * np.expm1(excess)).sum(axis=0)
        near = (excess.max(axis=0) < 500.0) & (slope > 0)
        x = np.where(near, np.maximum(x + missing / np.where(slope > 0, slope, 1.0), first), x)
        return np.concatenate([x[None], np.maximum(x, at_eps)])


def _column(values: Array, eps: Array) -> Array:
    """One value for each number of records, along an axis in front of those of eps."""
    return values.reshape(-1, *[1] * np.ndim(eps))
