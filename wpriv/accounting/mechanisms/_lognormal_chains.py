"""Sums of many lognormal variables whose logarithms are correlated with their neighbours on a line or a ring.

The logarithm of a term is a combination of up to four normals in a row (a moving average), or has a part whose
covariance decays on a ring (a Markov chain), beside a common factor and a normal of its own. A trapezoid rule for every
normal of a ring, and few values for each of a line, turn each frequency of the transform into a product of small
matrices (docs/theory/balls-in-bins.md, Theorems 7 and 8).
"""

from __future__ import annotations

import math
from functools import reduce
from typing import NamedTuple

import numpy as np
from scipy.optimize import linprog
from scipy.special import ndtr, ndtri

from wpriv.accounting.mechanisms._covariance_choice import EIGENVALUE_ERROR, PRODUCT_ERROR
from wpriv.accounting.mechanisms._lognormal_sums import (
    CUT_SHARE,
    ENTRY_ROUNDINGS,
    LATTICES,
    MAX_PLACES,
    MAX_TABLE,
    MAX_TILT,
    NEGLIGIBLE,
    RARE_SHARE,
    RULE_SHARE,
    Factored,
    Grid,
    Law,
    Rows,
    completed,
    grid_of,
    lattice_variance,
    layers,
    offset_rounding,
    rows_above,
    rows_below,
    rule,
    transformed,
)
from wpriv.numerics.arrays import Array, mass_between
from wpriv.numerics.sums import UNIT_ROUNDOFF

# decays that are tried, and the least own variance of a term relative to the whole
DECAYS, LEAST_OWNS = (0.2, 0.3, 0.4, 0.45, 0.5, 0.55, 0.6, 0.7, 0.8, 0.9, 0.95, 0.99), {"ring": 0.06, "line": 0.01}
# angles of a spectrum, most normals of a term on a line, and the size of a covariance that a line may lack
ANGLES, MOST_LOADS, NO_COVARIANCE = 256, 4, 1e-9
# parts of the frequencies that may be enough, and frequencies at once
PARTS, CHUNK = (256, 192, 128, 96, 64, 48, 32, 24, 16, 12, 8, 6, 5, 4, 3, 2, 1), 64
# how many of the last bins may be left out of a moving average
LEFT_OUT = (0, 1, 3)
# variances that a grid may add to a term, relative to that of its logarithm, and the part of the frequencies that
# are expected; the first pair that works is taken
SPREADS = ((0.01, 0.25), (0.03, 0.5), (0.1, 0.5), (0.3, 0.5))
# exponent of the mean of what the places of all terms may be off by
OFFSET_EXPONENT = 0.1
# share of the largest normals of a term up to which values are dense
DEPTH = 0.8
# weight of a larger variance of its own in the choice of a line
OWN_PREFERENCE = 1e-4
# tilts of Chernoff's bound of what lies beyond a grid, and its share of delta; share of delta for all rounding
TILTS, LEAST_SHARE, MOST_SHARE, NEGLIGIBLE_SHARE = 40, 3e-3, 0.1, 3.0
# most nodes of a normal on a ring; least and most values of one on a line, and
# its least load above
MAX_NODES, VALUES, LEAST_LOAD = 90, (5, 40), 1e-3
# products that one transform is made for above and below, and how many times that it may take on a line (1) and
# a ring (2); numbers of a line at once
WORK, MOST_WORK, MAX_VALUES = {1: 2.4e9, -1: 1.0e9}, {1: 1.5, 2: 16.0}, 1 << 18
# the density of a line's values: its deviation and least size, the lowest, how far the highest is beyond the place
# that matters, and the share of delta that is lost of the mean
DENSITY, LEAST_DENSITY, LOWEST, HIGHEST, LOST_SHARE = 1.7, 0.1, -2.2, 0.8, 4e-3
# scale of a term that is moved to zero, over the mean; share of a term's deviation that its lattice of scales may have
LEAST_SCALE, LATTICE_SHARE = 1e-6, 0.3


