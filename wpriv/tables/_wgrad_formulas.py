"""The formulas of Rodriguez-Vitores, Lalanne, Loubes (2025) as printed, and the largest change of a gradient by search.

Scores U of n records and V of m records are numbers; R_ij is the length of the intersection of the i-th of n and the
j-th of m equal parts of (0, 1]. The sensitivities of Theorems 4.1 and 6.1 are in ``numerics/gradient_sensitivity.py``.
"""

from __future__ import annotations

import math
from itertools import combinations_with_replacement, product

import numpy as np
from scipy.special import ndtr

from wpriv.numerics.arrays import Array


def gauss_delta(eps: float, mu: float) -> float:
    """Lemma 2.3: delta of Gauss noise, mu = sensitivity / sigma."""
    return float(ndtr(-eps / mu + mu / 2) - math.exp(eps) * ndtr(-eps / mu - mu / 2))


def amplified(eps: float, rate: float) -> float:
    """Lemma 5.1: eps' = ln(1 + p (e^eps - 1)) of a mechanism on a sample of a share p of the records."""
    return math.log1p(rate * math.expm1(eps))


def weights(n: int, m: int) -> Array:
    """[n, m] weights R of Section 3."""
    i, j = np.arange(1, n + 1)[:, None], np.arange(1, m + 1)
    lengths = np.minimum(i / n, j / m) - np.maximum((i - 1) / n, (j - 1) / m)
    return np.asarray(np.maximum(0.0, lengths))


def plan(u: Array, v: Array) -> Array:
    """[n, m] weights R at the ranks of the scores; tied scores are ranked by their position, which is one choice."""
    ranks = [np.argsort(np.argsort(scores, kind="stable")) for scores in (u, v)]
    return weights(len(u), len(v))[np.ix_(*ranks)]


def squared_distance(u: Array, v: Array) -> float:
    """Proposition 3.1: W_2^2 of two samples."""
    return float(np.sum(plan(u, v) * np.subtract.outer(u, v) ** 2))


def squared_distance_in_proof(u: Array, v: Array) -> float:
    """W_2^2 by the second line of the proof of Proposition 3.1, which prints j/n for j/m."""
    n, m = len(u), len(v)
    edges = np.union1d(np.arange(n + 1) / n, np.append(np.arange(m) / m, np.arange(1, m + 1) / n))
    edges = edges[edges <= 1]
    t = (edges[:-1] + edges[1:]) / 2
    first = np.sort(u)[np.minimum((t * n).astype(int), n - 1)]
    j = np.arange(1, m + 1)[:, None]
    second = np.sort(v) @ (((j - 1) / m < t) & (t <= j / n))
    return float(np.sum(np.diff(edges) * (first - second) ** 2))


def derivatives(u: Array, v: Array, r: Array) -> tuple[Array, Array]:
    """Proposition 3.2: derivatives of W_2^2 in U and in V, for the weights r of ``plan`` or ``shared_plan``."""
    gaps = 2 * r * np.subtract.outer(u, v)
    return gaps.sum(1), -gaps.sum(0)


def shared_plan(u: Array, v: Array) -> Array:
    """[n, m] weights R at the ranks of the scores, averaged over tied scores: invariant under permutations."""
    r = plan(u, v)
    for scores, axis in ((u, 0), (v, 1)):
        same = np.equal.outer(scores, scores) / np.equal.outer(scores, scores).sum(1, keepdims=True)
        r = same @ r if axis == 0 else r @ same
    return r


def largest_change(bound: float, lipschitz_x: float, lipschitz_z: float, n: int, m: int) -> float:
    """Search the largest change of the gradient of W_2^2 when one of the n records of X is replaced.

    All scores run through -M, 0 and M, all gradients through +-L: for given scores the largest change is the sum of
    the changes of the weights of the single gradients, since their signs are free. Tied scores share their weights.
    """
    grid = (-bound, 0.0, bound)
    largest = 0.0
    for others, v in product(combinations_with_replacement(grid, n - 1), combinations_with_replacement(grid, m)):
        scores_z = np.array(v)
        sides = [_weights_of_gradients(np.array([new, *others]), scores_z) for new in grid]
        for (one, by_z), (other, other_by_z) in combinations_with_replacement(sides, 2):
            replaced = abs(one[0]) + abs(other[0]) + np.abs(one[1:] - other[1:]).sum()
            change = lipschitz_x * replaced + lipschitz_z * np.abs(by_z - other_by_z).sum()
            largest = max(largest, float(change))
    return largest


def _weights_of_gradients(u: Array, v: Array) -> tuple[Array, Array]:
    return derivatives(u, v, shared_plan(u, v))


def sampled_response(eps: float, sizes: tuple[int, ...]) -> float:
    """Compute the exact eps of randomized response on one record drawn from each category, by enumeration.

    The parity of the drawn bits is released, and turned over with probability 1 / (1 + e^eps).
    """
    kept = 1 / (1 + math.exp(-eps))
    data = list(product((0, 1), repeat=sum(sizes)))
    starts = [sum(sizes[:k]) for k in range(len(sizes))]

    def ones(records: tuple[int, ...]) -> float:
        shares = [sum(records[a : a + size]) / size for a, size in zip(starts, sizes, strict=True)]
        odd = (1 - math.prod(1 - 2 * share for share in shares)) / 2
        return kept * odd + (1 - kept) * (1 - odd)

    probability = {records: ones(records) for records in data}
    losses = [0.0]
    for records, k in product(data, range(sum(sizes))):
        p, q = probability[records], probability[(*records[:k], 1 - records[k], *records[k + 1 :])]
        losses += [math.log(p / q), math.log((1 - p) / (1 - q))]
    return max(losses)
