"""The pair of shuffled batches: its ends, and the worst pair of neighbours that is known."""

from __future__ import annotations

import math
from functools import lru_cache
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.special import log_ndtr, ndtri

from wpriv.core.atomic_pair import AtomicPair
from wpriv.core.loss_pair import BetweenPair, LossPair
from wpriv.core.mechanism import AdditiveNoise
from wpriv.numerics.arrays import Array
from wpriv.numerics.log_space import log1mexp
from wpriv.numerics.sums import UNIT_ROUNDOFF, score_sum_rates

# upper bounds are raised to this, and tests whose lower bounds are below it left out
LEAST = 1e-290
# losses closer than this many standard deviations are merged
CLOSE = 0.03


class ErrorRates(NamedTuple):
    """Proven bounds of the error rates of k tests of Q against P, each [k].

    Attributes:
        fpr, tnr: upper bound of Q(the test says P), and lower bound of its complement.
        tpr, fnr: lower bound of P(the test says P), and upper bound of its complement.

    A rate and its complement are given each to its own relative accuracy.
    """

    fpr: Array
    tnr: Array
    tpr: Array
    fnr: Array


def joined(rates: list[ErrorRates]) -> ErrorRates:
    """All tests of one pair together."""
    return ErrorRates(*(np.concatenate(parts) for parts in zip(*rates, strict=True)))


def dominated_pair(rates: ErrorRates) -> AtomicPair:
    """A discrete pair that pairs with tests of these rates dominate (docs/theory/shuffling.md, Theorem 3)."""
    kept = np.minimum(rates.tnr, rates.tpr) > LEAST
    fpr, tnr, tpr, fnr = (np.maximum(rate[kept], LEAST) for rate in rates)
    order = np.lexsort((np.where(fpr <= 0.5, fpr, -tnr), fpr > 0.5))
    fpr, tnr, tpr, fnr = (rate[order] for rate in (fpr, tnr, tpr, fnr))
    # a test with less power than one of fewer false positives adds nothing
    power = np.log(tpr) - np.log(fnr)
    better = power > np.maximum.accumulate(np.append(-np.inf, power))[:-1]
    ends = ((tpr[better], fnr[better]), (fpr[better], tnr[better]))
    p, q = _merged(*_concave(*(_increments(*each, each[0] <= 0.5) for each in ends)))
    return AtomicPair(np.log(p / q), np.log(p), log_q=np.log(q))


def _increments(rate: Array, complement: Array, is_below: NDArray[np.bool_]) -> Array:
    """[k + 1] differences of increasing rates from 0 to 1: of rates up to a place, of complements beyond it."""
    place = int(np.count_nonzero(is_below))
    below, above = np.append(0.0, rate[:place]), np.append(complement[place:], 0.0)
    return np.concatenate([np.diff(below), [1 - below[-1] - above[0]], -np.diff(above)])


def _concave(p: Array, q: Array) -> tuple[Array, Array]:
    """Merge neighbouring increments until their ratios p / q decrease: the upper hull of their sums."""
    hull_p: list[float] = []
    hull_q: list[float] = []
    for dp, dq in zip(p.tolist(), q.tolist(), strict=True):
        # rates that are equal up to rounding may have an increment below zero
        while hull_p and (dq <= 0 or hull_p[-1] / hull_q[-1] <= dp / dq):
            dp, dq = dp + hull_p.pop(), dq + hull_q.pop()
        hull_p.append(dp)
        hull_q.append(dq)
    return np.array(hull_p), np.array(hull_q)


def _merged(p: Array, q: Array) -> tuple[Array, Array]:
    """Merge neighbouring increments of nearly the same ratio, which lies under the hull as well."""
    losses = np.log(p / q)
    mean = float(p @ losses) / float(p.sum())
    width = CLOSE * float(np.sqrt(p @ (losses - mean) ** 2))
    if width <= 0:
        return p, q
    group = np.floor(losses / width)
    starts = np.flatnonzero(np.append(True, np.diff(group) != 0))
    return np.add.reduceat(p, starts), np.add.reduceat(q, starts)


# A worst pair of neighbours of shuffled batches that is known, and tests that tell them apart.
#
# All other records contribute -1, and the one record +1 or nothing. Shifted by the public batch size, the noisy sums of
# a pass of t batches are independent and centred at 0, but for one batch, drawn uniformly, that is centred at 2 or at 1
# (docs/theory/shuffling.md, Lemma 2; after Chua et al. 2024). Sums are in units of one record's sensitivity.

# where the one batch is centred with the record, and without it
WITH, WITHOUT = 2.0, 1.0
# relative margin for the rounding of distribution functions, far above what they need
MARGIN = 1e-11
# thresholds of the maximum around each centre, and their distance from it in standard units
THRESHOLDS, REACH = 300, {"gauss": 13.0, "laplace": 80.0}
# scores: ratios w at which a score is best, and expected numbers of batches whose score is cut off
RATIOS, CUT_COUNTS = (0.3, 1.0, 5.0), (10.0, 1.0, 0.1, 0.01, 0.001)
# cells of a batch sum, places of the window of the sum of scores, and standard deviations that it holds
CELLS, WINDOW, DEVIATIONS = 2048, 1 << 14, 10.0
# ln of the probability of no alarm without the record below which a test is left out: such tests are slow to compose,
# and matter in the order "without the record" alone, far below the other
LOG_LEAST_QUIET = -35.0
# batches for which such a window is fine enough
FEW = 1e5
# noise below which scores would overflow, and batches beyond which their sums are known too poorly; there the maximum
# is all that is used
LEAST_SCALE, MAX_STEPS = 0.1, 10**7


