"""Choose covariances above and below that of the ratio with balls in bins, of which the law can be computed.

How a change of an entry changes the profile is estimated from a small sample, which has a fixed seed. A semidefinite
program by splitting, or a linear program for covariances that are the same on a ring, then finds the covariance of a
certain form that is nearest. Nothing rests on the sample or on a solver: the order is checked, and restored, at the
end (docs/theory/balls-in-bins.md).
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np

from wpriv.accounting.mechanisms._lognormal_sums import Factored
from wpriv.numerics.arrays import Array

# normals in a sample, least number of draws, and tilts of its proposals
SAMPLE, LEAST_DRAWS, TILTS = 400_000, 4096, (1.0, 1.5, 2.0, 3.0, 4.0, 6.0, 9.0, 14.0, 20.0)
# relative width of the ratios whose terms have a weight
WINDOW = 0.04
# relative error allowed for an inner product, and for an eigenvalue relative to the trace
PRODUCT_ERROR, EIGENVALUE_ERROR = 1e-12, 1e-12
# steps of the splitting, its over-relaxation, and the least specific variance of a term relative to the whole
STEPS, RELAXATION, LEAST_SPECIFIC = 600, 1.7, 0.05


class Pilot(NamedTuple):
    """An estimate of eps, and [b, b] how much each entry of the covariance matters there."""

    eps: float
    weights: Array


def pilot(covariance: Array, delta: float) -> Pilot:
    """Estimate eps at ``delta`` and E[X_i X_j | ratio = e^eps] of a mean of lognormal X by importance sampling."""
    bins, half = len(covariance), np.diagonal(covariance) / 2
    random = np.random.default_rng(1)
    draws = max(SAMPLE // bins, LEAST_DRAWS)
    eigenvalues, vectors = np.linalg.eigh(covariance)
    centred = random.standard_normal((draws, bins)) @ (vectors * np.sqrt(np.maximum(eigenvalues, 0))).T
    moves = covariance[random.integers(bins, size=draws)]
    best, effective = None, 0.0
    for tilt in TILTS:
        y = centred + tilt * moves
        with np.errstate(over="ignore", under="ignore"):
            ratio = np.exp(np.minimum(y - half, 300.0)).mean(axis=1)
            weight = 1 / np.exp(np.minimum(tilt * y - tilt**2 * half, 300.0)).mean(axis=1)
        order = np.argsort(-ratio)
        excess = np.cumsum(ratio[order] * weight[order]) - ratio[order] * np.cumsum(weight[order])
        place = int(np.searchsorted(excess, delta * draws))
        if not 0 < place < draws - 1:
            continue
        k = float(ratio[order[place]])
        values = weight * np.maximum(ratio - k, 0)
        size = float(values.sum()) ** 2 / float((values**2).sum())
        if best is None or size > effective:
            best, effective = (k, y, ratio, weight), size
    if best is None:
        return Pilot(1.0, np.exp(covariance - covariance.max()))
    k, y, ratio, weight = best
    near = weight * np.exp(-(((ratio / k - 1) / WINDOW) ** 2) / 2)
    terms = np.exp(np.minimum(y - half, 300.0)) / k
    weights = (terms * near[:, None]).T @ terms
    return Pilot(math.log(k), np.asarray(weights / max(float(np.diagonal(weights).max()), 1e-300)))


def factored(gram: Array, weights: Array, factors: int, sign: int) -> Factored | None:
    """The covariance with so many ``factors`` beside the common one, above (1) or below (-1) a matrix.

    T = c + V B V' + diag(d) with the next eigenvectors V, and sign (T - gram) = N + M with N without negative entries
    and M positive semidefinite, of the least (largest) sum of entries times weights.
    """
    bins = len(gram)
    scale = float(np.trace(gram)) / bins
    target, least = gram / scale, LEAST_SPECIFIC * np.diagonal(gram) / scale
    vectors = np.linalg.eigh(gram)[1][:, ::-1][:, 1 : 1 + factors]
    cone = _Cone(bins, factors)
    parts = cone.parts(vectors)
    constraint = np.concatenate([sign * parts, -cone.entries, -np.eye(cone.pairs)], axis=1)
    wanted = sign * cone.vector(target - np.diag(least))
    cost = np.zeros(constraint.shape[1])
    cost[: parts.shape[1]] = sign * (cone.vector(weights) @ parts)
    cost /= max(float(np.linalg.norm(cost)), 1e-300)
    back = constraint.T @ np.linalg.inv(constraint @ constraint.T)
    point, dual = np.zeros(cost.size), np.zeros(cost.size)
    for _ in range(STEPS):
        step = point - dual - cost
        step -= back @ (constraint @ step - wanted)
        step = RELAXATION * step + (1 - RELAXATION) * point
        point = cone.projected(step + dual)
        dual += step - point
    common, core, specific, entries = cone.split(point)
    eigenvalues, turned = np.linalg.eigh(core)
    loads = vectors @ (turned * np.sqrt(np.maximum(eigenvalues, 0)))
    answer = Factored(common, loads, specific + least)
    # what the iteration left open is added to the diagonal, and more than rounding
    margin = 2 * (EIGENVALUE_ERROR + PRODUCT_ERROR) * bins**2 * float(np.abs(answer.matrix).max() + target.max())
    gap = float(np.linalg.eigvalsh(sign * (answer.matrix - target) - entries)[0])
    specific = answer.specific + sign * max(margin - gap, 0.0)
    if specific.min() <= 0:
        return None
    order = np.argsort(-np.abs(loads).max(axis=0), kind="stable")
    return Factored(common * scale, loads[:, order] * math.sqrt(scale), specific * scale)


class _Cone:
    """Vectors of a number c, a matrix B, a diagonal d, entries N and a matrix M, all of which are to be positive."""

    def __init__(self, bins: int, factors: int):
        self.bins, self.factors = bins, factors
        self.rows, self.columns = np.triu_indices(bins)
        self.core_rows, self.core_columns = np.triu_indices(factors)
        self.lengths = np.where(self.rows == self.columns, 1.0, math.sqrt(2))
        self.core_lengths = np.where(self.core_rows == self.core_columns, 1.0, math.sqrt(2))
        self.pairs, self.core = self.rows.size, self.core_rows.size
        self.off = np.flatnonzero(self.rows != self.columns)
        self.entries = np.eye(self.pairs)[:, self.off]

    def vector(self, matrix: Array) -> Array:
        """A symmetric matrix as a vector of the same norm."""
        return np.asarray(matrix[self.rows, self.columns] * self.lengths)

    def parts(self, vectors: Array) -> Array:
        """[pairs, 1 + core + bins] the matrices of c, of the entries of B and of d."""
        columns = [self.vector(np.ones((self.bins, self.bins)))]
        for row, column, length in zip(self.core_rows, self.core_columns, self.core_lengths, strict=True):
            outer = np.outer(vectors[:, row], vectors[:, column])
            columns.append(self.vector((outer + outer.T) / 2 * length))
        return np.stack([*columns, *(self.vector(np.diag(unit)) for unit in np.eye(self.bins))], axis=1)

    def split(self, x: Array) -> tuple[float, Array, Array, Array]:
        """c, B, d and the matrix N of a vector."""
        core, entries = np.zeros((self.factors, self.factors)), np.zeros((self.bins, self.bins))
        core[self.core_rows, self.core_columns] = x[1 : 1 + self.core] / self.core_lengths
        specific = x[1 + self.core : 1 + self.core + self.bins]
        start = 1 + self.core + self.bins
        entries[self.rows[self.off], self.columns[self.off]] = x[start : start + self.off.size] / math.sqrt(2)
        return float(x[0]), core + np.triu(core, 1).T, specific, entries + entries.T

    def projected(self, x: Array) -> Array:
        """The nearest vector whose parts are all positive."""
        x = np.array(x)
        core = self.split(x)[1]
        matrix = np.zeros((self.bins, self.bins))
        matrix[self.rows, self.columns] = x[-self.pairs :] / self.lengths
        np.maximum(x, 0.0, out=x)
        x[1 : 1 + self.core] = (_positive(core)[self.core_rows, self.core_columns]) * self.core_lengths
        x[-self.pairs :] = self.vector(_positive(matrix + np.triu(matrix, 1).T))
        return x


def _positive(matrix: Array) -> Array:
    """The nearest positive semidefinite matrix."""
    eigenvalues, vectors = np.linalg.eigh(matrix)
    return np.asarray((vectors * np.maximum(eigenvalues, 0)) @ vectors.T)
