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

from wpriv.accounting.mechanisms._covariance_choice import (
    EIGENVALUE_ERROR,
    PRODUCT_ERROR,
    Chain,
    Ring,
    factored,
    line_of,
    pairs_of,
    pilot,
    ring_above,
    ring_below,
)
from wpriv.accounting.mechanisms._lognormal_chains import chain_law
from wpriv.accounting.mechanisms._lognormal_sums import Factored, law_above, law_below
from wpriv.accounting.mechanisms.gauss import GaussPair
from wpriv.core.allocation_pair import (
    MAX_LOSS,
    allocated,
    dominated_pair,
    dominating_pairs,
    loss_range,
    pass_ratio,
    single_ratio,
)
from wpriv.core.guarantee import epsilon_ends
from wpriv.core.loss_pair import KeyedPair, LossPair, Tails, log_profile_ends
from wpriv.numerics.arrays import Array
from wpriv.numerics.sums import NODE_ROUNDINGS, SIZE_ROUNDINGS, UNIT_ROUNDOFF, Cells

# delta for which the covariances are chosen where none is asked about, the least, the largest, and the factor between
USUAL_DELTA, LEAST_DELTA, LARGEST_DELTA, DELTA_FACTOR = 1e-6, 1e-270, 1e-2, 1e-1
# by how much delta may be larger than that for which a bracket was made
RESOLVED = 1e3
# the widest and the narrowest relative width of the cells of an answer
WIDEST_TOL, NARROWEST_TOL = 1e-3, 2e-5
# square of the spacing of a factor's logarithm, per tolerance and variance; most cells of one, and of a sum beside it
SPACING, MAX_CELLS, MAX_SUM_CELLS = 1.2, 1 << 14, 1 << 15
# share of the tolerance for masses that are cut off
CUT_SHARE = 0.05
# most bins whose covariance has global factors, most of these, and nanoseconds of a usual processor for one end
MAX_FACTOR_BINS, MAX_FACTORS, FACTOR_WORK = 16, 4, 5e9
# variance of a common factor that is left out, over that of a term of its own
LITTLE = 1e-5
# least and most bins of a covariance that is chosen for a matrix, between neighbours
LEAST_CHAIN_BINS, MAX_CHOSEN_BINS = 12, 200
# relative excess of the variance of the mean up to which a part of the bins is tried, at most so many of them,
# and the largest distance of their bins
THINNED_EXCESS, MAX_THINNED, MOST_GAP = 0.5, 3, 64


class BinsPair(KeyedPair):
    """The mean over i of N(m_i, sigma^2 I) against N(0, sigma^2 I), known through ``sandwich`` alone.

    Args:
        gram: the products of the m_i over sigma^2: [b, b], as the rows of a tuple.
        whole: the pair of the training without sampling, which dominates.
        forward: whether the record is removed; else it is added.
        delta: the delta at which the bracket is narrow; None before one is asked about, with a bracket that takes no
            work. See ``for_delta``.
    """

    def __init__(self, gram: _Gram, whole: LossPair, forward: bool = True, delta: float | None = None):
        self.gram, self.whole, self.forward, self.delta = gram, whole, forward, delta
        self.key = (gram, whole, forward, delta)

    def sandwich(self, tol: float) -> tuple[LossPair, LossPair]:
        if self.delta is None:
            return _least(self.gram), self.whole
        accuracy = 2.0 ** math.floor(math.log2(min(max(tol, NARROWEST_TOL), WIDEST_TOL)))
        return _ends(self.gram, self.whole, accuracy, self.delta)[0 if self.forward else 1]

    def for_delta(self, delta: float) -> LossPair:
        if self.delta is not None and self.delta <= delta <= self.delta * RESOLVED:
            return self
        powers = math.ceil(math.log(max(delta, LEAST_DELTA)) / math.log(DELTA_FACTOR) - 1e-9)
        return BinsPair(self.gram, self.whole, self.forward, min(DELTA_FACTOR**powers, LARGEST_DELTA))

    def reverse(self) -> LossPair:
        return BinsPair(self.gram, self.whole, not self.forward, self.delta)

    def tails(self, eps: Array) -> Tails:
        return self._above().tails(eps)

    def log_delta(self, eps: ArrayLike) -> Array:
        return self._above().log_delta(eps)

    def _above(self) -> LossPair:
        return _ends(self.gram, self.whole, WIDEST_TOL, self.delta or USUAL_DELTA)[0 if self.forward else 1][1]


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
    lows = [(each.bins, _with_common(each, tol, delta, spread=False)) for each in _chosen(gram, delta, -1)]
    below = [dominated_pair(cells, bins) for bins, cells in lows if cells is not None]
    low = max([_least(gram), *below], key=lambda pair: _eps(pair, delta))
    above = (*_chosen(gram, delta, 1), *_thinned(gram, delta))
    tops = [(each.bins, _with_common(each, tol, delta, spread=True)) for each in above]
    pairs = [dominating_pairs(cells, bins) for bins, cells in tops if cells is not None]
    remove, add = ([whole, *(each[side] for each in pairs)] for side in (0, 1))
    return (low, _lowest(remove, delta)), (low.reverse(), _lowest(add, delta))