class Noise(NamedTuple):
    """Noise of a batch sum: a family, and its scale over the sensitivity of one record."""

    family: str
    scale: float

    def log_cdf(self, x: Array) -> Array:
        y = x / self.scale
        if self.family == "gauss":
            return np.asarray(log_ndtr(y))
        return np.where(y < 0, np.minimum(y, 0.0) - math.log(2), np.log1p(-np.exp(-np.maximum(y, 0.0)) / 2))

    def log_ratio(self, x: Array, shift: float) -> Array:
        """ln of the density at x of noise centred at ``shift`` over that of noise centred at 0."""
        if self.family == "gauss":
            return shift * (x - shift / 2) / self.scale**2
        return (np.abs(x) - np.abs(x - shift)) / self.scale

    def exceeded_by(self, probability: float) -> float:
        """The x above which the noise lies with this probability, at most 1/2."""
        if self.family == "gauss":
            return -self.scale * float(ndtri(probability))
        return -self.scale * math.log(2 * probability)


@lru_cache(maxsize=64)
def witness_pair(family: str, scale: float, steps: int) -> AtomicPair:
    """A pair that the witness of one pass of ``steps`` shuffled batches dominates, in the order "with the record".

    Args:
        family: ``gauss`` or ``laplace``. scale: of the noise, over the sensitivity. steps: batches of a pass, at least
            2.
    """
    noise = Noise(family, scale)
    rates = [_maximum(noise, steps)]
    if scale >= LEAST_SCALE and steps <= MAX_STEPS:
        rates += _scores(noise, steps)
    return dominated_pair(joined(rates))


def _maximum(noise: Noise, steps: int) -> ErrorRates:
    """Error rates of tests that ask whether the largest batch sum exceeds a threshold."""
    reach = REACH[noise.family] * noise.scale
    least = -noise.scale * REACH[noise.family] / 4
    around = [np.linspace(max(centre - reach, least), centre + reach, THRESHOLDS) for centre in (0.0, WITHOUT, WITH)]
    x = np.unique(np.concatenate(around))
    rest = (steps - 1) * noise.log_cdf(x)
    log_p, log_q = (rest + noise.log_cdf(x - centre) for centre in (WITH, WITHOUT))
    # the relative accuracy of a small probability e^y is the absolute one of y
    kept = log_q > LOG_LEAST_QUIET
    log_p, log_q = np.maximum(log_p[kept], -700), log_q[kept]
    return ErrorRates(
        np.exp(log1mexp(log_q)) * (1 + MARGIN),
        np.exp(log_q) * (1 - MARGIN),
        np.exp(log1mexp(log_p)) * (1 - MARGIN),
        np.exp(log_p) * (1 + MARGIN),
    )


def _scores(noise: Noise, steps: int) -> list[ErrorRates]:
    """Error rates of tests that compare a sum of scores of the batch sums with a threshold."""
    edges = np.linspace(-REACH[noise.family] * noise.scale, WITH + REACH[noise.family] * noise.scale, CELLS - 1)
    middles = np.concatenate([edges[:1], (edges[1:] + edges[:-1]) / 2, edges[-1:]])
    masses = []
    for x in (edges - centre for centre in (0.0, WITH, WITHOUT)):
        masses.append(_increments(np.exp(noise.log_cdf(x)), np.exp(noise.log_cdf(-x)), x < 0))
    # bound of the rounding of all masses of the one batch (docs/theory/shuffling.md, Lemma 5)
    left = edges < 0
    roundings = 8 + 4 * np.abs(noise.log_cdf(np.where(left, edges, -edges)))
    moved = np.exp(noise.log_cdf(np.where(left, edges, WITH - edges)))
    slack = 2 * UNIT_ROUNDOFF * float((roundings * moved + 6).sum())
    # so that a score of a single batch keeps enough places
    size = WINDOW << min(max(0, math.ceil(math.log2(steps / FEW) / 2)), 3)
    rates = []
    for cut_count in CUT_COUNTS:
        at = np.minimum(middles, noise.exceeded_by(min(cut_count / steps, 0.5)))
        ratios = [np.exp(noise.log_ratio(at, centre)) for centre in (WITH, WITHOUT)]
        for ratio in RATIOS:
            score = ratios[0] - ratio * ratios[1]
            score = score - float(masses[0] @ score)
            spread = math.sqrt(steps * float(masses[0] @ score**2))
            unit = (DEVIATIONS * spread + 3 * float(np.abs(score).max())) / (size / 2)
            if unit == 0:
                continue
            places = np.rint(score / unit).astype(np.int64)
            above, below, error = score_sum_rates(places, masses[0], masses[1:], steps, size)
            rates.append(_widened(above, below, error + slack))
    return rates


def _widened(above: list[Array], below: list[Array], error: float) -> ErrorRates:
    """Error rates from tails under P and Q that err by at most ``error``, where they are above that."""
    rates = ErrorRates(above[1] + error, below[1] - error, above[0] - error, below[0] + error)
    kept = (rates.tnr > error) & (rates.tpr > error)
    return ErrorRates(*(rate[kept] for rate in rates))


# The pair of a pass of shuffled batches, which is only known between two others that may lie far apart.
#
# Above it lies the pair of one release without sampling, since no amplification by shuffling is proven for queries that
# may depend on earlier outputs. Below it lies what tests achieve on one pair of neighbours (docs/theory/shuffling.md).


def shuffled(base: LossPair, noise: AdditiveNoise, steps: int) -> LossPair:
    """Return the pair of one pass of ``steps`` shuffled batches under zero-out, for the order "with the record".

    Args:
        base: dominating pair of one release in which the record takes part.
        noise: the noise of the release, Gaussian or Laplace. steps: number of batches of a pass.
    """
    if steps == 1:
        return base
    return BetweenPair(witness_pair(noise.family, noise.scale / noise.sensitivity, steps), base)