class Chain(NamedTuple):
    """A covariance of terms in a row: c, a part between neighbours, and d more at the diagonal.

    Attributes:
        common: c. own: d. matrix: [b, b] the whole.
        decay: of the part on a ring, with the ``variance`` of a chain of mean square about 1; 0 for a moving average.
        loads: of two to four normals in a row on a term of a moving average.
    """

    common: float
    own: float
    matrix: Array
    decay: float = 0.0
    variance: float = 0.0
    loads: tuple[float, ...] = ()


def ring_of(row: Array, weights: Array, sign: int) -> Chain | None:
    """The best chain on a ring above (1) or below (-1) a matrix, by a linear program for every decay.

    Args:
        row: [b] largest (smallest) entries of the matrix by distance on the ring. weights: [b] what they matter.
    """
    size = len(row)
    distances = np.minimum(np.arange(size), size - np.arange(size))
    half, places = size // 2 + 1, np.arange(size)
    cosines = np.cos(2 * np.pi * np.outer(np.arange(half), places) / size)
    entries = np.stack([distances == k for k in range(1, half)], axis=1).astype(float)
    least, best, value = LEAST_OWNS["ring"] * float(row[0]), None, math.inf
    one = (places == 0).astype(float)
    for decay in DECAYS:
        chain = (decay**places + decay ** (size - places)) / (1 - decay**size)
        parts = np.stack([np.ones(size), one, chain], axis=1)
        rest = row - least * one
        constraint = cosines @ np.concatenate([-sign * parts, entries], axis=1)
        cost = np.concatenate([sign * (weights @ parts), np.zeros(half - 1)]) / weights.max()
        solution = linprog(cost, A_ub=constraint, b_ub=-sign * (cosines @ rest), bounds=(0, None), method="highs")
        if solution.x is None or solution.fun >= value:
            continue
        values = np.maximum(solution.x, 0.0)
        eigenvalues = sign * (cosines @ (parts @ values[:3] - rest)) - cosines @ (entries @ values[3:])
        margin = EIGENVALUE_ERROR * size**2 * (abs(float(row[0])) + float(values.sum()))
        common, more, variance = values[:3].tolist()
        own = least + more + sign * max(margin - float(eigenvalues.min()), 0.0)
        if own > 0 and variance > 0:
            part = variance * chain[np.abs(places[:, None] - places)]
            best, value = Chain(common, own, common + part + own * np.eye(size), decay, variance), float(solution.fun)
    return best


def line_of(gram: Array, weights: Array, sign: int) -> Chain | None:
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


def _line(row: Array, weights: Array, sign: int, count: int) -> Chain | None:
    """The best average of ``count`` normals above (1) or below (-1) the matrix of a row of distances."""
    size = len(row)
    apart = np.abs(np.subtract.outer(np.arange(size), np.arange(size)))
    row = row * (1 + sign * size * PRODUCT_ERROR)
    twice = np.append(1.0, np.full(size - 1, 2.0))
    mean = np.array([float(np.diagonal(weights, k).sum()) for k in range(size)]) * twice
    cosines = np.cos(np.outer(np.linspace(0, np.pi, ANGLES), np.arange(size))) * twice
    one, least = np.eye(size), LEAST_OWNS["line"] * float(row[0])
    # c, d and the autocovariances, whose spectrum is not negative
    parts = np.stack([np.ones(size), one[0], *one[:count]], axis=1)
    constraint = np.block(
        [[-sign * cosines @ parts, cosines], [np.zeros((ANGLES, 2)), -cosines[:, :count], np.zeros((ANGLES, size))]]
    )
    target = np.concatenate([-sign * cosines @ (row - least * one[0]), np.zeros(ANGLES)])
    cost = np.concatenate([sign * (mean @ parts), np.zeros(size)]) / mean.max()
    # of two that are as good the one with more variance of its own needs fewer values
    cost[1] -= OWN_PREFERENCE
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
    own = least + more + sign * lacking
    return Chain(common, own, whole + sign * lacking * one, loads=tuple(loads.tolist())) if own > 0 else None