def _lowest(pairs: list[LossPair], delta: float) -> LossPair:
    """The pair of the least eps at delta, of several that all dominate."""
    return min(pairs, key=lambda pair: _eps(pair, delta))


def _least(gram: _Gram) -> LossPair:
    """The pair of a common factor alone: of variance m + (d - m) / b for the least entry m and diagonal entry d.

    The matrix less this is one without negative entries and (d - m)(I - 11'/b), which is positive semidefinite.
    """
    least, diagonal = float(gram.values.min()), float(np.diagonal(gram.values).min())
    common = least + (diagonal - least) / len(gram.values)
    return GaussPair(math.sqrt(common * (1 - len(gram.values) * PRODUCT_ERROR)))


def _eps(pair: LossPair, delta: float) -> float:
    """The upper end of eps of a pair at delta."""
    return epsilon_ends(lambda eps: log_profile_ends(pair, eps), delta, high=pair.support[1])[1]


class _Sum(NamedTuple):
    """The sum of the terms of a covariance without its common factor, of this variance, over so many bins."""

    bins: int
    common: float
    cells: Cells


@lru_cache(maxsize=64)
def _chosen(gram: _Gram, delta: float, sign: int) -> tuple[_Sum, ...]:
    """Sums of covariances below (-1) or above (+1) a matrix: the nearest of which the law can be computed, and others.

    What takes little work is beside it, as the law of the nearest may be farther away.
    """
    bins = len(gram.values)
    if bins > MAX_CHOSEN_BINS:
        least = _of_least_entries(gram, delta) if sign < 0 else None
        return () if least is None else (least,)
    estimate = pilot(gram.values, delta)
    sums = [_one_factor(gram, estimate.weights, delta, sign)]
    covariances = _covariances(gram.values, estimate.weights, sign)
    done: set[type] = set()
    for covariance in sorted(covariances, key=lambda each: _gap(each.matrix, gram.values, estimate.weights)):
        if type(covariance) in done or (done and not isinstance(covariance, Ring | Factored)):
            continue
        if isinstance(covariance, Factored):
            work = FACTOR_WORK / (4 if done else 1)
            law = (law_above if sign > 0 else law_below)(covariance, delta, estimate.eps, work)
        else:
            law = chain_law(covariance, bins, sign, delta)
        # bounds of masses far below the mean may exceed every number
        if law is not None and math.isfinite(float(law.mass @ law.values)):
            cells = Cells(0.0, 0, law.mass, law.mass * law.values * bins, law.at_zero, law.lost * bins)
            sums.append(_Sum(bins, covariance.common, cells))
            done.add(type(covariance))
    return tuple(each for each in sums if each is not None)


def _covariances(gram: Array, weights: Array, sign: int) -> list[Factored | Chain]:
    """Covariances below (-1) or above (+1) a matrix: with factors for few bins, between neighbours for more."""
    bins = len(gram)
    factors = range(min(MAX_FACTORS, bins - 1), -1, -1) if bins <= MAX_FACTOR_BINS else (4, 2)
    covariances: list[Factored | Chain | None] = [pairs_of(gram, weights, sign)]
    if bins <= 2 * MAX_FACTOR_BINS:
        covariances += [factored(gram, weights, count, sign) for count in factors]
    if bins >= LEAST_CHAIN_BINS:
        above = ring_above(_by_distance(gram, 1), _by_distance(weights, 1)) if sign > 0 else None
        covariances += [above if sign > 0 else ring_below(gram, weights), line_of(gram, weights, sign)]
    return [_without_little(each, bins, sign) for each in covariances if each is not None]


def _without_little(covariance: Factored | Chain, bins: int, sign: int) -> Factored | Chain:
    """The covariance without a common factor of little variance: c is at most c b on the diagonal, and at least 0."""
    common = covariance.common
    if common * bins > LITTLE * float(np.min(covariance.specific)):
        return covariance
    more = common * bins if sign > 0 else 0.0
    if isinstance(covariance, Factored):
        return covariance._replace(common=0.0, specific=covariance.specific + more)
    matrix = covariance.matrix - common + more * np.eye(len(covariance.matrix))
    return covariance._replace(common=0.0, specific=covariance.specific + more, matrix=matrix)


def _gap(matrix: Array, gram: Array, weights: Array) -> float:
    """The weighted sum of what the entries of a matrix, which may lack the last bins, differ by."""
    size = len(matrix)
    return abs(float((weights * gram).sum() - (weights[:size, :size] * matrix).sum()))


