"""The pair of correlated Gaussian noise with balls in bins, between two that convex order proves.

A record lies in one of b bins, drawn uniformly for the whole training, and moves the rows by m_i if that is bin i. The
density ratio is the mean of b lognormal variables whose logarithms have the covariance G_ij = <m_i, m_j> / sigma^2. It
grows in convex order with every entry of G, and with G in the order of positive semidefinite matrices. So it is
enclosed by ratios of other covariances: a common factor times a mean of terms that are independent, given the normals
of a few waves over the bins. docs/theory/balls-in-bins.md has the proofs.
"""

from __future__ import annotations

import math
from functools import lru_cache
from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike
from scipy.optimize import linprog
from scipy.special import ndtr

from wpriv.accounting.mechanisms.gauss import GaussPair
from wpriv.core.allocation_pair import (
    MAX_LOSS,
    PassRatio,
    allocated,
    dominated_pair,
    dominating_pairs,
    loss_range,
    pass_ratio,
    single_ratio,
)
from wpriv.core.guarantee import epsilon_ends
from wpriv.core.loss_pair import KeyedPair, LossPair, Tails, log_profile_ends
from wpriv.numerics import counted_work
from wpriv.numerics.arrays import Array
from wpriv.numerics.sums import NODE_ROUNDINGS, SIZE_ROUNDINGS, UNIT_ROUNDOFF, Cells

# shifts of the logarithms whose weights of the entries choose among covariances, in units of the row of a bin
SHIFTS = (0.0, 1.0, 2.0, 3.0, 5.0, 8.0, 13.0)
# relative error allowed for an inner product, and for an eigenvalue relative to the trace
PRODUCT_ERROR, EIGENVALUE_ERROR = 1e-12, 1e-12
# delta for which the covariances are chosen where none is asked about, the least, and the factor between them
USUAL_DELTA, LEAST_DELTA, DELTA_FACTOR = 1e-6, 1e-270, 1e-3
# relative width of the discretisation that chooses covariances, and the widest and the narrowest of an answer
CHOICE_TOL, WIDEST_TOL, NARROWEST_TOL = 1e-2, 1e-3, 2e-5
# square of the spacing of a factor's logarithm, per tolerance and variance; most cells of one
SPACING, MAX_CELLS = 1.2, 1 << 14
# share of the tolerance for masses that are cut off
CUT_SHARE = 0.05


class Covariance(NamedTuple):
    """c + mu_1 cos(2 pi (i - j) / b) + mu_2 cos(4 pi (i - j) / b), and d more at equal bins; ``pairs`` are the mu."""

    common: float
    own: float
    pairs: tuple[float, ...] = ()


class BinsPair(KeyedPair):
    """The mean over i of N(m_i, sigma^2 I) against N(0, sigma^2 I), known through ``sandwich`` alone.

    Args:
        gram: the products of the m_i over sigma^2: [b, b], as the rows of a tuple.
        whole: the pair of the training without sampling, which dominates.
        forward: whether the record is removed; else it is added.
        delta: the delta at which the bracket is narrow; see ``for_delta``.
    """

    def __init__(self, gram: _Gram, whole: LossPair, forward: bool = True, delta: float = USUAL_DELTA):
        self.gram, self.whole, self.forward, self.delta = gram, whole, forward, delta
        self.key = (gram, whole, forward, delta)

    def sandwich(self, tol: float) -> tuple[LossPair, LossPair]:
        accuracy = 2.0 ** math.floor(math.log2(min(max(tol, NARROWEST_TOL), WIDEST_TOL)))
        return _ends(self.gram, self.whole, accuracy, self.delta)[0 if self.forward else 1]

    def for_delta(self, delta: float) -> LossPair:
        powers = math.ceil(math.log(max(delta, LEAST_DELTA)) / math.log(DELTA_FACTOR) - 1e-9)
        return BinsPair(self.gram, self.whole, self.forward, min(DELTA_FACTOR**powers, USUAL_DELTA))

    def reverse(self) -> LossPair:
        return BinsPair(self.gram, self.whole, not self.forward, self.delta)

    def tails(self, eps: Array) -> Tails:
        return self.sandwich(WIDEST_TOL)[1].tails(eps)

    def log_delta(self, eps: ArrayLike) -> Array:
        return self.sandwich(WIDEST_TOL)[1].log_delta(eps)


