"""Sums of many lognormal variables whose logarithms are correlated with their neighbours on a line or a ring.

The logarithm of a term is a combination of three normals in a row (a moving average), or has a part whose covariance
decays on a ring (a Markov chain), beside a common factor and a normal of its own. A trapezoid rule for every normal
turns each frequency of the transform into a product of small matrices (docs/theory/balls-in-bins.md, Theorem 7).
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np
from scipy.optimize import linprog
from scipy.special import ndtr

from wpriv.accounting.mechanisms._covariance_choice import EIGENVALUE_ERROR, PRODUCT_ERROR
from wpriv.accounting.mechanisms._lognormal_sums import (
    CUT_SHARE,
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
    rows_above,
    rows_below,
    rule,
    transformed,
)
from wpriv.numerics.arrays import Array
from wpriv.numerics.sums import UNIT_ROUNDOFF

# decays that are tried, and the least own variance of a term relative to the whole
DECAYS, LEAST_OWNS = (0.2, 0.3, 0.4, 0.45, 0.5, 0.55, 0.6, 0.7, 0.8, 0.9, 0.95, 0.99), {"ring": 0.06, "line": 0.15}
# angles of a spectrum, and how far normals of a moving average reach, where those beyond are left out
ANGLES, FARTHEST = 256, (4.0, 5.5)
# parts of the frequencies that may be enough, and frequencies at once
PARTS, CHUNK = (256, 192, 128, 96, 64, 48, 32, 24, 16, 12, 8, 4, 2, 1), 64
# how many of the last bins may be left out of a moving average
LEFT_OUT = (0, 1, 2, 3, 5, 8)
# variance that a grid adds to a term, relative to that of its logarithm, above and below
SPREADS = {1: 0.008, -1: 0.0008}
# exponent of the mean of what the places of all terms may be off by
OFFSET_EXPONENT = 0.1
# tilts of Chernoff's bound of what lies beyond a grid, and its share of delta; share of delta for all rounding
TILTS, LEAST_SHARE, MOST_SHARE = 40, 1e-3, 0.1
# most nodes of a normal
MAX_NODES = {"ring": 90, "line": 36}


class Chain(NamedTuple):
    """A covariance of terms in a row: c, a part between neighbours, and d more at the diagonal.

    Attributes:
        common: c. own: d. matrix: [b, b] the whole.
        decay: of the part on a ring, with the ``variance`` of a chain of mean square about 1; 0 for a moving average.
        loads: of three normals in a row on a term of a moving average.
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
        found = np.maximum(solution.x, 0.0)
        eigenvalues = sign * (cosines @ (parts @ found[:3] - rest)) - cosines @ (entries @ found[3:])
        margin = EIGENVALUE_ERROR * size**2 * (abs(float(row[0])) + float(found.sum()))
        common, more, variance = found[:3].tolist()
        own = least + more + sign * max(margin - float(eigenvalues.min()), 0.0)
        if own > 0 and variance > 0:
            part = variance * chain[np.abs(places[:, None] - places)]
            best, value = Chain(common, own, common + part + own * np.eye(size), decay, variance), float(solution.fun)
    return best


def line_below(gram: Array, weights: Array) -> Chain | None:
    """The best moving average of three normals below a matrix, by linear programs for its autocovariances.

    The terms of the last few bins, of which less is known, may be replaced by their mean.
    """
    tried = [_line(gram[:size, :size], weights[:size, :size]) for size in (len(gram) - k for k in LEFT_OUT)]
    lost = [
        float((weights * gram).sum() - (weights[: len(each.matrix), : len(each.matrix)] * each.matrix).sum())
        if each
        else math.inf
        for each in tried
    ]
    return tried[int(np.argmin(lost))]