def _one_factor(gram: _Gram, weights: Array, delta: float, sign: int) -> _Sum | None:
    """The sum of independent terms beside a common factor, of a linear program on a ring."""
    row = _by_distance(gram.values, sign)
    size, distances = len(row), np.arange(len(row))
    cosines = np.cos(2 * np.pi * np.outer(distances, distances) / size)
    parts = np.stack([np.ones(size), (distances == 0).astype(float)], axis=1)
    entries = np.stack([np.isin(distances, (k, size - k)).astype(float) for k in range(1, size // 2 + 1)], axis=1)
    cost = np.concatenate([sign * (_by_distance(weights, 1) @ parts), np.zeros(entries.shape[1])])
    # sign (T - G) - N has no negative eigenvalue, N no negative entry; what the solver returns is checked
    constraint = cosines @ np.concatenate([-sign * parts, entries], axis=1)
    solution = linprog(cost, A_ub=constraint, b_ub=-sign * (cosines @ row), bounds=(0, None), method="highs")
    if solution.x is None:
        return None
    common, specific, *entry = np.maximum(solution.x, 0.0).tolist()
    eigenvalues = sign * (cosines @ (parts @ [common, specific] - row)) - cosines @ (entries @ entry)
    margin = EIGENVALUE_ERROR * size**2 * (abs(float(row[0])) + common + specific + sum(entry))
    specific += sign * max(margin - float(eigenvalues.min()), 0.0)
    return _independent(size, common, specific, delta, sign)


def _independent(bins: int, common: float, specific: float, delta: float, sign: int) -> _Sum | None:
    """The sum of so many independent terms beside a common factor; None where a term is too large."""
    ratio = pass_ratio(GaussPair(math.sqrt(specific)), bins, WIDEST_TOL, delta) if specific > 0 else None
    return None if ratio is None else _Sum(bins, common, ratio.below if sign < 0 else ratio.above)


def _of_least_entries(gram: _Gram, delta: float) -> _Sum | None:
    """A sum below, of a common factor and independent terms, from the least entries of the matrix."""
    common, diagonal = (float(each.min()) * (1 - PRODUCT_ERROR) for each in (gram.values, np.diagonal(gram.values)))
    return _independent(len(gram.values), max(common, 0.0), diagonal - max(common, 0.0), delta, -1)


def _thinned(gram: _Gram, delta: float) -> list[_Sum]:
    """Sums above over some of the bins, spread evenly over the ring, with a common factor of their largest entry.

    Every shift of the same places is a class of bins, each bin is in as many classes, and the mean over all bins is
    that over the classes of their means (docs/theory/balls-in-bins.md, Theorem 9).
    """
    row = _by_distance(gram.values, 1)
    bins, tried = len(row), []
    counts = {math.ceil(bins / gap) for gap in range(1, min(bins, MOST_GAP) + 1)} | {
        bins // gap for gap in range(1, bins + 1)
    }
    for count in counts:
        places = np.arange(count) * bins // count
        apart = np.bincount(places, minlength=bins)
        # how many pairs of places have each distance
        pairs = np.round(np.fft.irfft(np.abs(np.fft.rfft(apart)) ** 2, bins)).astype(int)
        common = float(row[1:][pairs[1:] > 0].max(initial=0.0))
        specific = float(row[0]) - common
        if specific > 0:
            # about the variance of the logarithm of the mean
            tried.append((common + math.log1p(math.expm1(min(specific, 600.0)) / count), count, common, specific))
    tried.sort()
    close = [each for each in tried if each[0] <= (1 + THINNED_EXCESS) * tried[0][0]][:MAX_THINNED]
    sums = [_independent(count, common, specific, delta, 1) for _, count, common, specific in close]
    return [each for each in sums if each is not None]


def _by_distance(gram: Array, sign: int) -> Array:
    """[b] the largest (+1) or smallest (-1) entry at each distance of two bins on a ring, rounded outwards."""
    size = len(gram)
    places = np.arange(size)
    choose = np.max if sign > 0 else np.min
    row = np.array([choose(gram[places, (places + k) % size]) for k in range(size)])
    # the matrix is symmetric, and so is the row
    row[1:] = (np.maximum if sign > 0 else np.minimum)(row[1:], row[:0:-1])
    return np.asarray(row * (1 + sign * PRODUCT_ERROR * size))


def _common(variance: float, tol: float, delta: float, least: float) -> tuple[Cells, Cells] | None:
    """The common factor below and above, on cells of at least this length; None where its ratio is too large."""
    factor, cut = GaussPair(math.sqrt(variance)), CUT_SHARE * tol * delta
    losses = loss_range(factor, cut, cut)
    if max(losses[1], -losses[0]) > MAX_LOSS:
        return None
    spacing = max(math.sqrt(SPACING * tol * variance), (losses[1] - losses[0]) / MAX_CELLS, least)
    return single_ratio(factor, spacing, losses)


def _with_common(chosen: _Sum, tol: float, delta: float, spread: bool) -> Cells | None:
    """The sum times its common factor; None where a ratio is too large for floating point."""
    if chosen.common <= 0:
        return chosen.cells
    some = chosen.cells.mass > 0
    farthest = np.ptp(np.log(chosen.cells.mean[some] / chosen.cells.mass[some]))
    factors = _common(chosen.common, tol, delta, float(farthest) / MAX_SUM_CELLS)
    if factors is None:
        return None
    factor = factors[1 if spread else 0]
    return _product(factor, _onto_cells(chosen.cells, factor.spacing, spread), spread)


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
