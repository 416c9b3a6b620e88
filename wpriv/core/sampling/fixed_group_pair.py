"""Fixed-size sampling where a person has several records: a dominating pair under replace-one, for Gaussian noise.

Of m records of a person among N, a batch of b holds j with a hypergeometric probability w_j. Batches with the records
of one data set are compared with those of the other and with batches without them, each count of records by itself
(docs/theory/groups.md).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

import numpy as np
from numpy.typing import ArrayLike
from scipy.special import log_ndtr, ndtr

from wpriv.core.loss_pair import KeyedPair, LossPair, Tails, gaussian_mu, reversed_log_delta
from wpriv.core.sampling.group_pair import NEWTON_STEPS
from wpriv.numerics.arrays import Array
from wpriv.numerics.log_space import log1mexp


def fixed_gauss_group(pairs: Sequence[LossPair], batch: int, records: int) -> LossPair:
    """Return a dominating pair of fixed-size sampling where m records are replaced.

    Args:
        pairs: the Gauss pairs of 1, ..., m replaced records, of means mu, ..., m mu.
        batch: records b of a step, below N.
        records: size N of the data set, at least m.
    Source:
        docs/theory/groups.md, Theorem 3.
    """
    return FixedGaussGroupPair(tuple(pairs), batch, records)


def hypergeometric_weights(group: int, batch: int, records: int) -> Array:
    """The probabilities that a batch holds 0, ..., m of m records, each right to rounding."""
    count = math.comb(records, group)
    ways = [math.comb(batch, j) * math.comb(records - batch, group - j) for j in range(group + 1)]
    return np.array([way / count for way in ways])


class FixedGaussGroupPair(KeyedPair):
    """The pair of profile F(t) = min of the sum over j of w_j H_(t_j)(N(j mu, 1) || N(0, 1)) at losses ln t >= 0.

    The minimum is over t_j >= t with the sum over j >= 1 of w_j t_j equal to t - w_0. It is attained where t_j is t or
    the ratio at one common outcome x, whichever is larger. At losses below 0 the pair is its mirror image.
    """

    symmetric = True

    def __init__(self, pairs: tuple[LossPair, ...], batch: int, records: int):
        self.key = (pairs, batch, records)
        weights = hypergeometric_weights(len(pairs), batch, records)
        self.none = float(weights[0])
        kept = np.flatnonzero(weights[1:] > 0)
        self.pairs, self.weights = [pairs[at] for at in kept], weights[1:][kept]
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
        up = y >= 0
        return Tails(
            *(
                np.where(up, above, below)
                for above, below in zip((sf_p, cdf_p, sf_q, cdf_q), (cdf_q, sf_q, cdf_p, sf_p), strict=True)
            )
        )

    def log_delta(self, eps: ArrayLike) -> Array:
        y = np.asarray(eps, dtype=float)
        mu = _column(self.mu, y)
        losses = mu * (self._outcomes(np.abs(y))[1:] - mu / 2)
        terms = [math.log(w) + pair.log_delta(at) for w, pair, at in zip(self.weights, self.pairs, losses, strict=True)]
        above = np.logaddexp.reduce(terms)
        return np.where(y < 0, reversed_log_delta(np.minimum(y, 0.0), above), above)

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
