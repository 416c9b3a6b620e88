"""Choose covariances above and below that of the ratio with balls in bins, of which the law can be computed.

How a change of an entry changes the profile is estimated from a small sample, which has a fixed seed. A semidefinite
program by splitting then finds the covariance with factors that is nearest, and linear programs those between
neighbours. Nothing rests on the sample or on a solver: the order is checked, and restored, at the end
(docs/theory/balls-in-bins.md).
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np
from scipy.optimize import linprog

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


# Covariances between neighbours, on a line or a ring: those of a chain, by linear programs.

# decays that are tried, and shares of one in the link that closes a ring below
DECAYS, LINKS = (
    (0.2, 0.3, 0.4, 0.45, 0.5, 0.55, 0.6, 0.65, 0.7, 0.75, 0.8, 0.85, 0.9, 0.95, 0.99),
    (0.0, 0.5, 0.8, 0.9, 1.0),
)
# the least specific variance of a term relative to the whole
LEAST_SPECIFIC_OF_RING, LEAST_SPECIFIC_OF_LINE = 0.06, 0.01
# steps between the factors of the loads of bins, and most runs of bins with one factor
FACTORS, MOST_RUNS = 6, 10
# angles of a spectrum, most normals of a term on a line, and the size of a covariance that a line may lack
ANGLES, MOST_LOADS, NO_COVARIANCE = 256, 4, 1e-9
# how many of the last bins may be left out of a moving average
LEFT_OUT = (0, 1, 3)
# fewest bins of a ring with two normals a term
LEAST_PAIRS = 4
# weight of a larger variance of its own in the choice of a line
SPECIFIC_PREFERENCE = 1e-4


class Ring(NamedTuple):
    """The covariance common + s_i s_j variance R_ij + specific 1{i = j}, where R is that of a Markov chain on a ring.

    Attributes:
        decay: of the chain from bin to bin, and ``link`` from the last to the first. runs: the factors s with the
            numbers of bins in a row that have them. matrix: [b, b] the whole.
    """

    common: float
    specific: float
    matrix: Array
    decay: float
    variance: float
    link: float
    runs: tuple[tuple[float, int], ...]

    @property
    def returning(self) -> float:
        """The decay around the whole ring."""
        return self.decay ** (len(self.matrix) - 1) * self.link


class Line(NamedTuple):
    """The covariance common + that of a moving average + specific 1{i = j}, of normals in a row with these loads."""

    common: float
    specific: float
    matrix: Array
    loads: tuple[float, ...]


class Pairs(NamedTuple):
    """The covariance common + that of load (z_i + z_{i + 1}) + specific 1{i = j} on a ring of normals.

    The last term has a ``share`` of the load on the first normal.
    """

    common: float
    specific: float
    matrix: Array
    load: float
    share: float


Chain = Ring | Line | Pairs


def _correlations(decay: float, link: float, size: int) -> Array:
    """[b] the covariances of a Markov chain on a ring at each number of steps along the decays, with the mean square.

    All links have the same eigenfunctions (Mehler), so that every place has the same variance.
    """
    places, around = np.arange(size), decay ** (size - 1) * link
    # the other way around takes the link and all other decays
    other = np.append(around, link * decay ** (size - 1.0 - places[1:]))
    return np.asarray((decay**places + other) / (1 - around))


def ring_above(row: Array, weights: Array) -> Ring | None:
    """The best chain on a ring above a matrix, by a linear program for every decay.

    Args:
        row: [b] largest entries of the matrix by distance on the ring. weights: [b] what they matter.
    """
    size = len(row)
    distances = np.minimum(np.arange(size), size - np.arange(size))
    half, places = size // 2 + 1, np.arange(size)
    cosines = np.cos(2 * np.pi * np.outer(np.arange(half), places) / size)
    entries = np.stack([distances == k for k in range(1, half)], axis=1).astype(float)
    least, best, value = LEAST_SPECIFIC_OF_RING * float(row[0]), None, math.inf
    one = (places == 0).astype(float)
    for decay in DECAYS:
        chain = _correlations(decay, decay, size)
        parts = np.stack([np.ones(size), one, chain], axis=1)
        rest = row - least * one
        constraint = cosines @ np.concatenate([-parts, entries], axis=1)
        cost = np.concatenate([weights @ parts, np.zeros(half - 1)]) / weights.max()
        solution = linprog(cost, A_ub=constraint, b_ub=-(cosines @ rest), bounds=(0, None), method="highs")
        if solution.x is None or solution.fun >= value:
            continue
        values = np.maximum(solution.x, 0.0)
        eigenvalues = cosines @ (parts @ values[:3] - rest) - cosines @ (entries @ values[3:])
        margin = EIGENVALUE_ERROR * size**2 * (abs(float(row[0])) + float(values.sum()))
        common, more, variance = values[:3].tolist()
        specific = least + more + max(margin - float(eigenvalues.min()), 0.0)
        if variance > 0:
            part = variance * chain[np.abs(places[:, None] - places)]
            whole = common + part + specific * np.eye(size)
            best, value = Ring(common, specific, whole, decay, variance, decay, ((1.0, size),)), float(solution.fun)
    return best


def ring_below(gram: Array, weights: Array) -> Ring | None:
    """The best chain on a ring below a matrix in every entry, by linear programs for all decays and links.

    The factors of the loads are one, or follow the diagonal in steps.
    """
    size, best, value = len(gram), None, 0.0
    places = np.arange(size)
    apart, diagonal = np.abs(places[:, None] - places), np.diagonal(gram)
    step = max(1 - float(diagonal.min() / diagonal.max()), 1e-3) / FACTORS
    falling = 1 - step * np.round((1 - diagonal / diagonal.max()) / step)
    for factors in (np.ones(size), falling):
        changes = np.flatnonzero(np.diff(factors)) + 1
        if len(changes) >= MOST_RUNS:
            continue
        pairs = np.outer(factors, factors)
        rows = [(np.diagonal(pairs, k), np.diagonal(gram, k), np.diagonal(weights, k)) for k in range(size)]
        least = np.array([float((entry / pair).min()) for pair, entry, _ in rows[1:]])
        common = np.array([float((1 / pair).max()) for pair, _, _ in rows[1:]])
        mean = np.array([float((weight * pair).sum()) for pair, _, weight in rows]) * np.where(places > 0, 2, 1)
        cost = np.array([float(weights.sum()), float(np.trace(weights))])
        bounds = [(0, None), (LEAST_SPECIFIC_OF_RING * float(diagonal.min()), None), (0, None)]
        for decay in DECAYS:
            for link in LINKS:
                chain = _correlations(decay, link * decay, size)
                first = np.stack([common, np.zeros(size - 1), chain[1:]], axis=1)
                second = np.stack([np.ones(size), np.ones(size), factors**2 * chain[0]], axis=1)
                solution = linprog(
                    -np.append(cost, mean @ chain), A_ub=np.concatenate([first, second]), method="highs",
                    b_ub=np.append(least, diagonal), bounds=bounds,
                )  # fmt: skip
                if solution.x is None or -solution.fun <= value or not solution.x[2] > 0:
                    continue
                shared, specific, variance = np.maximum(solution.x, 0.0).tolist()
                whole = shared + pairs * variance * chain[apart] + specific * np.eye(size)
                fit = float((gram / whole).min()) * (1 - size * PRODUCT_ERROR)
                lengths = np.diff(np.concatenate([[0], changes, [size]])).tolist()
                if fit < 0.999:
                    continue
                runs = tuple(zip(factors[np.concatenate([[0], changes])].tolist(), lengths, strict=True))
                value = -float(solution.fun)
                best = Ring(fit * shared, fit * specific, fit * whole, decay, fit * variance, link * decay, runs)
    return best


def pairs_of(gram: Array, weights: Array, sign: int) -> Pairs | None:
    """The best covariance of two normals a term on a ring, above (1) or below (-1) a matrix in every entry."""
    size = len(gram)
    if size < LEAST_PAIRS:
        return None
    near = np.diagonal(gram, 1)
    far = np.array([gram[i, j] for i in range(size) for j in range(i + 2, size) if (i, j) != (0, size - 1)])
    choose = np.max if sign > 0 else np.min
    least = float(choose(near))
    share = 1.0 if sign > 0 else min(float(gram[0, -1]) / max(least, 1e-300), 1.0)
    diagonal, last = float(choose(np.diagonal(gram)[:-1])), float(gram[-1, -1])
    # common, specific and the square of the load
    rows = np.array([[1.0, 0.0, 0.0], [1.0, 0.0, 1.0], [1.0, 0.0, share], [1.0, 1.0, 2.0], [1.0, 1.0, 1 + share**2]])
    target = np.array([float(choose(far)), least, float(gram[0, -1]), diagonal, last])
    cost = np.array([float(weights.sum()), float(np.trace(weights)), 0.0])
    cost[2] = 2 * cost[1] + 2 * float(np.diagonal(weights, 1).sum()) + 2 * share * float(weights[0, -1])
    bounds = [(0, None), (LEAST_SPECIFIC_OF_LINE * diagonal, None), (0, None)]
    solution = linprog(sign * cost, A_ub=-sign * rows, b_ub=-sign * target, bounds=bounds, method="highs")
    if solution.x is None or not solution.x[2] > 0:
        return None
    common, specific, square = np.maximum(solution.x, 0.0).tolist()
    # what the solver left open
    limit = max if sign > 0 else min
    common = limit(common, float(target[0]))
    square = limit(square, least - common, (target[2] - common) / max(share, 1e-300))
    specific = limit(specific, diagonal - common - 2 * square, last - common - (1 + share**2) * square)
    if min(specific, square) <= 0:
        return None
    whole = common + (specific + 2 * square) * np.eye(size)
    whole += square * (np.abs(np.subtract.outer(np.arange(size), np.arange(size))) == 1)
    whole[0, -1] = whole[-1, 0] = common + share * square
    whole[-1, -1] = common + specific + (1 + share**2) * square
    fit = 1 + sign * size * PRODUCT_ERROR
    return Pairs(fit * common, fit * specific, fit * whole, math.sqrt(fit * square), share)


def line_of(gram: Array, weights: Array, sign: int) -> Line | None:
    """The best moving average above (1) or below (-1) a matrix, by linear programs for its autocovariances.

    Below, the terms of the last few bins, of which less is known, may be replaced by their mean. Above, so many bins
    are left out that the first and the last are no neighbours on the ring (Theorem 9).
    """
    far = np.array([float(np.abs(np.diagonal(gram, k)).max()) for k in range(1, min(MOST_LOADS, len(gram) - 1))])
    count = 1 + max(int((far > NO_COVARIANCE * gram[0, 0]).sum()), 1)
    if sign > 0:
        size = len(gram) - count + 1
        row = np.array([float(np.diagonal(gram, k).max()) for k in range(size)])
        return _line(row, weights[:size, :size], 1, count)
    tried = []
    for size in (len(gram) - k for k in LEFT_OUT):
        row = np.array([float(np.diagonal(gram[:size, :size], k).min()) for k in range(size)])
        line = _line(row, weights[:size, :size], -1, count)
        if line is not None:
            tried.append((float((weights[:size, :size] * line.matrix).sum()), size, line))
    return max(tried)[2] if tried else None


def _line(row: Array, weights: Array, sign: int, count: int) -> Line | None:
    """The best average of ``count`` normals above (1) or below (-1) the matrix of a row of distances."""
    size = len(row)
    apart = np.abs(np.subtract.outer(np.arange(size), np.arange(size)))
    row = row * (1 + sign * size * PRODUCT_ERROR)
    twice = np.append(1.0, np.full(size - 1, 2.0))
    mean = np.array([float(np.diagonal(weights, k).sum()) for k in range(size)]) * twice
    cosines = np.cos(np.outer(np.linspace(0, np.pi, ANGLES), np.arange(size))) * twice
    one, least = np.eye(size), LEAST_SPECIFIC_OF_LINE * float(row[0])
    # c, d and the autocovariances, whose spectrum is not negative
    parts = np.stack([np.ones(size), one[0], *one[:count]], axis=1)
    constraint = np.block(
        [[-sign * cosines @ parts, cosines], [np.zeros((ANGLES, 2)), -cosines[:, :count], np.zeros((ANGLES, size))]]
    )
    target = np.concatenate([-sign * cosines @ (row - least * one[0]), np.zeros(ANGLES)])
    cost = np.concatenate([sign * (mean @ parts), np.zeros(size)]) / mean.max()
    # of two that are as good the one with more variance of its own needs fewer values
    cost[1] -= SPECIFIC_PREFERENCE
    free = [(0, None), (0, None), *[(None, None)] * count, (0, 0), *[(0, None)] * (size - 1)]
    solution = linprog(cost, A_ub=constraint, b_ub=target, bounds=free, method="highs")
    if solution.x is None:
        return None
    common, more = np.maximum(solution.x[:2], 0.0).tolist()
    loads = _loads(solution.x[2 : 2 + count])
    covariances = np.append(np.correlate(loads, loads, "full")[count - 1 :], np.zeros(size))
    whole = common + covariances[np.minimum(apart, count)] + (least + more) * one
    entries = np.maximum(solution.x[2 + count :], 0.0)[apart]
    margin = 2 * EIGENVALUE_ERROR * size**2 * float(np.abs(row).max() + np.abs(whole).max())
    lacking = max(margin - float(np.linalg.eigvalsh(sign * (whole - row[apart]) - entries)[0]), 0.0)
    specific = least + more + sign * lacking
    return Line(common, specific, whole + sign * lacking * one, tuple(loads.tolist())) if specific > 0 else None


def _loads(covariances: Array) -> Array:
    """Loads with these autocovariances, nearly."""
    roots = np.roots(np.concatenate([covariances[:0:-1], covariances]))
    inner = roots[np.argsort(np.abs(roots), kind="stable")[: len(covariances) - 1]]
    shape = np.zeros(len(covariances))
    shape[: inner.size + 1] = np.real(np.poly(inner))
    return np.asarray(shape * math.sqrt(max(float(covariances[0]), 0.0) / float(shape @ shape)))