class _Gram:
    """A matrix that is hashed by its content."""

    def __init__(self, values: Array):
        self.values = values
        self.key = (values.shape, values.tobytes())

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Gram) and self.key == other.key

    def __hash__(self) -> int:
        return hash(self.key)


def pair_in_bins(moves: Array, scale: float, whole: LossPair) -> LossPair:
    """The pair of a training in which a record moves the rows by one of ``moves``, drawn uniformly.

    Args:
        moves: [b, rows] what a record of each bin adds, in units of its contribution; not negative.
        scale: the norm of a contribution over the standard deviation of the noise.
        whole: the pair of the training if the bins were known, which dominates.
    """
    gram = (moves @ moves.T) * scale**2
    size, diagonal = len(gram), np.diagonal(gram)
    if size == 1:
        return GaussPair(math.sqrt(gram[0, 0]))
    if np.all(gram == np.diag(diagonal)) and np.ptp(diagonal) <= PRODUCT_ERROR * diagonal[0]:
        # independent and equal: one pass of random allocation
        return allocated(GaussPair(math.sqrt(float(diagonal.max()))), size)
    return BinsPair(_Gram(gram), whole)


Ends = tuple[LossPair, LossPair]


@lru_cache(maxsize=16)
def _ends(gram: _Gram, whole: LossPair, tol: float, delta: float) -> tuple[Ends, Ends]:
    """The dominated and the dominating pair, for removing and for adding a record."""
    bins = len(gram.values)
    below, above = (_chosen(gram, delta, sign) for sign in (-1, 1))
    low = None if below is None else _dominated(below, bins, tol, delta)
    if low is None:
        # every entry exceeds that of a common factor alone
        low = GaussPair(math.sqrt(max(float(gram.values.min()) * (1 - PRODUCT_ERROR), 1e-12)))
    high = None if above is None else _dominating(above, bins, tol, delta)
    unsampled = _eps(whole, delta)
    tops = [whole if high is None or unsampled <= _eps(pair, delta) else pair for pair in high or (whole, whole)]
    return (low, tops[0]), (low.reverse(), tops[1])


def _eps(pair: LossPair, delta: float) -> float:
    """The upper end of eps of a pair at delta."""
    return epsilon_ends(lambda eps: log_profile_ends(pair, eps), delta, high=pair.support[1])[1]


@lru_cache(maxsize=64)
def _chosen(gram: _Gram, delta: float, sign: int) -> Covariance | None:
    """The covariance below (-1) or above (+1) with the best end of eps at delta, of those that are tried."""
    bins, best, value = len(gram.values), None, -sign * -math.inf
    for covariance in _candidates(gram.values, sign):
        if sign < 0:
            low = _dominated(covariance, bins, CHOICE_TOL, delta)
            if low is None:
                continue
            eps = max(_eps(low, delta), _eps(low.reverse(), delta))
        else:
            high = _dominating(covariance, bins, CHOICE_TOL, delta)
            if high is None:
                continue
            eps = max(_eps(pair, delta) for pair in high)
        if best is None or (eps - value) * sign < 0:
            best, value = covariance, eps
    return best