def _loads(covariances: Array) -> Array:
    """Loads with these autocovariances, nearly."""
    roots = np.roots(np.concatenate([covariances[:0:-1], covariances]))
    inner = roots[np.argsort(np.abs(roots), kind="stable")[: len(covariances) - 1]]
    shape = np.zeros(len(covariances))
    shape[: inner.size + 1] = np.real(np.poly(inner))
    return np.asarray(shape * math.sqrt(max(float(covariances[0]), 0.0) / float(shape @ shape)))


class _Step(NamedTuple):
    """The terms of a chain given its normals: their laws, and the products of matrices that add them up.

    Attributes:
        rows: laws of a term for all scales. row, share: where the scales of the states lie among them: [m] of a ring;
            [n^(k - 2), n, n] of a line, for the inner normals of a term, its first and its last one.
        kernel: of a ring, [m, m] the masses of the next normal; of a line, [n] those of a normal.
        terms: the number of the terms. factor: of the whole. work: products for a frequency.
    """

    rows: Rows
    row: np.ndarray
    share: Array
    kernel: Array
    terms: int
    factor: float
    work: float

    def whole(self, table: np.ndarray) -> np.ndarray:
        """[n] the products for [r, n] numbers of each row: totals, or a frequency of the transforms."""
        if self.kernel.ndim == 1:
            chunk = max(MAX_VALUES // self.row.size, 1)
            parts = [self._line(table[:, start : start + chunk]) for start in range(0, table.shape[1], chunk)]
            return np.concatenate(parts)
        matrices = self.kernel * np.moveaxis(self._values(table), -1, 0)[:, None, :]
        half = _power(matrices, self.terms // 2)
        other = half @ matrices if self.terms % 2 else half
        return np.asarray(self.factor * np.einsum("nij,nji->n", half, other))

    def _values(self, table: np.ndarray) -> np.ndarray:
        values = table[self.row] * (1 - self.share[..., None])
        values += table[np.minimum(self.row + 1, len(table) - 1)] * self.share[..., None]
        return np.asarray(values)

    def _line(self, table: np.ndarray) -> np.ndarray:
        values = np.ascontiguousarray(np.moveaxis(self._values(table), -1, 0)) * self.kernel
        inner, size = self.row.shape[:2]
        count = round(math.log(self.row.size) / math.log(size))
        first = reduce(np.multiply.outer, [self.kernel] * (count - 1))
        state = np.broadcast_to(first, (len(values), *first.shape))
        for _ in range(self.terms):
            # the first normal leaves, and the second becomes the first, which comes last
            state = (state.reshape(-1, inner, 1, size) @ values).reshape(-1, *[size] * (count - 1))
            state = np.moveaxis(state, 1, -1)
        return np.asarray(self.factor * state.reshape(len(values), -1).sum(axis=1))


def _power(matrices: np.ndarray, exponent: int) -> np.ndarray:
    """Powers of matrices, from the highest digit of the exponent down."""
    result = matrices
    for digit in bin(exponent)[3:]:
        result = result @ result
        if digit == "1":
            result = result @ matrices
    return result


class _Masses(NamedTuple):
    """Masses of a sum on a grid, for several factors of the terms: [w, size], with errors.

    ``error``: of each, a bound of the sum over the places of errors times the larger of 1 and the place.
    """

    grid: Grid
    values: Array
    error: Array


def _masses(step: _Step, offsets: list[Array], grid: Grid, least: float) -> _Masses | None:
    """The masses for w exponents of factors of the terms, [r, m] each.

    None where they take too much work, or what lies beyond a grid exceeds ``least``.
    """
    masses = [step.rows.masses * np.exp(offset) for offset in offsets]
    tilts = np.geomspace(0.02, MAX_TILT / (grid.step * grid.reach), TILTS)
    growth = np.exp(np.outer(grid.places[: step.rows.masses.shape[1]], tilts))
    with np.errstate(over="ignore", invalid="ignore"):
        totals = np.stack([step.whole(each @ growth) for each in masses])
    usable = np.isfinite(totals).all(axis=0)
    tilts, totals = tilts[usable], totals[:, usable] * (1 + 1e-9)
    while True:
        top = grid.step * grid.size
        far = tilts * top >= 1
        rest = (totals[:, far] * np.exp(-tilts[far] * top)).min(axis=1) * top if far.any() else np.array([math.inf])
        if rest.max() <= least:
            break
        if 2 * grid.size > min(MAX_PLACES, MAX_TABLE / 2 / len(step.rows.logs)):
            return None
        grid = grid._replace(size=2 * grid.size)
    # products of full matrices are faster
    most = MOST_WORK[step.kernel.ndim] * WORK[1 if len(masses) == 1 else -1]
    # the sum over places of v |e_v| is at most the norm of v times that of e
    norm = float(np.linalg.norm(np.maximum(grid.places, 1.0)))
    values, errors = np.zeros((len(masses), grid.size)), []
    for value, each, beyond in zip(values, masses, rest, strict=True):
        transform = _spectrum(step, each, grid, most, max(NEGLIGIBLE, NEGLIGIBLE_SHARE * least / norm))
        if transform is None:
            return None
        spectrum, size = transform
        value[:] = np.fft.irfft(spectrum, grid.size)
        errors.append(float(beyond) + norm * size)
    return _Masses(grid, values, np.array(errors))


def _spectrum(
    step: _Step, masses: Array, grid: Grid, most: float, negligible: float
) -> tuple[np.ndarray, float] | None:
    """The first frequencies of the transform, and the norm of the error of the masses; None for too much work."""
    table, sums, _ = transformed(masses, 0.0, grid)
    # of each frequency, not in the norm of all: the sizes of the others weigh frequencies unequally
    missed = ENTRY_ROUNDINGS * UNIT_ROUNDOFF * math.log2(grid.size)
    stops = [0, *(table.shape[1] // part for part in PARTS)]
    blocks = np.stack([np.abs(table[:, stop:]).max(axis=1) for stop in stops[:-1]], axis=1)
    # the product of all terms but one is at most that of all where none is below a half, times two
    sizes = step.whole(np.maximum(blocks + missed * sums[:, None], sums[:, None] / 2))
    bounds = step.whole(blocks)
    last = int(np.argmax(np.append(bounds[1:] <= negligible * bounds[0], True)))
    if step.work * stops[last + 1] > most:
        return None
    spectrum = np.zeros(table.shape[1], dtype=complex)
    for start in range(0, stops[last + 1], CHUNK):
        chunk = slice(start, min(start + CHUNK, stops[last + 1]))
        spectrum[chunk] = step.whole(table[:, chunk])
    relative = 2 * step.terms * missed + 4 * (step.terms + 2) * (step.kernel.shape[0] + 8) * UNIT_ROUNDOFF
    counts = np.diff(stops)[: last + 1]
    squares = 2 * float(counts @ (relative * sizes[: last + 1]) ** 2) + grid.size * float(negligible * sizes[0]) ** 2
    whole = math.sqrt(2 * float(counts @ bounds[: last + 1] ** 2))
    return spectrum, (math.sqrt(squares) + layers(grid) * whole) / math.sqrt(grid.size) * (1 + 1e-9)


def chain_law(chain: Chain, bins: int, sign: int, delta: float) -> Law | None:
    """The law above (1) or below (-1) the mean of the terms without the common factor.

    Args:
        bins: the number of terms, of which those that the chain lacks are 1 below, and left out above. delta: where
            the law is to be narrow.
    Returns:
        The law; None where it takes too much work, or delta is too small for the rounding of its transforms.
    """
    laws = (_law(chain, bins, sign, delta, spread, share) for spread, share in SPREADS)
    return next((law for law in laws if law is not None), None)


def _law(chain: Chain, bins: int, sign: int, delta: float, spread: float, frequencies: float) -> Law | None:
    terms, total = len(chain.matrix), float(chain.matrix[0, 0]) - chain.common
    if sign > 0:
        # the mean over all bins is that over classes of so many (Theorem 9)
        bins = terms
    shape = Factored(chain.common, np.full((bins, 1), math.sqrt(max(total - chain.own, 0.0))), np.full(bins, chain.own))
    grid = grid_of(shape, delta, spread)
    built = None
    if grid is not None and chain.decay:
        built = _ring(chain, bins, sign, delta, grid)
    elif grid is not None:
        built = _line_step(chain, bins, sign, delta, grid, frequencies)
    if grid is None or built is None:
        return None
    step, error, omitted = built
    off = step.rows.off
    rate = OFFSET_EXPONENT / max(terms * float(np.interp(0.0, step.rows.logs, np.abs(off).max(axis=1))), 1e-300)
    offsets = [np.zeros((1, 1)), -rate * off, rate * off][: 1 if sign > 0 else 3]
    masses = _masses(step, offsets, grid, LEAST_SHARE * delta)
    if masses is None or masses.error[0] > MOST_SHARE * delta:
        return None
    places, mass = masses.grid.places, np.maximum(masses.values[0], 0.0)
    if sign < 0:
        # e^x - 1 is at least x
        rounding = terms * offset_rounding(chain.own, off.shape[1], masses.grid)
        low, high = (masses.values[1:] - masses.values[0]) / rate + rounding * mass
        wrong = 3 * error + masses.error[0] + float(masses.error.sum()) / rate
        return completed(mass * (1 - 1e-12), low, high, places + (bins - terms) / bins, wrong)
    missing = omitted + error + float(masses.error[0])
    return Law(places[1:], mass[1:] * (1 + 1e-12), missing, missing + float(mass[0]))


Built = tuple[_Step, float, float]


def _ring(chain: Chain, bins: int, sign: int, delta: float, grid: Grid) -> Built | None:
    """The step of a Markov chain on a ring, the error of the rule for its normals and what its nodes omit."""
    decay, load, own = chain.decay, math.sqrt(chain.variance), chain.own
    own -= lattice_variance(LATTICES[sign]) if sign < 0 else 0.0
    if own <= chain.own / 2:
        return None
    square = (1 + decay**bins) / (1 - decay**bins)
    ratio, error = rule(bins, RULE_SHARE * delta, halved=False)
    spacing = math.sqrt(ratio / ((1 + decay**2) / (1 - decay**2) + chain.variance / own))
    farthest = math.sqrt(-2 * math.log(CUT_SHARE * delta / bins))
    low, high = (math.ceil((farthest * math.sqrt(square) + move) / spacing) for move in (0.0, load * square))
    if low + high + 1 > MAX_NODES:
        return None
    y = spacing * np.arange(-low, high + 1)
    inner = (low - 1) * spacing / math.sqrt(square)
    omitted = 4 * bins * float(ndtr(-inner) + ndtr(load * math.sqrt(square) - (high - 1) * spacing / math.sqrt(square)))
    # what a term exceeds the grid by
    total = chain.variance * square + chain.own
    omitted += float(ndtr((total / 2 - math.log(grid.step * grid.reach * bins)) / math.sqrt(total))) + 1e-30
    variance = 1 - decay**2
    kernel = spacing / math.sqrt(2 * math.pi * variance) * np.exp(-((y - decay * y[:, None]) ** 2) / (2 * variance))
    logs = np.asarray(load * y - chain.variance * square / 2, dtype=float)
    rows = _rows(logs, own, bins, sign, grid, delta)
    work = y.size**3 * (math.log2(bins) + bin(bins).count("1"))
    step = _Step(rows, np.arange(y.size), np.zeros(y.size), kernel, bins, 1 - decay**bins, work)
    return step, error * (1 + 2 * error), omitted


def _rows(logs: Array, own: float, bins: int, sign: int, grid: Grid, delta: float) -> Rows:
    return (
        rows_above(logs, own, bins, grid) if sign > 0 else rows_below(logs, own, bins, grid, RARE_SHARE * delta / bins)
    )


class _Values(NamedTuple):
    """A normal that has been exchanged for few values: [n] masses and [k, n] factors of the terms with its k loads.

    ``lost``: of the mean of all factors.
    """

    mass: Array
    factors: Array
    lost: float


def values_below(loads: Array, count: int, deep: float) -> _Values:
    """The conditional means of e^(load z - load^2 / 2) on ``count`` cells of a normal z that matters up to ``deep``."""
    edges = np.concatenate([[-math.inf], _edges(count, deep, HIGHEST + deep), [math.inf]])
    mass = _normal_masses(edges)
    factors = np.stack([_normal_masses(edges - load) for load in loads]) / mass
    return _Values(mass, factors, 0.0)


def values_above(loads: Array, count: int, deep: float, lost: float) -> _Values:
    """Values above a normal: slopes of concave lines above the means of e^(load z - load^2 / 2) over the largest z.

    The lines of all loads bend at the same edges of cells; the lowest cell has the value 0.
    """
    largest = float(np.abs(loads).max())
    edges = _tangent_edges(largest, _edges(count, deep, largest - float(ndtri(lost))))
    mass = _normal_masses(np.concatenate([[-math.inf], edges, [math.inf]]))
    factors, left = np.zeros((len(loads), count)), 1e-14
    for each, load in zip(factors, loads.tolist(), strict=True):
        heights = _heights(load, edges, lost)
        if not heights.max() <= 1:
            # too few cells
            return _Values(mass, np.zeros((len(loads), count)), 1.0)
        each[:] = np.diff(-heights) / mass
        left += float(heights[-1])
        # the least concave line above: neighbours with decreasing values join
        blocks: list[list[float]] = []
        for value, weight in zip(each.tolist(), mass.tolist(), strict=True):
            blocks.append([value, weight, 1])
            while len(blocks) > 1 and blocks[-2][0] > blocks[-1][0]:
                last, before = blocks.pop(), blocks.pop()
                whole = last[1] + before[1]
                blocks.append([(last[0] * last[1] + before[0] * before[1]) / whole, whole, last[2] + before[2]])
        each[:] = np.concatenate([np.full(int(size), value) for value, _, size in blocks])
    return _Values(mass, np.maximum(factors, 0.0), left)


def _heights(load: float, edges: Array, lost: float) -> Array:
    """[n + 1] heights at the edges, and at both ends, of lines above the mean of e^(load z - load^2 / 2) over larger z.

    Tangents meet at the edges, from both ends to the middle, where lines are lifted as far as they have to be.
    """
    places = np.concatenate([[-math.inf], edges, [math.inf]])
    tails, middle = ndtr(-places), len(edges) // 2
    heights: Array = np.concatenate([[1.0], np.zeros(len(edges)), [lost]])
    heights[1] = 1.0
    for k in range(1, middle):
        heights[k + 1] = _on_tangent(load, places[k], heights[k], places[k + 1], 1.0)
    for k in range(len(edges) + 1, middle + 1, -1):
        heights[k - 1] = _on_tangent(load, places[k], heights[k], places[k - 1], -1.0)
    slope = max(float(heights[middle] - heights[middle + 1]) / float(tails[middle] - tails[middle + 1]), 1e-300)
    t = min(max((math.log(slope) + load**2 / 2) / load, float(places[middle])), float(places[middle + 1]))
    chord = float(heights[middle + 1]) + slope * float(ndtr(-t) - tails[middle + 1])
    heights[middle : middle + 2] += max(float(ndtr(load - t)) - chord, 0.0)
    return heights


def _on_tangent(load: float, place: float, height: float, other: float, sign: float) -> float:
    """The height at another place of the tangent that has this height at a place, and touches in the direction."""
    tail = float(ndtr(-place))

    def at(t: float, tail: float) -> float:
        return float(ndtr(load - t)) + math.exp(load * t - load * load / 2) * (tail - float(ndtr(-t)))

    low, high = (place, place + 30.0) if math.isfinite(place) else (-30.0, 30.0)
    if sign < 0:
        low, high = (place - 30.0, place) if math.isfinite(place) else (-30.0, 30.0)
    for _ in range(60):
        t = (low + high) / 2
        far = (at(t, tail) < height) == (sign > 0)
        low, high = (t, high) if far else (low, t)
    return at(high if sign > 0 else low, float(ndtr(-other)))


def _tangent_edges(load: float, touching: Array) -> Array:
    """Where tangents that touch at these places meet, with the line of the height 1 before them."""
    heights = np.append(1.0, ndtr(load - touching))
    tails, slopes = np.append(1.0, ndtr(-touching)), np.append(0.0, np.exp(load * touching - load**2 / 2))
    starts = heights - slopes * tails
    edges = -ndtri(np.diff(starts) / -np.diff(slopes))
    # any increasing edges will do
    return np.asarray(edges if np.all(np.isfinite(edges)) and np.all(np.diff(edges) > 0) else touching)


def _edges(count: int, deep: float, high: float) -> Array:
    """[count - 1] places between cells of a normal up to ``high``: densest between 0 and ``deep``."""
    z = np.linspace(LOWEST, high, 2001)
    away = np.maximum(np.maximum(-z, z - deep), 0.0)
    shares = np.cumsum(np.exp(-((away / DENSITY) ** 2) / 2) + LEAST_DENSITY)
    return np.asarray(np.interp(np.linspace(shares[0], shares[-1], count - 1), shares, z))


def _normal_masses(edges: Array) -> Array:
    above, below = ndtr(-edges), ndtr(edges)
    return mass_between(above[:-1], below[:-1], above[1:], below[1:])


def _line_step(chain: Chain, bins: int, sign: int, delta: float, grid: Grid, frequencies: float) -> Built | None:
    """The step of a moving average of normals with few values, its error and what it omits of the mean."""
    loads, terms, own = np.array(chain.loads), len(chain.matrix), chain.own
    lattice = min(LATTICES[sign], LATTICE_SHARE * math.sqrt(own))
    own -= lattice_variance(lattice) if sign < 0 else 0.0
    most = int((WORK[sign] / (terms * frequencies * grid.size)) ** (1 / len(loads)))
    count = min(most, VALUES[1])
    if count < VALUES[0] or own <= chain.own / 2 or (loads.min() < LEAST_LOAD and sign > 0):
        return None
    # where a single term is as large as matters, all of its normals are about as large
    deep = math.sqrt(2 * math.log(bins / delta) / len(loads)) * DEPTH
    values = values_above(loads, count, deep, LOST_SHARE * delta) if sign > 0 else values_below(loads, count, deep)
    scales = reduce(np.multiply.outer, values.factors)
    some = scales > (LEAST_SCALE if sign > 0 else 0.0)
    logs = np.log(scales, out=np.full(scales.shape, math.inf), where=some)
    least, largest = float(logs.min()), float(np.where(some, logs, -math.inf).max())
    if not 0 <= (largest - least + 2 * lattice) * grid.size <= lattice * MAX_TABLE / 4:
        return None
    lattice_logs = np.asarray(np.arange(least, largest + 2 * lattice, lattice), dtype=float)
    offsets = (np.where(some, logs, least) - least) / lattice
    index = np.clip(np.floor(offsets).astype(int), 0, lattice_logs.size - 2)
    share = np.clip(np.expm1(lattice * (offsets - index)) / math.expm1(lattice), 0.0, 1.0)
    rows = _rows(lattice_logs, own, bins, sign, grid, delta)
    omitted = len(loads) * 1e-13 + values.lost
    if sign > 0:
        masses = reduce(np.multiply.outer, [values.mass] * len(loads))
        beyond = rows.beyond[index] * (1 - share) + rows.beyond[index + 1] * share
        # a term that is moved to zero loses its mean
        omitted += float((masses * np.where(some, terms * beyond, scales)).sum()) * (1 + 1e-9)
        # a first row for terms that are zero
        zero = np.eye(1, rows.masses.shape[1])
        rows = Rows(*(np.concatenate([each[:1] if k != 1 else zero, each]) for k, each in enumerate(rows)))
        index, share = np.where(some, index + 1, 0), np.where(some, share, 0.0)
    # the first normal of a term beside the last
    index, share = (np.ascontiguousarray(np.moveaxis(each, 0, -2)).reshape(-1, count, count) for each in (index, share))
    step = _Step(rows, index, share, values.mass, terms, 1.0, terms * float(index.size))
    return step, 1e-12, omitted
