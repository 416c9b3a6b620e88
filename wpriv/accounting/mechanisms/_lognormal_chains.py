"""Sums of many lognormal variables whose logarithms are correlated with their neighbours on a line or a ring.

The logarithm of a term is a combination of up to four normals in a row (a moving average), or has a part whose
covariance decays on a ring (a Markov chain), beside a common factor and a normal of its own. A trapezoid rule for every
normal of a chain, and few values for each of an average, turn a frequency of the transform into a product of small
matrices. A small variable without high frequencies is added to the sum, so that few frequencies say all about it
(docs/theory/balls-in-bins.md, Theorems 7 to 10).
"""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import reduce
from typing import NamedTuple

import numpy as np
from scipy.special import ndtr

from wpriv.accounting.mechanisms._covariance_choice import Chain, Line, Pairs, Ring
from wpriv.accounting.mechanisms._few_values import Values, values_above, values_below
from wpriv.accounting.mechanisms._lognormal_sums import (
    CUT_SHARE,
    ENTRY_ROUNDINGS,
    LATTICES,
    MAX_PLACES,
    MAX_TABLE,
    MAX_TILT,
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
from wpriv.numerics.arrays import Array
from wpriv.numerics.sums import UNIT_ROUNDOFF

# parts of the frequencies for which the size of the transform is bounded, and frequencies at once
PARTS, CHUNK = (32, 16, 8, 4, 2, 1), 64
# variances that a grid may add to a term, relative to that of its logarithm; the first that works is taken
SPREADS = (0.01, 0.03, 0.1, 0.3)
# places on a circle over frequencies times the deviation of a sum, by how much finer it may be, and the power of the
# cosine in the weights of frequencies
WIDTH, FINER, TAPER = 0.3, 3, 3
# how much longer a grid may become, as is expected
LONGER = 2.0
# exponent of the mean of what the places of all terms may be off by
OFFSET_EXPONENT = 0.1
# tilts of Chernoff's bound of what lies beyond a grid, and its share of delta; share of delta for all rounding
TILTS, LEAST_SHARE, MOST_SHARE = 24, 3e-3, 1.0
# most nodes of a normal on a ring; least and most values of one on a line and on a ring, and its least load above
MAX_NODES, LEAST_VALUES, MOST_VALUES, LEAST_LOAD = 150, 5, {"line": 100, "pairs": 80}, 1e-3
# products for one transform above and below: on a line, and on a ring, where products of full matrices are faster;
# numbers of a line at once
LINE_WORK, RING_WORK, MAX_VALUES = {1: 1.2e10, -1: 2.4e9}, {1: 2e10, -1: 1e10}, 1 << 18
# how many steps on a line take as long as the lookup of its terms
GATHERED = 25
# share of delta that is lost of the mean by few values
LOST_SHARE = 4e-3
# scale of a term that is moved to zero, over the mean; share of a term's deviation that its lattice of scales may have
LEAST_SCALE, LATTICE_SHARE = 1e-6, 0.3


class _Cells(NamedTuple):
    """Scales of terms at values of their normals, between rows: an index of a row, and the share of the next row."""

    row: np.ndarray
    share: Array

    def of(self, table: np.ndarray) -> np.ndarray:
        """[n, ...] the numbers for a table of [r, n] numbers of the rows."""
        values = table[self.row] * (1 - self.share[..., None])
        values += table[np.minimum(self.row + 1, len(table) - 1)] * self.share[..., None]
        return np.asarray(np.moveaxis(values, -1, 0))


class _Block(NamedTuple):
    """Equal factors of a product on a ring, ``times``: the kernel [m, m] times the law of a term, [m, m] or [m]."""

    kernel: Array
    cells: _Cells
    times: int


class _Trace(NamedTuple):
    """The terms on a ring, given the normals at its nodes: the trace of a product of matrices.

    Attributes:
        rows: laws of a term for all scales. blocks: of the matrices. factor: of the whole.
    """

    rows: Rows
    blocks: tuple[_Block, ...]
    factor: float

    @property
    def terms(self) -> int:
        return sum(block.times for block in self.blocks)

    @property
    def nodes(self) -> int:
        """Nodes of a normal."""
        return len(self.blocks[0].kernel)

    @property
    def work(self) -> float:
        """Products for a frequency."""
        return float(self.nodes**3 * sum(2 * block.times.bit_length() - 1 for block in self.blocks))

    def whole(self, table: np.ndarray) -> np.ndarray:
        """[n] the traces for [r, n] numbers of each row: totals, or a frequency of the transforms."""
        product = None
        for block in self.blocks:
            values = block.cells.of(table)
            matrices = block.kernel * (values if values.ndim == 3 else values[:, None, :])
            power = _power(matrices, block.times)
            product = power if product is None else product @ power
        assert product is not None
        return np.asarray(self.factor * np.einsum("nii->n", product))


def _power(matrices: np.ndarray, exponent: int) -> np.ndarray:
    """Powers of matrices, from the highest digit of the exponent down."""
    result = matrices
    for digit in bin(exponent)[3:]:
        result = result @ result
        if digit == "1":
            result = result @ matrices
    return result


class _Passes(NamedTuple):
    """The terms on a line, given values of the normals in a row: one pass of matrices for each term.

    Attributes:
        rows: laws of a term for all scales. mass: [n] of the values of a normal. cells: of [n^(k - 2), n, n] the inner
            normals of a term, its first and its last one.
    """

    rows: Rows
    mass: Array
    cells: _Cells
    terms: int

    @property
    def nodes(self) -> int:
        """Values of a normal."""
        return self.mass.size

    @property
    def work(self) -> float:
        """Products for a frequency."""
        return float((self.terms + GATHERED) * self.cells.row.size)

    def whole(self, table: np.ndarray) -> np.ndarray:
        """[n] the sums for [r, n] numbers of each row: totals, or a frequency of the transforms."""
        chunk = max(MAX_VALUES // self.cells.row.size, 1)
        return np.concatenate([self._some(table[:, at : at + chunk]) for at in range(0, table.shape[1], chunk)])

    def _some(self, table: np.ndarray) -> np.ndarray:
        values = np.ascontiguousarray(self.cells.of(table)) * self.mass
        inner, size = self.cells.row.shape[:2]
        count = round(math.log(self.cells.row.size) / math.log(size))
        first = reduce(np.multiply.outer, [self.mass] * (count - 1))
        state = np.broadcast_to(first, (len(values), *first.shape))
        for _ in range(self.terms):
            # the first normal leaves, and the second becomes the first, which comes last
            state = (state.reshape(-1, inner, 1, size) @ values).reshape(-1, *[size] * (count - 1))
            state = np.moveaxis(state, 1, -1)
        return np.asarray(state.reshape(len(values), -1).sum(axis=1))


_Step = _Trace | _Passes


class Added(NamedTuple):
    """A variable that is added to a sum, of mean 0 and without frequencies from some one on.

    Attributes:
        spectrum, first: [f] transforms of its masses, and of its values times them (in places).
        rest: a bound of the sum over the places of what the second lacks. far: its farthest value, in places, but for a
            mass of ``beyond``.
    """

    spectrum: Array
    first: np.ndarray
    rest: float
    far: int
    beyond: float


def added_variable(size: int, count: int, beyond: float) -> Added:
    """The square of a sum of ``count`` frequencies with the weights cos^3, on a circle of ``size`` places."""
    if count > size // 2:
        return Added(np.ones(size // 2 + 1), np.zeros(size // 2 + 1), 0.0, 0, 0.0)
    weights = np.cos(np.pi * (np.arange(count) - (count - 1) / 2) / count) ** TAPER
    spectrum = np.correlate(weights, weights, "full")[count - 1 :]
    spectrum /= spectrum[0]
    masses = np.maximum(np.fft.irfft(np.append(spectrum, np.zeros(size // 2 + 1 - count)), size), 0.0)
    places = np.arange(size)
    values = np.where(2 * places > size, places - size, np.where(2 * places < size, places, 0))
    first = np.fft.rfft(values * masses)
    tails = np.cumsum((masses[: size // 2] + masses[:0:-1][: size // 2])[::-1])[::-1]
    far = min(int(np.searchsorted(-tails, -beyond)) + 1, size // 2)
    rest = math.sqrt(2 * float((np.abs(first[count:]) ** 2).sum())) * 2 + size * UNIT_ROUNDOFF
    return Added(spectrum, first[:count], rest, far, float(tails[min(far, size // 2 - 1)]) + size * UNIT_ROUNDOFF)


class _Masses(NamedTuple):
    """Masses of a sum and a small variable on a circle, for several factors of the terms: [w, size], with errors.

    Attributes:
        values: the masses. moved: [size] the mean of the small variable at each place, times the mass.
        error: of each, a bound of the sum over the places of errors times the larger of 1 and the place.
        far: how far below 0 the places from the last on lie.
    """

    grid: Grid
    values: Array
    moved: Array
    error: Array
    far: int


def _masses(step: _Step, offsets: list[Array], grid: Grid, least: float, width: float, work: float) -> _Masses | None:
    """The masses for w exponents of factors of the terms, [r, m] each.

    Args:
        least: what may lie beyond a grid. width: of the circle over the number of frequencies, at best. work: products
            that each may take.
    Returns:
        The masses; None where more lies beyond all grids.
    """
    masses = [step.rows.masses * np.exp(offset) for offset in offsets]
    tilts = np.geomspace(1.0, MAX_TILT, TILTS) / (grid.step * grid.reach)
    growth = np.exp(np.outer(grid.places[: step.rows.masses.shape[1]], tilts))
    with np.errstate(over="ignore", invalid="ignore"):
        totals = np.stack([step.whole(each @ growth) for each in masses])
    usable = np.isfinite(totals).all(axis=0)
    tilts, totals = tilts[usable], totals[:, usable] * (1 + 1e-9)
    while True:
        wanted = FINER * math.ceil(grid.step * grid.size / width)
        count = min(max(int(work / step.work), 1), wanted, grid.size // 2 + 1)
        added = added_variable(grid.size, count, least / grid.size)
        # what lies below it is neither beyond the circle nor among the places below 0 with what is added
        top = grid.step * (grid.size - 2 * added.far)
        far = tilts * top >= 1
        rest = (totals[:, far] * np.exp(-tilts[far] * top)).min(axis=1) * top if far.any() else np.array([math.inf])
        if rest.max() <= least:
            break
        # powers of two, and three times these
        size = grid.size * 3 // 2 if grid.size & (grid.size - 1) == 0 else grid.size // 3 * 4
        if size > min(MAX_PLACES, MAX_TABLE / 2 / len(step.rows.logs)):
            return None
        grid = grid._replace(size=size)
    # the sum over places of v |e_v| is at most the norm of v times that of e
    norm, circle = float(np.linalg.norm(np.maximum(grid.places, 1.0))), grid.step * grid.size
    padding = np.zeros(grid.size // 2 + 1 - added.spectrum.size)
    values, errors, moved = np.zeros((len(masses), grid.size)), [], np.zeros(grid.size)
    for index, (each, beyond) in enumerate(zip(masses, rest, strict=True)):
        spectrum, missed = _spectrum(step, each, grid, added.spectrum.size)
        values[index] = np.fft.irfft(np.append(spectrum * added.spectrum, padding), grid.size)
        if index == 0:
            moved = np.fft.irfft(np.append(spectrum * added.first, padding), grid.size)
        # a sum beyond the top may be taken for any place
        errors.append((1 + circle / top) * float(beyond) + norm * missed + 2 * circle * added.beyond)
    # the sum of errors of the mean of what is added is at most that of the errors of masses times places
    errors[0] = 2 * errors[0] + grid.step * added.rest
    return _Masses(grid, values, grid.step * moved, np.array(errors), added.far)


def _spectrum(step: _Step, masses: Array, grid: Grid, count: int) -> tuple[np.ndarray, float]:
    """The first frequencies of the transform, and the norm of the error of the masses that come from them."""
    table, sums, _ = transformed(masses, 0.0, grid)
    # of each frequency, not in the norm of all: the sizes of the others weigh frequencies unequally
    missed = ENTRY_ROUNDINGS * UNIT_ROUNDOFF * math.log2(grid.size)
    stops = sorted({0, *(count // part for part in PARTS)})
    blocks = np.stack([np.abs(table[:, stop:]).max(axis=1) for stop in stops[:-1]], axis=1)
    # the product of all terms but one is at most that of all where none is below a half, times two
    sizes = step.whole(np.maximum(blocks + missed * sums[:, None], sums[:, None] / 2))
    chunks = [step.whole(table[:, start : min(start + CHUNK, count)]) for start in range(0, count, CHUNK)]
    spectrum = np.concatenate(chunks)
    # of the products, and of the spectrum of what is added
    relative = 2 * step.terms * missed + (4 * (step.terms + 2) * (step.nodes + 8) + 2 * count) * UNIT_ROUNDOFF
    squares = 2 * float(np.diff(stops) @ (relative * sizes) ** 2)
    whole = math.sqrt(2) * float(np.linalg.norm(spectrum))
    return spectrum, (math.sqrt(squares) + layers(grid) * whole) / math.sqrt(grid.size) * (1 + 1e-9)


def chain_law(chain: Chain, bins: int, sign: int, delta: float) -> Law | None:
    """The law above (1) or below (-1) the mean of the terms without the common factor.

    Args:
        bins: the number of terms, of which those that the chain lacks are 1 below, and left out above. delta: where
            the law is to be narrow.
    Returns:
        The law; None where it takes too much work, or delta is too small for the rounding of its transforms.
    """
    attempts = (_summed(chain, bins, sign, delta, spread) for spread in SPREADS)
    summed = next((each for each in attempts if each is not None), None)
    if summed is None or summed.masses.error[0] > MOST_SHARE * delta:
        return None
    masses, terms = summed.masses, len(chain.matrix)
    count = masses.grid.size - masses.far
    places, mass = masses.grid.places[:count], np.maximum(masses.values[0], 0.0)
    if sign < 0:
        # e^x - 1 is at least x
        rounding = terms * offset_rounding(chain.specific, summed.reach, masses.grid)
        low, high = (masses.values[1:] - masses.values[0]) / summed.rate + rounding * mass
        low, high = (low + masses.moved)[:count], (high - masses.moved)[:count]
        wrong = 3 * summed.error + masses.error[0] + float(masses.error.sum()) / summed.rate
        return completed(mass[:count] * (1 - 1e-12), low, high, places + (bins - terms) / bins, wrong)
    missing = summed.omitted + summed.error + float(masses.error[0])
    # the places below 0, and all up to a first one, move to 0: no put grows by more than this
    under, first = mass[count:], int(np.searchsorted(np.cumsum(mass[1:count]), LEAST_SHARE * delta)) + 1
    lower = float(under @ np.arange(masses.far, 0, -1)) / first
    at_zero, lost = float(under.sum() + mass[:first].sum()) + lower, float(mass[:first] @ places[:first])
    return Law(places[first:], mass[first:count] * (1 + 1e-12), missing + lost, missing + at_zero)


class _Summed(NamedTuple):
    """The masses of the terms of a chain.

    Attributes:
        rate: exponent of what places are off by in the second and third masses. reach: places of a term.
        error: of the rule for the normals. omitted: of the mean.
    """

    masses: _Masses
    rate: float
    reach: int
    error: float
    omitted: float


def _summed(chain: Chain, bins: int, sign: int, delta: float, spread: float) -> _Summed | None:
    """The masses of the terms of a chain on a grid that adds so much variance to each; None for too much work."""
    terms, total = len(chain.matrix), float(np.diagonal(chain.matrix).max()) - chain.common
    if sign > 0:
        # the mean over all bins is that over classes of so many (Theorem 9)
        bins = terms
    shape = Factored(
        chain.common, np.full((bins, 1), math.sqrt(max(total - chain.specific, 0.0))), np.full(bins, chain.specific)
    )
    grid = grid_of(shape, delta, spread)
    if grid is None:
        return None
    width = WIDTH * math.sqrt(float(np.expm1(chain.matrix - chain.common).mean()))
    if isinstance(chain, Ring):
        built = _markov(chain, bins, sign, delta, grid)
    else:
        built = _average(chain, bins, sign, delta, grid, LONGER * grid.step * grid.size / width)
    if built is None:
        return None
    step, error, omitted = built
    off = step.rows.off
    usual = int(np.argmin(np.abs(step.rows.logs)))
    rate = OFFSET_EXPONENT / max(terms * float(np.abs(off[usual]).max()), 1e-300)
    offsets = [np.zeros((1, 1)), -rate * off, rate * off][: 1 if sign > 0 else 3]
    work = (RING_WORK if isinstance(step, _Trace) else LINE_WORK)[sign]
    masses = _masses(step, offsets, grid, LEAST_SHARE * delta, width, work)
    return None if masses is None else _Summed(masses, rate, off.shape[1], error, omitted)


Built = tuple[_Step, float, float]


def _markov(ring: Ring, bins: int, sign: int, delta: float, grid: Grid) -> Built | None:
    """The step of a Markov chain on a ring, the error of the rule for its normals and what its nodes omit."""
    decay, load, specific = ring.decay, math.sqrt(ring.variance), ring.specific
    largest = max(factor for factor, _ in ring.runs)
    square = (1 + ring.returning) / (1 - ring.returning)
    ratio, error = rule(bins, RULE_SHARE * delta, halved=False)
    spacing = math.sqrt(ratio / ((1 + decay**2) / (1 - decay**2) + largest**2 * ring.variance / specific))
    farthest = math.sqrt(-2 * math.log(CUT_SHARE * delta / bins))
    low, high = (math.ceil((farthest * math.sqrt(square) + move) / spacing) for move in (0.0, largest * load * square))
    if low + high + 1 > MAX_NODES:
        return None
    y: Array = spacing * np.arange(-low, high + 1, dtype=float)
    inner, outer = ((nodes - 1) * spacing / math.sqrt(square) for nodes in (low, high))
    omitted = 4 * bins * float(ndtr(-inner) + ndtr(largest * load * math.sqrt(square) - outer))
    # what a term exceeds the grid by
    total = largest**2 * ring.variance * square + ring.specific
    omitted += float(ndtr((total / 2 - math.log(grid.step * grid.reach * bins)) / math.sqrt(total))) + 1e-30
    logs = [factor * load * y - factor**2 * ring.variance * square / 2 for factor, _ in ring.runs]
    rows = _rows(np.concatenate(logs), specific, bins, sign, grid, delta)
    if len(rows.logs) * grid.size > MAX_TABLE:
        return None
    inside, closing = (_normal_kernel(y, each) * spacing for each in (decay, ring.link))
    blocks = []
    for index, (_, count) in enumerate(ring.runs):
        cells = _Cells(index * y.size + np.arange(y.size), np.zeros(y.size))
        if index == 0:
            blocks.append(_Block(closing, cells, 1))
            count -= 1
        blocks += [_Block(inside, cells, count)] * (count > 0)
    return _Trace(rows, tuple(blocks), 1 - ring.returning), error * (1 + 2 * error), omitted


def _normal_kernel(y: Array, decay: float) -> Array:
    """[m, m] the density of the next normal, at y, given one."""
    variance = 1 - decay**2
    return np.asarray(np.exp(-((y - decay * y[:, None]) ** 2) / (2 * variance)) / math.sqrt(2 * math.pi * variance))


def _rows(logs: Array, specific: float, bins: int, sign: int, grid: Grid, delta: float) -> Rows:
    return (
        rows_above(logs, specific, bins, grid)
        if sign > 0
        else rows_below(logs, specific, bins, grid, RARE_SHARE * delta / bins)
    )


def _average(chain: Line | Pairs, bins: int, sign: int, delta: float, grid: Grid, frequencies: float) -> Built | None:
    """The step of a moving average of normals with few values, its error and what it omits of the mean."""
    terms, specific = len(chain.matrix), chain.specific
    lattice = min(LATTICES[sign], LATTICE_SHARE * math.sqrt(specific))
    specific -= lattice_variance(lattice) if sign < 0 else 0.0
    if isinstance(chain, Pairs):
        loads, normals = np.array([chain.load, chain.share * chain.load]), 2
        matrices = RING_WORK[sign] / (frequencies * 2 * terms.bit_length())
        count = min(int(matrices ** (1 / 3)), MOST_VALUES["pairs"])
    else:
        loads, normals = np.array(chain.loads), len(chain.loads)
        count = min(int((LINE_WORK[sign] / ((terms + GATHERED) * frequencies)) ** (1 / normals)), MOST_VALUES["line"])
    if count < LEAST_VALUES or specific <= chain.specific / 2 or (loads.min() < LEAST_LOAD and sign > 0):
        return None
    # where a single term is as large as matters, all of its normals are about as large
    deep = math.sqrt(2 * math.log(bins / delta) / normals)
    values = values_above(loads, count, deep, LOST_SHARE * delta) if sign > 0 else values_below(loads, count, deep)
    if isinstance(chain, Pairs):
        scales = [np.multiply.outer(values.factors[0], each) for each in values.factors]
        counts = [terms - 1, 1]
    else:
        scales, counts = [reduce(np.multiply.outer, values.factors)], [terms]
    built = _scaled(
        scales, counts, values, lattice, sign, grid, lambda logs: _rows(logs, specific, bins, sign, grid, delta)
    )
    if built is None:
        return None
    rows, cells, omitted = built
    omitted += len(loads) * 1e-13 + values.lost
    if isinstance(chain, Pairs):
        kernel = np.broadcast_to(values.mass, (count, count))
        blocks = (_Block(kernel, cells[0], terms - 1), _Block(kernel, cells[1], 1))
        return _Trace(rows, blocks, 1.0), 1e-12, omitted
    # the first normal of a term beside the last
    placed = (np.moveaxis(each, 0, -2).reshape(-1, count, count) for each in cells[0])
    return _Passes(rows, values.mass, _Cells(*map(np.ascontiguousarray, placed)), terms), 1e-12, omitted


def _scaled(
    scales: list[Array], counts: list[int], values: Values, lattice: float, sign: int, grid: Grid,
    make: Callable[[Array], Rows],
) -> tuple[Rows, list[_Cells], float] | None:  # fmt: skip
    """The rows of terms on a lattice of their scales, where each scale lies, and the mean that terms above lose.

    None where the rows are too many. ``counts``: how many terms have each array of scales. Above, terms of very small
    scales move to zero, a first row.
    """
    whole = np.concatenate([each.ravel() for each in scales])
    smallest = LEAST_SCALE if sign > 0 else 0.0
    least, largest = (math.log(float(choose(whole[whole > smallest]))) for choose in (np.min, np.max))
    if not 0 <= (largest - least + 2 * lattice) * grid.size <= lattice * MAX_TABLE / 4:
        return None
    logs = np.asarray(np.arange(least, largest + 2 * lattice, lattice), dtype=float)
    rows, cells, omitted = make(logs), [], 0.0
    for each, count in zip(scales, counts, strict=True):
        kept = each > smallest
        offsets = (np.log(np.where(kept, each, math.exp(least))) - least) / lattice
        index = np.clip(np.floor(offsets).astype(int), 0, logs.size - 2)
        share = np.clip(np.expm1(lattice * (offsets - index)) / math.expm1(lattice), 0.0, 1.0)
        if sign > 0:
            # a term that is moved to zero loses its mean
            beyond = rows.beyond[index] * (1 - share) + rows.beyond[index + 1] * share
            lost = np.where(kept, sum(counts) * beyond, each)
            masses = reduce(np.multiply.outer, [values.mass] * each.ndim)
            omitted += count / sum(counts) * float((masses * lost).sum()) * (1 + 1e-9)
            index, share = np.where(kept, index + 1, 0), np.where(kept, share, 0.0)
        cells.append(_Cells(index, share))
    if sign > 0:
        zero = np.eye(1, rows.masses.shape[1])
        rows = Rows(*(np.concatenate([each[:1] if k != 1 else zero, each]) for k, each in enumerate(rows)))
    return rows, cells, omitted