def _line(gram: Array, weights: Array) -> Chain | None:
    size = len(gram)
    apart = np.abs(np.subtract.outer(np.arange(size), np.arange(size)))
    row = np.array([float(np.diagonal(gram, k).min()) for k in range(size)]) * (1 - size * PRODUCT_ERROR)
    twice = np.append(1.0, np.full(size - 1, 2.0))
    mean = np.array([float(np.diagonal(weights, k).sum()) for k in range(size)]) * twice
    cosines = np.cos(np.outer(np.linspace(0, np.pi, ANGLES), np.arange(size))) * twice
    one, least = np.eye(size), LEAST_OWNS["line"] * float(row[0])
    # c, d and three autocovariances, whose spectrum is not negative
    parts = np.stack([np.ones(size), one[0], one[0], one[1], one[2]], axis=1)
    constraint = np.block(
        [[cosines @ parts, cosines], [np.zeros((ANGLES, 2)), -cosines[:, :3], np.zeros((ANGLES, size))]]
    )
    target = np.concatenate([cosines @ (row - least * one[0]), np.zeros(ANGLES)])
    cost = np.concatenate([-(mean @ parts), np.zeros(size)]) / mean.max()
    free = [(0, None), (0, None), (None, None), (None, None), (None, None), (0, 0), *[(0, None)] * (size - 1)]
    solution = linprog(cost, A_ub=constraint, b_ub=target, bounds=free, method="highs")
    if solution.x is None:
        return None
    common, more = np.maximum(solution.x[:2], 0.0).tolist()
    loads = _loads(solution.x[2:5].tolist())
    covariances = np.correlate(loads, loads, "full")[2:]
    whole = common + np.append(covariances, np.zeros(size))[np.minimum(apart, 3)] + (least + more) * one
    entries = np.maximum(solution.x[5:], 0.0)[apart]
    margin = 2 * EIGENVALUE_ERROR * size**2 * float(np.abs(gram).max() + np.abs(whole).max())
    less = max(margin - float(np.linalg.eigvalsh(row[apart] - whole - entries)[0]), 0.0)
    own = least + more - less
    return Chain(common, own, whole - less * one, loads=loads) if own > 0 else None


def _loads(covariances: list[float]) -> tuple[float, ...]:
    """Three loads with these autocovariances, nearly."""
    zero, first, second = covariances
    best = (math.sqrt(max(zero, 0.0)), 0.0, 0.0)
    roots = np.roots([second, first, zero, first, second]) if abs(second) > 1e-12 * max(zero, 1e-300) else np.zeros(0)
    if roots.size == 4:
        inner = roots[np.argsort(np.abs(roots))[:2]]
        shape = np.real(np.poly(inner))
        scale = math.sqrt(max(zero, 0.0) / float(shape @ shape))
        best = (float(scale * shape[0]), float(scale * shape[1]), float(scale * shape[2]))
    elif abs(first) > 0:
        side = (math.sqrt(max(zero + 2 * first, 0)) - math.sqrt(max(zero - 2 * first, 0))) / 2
        best = (math.sqrt(max(zero - side * side, 0.0)), side, 0.0)
    return best


