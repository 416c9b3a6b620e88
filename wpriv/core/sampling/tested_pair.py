"""A pair that is dominated by any pair with tests of given error rates."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from wpriv.core.atomic_pair import AtomicPair
from wpriv.numerics.arrays import Array

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
    """Return a discrete pair that every pair (P, Q) with tests of these rates dominates.

    Its power at every false positive rate is that of the concave hull of the tests (docs/theory/shuffling.md, Theorem
    3).
    """
    kept = np.minimum(rates.tnr, rates.tpr) > LEAST
    fpr, tnr, tpr, fnr = (np.maximum(rate[kept], LEAST) for rate in rates)
    order = np.lexsort((np.where(fpr <= 0.5, fpr, -tnr), fpr > 0.5))
    fpr, tnr, tpr, fnr = (rate[order] for rate in (fpr, tnr, tpr, fnr))
    # a test with less power than one of fewer false positives adds nothing
    power = np.log(tpr) - np.log(fnr)
    better = power > np.maximum.accumulate(np.append(-np.inf, power))[:-1]
    p, q = _concave(_increments(tpr[better], fnr[better]), _increments(fpr[better], tnr[better]))
    p, q = _merged(p, q)
    return AtomicPair(np.log(p / q), np.log(p), log_q=np.log(q))


def _increments(rate: Array, complement: Array) -> Array:
    """[k + 1] differences of increasing rates from 0 to 1, from whichever of rate and complement is the smaller."""
    place = int(np.count_nonzero(rate <= 0.5))
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
