"""Sums of correlated lognormal variables between two discrete ones, given the normals of a few factors.

Given the normals of its factors a sum has independent lognormal terms of different scales. Normals are divided between
nodes (above) or put at the means of cells (below); terms between, or to the nearest of, the places of a grid. The laws
of the terms are transformed once for a lattice of scales, multiplied for every node and averaged over the nodes.
docs/theory/balls-in-bins.md, Theorems 3 to 6, has the proofs.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import NamedTuple

import numpy as np
from scipy.special import ndtr

from wpriv.numerics.arrays import Array, mass_between
from wpriv.numerics.sums import UNIT_ROUNDOFF

# shares of delta for nodes that are left out, and for the error of the rule between them
CUT_SHARE, RULE_SHARE = 0.006, 0.006
# the number of factors from which on every second node is enough
HALVED = 4
# length of a scale's logarithm on its lattice, above and below
LATTICES = {1: 0.03, -1: 0.02}
# roundings of a price, and of an FFT in each of its log2(size) layers: in the norm of a vector, and of one entry
PRICE_ROUNDINGS, FFT_ROUNDINGS, ENTRY_ROUNDINGS = 64, 18, 8
# of the mean of a place k, relative to k^2 places: masses around a cell are k times as large as its own
OFFSET_ROUNDINGS = 64
# variance that a grid adds to a term, relative to that of its logarithm, above and below, where a larger one is tried
# if there are too many nodes; deviations of a term on it
TERM_SPREADS, TERM_DEVIATIONS = {1: (0.008,), -1: (0.002, 0.004)}, 12.0
# most places of a grid, and most numbers in all tables
MAX_PLACES, MAX_TABLE = 1 << 17, 1 << 25
# tilts that are tried in each direction, the largest exponent of one at a place of a term, and share beyond the grid
TILTS, MAX_TILT, MAX_WRAPPED = 30, 300.0, 1e-10
# parts of the frequencies that may be enough for a node, where all others are negligible
PARTS, NEGLIGIBLE = (16, 8, 4, 2, 1), 1e-16
# nodes that are multiplied at once; masses of a term below this share of delta are left out below
CHUNK, RARE_SHARE = 32, 1e-5
# largest exponent of a tilt that is taken back
MAX_EXPONENT = 600.0
# nanoseconds of a usual processor for a place of a term at a node, with all tilts
PLACE_WORK = 4.0


class Factored(NamedTuple):
    """The covariance ``common`` + loads loads' + diag(specific) of the logarithms of lognormal terms of mean 1.

    Attributes:
        common: variance of a factor of all terms. loads: [b, k] of k further factors. specific: [b] variances of the
            independent rest, as in factor analysis.
    """

    common: float
    loads: Array
    specific: Array

    @property
    def matrix(self) -> Array:
        """[b, b] the covariance."""
        return np.asarray(self.common + self.loads @ self.loads.T + np.diag(self.specific))


class Nodes(NamedTuple):
    """Scales of the terms at nodes of the factors: [n, b] logarithms, with their masses.

    ``omitted``: mass, and share of the mean, that the nodes lack; ``error``: what the rule may be off by in either.
    """

    logs: Array
    mass: Array
    omitted: float
    error: float


def nodes_of(covariance: Factored, delta: float, most: float) -> Nodes | None:
    """The nodes of a trapezoid rule for the factors, exact up to a small share of delta (Theorem 3).

    From four factors on every second node is enough. None if there are more than ``most``.
    """
    known = (covariance.loads.T / covariance.specific) @ covariance.loads
    information, turn = np.linalg.eigh(known)
    loads, factors = (covariance.loads @ turn)[:, ::-1], len(information)
    ratio, error = rule(factors, RULE_SHARE * delta, halved=factors >= HALVED)
    spacings = np.sqrt(ratio / (1 + np.maximum(information[::-1], 0) * (1 + 1e-9) + 1e-12))
    logs, mass, parity, omitted = np.zeros((1, len(loads))), np.ones(1), np.zeros(1, dtype=int), 0.0
    for load, spacing in zip(loads.T, spacings.tolist(), strict=True):
        largest = float(np.abs(load).max())
        count = math.ceil((math.sqrt(-2 * math.log(CUT_SHARE * delta)) + largest) / spacing)
        places = np.arange(-count, count + 1)
        z = spacing * places
        omitted += 3 * (ndtr(largest - z[-1]) + ndtr(-z[-1]))
        logs = (logs[:, None, :] + np.outer(z, load) - load**2 / 2).reshape(-1, len(loads))
        weights = spacing / math.sqrt(2 * math.pi) * np.exp(-z * z / 2)
        mass, parity = np.multiply.outer(mass, weights).ravel(), np.add.outer(parity, places).ravel() % 2
        share = mass * np.maximum(np.exp(logs).mean(axis=1), 1.0)
        order = np.argsort(share)
        dropped = int(np.searchsorted(np.cumsum(share[order]), CUT_SHARE * delta / 2))
        omitted += 2 * float(share[order[:dropped]].sum()) * (1 + 1e-9)
        logs, mass, parity = (each[order[dropped:]] for each in (logs, mass, parity))
        if mass.size > 2 * most:
            return None
    if factors >= HALVED:
        logs, mass = logs[parity == 0], 2 * mass[parity == 0]
    return Nodes(logs, mass, omitted * (1 + 2 * error), error * (1 + 2 * error)) if mass.size <= most else None


def rule(factors: int, accuracy: float, halved: bool = False) -> tuple[float, float]:
    """The square of the spacing of a rule times the precision of a normal, and a bound of the error of the rule."""
    q = accuracy / (2 * factors + (16 if halved else 0) + 1)
    whole, half = 1 + 2 * q / (1 - q), 2 * q**0.25 / (1 - q**2)
    error = math.expm1(factors * math.log(whole)) + (half**factors if halved else 0.0)
    return -2 * math.pi**2 / math.log(q), (error if factors else 0.0) * (1 + 1e-9)


def normal_masses(edges: Array) -> Array:
    """Normal masses between neighbours along the first axis."""
    above, below = ndtr(-edges), ndtr(edges)
    return mass_between(above[:-1], below[:-1], above[1:], below[1:])


class Grid(NamedTuple):
    """Where the mean of the terms lies: ``size`` places from 0 on, of which a single term reaches ``reach``."""

    step: float
    size: int
    reach: int

    @property
    def places(self) -> Array:
        """[size] the values."""
        return np.asarray(self.step * np.arange(self.size))


def grid_of(covariance: Factored, delta: float, spread: float) -> Grid | None:
    """A grid for terms of the scale 1 / b that keeps masses of about delta; None where it is too large."""
    bins, variances = len(covariance.specific), (covariance.loads**2).sum(axis=1)
    total = float((covariance.specific + variances).max())
    step = math.sqrt(6 * spread * float((covariance.specific + variances / 2).mean())) / bins
    # the log of a single term above which its share of the mean is far below delta
    deviations = math.sqrt(-2 * math.log(delta)) + 0.6
    reach = max(math.exp(min(deviations * math.sqrt(total) + total / 2, 300.0)) / bins, 2.0)
    power = 1 << max(math.ceil(math.log2((1.5 * reach + 2) / step)), 8)
    size = 3 * power // 4 if 3 * power // 4 * step >= 1.5 * reach + 2 else power
    return Grid(step, size, math.ceil(reach / step)) if size <= MAX_PLACES else None


class Rows(NamedTuple):
    """Masses of a lognormal term for several scales, and what each lacks.

    Attributes:
        logs: [r] logarithms of the scales, increasing. masses: [r, m] at the places of a grid.
        beyond: [r] mean beyond the grid, above. low, high: [r] how far the mean of a place may lie below it and above
            it, below. off: [r, m] by how much the mean of each place exceeds it, below.
    """

    logs: Array
    masses: Array
    beyond: Array
    low: Array
    high: Array
    off: Array


def rows_above(logs: Array, specific: float, bins: int, grid: Grid) -> Rows:
    """Terms that are divided between the two places around them."""
    masses, beyond = _term_masses(np.exp(logs) * (1 + 1e-13), specific, bins, grid.step, grid.reach)
    return Rows(logs, masses, beyond, np.zeros(len(logs)), np.zeros(len(logs)), np.zeros((len(logs), 1)))


def rows_below(logs: Array, specific: float, bins: int, grid: Grid, rare: float) -> Rows:
    """Terms that are put to the place nearest to them, and left out where they are rare."""
    deviation, means_of = math.sqrt(specific), np.exp(logs - math.log(bins))
    largest = float(means_of.max()) * math.exp(TERM_DEVIATIONS * deviation + specific / 2)
    places = np.arange(min(grid.reach, max(math.ceil(largest / grid.step), 4)) + 1)
    edges = np.log(grid.step * np.maximum(np.append(places, places[-1] + 1) - 0.5, 1e-300))[:, None]
    edges[0] = -np.inf
    upper = (edges - np.log(means_of)) / deviation + deviation / 2
    masses = normal_masses(upper).T
    means = normal_masses(upper - deviation).T * means_of[:, None]
    kept = (masses + bins * means > rare) & (masses > 1e-290)
    masses = np.where(kept, masses, 0.0)
    off = np.where(kept, means / np.where(kept, masses, 1.0) - grid.step * places, 0.0)
    rounding = offset_rounding(specific, len(places), grid)
    low, high = (np.maximum((sign * off).max(axis=1), 0) + rounding for sign in (-1, 1))
    return Rows(logs, masses, np.zeros(len(logs)), low, high, off)


def offset_rounding(specific: float, count: int, grid: Grid) -> float:
    """A bound of the rounding of the means of a term at so many places."""
    return OFFSET_ROUNDINGS * UNIT_ROUNDOFF * (1 + math.sqrt(specific)) * count**2 * grid.step


def lattice_variance(lattice: float) -> float:
    """A variance whose lognormal of mean 1 is above every variable of mean 1 between two scales of a lattice."""
    # Lemma 4: 2 Phi(x) - 1 >= Phi(x) (e^lattice - 1) for x = half a deviation
    return (1.4 * math.expm1(lattice)) ** 2


def _term_masses(scales: Array, specific: float, bins: int, step: float, reach: int) -> tuple[Array, Array]:
    """[b, m] masses above those of lognormal terms of mean scale / bins, divided between the places of a grid.

    The masses are second differences of the prices of calls, or of puts below the mean of a term, with the rounding of
    prices added. What lies beyond the last place moves down to it; also [b] the mean that is lost by this.
    """
    deviation = math.sqrt(specific)
    largest = float(scales.max()) * math.exp(TERM_DEVIATIONS * deviation + specific / 2) / bins
    count = min(reach, max(math.ceil(largest / step), 4))
    strikes = step * np.arange(1, count + 1)
    mean = scales[:, None] / bins
    upper = (np.log(mean / strikes) + specific / 2) / deviation
    sign = np.where(strikes < mean, -1.0, 1.0)
    of_mean, of_strike = mean * ndtr(sign * upper), strikes * ndtr(sign * (upper - deviation))
    prices = np.concatenate([np.zeros_like(mean), sign * (of_mean - of_strike)], axis=1)
    errors = PRICE_ROUNDINGS * UNIT_ROUNDOFF * (1 + upper**2) * (of_mean + of_strike)
    errors = np.concatenate([np.zeros_like(mean), errors], axis=1)
    # at the first strike above the mean the put below it becomes a call, and the call a put of the strike below
    ks = np.concatenate([np.zeros((1, 1)), strikes[None, :]], axis=1)
    calls = np.concatenate([np.zeros_like(mean, dtype=bool), strikes >= mean], axis=1)
    left = np.where(calls[:, 1:-1] & ~calls[:, :-2], prices[:, :-2] + mean - ks[:, :-2], prices[:, :-2])
    right = np.where(~calls[:, 1:-1] & calls[:, 2:], prices[:, 2:] - mean + ks[:, 2:], prices[:, 2:])
    inner = left - 2 * prices[:, 1:-1] + right
    inner += (
        errors[:, :-2]
        + 2 * errors[:, 1:-1]
        + errors[:, 2:]
        + 4 * UNIT_ROUNDOFF * ((calls[:, 2:] != calls[:, :-2]) * mean)
    )
    first = np.where(calls[:, 1:2], prices[:, 1:2] - mean + ks[:, 1:2], prices[:, 1:2]) + errors[:, 1:2]
    first = first + 4 * UNIT_ROUNDOFF * mean * calls[:, 1:2]
    far = np.where(calls[:, -2:], prices[:, -2:], prices[:, -2:] + mean - ks[:, -2:])
    beyond = far[:, 1] + errors[:, -1]
    last = far[:, :1] - far[:, 1:] + errors[:, -2:-1] + errors[:, -1:] + 4 * UNIT_ROUNDOFF * ~calls[:, -2:-1] * mean
    masses = np.maximum(np.concatenate([first, inner, last], axis=1) / step, 0.0) * (1 + 8 * UNIT_ROUNDOFF)
    return masses, np.maximum(beyond, 0.0)


class Masses(NamedTuple):
    """Bounds of the mass of a sum at each place, for several weights of its nodes.

    Attributes:
        above, below: [w, size] the bounds. rest: [w] bound of the mass beyond the grid, times its place.
    """

    above: Array
    below: Array
    rest: Array


def bounded(logs: Array, weights: Array, rows: list[Rows], lattice: float, grid: Grid, ends: Array) -> Masses:
    """Bound the masses of sum_n weights[w, n] (law of the sum at node n), best at the places ``ends``.

    Args:
        logs: [n, b] logarithms of the scales. weights: [w, n] not negative.
        rows: for each term its masses on a lattice of scales.
    """
    index, share = on_lattice(logs, rows, lattice)
    places, top = grid.places, grid.step * grid.size
    tilts = np.geomspace(0.1, MAX_TILT / (grid.step * grid.reach), TILTS)
    tilts = np.concatenate([-np.geomspace(0.1, 20.0 * len(rows), TILTS)[::-1], tilts])
    with np.errstate(over="ignore", invalid="ignore"):
        totals = weights @ _moments(index, share, rows, tilts, grid) * (1 + 1e-9)
    finite = np.isfinite(totals).all(axis=0)
    tilts, totals = tilts[finite], totals[:, finite]
    above, below = np.full((len(totals), grid.size), np.inf), np.zeros((len(totals), grid.size))
    # what lies beyond the grid is wrapped around, and bounded by a larger tilt
    wrapped = np.stack(
        [(totals[:, k:] * np.exp((tilts[k] - tilts[k:]) * top)).min(axis=1) for k in range(tilts.size)], axis=1
    )
    usable = wrapped[0] <= MAX_WRAPPED * totals[0]
    for choice in {int(np.argmin(np.where(usable, np.log(totals[0]) - tilts * end, np.inf))) for end in ends}:
        tilt, total = float(tilts[choice]), totals[:, choice, None]
        spectra, error = _spectra(index, share, weights, rows, tilt, grid)
        tilted = np.fft.irfft(spectra, grid.size, axis=1)
        back = -tilt * places
        within, back = np.abs(back) < MAX_EXPONENT, np.exp(np.clip(back, -MAX_EXPONENT, MAX_EXPONENT))
        highest = (np.maximum(tilted, 0) + error * total) * back
        lowest = (tilted - error * total - wrapped[:, choice, None]) * back
        above[:, within] = np.minimum(above, highest * (1 + 1e-11))[:, within]
        below[:, within] = np.maximum(below, lowest * (1 - 1e-11))[:, within]
    far = tilts * top >= 1
    rest = (totals[:, far] * np.exp(-tilts[far] * top)).min(axis=1) * top if far.any() else np.full(len(totals), np.inf)
    return Masses(above, below, rest)


def _moments(index: Array, share: Array, rows: list[Rows], tilts: Array, grid: Grid) -> Array:
    """[n, t] the whole masses of the sum at each node, where e^(tilt x place) multiplies each mass."""
    moments = np.ones((len(index), tilts.size))
    for term, row in enumerate(rows):
        table = row.masses @ np.exp(np.outer(grid.places[: row.masses.shape[1]], tilts))
        at = index[:, term]
        moments *= table[at] + share[:, term, None] * (table[at + 1] - table[at])
    return moments


def transformed(masses: Array, tilt: float, grid: Grid) -> tuple[np.ndarray, Array, float]:
    """Transforms of rows of tilted masses, their totals, and the largest error of one over its total."""
    tilted = masses * np.exp(tilt * grid.places[: masses.shape[1]])
    totals = np.maximum(tilted.sum(axis=1), 1e-300)
    norm = float((np.sqrt(np.einsum("ij,ij->i", tilted, tilted)) / totals).max())
    return np.fft.rfft(tilted, grid.size, axis=1), totals, layers(grid) * norm


def layers(grid: Grid) -> float:
    """The error of an FFT of the grid relative to the norm of its result."""
    return FFT_ROUNDINGS * UNIT_ROUNDOFF * math.log2(grid.size)


def stops(grid: Grid) -> list[int]:
    """How many of the frequencies may be enough."""
    return [(grid.size // 2 + 1) // part for part in PARTS]


def on_lattice(logs: Array, rows: list[Rows], lattice: float) -> tuple[Array, Array]:
    """[n, b] the row below each scale, and its share of the row above, which keeps the mean."""
    offsets = (logs - np.array([row.logs[0] for row in rows])) / lattice
    most = np.array([len(row.masses) for row in rows]) - 2
    index = np.clip(np.floor(offsets).astype(int), 0, most)
    return index, np.clip(np.expm1(lattice * (offsets - index)) / math.expm1(lattice), 0.0, 1.0)


def _spectra(
    index: Array, share: Array, weights: Array, rows: list[Rows], tilt: float, grid: Grid
) -> tuple[np.ndarray, float]:
    """The transforms of tilted averages over the nodes, and their error over the total."""
    tables, logs, error = [], np.zeros((len(index), len(PARTS) - 1)), 0.0
    for term, row in enumerate(rows):
        table, totals, missed = transformed(row.masses, tilt, grid)
        # the largest size, over the total, of what is left out from each frequency on
        rest = np.stack([np.abs(table[:, stop:]).max(axis=1) for stop in stops(grid)[:-1]], axis=1) / totals[:, None]
        rest = np.log(np.maximum(rest, 1e-300))
        logs = logs + np.maximum(rest[index[:, term]], rest[index[:, term] + 1])
        error += missed
        tables.append(table)
    spectra = np.zeros((len(weights), grid.size // 2 + 1), dtype=complex)
    levels = (logs > math.log(NEGLIGIBLE)).sum(axis=1)
    for level, stop in enumerate(stops(grid)):
        some = np.flatnonzero(levels == level)
        narrow = [np.ascontiguousarray(table[:, :stop]) for table in tables] if some.size else []
        for chunk in np.split(some, range(CHUNK, some.size, CHUNK)):
            product = np.ones((chunk.size, stop), dtype=complex)
            for term, table in enumerate(narrow):
                at, part = index[chunk, term], share[chunk, term, None]
                values = table[at] * (1 - part)
                values += table[at + 1] * part
                product *= values
            spectra[:, :stop] += weights[:, chunk] @ product
    # sums of so many products, and of so many sums
    summands = CHUNK + len(PARTS) + len(index) / CHUNK
    return spectra, error + 2 * layers(grid) + (16 * len(rows) + 4 * summands) * UNIT_ROUNDOFF + NEGLIGIBLE


def ends_of(matrix: Array, common: float, eps: float) -> Array:
    """Places of the mean of the terms where the ratio, with the common factor, is about e^eps and e^-eps."""
    logarithm = math.log(float(np.exp(matrix - common).mean()))
    share = logarithm / (logarithm + common)
    return np.asarray(np.exp(eps * share * np.array([-1.0, 0.3, 1.0])))


class Law(NamedTuple):
    """The mean of the terms: masses at places, and what is lost of the mean and at zero."""

    values: Array
    mass: Array
    lost: float
    at_zero: float


def law_above(covariance: Factored, delta: float, eps: float, work: float) -> Law | None:
    """The law above the mean of the terms without the common factor.

    Args:
        delta, eps: where the law is to be narrow. work: nanoseconds of a usual processor that it may take.
    Returns:
        The law; None where it takes more.
    """
    bins, lattice, known = len(covariance.specific), LATTICES[1], _known(covariance, delta, 1, work)
    if known is None:
        return None
    grid, nodes = known
    rows = _rows(nodes.logs, covariance, lattice, grid, lambda logs, specific: rows_above(logs, specific, bins, grid))
    if rows is None:
        return None
    index, _ = on_lattice(nodes.logs, rows, lattice)
    beyond = sum(row.beyond[index[:, term] + 1] for term, row in enumerate(rows))
    ends = ends_of(covariance.matrix, covariance.common, eps)
    masses = bounded(nodes.logs, nodes.mass[None, :] * (1 + 1e-12), rows, lattice, grid, ends)
    missing = nodes.omitted + nodes.error + float(masses.rest[0])
    lost = float(nodes.mass @ beyond) * (1 + 1e-9) + missing
    return Law(grid.places[1:], masses.above[0, 1:], lost, missing + float(masses.above[0, 0]))


def law_below(covariance: Factored, delta: float, eps: float, work: float) -> Law | None:
    """A law of mean 1 below that of the mean of the terms in convex order, without the common factor.

    The arguments are those of ``law_above``.
    """
    bins, lattice, known = len(covariance.specific), LATTICES[-1], _known(covariance, delta, -1, work)
    if known is None or covariance.specific.min() <= 2 * lattice_variance(lattice):
        return None
    grid, nodes = known
    less, rare = lattice_variance(lattice), RARE_SHARE * delta
    rows = _rows(
        nodes.logs,
        covariance,
        lattice,
        grid,
        lambda logs, specific: rows_below(logs, specific - less, bins, grid, rare),
    )
    if rows is None:
        return None
    index, _ = on_lattice(nodes.logs, rows, lattice)
    low, high = (
        sum(np.maximum(part[at], part[at + 1]) for part, at in zip(parts, index.T, strict=True))
        for parts in ([row.low for row in rows], [row.high for row in rows])
    )
    weights = nodes.mass * (1 - 1e-12) * np.stack([np.ones(len(nodes.mass)), low, high])
    masses = bounded(nodes.logs, weights, rows, lattice, grid, ends_of(covariance.matrix, covariance.common, eps))
    return completed(masses.below[0] * (1 - 1e-12), masses.above[1], masses.above[2], grid.places, 3 * nodes.error)


def _known(covariance: Factored, delta: float, sign: int, work: float) -> tuple[Grid, Nodes] | None:
    """A grid for the terms, and the nodes of the factors, which may take so much work with it."""
    for spread in TERM_SPREADS[sign]:
        grid = grid_of(covariance, delta, spread)
        most = 0.0 if grid is None else work / (PLACE_WORK * len(covariance.specific) * grid.size)
        nodes = nodes_of(covariance, delta, most)
        if grid is not None and nodes is not None:
            return grid, nodes
    return None


def completed(mass: Array, low: Array, high: Array, places: Array, error: float) -> Law | None:
    """A law of mass and mean 1 whose calls and puts are below those of a known part of one, and by ``error`` more.

    ``low`` and ``high``: masses times what their mean may lack of the place, or exceed it by. Outcomes above the middle
    keep their lower value, those below their higher one. The farthest move to the place where the call, or the put, is
    ``error``, and those around the middle join with all that is missing; Theorem 6.
    """
    some = mass > 1e-290
    mass, values = mass[some], places[some]
    low, high = values - low[some] / mass, values + high[some] / mass
    middle, reach = int(np.searchsorted(low, 1.0)), 1
    tops, bottoms = _cut(low[middle:], mass[middle:], error), _cut(-high[:middle][::-1], mass[:middle][::-1], error)
    while reach < mass.size:
        above_values, above = tops[0][reach:], tops[1][reach:]
        below_values, below = -bottoms[0][reach:][::-1], bottoms[1][reach:][::-1]
        values, kept = np.concatenate([below_values, above_values]), np.concatenate([below, above])
        rest, mean = 1 - math.fsum(kept), 1 - math.fsum(kept * values)
        if rest > 0 and mean > 0 and np.all(below_values < mean / rest) and np.all(above_values > mean / rest):
            return Law(np.insert(values, below.size, mean / rest), np.insert(kept, below.size, rest), 0.0, 0.0)
        reach *= 2
    return None


def _cut(values: Array, mass: Array, error: float) -> tuple[Array, Array]:
    """Move the largest values to one place, by which the mean falls by ``error``; those below an earlier one go."""
    increasing = values >= np.maximum.accumulate(values)
    values, mass = values[increasing], mass[increasing]
    tail = np.cumsum(mass[::-1])[::-1]
    calls = np.append(np.cumsum((np.diff(values) * tail[1:])[::-1])[::-1], 0.0)
    last = int(np.searchsorted(-calls, -error))
    if last == 0 or last >= values.size:
        return values[:0], mass[:0]
    place = values[last] - (error - calls[last]) / tail[last]
    return np.append(values[:last], place), np.append(mass[:last], tail[last])


def _rows(
    logs: Array, covariance: Factored, lattice: float, grid: Grid, make: Callable[[Array, float], Rows]
) -> list[Rows] | None:
    """The rows of each term for the scales at all nodes; None where they are too many."""
    least, most = logs.min(axis=0), logs.max(axis=0)
    counts = [max(math.ceil((high - low) / lattice + 1e-6), 1) + 1 for low, high in zip(least, most, strict=True)]
    if sum(counts) * grid.size > MAX_TABLE:
        return None
    lattices = (float(low) + lattice * np.arange(count) for low, count in zip(least, counts, strict=True))
    return [make(scales, float(specific)) for scales, specific in zip(lattices, covariance.specific, strict=True)]