class _Step(NamedTuple):
    """The terms of a chain given its normals: their laws, and the products of matrices that add them up.

    Attributes:
        rows: laws of a term for all scales. row, share: where the scales of the states lie among them.
        kernel: of a ring, [m, m] the masses of the next normal; of a line, [m] those of a normal.
        terms: the number of the terms. factor: of the whole.
    """

    rows: Rows
    row: np.ndarray
    share: Array
    kernel: Array
    terms: int
    factor: float

    def whole(self, table: np.ndarray) -> np.ndarray:
        """[n] the products for [r, n] numbers of each row: totals, or a frequency of the transforms."""
        values = table[self.row] * (1 - self.share[..., None])
        values += table[np.minimum(self.row + 1, len(table) - 1)] * self.share[..., None]
        if self.kernel.ndim == 2:
            matrices = self.kernel * np.moveaxis(values, -1, 0)[:, None, :]
            half = _power(matrices, self.terms // 2)
            other = half @ matrices if self.terms % 2 else half
            return np.asarray(self.factor * np.einsum("nij,nji->n", half, other))
        # [n, second, first, third] normals of a term
        values = np.ascontiguousarray(np.moveaxis(values, (0, 1, 2, 3), (2, 1, 3, 0)))
        values *= self.kernel
        state = np.broadcast_to(np.outer(self.kernel, self.kernel), (len(values), *values.shape[1:3]))[:, :, None, :]
        for _ in range(self.terms):
            state = (state @ values).swapaxes(1, 3)
        return np.asarray(self.factor * state.sum(axis=(1, 2, 3)))


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


def _masses(step: _Step, offsets: Array, grid: Grid, least: float) -> _Masses | None:
    """The masses for [w, r] exponents of factors of the terms; None where what lies beyond a grid exceeds ``least``."""
    masses = [step.rows.masses * np.exp(offset)[:, None] for offset in offsets]
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
    values, errors = np.zeros((len(masses), grid.size)), []
    for value, each, beyond in zip(values, masses, rest, strict=True):
        spectrum, size = _spectrum(step, each, grid)
        value[:] = np.fft.irfft(spectrum, grid.size)
        # the sum over places of v |e_v| is at most the norm of v times that of e
        places = np.maximum(grid.places, 1.0)
        errors.append(float(beyond) + float(np.sqrt(places @ places)) * size)
    return _Masses(grid, values, np.array(errors))


def _spectrum(step: _Step, masses: Array, grid: Grid) -> tuple[np.ndarray, float]:
    """The first frequencies of the transform, and the norm of the error of the masses."""
    table, sums, missed = transformed(masses, 0.0, grid)
    stops = [0, *(table.shape[1] // part for part in PARTS)]
    blocks = np.stack([np.abs(table[:, stop:]).max(axis=1) for stop in stops[:-1]], axis=1)
    # the product of all terms but one is at most that of all where none is below a half, times two
    sizes = step.whole(np.maximum(blocks + missed * sums[:, None], sums[:, None] / 2))
    bounds = step.whole(blocks)
    last = int(np.argmax(np.append(bounds[1:] <= NEGLIGIBLE * bounds[0], True)))
    spectrum = np.zeros(table.shape[1], dtype=complex)
    for start in range(0, stops[last + 1], CHUNK):
        chunk = slice(start, min(start + CHUNK, stops[last + 1]))
        spectrum[chunk] = step.whole(table[:, chunk])
    relative = 2 * step.terms * missed + 4 * (step.terms + 2) * (step.kernel.shape[0] + 8) * UNIT_ROUNDOFF
    counts = np.diff(stops)[: last + 1]
    squares = 2 * float(counts @ (relative * sizes[: last + 1]) ** 2) + grid.size * float(NEGLIGIBLE * sizes[0]) ** 2
    whole = math.sqrt(2 * float(counts @ bounds[: last + 1] ** 2))
    return spectrum, (math.sqrt(squares) + layers(grid) * whole) / math.sqrt(grid.size) * (1 + 1e-9)


def chain_law(chain: Chain, bins: int, sign: int, delta: float) -> Law | None:
    """The law above (1) or below (-1) the mean of the terms without the common factor.

    Args:
        bins: the number of terms, of which those that the chain lacks are 1. delta: where the law is to be narrow.
    Returns:
        The law; None where it is too large, or delta too small for the rounding of its transforms.
    """
    terms, total = len(chain.matrix), float(chain.matrix[0, 0]) - chain.common
    shape = Factored(chain.common, np.full((bins, 1), math.sqrt(max(total - chain.own, 0.0))), np.full(bins, chain.own))
    grid, own = (
        grid_of(shape, delta, SPREADS[sign]),
        chain.own - (lattice_variance(LATTICES[sign]) if sign < 0 else 0.0),
    )
    built = None
    if grid is not None and own > chain.own / 2:
        built = (_ring if chain.decay else _line_step)(chain, own, bins, sign, delta, grid)
    if grid is None or built is None:
        return None
    step, error, omitted = built
    off = np.maximum(step.rows.low, step.rows.high)
    rate = OFFSET_EXPONENT / max(terms * float(np.interp(0.0, step.rows.logs, off)), 1e-300)
    offsets = np.stack([np.zeros(off.size), rate * off][: 1 if sign > 0 else 2])
    masses = _masses(step, offsets, grid, LEAST_SHARE * delta)
    if masses is None or masses.error[0] > MOST_SHARE * delta:
        return None
    places, mass = masses.grid.places, np.maximum(masses.values[0], 0.0)
    if sign < 0:
        # e^x - 1 is at least x
        lacking = np.maximum(masses.values[1] - masses.values[0], 0.0) / rate
        wrong = 3 * error + masses.error[0] + float(masses.error.sum()) / rate
        return completed(mass * (1 - 1e-12), lacking, lacking, places + (bins - terms) / bins, wrong)
    missing = omitted + error + float(masses.error[0])
    # what a term exceeds the grid by
    beyond = float(ndtr((total / 2 - math.log(grid.step * grid.reach * bins)) / math.sqrt(total))) + 1e-30
    return Law(places[1:], mass[1:] * (1 + 1e-12), missing + beyond, missing + float(mass[0]))


def _ring(
    chain: Chain, own: float, bins: int, sign: int, delta: float, grid: Grid
) -> tuple[_Step, float, float] | None:
    """The step of a Markov chain on a ring, the error of the rule for its normals and what its nodes omit."""
    decay, load = chain.decay, math.sqrt(chain.variance)
    square = (1 + decay**bins) / (1 - decay**bins)
    ratio, error = rule(bins, RULE_SHARE * delta, halved=False)
    spacing = math.sqrt(ratio / ((1 + decay**2) / (1 - decay**2) + chain.variance / own))
    farthest = math.sqrt(-2 * math.log(CUT_SHARE * delta / bins))
    low, high = (math.ceil((farthest * math.sqrt(square) + move) / spacing) for move in (0.0, load * square))
    if low + high + 1 > MAX_NODES["ring"]:
        return None
    y = spacing * np.arange(-low, high + 1)
    inner = (low - 1) * spacing / math.sqrt(square)
    omitted = 4 * bins * float(ndtr(-inner) + ndtr(load * math.sqrt(square) - (high - 1) * spacing / math.sqrt(square)))
    variance = 1 - decay**2
    kernel = spacing / math.sqrt(2 * math.pi * variance) * np.exp(-((y - decay * y[:, None]) ** 2) / (2 * variance))
    logs = np.asarray(load * y - chain.variance * square / 2, dtype=float)
    rows = _rows(logs, own, bins, sign, grid, delta)
    step = _Step(rows, np.arange(y.size), np.zeros(y.size), kernel, bins, 1 - decay**bins)
    return step, error * (1 + 2 * error), omitted


def _rows(logs: Array, own: float, bins: int, sign: int, grid: Grid, delta: float) -> Rows:
    return (
        rows_above(logs, own, bins, grid) if sign > 0 else rows_below(logs, own, bins, grid, RARE_SHARE * delta / bins)
    )


def _line_step(
    chain: Chain, own: float, bins: int, sign: int, delta: float, grid: Grid
) -> tuple[_Step, float, float] | None:
    """The step of a moving average, the error of the rule for its normals, which lacks the nodes that are far out."""
    loads, terms, lattice = np.array(chain.loads), len(chain.matrix), LATTICES[sign]
    ratio, error = rule(terms + 2, RULE_SHARE * delta, halved=False)
    spacing = math.sqrt(ratio / (1 + float(loads @ loads) / own))
    low, high = (math.ceil(farthest / spacing) for farthest in FARTHEST)
    if low + high + 1 > MAX_NODES["line"]:
        return None
    z = spacing * np.arange(-low, high + 1)
    scales = loads[0] * z[:, None, None] + loads[1] * z[:, None] + loads[2] * z - float(loads @ loads) / 2
    logs = np.asarray(np.arange(float(scales.min()), float(scales.max()) + 2 * lattice, lattice), dtype=float)
    offsets = (scales - logs[0]) / lattice
    index = np.clip(np.floor(offsets).astype(int), 0, logs.size - 2)
    share = np.clip(np.expm1(lattice * (offsets - index)) / math.expm1(lattice), 0.0, 1.0)
    if logs.size * grid.size > MAX_TABLE / 2:
        return None
    rows = _rows(logs, own, bins, sign, grid, delta)
    weights = spacing / math.sqrt(2 * math.pi) * np.exp(-z * z / 2)
    return _Step(rows, index, share, weights, terms, 1.0), error * (1 + 2 * error), 0.0