def _candidates(gram: Array, sign: int) -> list[Covariance]:
    """Covariances below (-1) or above (+1) a matrix, optimal for several weights of its entries."""
    row = _by_distance(gram, sign)
    most = min((len(row) - 1) // 2, 2) if sign > 0 and len(row) <= MAX_FACTOR_BINS else 0
    candidates = [_optimal(row, sign, pairs, shift) for pairs in range(most + 1) for shift in SHIFTS]
    return list(dict.fromkeys(each for each in candidates if each is not None))


def _optimal(row: Array, sign: int, pairs: int, shift: float) -> Covariance | None:
    """The best covariance of a linear program, with its diagonal moved until the order holds beyond rounding."""
    size, distances = len(row), np.arange(len(row))
    # the eigenvalues of a symmetric circulant matrix are a cosine transform of its row
    cosines = np.cos(2 * np.pi * np.outer(distances, distances) / size)
    parts = np.stack([np.ones(size), (distances == 0).astype(float), *cosines[1 : pairs + 1]], axis=1)
    entries = np.stack([np.isin(distances, (k, size - k)).astype(float) for k in range(1, size // 2 + 1)], axis=1)
    # about the mean of X_i X_j where the record is in a bin and the sum is large, as in the proof of Lemma 1
    moved = np.exp(shift * (row - row[0]))
    weights = np.exp(row) * np.array([float(moved @ np.roll(moved, -k)) for k in distances])
    cost = np.concatenate([sign * (weights @ parts), np.zeros(entries.shape[1])]) / weights.max()
    # sign (T - G) - N has no negative eigenvalue, N no negative entry; what the solver returns is checked
    constraint = cosines @ np.concatenate([-sign * parts, entries], axis=1)
    solution = linprog(cost, A_ub=constraint, b_ub=-sign * (cosines @ row), bounds=(0, None), method="highs")
    if solution.x is None:
        return None
    values = np.maximum(solution.x, 0.0)
    found, entry = values[: pairs + 2], values[pairs + 2 :]
    eigenvalues = sign * (cosines @ (parts @ found - row)) - cosines @ (entries @ entry)
    margin = EIGENVALUE_ERROR * size**2 * (abs(float(row[0])) + float(found.sum() + entry.sum()))
    common, own, *waves = found.tolist()
    own += sign * max(margin - float(eigenvalues.min()), 0.0)
    return Covariance(common, own, tuple(waves) if any(waves) else ()) if own > 0 else None


def _by_distance(gram: Array, sign: int) -> Array:
    """[b] the largest (+1) or smallest (-1) entry at each distance of two bins on a ring, rounded outwards."""
    size = len(gram)
    places = np.arange(size)
    choose = np.max if sign > 0 else np.min
    row = np.array([choose(gram[places, (places + k) % size]) for k in range(size)])
    # the matrix is symmetric, and so is the row
    row[1:] = (np.maximum if sign > 0 else np.minimum)(row[1:], row[:0:-1])
    return np.asarray(row * (1 + sign * PRODUCT_ERROR * size))


def _independent(own: float, bins: int, tol: float, delta: float) -> PassRatio | None:
    """The sum of independent terms; None where a ratio is too large for floating point."""
    return pass_ratio(GaussPair(math.sqrt(own)), bins, tol, delta)


def _common(variance: float, tol: float, delta: float) -> tuple[Cells, Cells] | None:
    """The common factor below and above; None where its ratio is too large for floating point."""
    factor, cut = GaussPair(math.sqrt(variance)), CUT_SHARE * tol * delta
    losses = loss_range(factor, cut, cut)
    if max(losses[1], -losses[0]) > MAX_LOSS:
        return None
    spacing = max(math.sqrt(SPACING * tol * variance), (losses[1] - losses[0]) / MAX_CELLS)
    return single_ratio(factor, spacing, losses)


def _dominated(covariance: Covariance, bins: int, tol: float, delta: float) -> LossPair | None:
    """The pair of a covariance below, for removing a record; None where it cannot be computed."""
    ratio = _independent(covariance.own, bins, tol, delta)
    if ratio is not None and covariance.common > 0:
        factor = _common(covariance.common, tol, delta)
        if factor is None:
            return None
        below = _product(factor[0], _onto_cells(ratio.below, factor[0].spacing, spread=False))
        ratio = PassRatio(below, below)
    return None if ratio is None else dominated_pair(ratio.below, bins)


def _dominating(covariance: Covariance, bins: int, tol: float, delta: float) -> Ends | None:
    """The pairs of a covariance above, for removing and for adding a record; None where they cannot be computed."""
    if covariance.pairs:
        law = _law_above(covariance, bins, delta, COARSE_WORK if tol >= CHOICE_TOL else LAW_WORK)
        if law is None:
            return None
        sums = [
            Cells(0.0, 0, law.mass, law.mass * law.values * shrink * bins, law.at_zero, law.lost * bins)
            for shrink in (1.0, law.shrink)
        ]
    else:
        ratio = _independent(covariance.own, bins, tol, delta)
        if ratio is None:
            return None
        sums = [ratio.above, ratio.above]
    if covariance.common > 0:
        factor = _common(covariance.common, tol, delta)
        if factor is None:
            return None
        spacing = factor[1].spacing
        sums = [_product(factor[1], _onto_cells(each, spacing, spread=True), spread=True) for each in sums]
    return dominating_pairs(sums[0], bins)[0], dominating_pairs(sums[1], bins)[1]


def _onto_cells(cells: Cells, spacing: float, spread: bool) -> Cells:
    """The same variable on cells of another length: divided between their ends, or at the mean of each."""
    some = cells.mass > 0
    mass, mean = cells.mass[some], cells.mean[some]
    values = mean / mass
    index = np.floor(np.log(values) / spacing).astype(int)
    first, size = int(index.min()), int(np.ptp(index)) + 2
    place = index - first
    if spread:
        ends = np.exp(spacing * index)
        right = np.clip((values / ends - 1) / math.expm1(spacing), 0.0, 1.0)
        sums = np.asarray(np.bincount(place, mass * (1 - right), size), dtype=float)
        sums += np.bincount(place + 1, mass * right, size)
        means = sums * np.exp(spacing * (first + np.arange(size)))
    else:
        sums, means = (np.asarray(np.bincount(place, part, size), dtype=float) for part in (mass, mean))
    return _rounded(cells._replace(spacing=spacing, first=first, mass=sums, mean=means), cells.mass.size)


def _product(a: Cells, b: Cells, spread: bool = False) -> Cells:
    """The product of two independent variables on cells of one length, whose logarithms add up.

    Above, all values are ends of cells, and so are their products; below, any grouping of the pairs is one.
    """
    mass = np.convolve(a.mass, b.mass)
    first = a.first + b.first
    ends = np.exp(a.spacing * (first + np.arange(mass.size)))
    mean = mass * ends if spread else np.convolve(a.mean, b.mean)
    at_zero = a.at_zero + b.at_zero
    lost = a.lost * (float(b.mean.sum()) + b.lost) + b.lost * float(a.mean.sum())
    errors = {"mass_error": a.mass_error + b.mass_error, "value_error": a.value_error + b.value_error}
    product = Cells(a.spacing, first, mass, mean, at_zero, lost * (1 + 1e-9), **errors)
    return _rounded(product, min(a.mass.size, b.mass.size))


def _rounded(cells: Cells, terms: int) -> Cells:
    """The cells with the rounding of sums of so many terms, and of their ends, added to their errors."""
    rounding = (16 + SIZE_ROUNDINGS * terms) * UNIT_ROUNDOFF
    farthest = cells.spacing * max(abs(cells.first), abs(cells.first + cells.mass.size))
    ends = 2 * NODE_ROUNDINGS * UNIT_ROUNDOFF * (1 + farthest)
    # an end that is off moves the share of a mass by as much, relative to the length of a cell
    return cells._replace(
        mass_error=cells.mass_error + rounding,
        value_error=cells.value_error + 2 * rounding + ends,
    )


# Pairs of factors beside the common one, cosine and sine waves of the bins, above alone.
#
# Given their normals the terms are independent lognormals of different scales. Normals are divided between the
# nodes of a grid and terms between those of another, which raises every convex increasing function.

# distance of nodes of the widest factor, and variance that the grid of a term adds, relative to its own
NODE_SPACING, TERM_SPREAD = 0.25, 0.006
# factors by which nodes are farther apart where they would be too many
COARSENING = (1.0, 1.6, 2.5, 4.0)
# nanoseconds of a usual processor for a place of a term at a node; those that the choice and the answer may take
PLACE_WORK, COARSE_WORK, LAW_WORK = 30.0, 0.25e9, 2.5e9
# most bins, most cells, and standard deviations of a term's logarithm on its grid
MAX_FACTOR_BINS, MAX_LAW_CELLS, TERM_DEVIATIONS = 32, 1 << 15, 12.0
# roundings of a price, and of an FFT in each of its log2(size) layers (in the norm of a vector)
PRICE_ROUNDINGS, FFT_ROUNDINGS = 64, 18
# largest exponent of a tilt on its grid
MAX_TILT = 300.0


class _Grid(NamedTuple):
    """Where the mean of the terms lies: ``size`` places from 0 on, of which a single term reaches ``reach``."""

    step: float
    size: int
    reach: int
    tilts: tuple[float, float, float]

    @property
    def places(self) -> Array:
        """[size] the values."""
        return np.asarray(self.step * np.arange(self.size))


def _grid(covariance: Covariance, bins: int, delta: float) -> _Grid | None:
    """A grid for terms of the scale 1 / bins, and tilts that keep masses of about delta; None where it is too large."""
    own, total = covariance.own, covariance.own + sum(covariance.pairs)
    step = math.sqrt(6 * TERM_SPREAD * own) / bins
    # the log of a single term above which its share of the mean is far below delta
    deviations = math.sqrt(-2 * math.log(delta)) + 0.6
    reach = max(math.exp(deviations * math.sqrt(total) + total / 2) / bins, 2.0)
    size = 1 << max(math.ceil(math.log2(2 * reach / step)), 10)
    if size > MAX_LAW_CELLS:
        return None
    places = step * np.arange(size)
    count = math.ceil(reach / step)
    mass = _term_masses(np.ones(1), own, bins, step, count)[0][0]
    # about how far the mean of the terms is from 1 where it matters, and the tilts that lead there
    spread = deviations * math.sqrt(math.log1p(math.expm1(own) / bins))
    tilts = []
    for sign in (-1.0, 1.0):
        candidates = sign * np.geomspace(0.1, min(MAX_TILT / (step * count), 20.0 * bins), 60)
        moments = np.exp(np.outer(candidates, places[: mass.size])) @ mass
        exponents = bins * np.log(moments) - candidates * math.exp(sign * spread)
        tilts.append(float(candidates[np.argmin(exponents)]))
    return _Grid(step, size, count, (tilts[0], 0.0, tilts[1]))


def _term_masses(scales: Array, own: float, bins: int, step: float, reach: int) -> tuple[Array, Array]:
    """[b, m] masses above those of lognormal terms of mean scale / bins, divided between the places of a grid.

    The masses are second differences of the prices of calls, or of puts below the mean of a term, with the rounding of
    prices added. Also [b] the mean that lies beyond the last place.
    """
    deviation = math.sqrt(own)
    largest = float(scales.max()) * math.exp(TERM_DEVIATIONS * deviation + own / 2) / bins
    count = min(reach, max(math.ceil(largest / step), 4))
    strikes = step * np.arange(1, count + 1)
    mean = scales[:, None] / bins
    upper = (np.log(mean / strikes) + own / 2) / deviation
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
    masses = np.maximum(np.concatenate([first, inner], axis=1) / step, 0.0) * (1 + 8 * UNIT_ROUNDOFF)
    beyond = np.where(calls[:, -1], prices[:, -1], prices[:, -1] + mean[:, 0] - strikes[-1]) + errors[:, -1]
    return masses, np.maximum(beyond, 0.0)


def _nodes(spacing: float, farthest: float, folded: bool) -> tuple[Array, Array]:
    """Nodes of a standard normal and their masses, divided between neighbours; folded, both signs share a node."""
    count = math.ceil(farthest / spacing)
    z = spacing * np.arange(count + 2)
    calls = np.exp(-z * z / 2) / math.sqrt(2 * math.pi) - z * ndtr(-z)
    weights = np.append(2 * calls[1] + spacing - 2 * calls[0], np.diff(calls, 2)) / spacing
    weights, z = np.asarray(np.maximum(weights, 0.0) * (1 + 1e-9), dtype=float), z[:-1]
    if folded:
        return np.asarray(z, dtype=float), weights * np.where(z > 0, 2.0, 1.0)
    return np.asarray(np.concatenate([-z[:0:-1], z]), dtype=float), np.concatenate([weights[:0:-1], weights])


class _Nodes(NamedTuple):
    """Scales of the terms at nodes of the factors: [n, b], with their masses, and what was left out."""

    scales: Array
    mass: Array
    omitted: float
    shrink: float


def _scales(pairs: tuple[float, ...], bins: int, cut: float, coarsening: float) -> _Nodes:
    """The nodes of pairs of factors whose mass, or share of the mean, is not far below ``cut``."""
    angles = 2 * np.pi * np.arange(bins) / bins
    logs, mass, omitted, squares, shrink = np.zeros((1, bins)), np.ones(1), 0.0, 0.0, 1.0
    for wave, variance in enumerate(pairs, start=1):
        load = math.sqrt(variance)
        if load == 0:
            continue
        spacing = coarsening * NODE_SPACING * min(math.sqrt(max(pairs)) / load, 3.0)
        farthest = math.sqrt(-2 * math.log(cut)) + load + spacing
        omitted += 4 * ndtr(-(farthest - load - spacing)) * math.exp(load * spacing)
        # a reflection of the ring turns the signs of all sines, and half a turn those of the first pair
        for axis, curve in enumerate((np.cos(wave * angles), np.sin(wave * angles))):
            z, weights = _nodes(spacing, farthest, folded=wave == 1 and (axis == 1 or bins % 2 == 0))
            logs = (logs[:, None, :] + z[:, None] * (load * curve) - (load * curve) ** 2 / 2).reshape(-1, bins)
            mass = np.multiply.outer(mass, weights).ravel()
            share = mass * np.maximum(np.exp(logs).mean(axis=1), 1.0)
            order = np.argsort(share)
            dropped = int(np.searchsorted(np.cumsum(share[order]), cut))
            omitted += float(share[order[:dropped]].sum()) * (1 + 1e-9)
            logs, mass = logs[order[dropped:]], mass[order[dropped:]]
        # the least ratio of an exponential to its chord between two nodes
        shares = np.linspace(0, 1, 2001)
        width = load * spacing
        squares += width**2
        chord = np.exp(width * shares) / (1 - shares + shares * math.exp(width))
        shrink *= (float(chord.min()) * (1 - 1e-6)) ** 2
    # a mean over nodes exceeds that over the normal by a factor of at most e^(u^2 / 2) an axis
    return _Nodes(np.exp(logs) * (1 + 1e-13), mass, omitted * math.exp(squares), shrink)


class _Law(NamedTuple):
    """The sum over the bins above, without the common factor: places, masses, what is lost and what is at zero.

    ``shrink`` is by how much values are to be multiplied for decreasing functions.
    """

    values: Array
    mass: Array
    lost: float
    at_zero: float
    shrink: float


def _law_above(covariance: Covariance, bins: int, delta: float, work: float) -> _Law | None:
    """The law of the mean of the terms over all nodes; docs/theory/balls-in-bins.md, Theorems 3 and 4."""
    grid = _grid(covariance, bins, delta)
    if grid is None:
        return None
    most = work / (PLACE_WORK * grid.size * bins)
    tried = (_scales(covariance.pairs, bins, CUT_SHARE * delta, factor) for factor in COARSENING)
    nodes = next((each for each in tried if each.mass.size <= most), None)
    if nodes is None:
        return None
    counted_work.add(PLACE_WORK * grid.size * bins * nodes.mass.size)
    lost = at_zero = nodes.omitted
    places, levels = grid.places, FFT_ROUNDINGS * UNIT_ROUNDOFF * math.log2(grid.size)
    spectra, totals, errors = np.zeros((3, grid.size // 2 + 1), dtype=complex), [0.0] * 3, [0.0] * 3
    for weight, scales in zip(nodes.mass.tolist(), nodes.scales, strict=True):
        masses, outside = _term_masses(scales, covariance.own, bins, grid.step, grid.reach)
        lost += weight * float(outside.sum())
        for order, tilt in enumerate(grid.tilts):
            tilted = masses * np.exp(tilt * places[: masses.shape[1]])
            moments = tilted.sum(axis=1)
            tilted /= moments[:, None]
            share = weight * float(np.prod(moments))
            norms = np.sqrt(np.einsum("ij,ij->i", tilted, tilted))
            spectra[order] += share * np.prod(np.fft.rfft(tilted, grid.size, axis=1), axis=0)
            totals[order] += share
            errors[order] += share * (levels * float(norms.sum()) + 2 * levels + 16 * bins * UNIT_ROUNDOFF)
    # all are above the masses, each where its tilt leads
    mass = np.full(grid.size, np.inf)
    for order, tilt in enumerate(grid.tilts):
        error = errors[order] + 4 * nodes.mass.size * UNIT_ROUNDOFF * totals[order]
        tilted = np.maximum(np.fft.irfft(spectra[order], grid.size), 0.0) + error
        mass = np.minimum(mass, tilted * np.exp(np.minimum(-tilt * places, MAX_LOSS)) * (1 + 1e-11))
    # beyond the grid, by Chernoff's bound
    top = grid.step * grid.size
    rest = totals[2] * math.exp(-grid.tilts[2] * top)
    if grid.tilts[2] * top < 1:
        return None
    return _Law(places[1:], mass[1:], lost + rest * top, at_zero + rest + float(mass[0]), nodes.shrink)
