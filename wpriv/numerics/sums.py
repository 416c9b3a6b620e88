"""Sums of independent variables: their distributions, and rates of tests on them.

Bounds of a sum in convex order have geometric cells: cell k holds the values from e^{kh} to e^{(k+1)h}. The sum of a
value in cell i and one in cell i + d lies in or near cell i + floor(ln(1 + e^{dh}) / h), so that all pairs of cells are
added up by shifting arrays. No mass is transformed or subtracted: each, however small, keeps a small relative error.

- ``spread`` divides the mass of every cell between its ends so that the mean stays the same: a distribution *above*.
- ``grouped`` keeps the mass and the mean of every cell, as if all of it were at the mean: a distribution *below*.

The proofs, rounding included, are in docs/theory/allocation.md.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np

from wpriv.numerics import counted_work
from wpriv.numerics.arrays import Array, Counts

UNIT_ROUNDOFF = 2.0**-53
# roundings of a mass in a sum of two and of its division, for each cell of the sum and beside them
SIZE_ROUNDINGS, PAIR_ROUNDINGS = 3, 64
# roundings of a node, relative to its logarithm: of the exponential, of the sum and of the index of its cell
NODE_ROUNDINGS = 8
# nanoseconds of a usual processor for the pairs of one cell and a window of others
ROW_WORK = 6.0
# more than what underflow takes from all masses of a sum of two
UNDERFLOW_MASS = 1e-300


class Cells(NamedTuple):
    """Masses of a variable on geometric cells; above it, each is on the lower end of its cell.

    Attributes:
        spacing: h, the length of a cell in the logarithm.
        first: index of the first cell.
        mass: [n] probability of each cell.
        mean: [n] mean of the variable over each cell (its part of the expectation).
        at_zero: probability of the value zero.
        lost: what is missing of the whole mean, at an infinite value.
        mass_error: bound of the relative rounding of each mass.
        value_error: bound of the relative rounding of each value.
    """

    spacing: float
    first: int
    mass: Array
    mean: Array
    at_zero: float = 0.0
    lost: float = 0.0
    mass_error: float = 0.0
    value_error: float = 0.0

    @property
    def ends(self) -> Array:
        """[n] the lower end of each cell."""
        return np.asarray(np.exp(self.spacing * (self.first + np.arange(self.mass.size))))


def spread(cells: Cells, lowest: int, highest: int) -> Cells:
    """Divide the mass of every cell between its two ends, none below ``lowest`` (a cell) or above ``highest`` > lowest.

    What lies below moves to the ends of [0, lowest], with the same mean. What lies above moves down to the highest end,
    and its mean is lost.
    """
    kept = cells.mass[: max(highest - cells.first, 0)]
    inside = cells.mean[: kept.size]
    growth = math.expm1(cells.spacing)
    right = np.clip((inside / cells.ends[: kept.size] - kept) / growth, 0.0, kept)
    mass = np.zeros(kept.size + 1)
    mass[:-1] = kept - right
    mass[1:] += right
    mass[-1] += float(cells.mass[kept.size :].sum())
    lost = cells.lost + float(cells.mean[kept.size :].sum())
    at_zero, first, start = cells.at_zero, cells.first, max(lowest - cells.first, 0)
    if start:
        ratios = np.exp(cells.spacing * (np.arange(start) - start))
        moved, below = float(mass[:start] @ ratios), float(mass[:start].sum())
        mass, first = mass[start:], first + start
        mass[0] += moved
        at_zero += max(below - moved, 0.0)
    nodes = np.exp(cells.spacing * (first + np.arange(mass.size)))
    return cells._replace(first=first, mass=mass, mean=mass * nodes, at_zero=at_zero, lost=lost)


def grouped(cells: Cells, lowest: int, highest: int) -> Cells:
    """Keep every cell at its mean; all below ``lowest`` joins that cell, all above ``highest`` >= lowest that one."""
    start, stop = max(lowest - cells.first, 0), min(highest - cells.first + 1, cells.mass.size)
    mass, mean = cells.mass[start:stop].copy(), cells.mean[start:stop].copy()
    for values, whole in ((mass, cells.mass), (mean, cells.mean)):
        values[0] += float(whole[:start].sum())
        values[-1] += float(whole[stop:].sum())
    return cells._replace(first=cells.first + start, mass=mass, mean=mean)


def refined(cells: Cells, factor: int) -> Cells:
    """The same masses on cells ``factor`` times shorter, of which they take the first of every ``factor``."""
    if factor == 1:
        return cells
    mass, mean = (np.zeros((values.size - 1) * factor + 1) for values in (cells.mass, cells.mean))
    mass[::factor], mean[::factor] = cells.mass, cells.mean
    return cells._replace(spacing=cells.spacing / factor, first=cells.first * factor, mass=mass, mean=mean)


def added(a: Cells, b: Cells, refinement: int = 1) -> Cells:
    """Masses and means of the sum of two independent variables with cells of one length."""
    spacing = a.spacing / refinement
    first = min(a.first, b.first)
    last = max(a.first + a.mass.size, b.first + b.mass.size)
    size = (last - first + 1) * refinement + math.ceil(math.log(2) / spacing) + 2
    result = Cells(spacing, first * refinement, np.zeros(size), np.zeros(size))
    if a is b:
        _add_pairs(result, a, a, -1, refinement)
        result.mass[:] *= 2
        result.mean[:] *= 2
        middle = a.first * refinement - result.first + math.floor(math.log(2) / spacing)
        doubled = slice(middle, middle + refinement * a.mass.size, refinement)
        result.mass[doubled] += a.mass * a.mass
        result.mean[doubled] += 2 * a.mass * a.mean
    else:
        _add_pairs(result, a, b, 0, refinement)
        _add_pairs(result, b, a, -1, refinement)
    rounding = (PAIR_ROUNDINGS + SIZE_ROUNDINGS * size) * UNIT_ROUNDOFF
    farthest = spacing * max(abs(result.first), abs(result.first + size))
    return result._replace(
        at_zero=a.at_zero * b.at_zero,
        lost=a.lost + b.lost + UNDERFLOW_MASS * math.exp(last * a.spacing),
        mass_error=a.mass_error + b.mass_error + rounding,
        value_error=max(a.value_error, b.value_error) + 2 * rounding + NODE_ROUNDINGS * UNIT_ROUNDOFF * (1 + farthest),
    )


def _add_pairs(result: Cells, large: Cells, small: Cells, widest: int, refinement: int) -> None:
    """Add to ``result`` all pairs whose index in ``small`` is that in ``large`` plus ``widest`` (0 or -1) or less."""
    h, fine, count = large.spacing, result.spacing, large.mass.size
    offset = large.first - small.first
    least, most = -offset - count + 1, min(widest, small.mass.size - 1 - offset)
    start = large.first * refinement - result.first
    shifts = _Shifts.between(h, fine, least, most)
    # partners that are too small to leave the cell of the larger value
    below = np.clip(np.arange(count) + offset + min(shifts.first_difference(1), most + 1), 0, small.mass.size)
    partners = [np.append(0.0, np.cumsum(values))[below] for values in (small.mass, small.mean)]
    partners[0] += small.at_zero
    _add_products(result, slice(start, start + refinement * count, refinement), large, slice(None), *partners)
    windows = [_Windows(values, shifts.longest) for values in (small.mass, small.mean)]
    for shift in range(shifts.start, shifts.stop):
        low, high = max(shifts.first_difference(shift), least), min(shifts.first_difference(shift + 1) - 1, most)
        # rows of the larger value that have a partner in the window
        i0, i1 = max(0, -offset - high), min(count, small.mass.size - offset - low)
        if high < low or i1 <= i0:
            continue
        rows, at = slice(i0, i1), start + refinement * i0 + shift
        counted_work.add(ROW_WORK * (i1 - i0))
        partners = [window.sums(i0 + offset + low, i1 - i0, high - low + 1) for window in windows]
        _add_products(result, slice(at, at + refinement * (i1 - i0), refinement), large, rows, *partners)


def _add_products(result: Cells, cells: slice, large: Cells, rows: slice, mass: Array, mean: Array) -> None:
    """Add the products of masses, and the means of the sums, to some cells of ``result``."""
    result.mass[cells] += large.mass[rows] * mass
    result.mean[cells] += large.mass[rows] * mean
    result.mean[cells] += large.mean[rows] * mass


class _Shifts(NamedTuple):
    """By how many cells a partner, ``difference`` cells away, moves the larger of two values.

    Attributes:
        start, stop: the shifts from one on that occur.
        differences: the least difference of each shift from ``start`` to ``stop``.
        longest: the largest number of differences of one shift.
    """

    start: int
    stop: int
    differences: list[int]
    longest: int

    @classmethod
    def between(cls, h: float, fine: float, least: int, most: int) -> _Shifts:
        """The shifts, in cells of length ``fine``, for differences from ``least`` to ``most`` cells of length ``h``."""
        least_shift, most_shift = (math.floor(math.log1p(math.exp(max(d * h, -700.0))) / fine) for d in (least, most))
        # one more on either side, as these are rounded
        start = max(least_shift - 1, 1)
        stop = max(most_shift + 2, start)
        edges = np.ceil(np.log(np.expm1(fine * np.arange(start, stop + 1))) / h).astype(int)
        within = np.clip(edges, least, most + 1)
        return cls(start, stop, edges.tolist(), int(np.diff(within).max(initial=1)))

    def first_difference(self, shift: int) -> int:
        """The least difference with at least this shift, from ``start`` to ``stop``."""
        return self.differences[max(shift, self.start) - self.start]


class _Windows:
    """Sums of neighbouring values, each from positive terms, by a table of sums of 1, 2, 4, ... values."""

    def __init__(self, values: Array, longest: int):
        self.margin = longest
        table = [np.concatenate([np.zeros(longest), values, np.zeros(longest)])]
        while 2 << (len(table) - 1) <= longest:
            half = 1 << (len(table) - 1)
            double = table[-1].copy()
            double[:-half] += table[-1][half:]
            table.append(double)
        self.table = table

    def sums(self, start: int, count: int, length: int) -> Array:
        """[count] sums of ``length`` values from start, start + 1, ... on; values outside are zero."""
        at, level, total = start + self.margin, 0, None
        while length:
            if length & 1:
                part = self.table[level][at : at + count]
                total = part if total is None else total + part
                at += 1 << level
            length >>= 1
            level += 1
        assert total is not None  # a window is never empty
        return total


# Rates of tests on a sum of scores: one score for each of t independent values, all but one of them from one
# distribution.
#
# The scores are whole numbers, so that the sum has a distribution on a lattice, which one power of a transform gives
# with a proven error (docs/theory/shuffling.md, Lemma 5).

# no format is trusted to be more accurate than that of 64 bits
EXTENDED_ROUNDOFF = 2.0**-64
# roundings of a coefficient in each of the log2(size) layers of an FFT, and of a complex product
LAYER_ROUNDINGS, PRODUCT_ROUNDINGS = 8.0, 4.0
# exponents of Chernoff's bound, times half the window
TILTS = np.geomspace(2.0, 600.0, 24)


def score_sum_rates(
    scores: Counts, usual: Array, others: list[Array], count: int, size: int
) -> tuple[list[Array], list[Array], float]:
    """Compute the tails of a sum of ``count`` scores, one of which has another distribution than all the rest.

    Args:
        scores: [m] whole numbers, the score of each cell.
        usual: [m] masses of the cells for all values but one. others: for each case [m] masses for that one value.
        count: number of values, at least 2. size: number of places of the window of the sum, a power of two.
    Returns:
        For each case [size + 1] P(sum >= k) and P(sum < k) for k from c - size/2 on, where c is the usual mean of the
        sum, rounded; and a bound of the error of all of them (without that of the masses of ``others``).
    """
    mean = float(usual @ scores)
    first = round(count * mean) - size // 2
    centred = np.asarray(scores - mean, dtype=float)
    circles = np.zeros((1 + len(others), size), dtype=np.longdouble)
    for circle, masses in zip(circles, (usual, *others), strict=True):
        np.add.at(circle, scores % size, masses)
    rest, *one = map(np.fft.rfft, circles)
    unit = max(float(np.finfo(rest.real.dtype).eps) / 2, EXTENDED_ROUNDOFF)
    layers = LAYER_ROUNDINGS * unit * (math.log2(size) + 4)
    # masses carry a rounding each, and one for every other cell of the same score
    masses_error = 2 * UNIT_ROUNDOFF + scores.size * unit
    relative = count * (layers + PRODUCT_ROUNDINGS * unit + masses_error) + layers
    magnitude = np.minimum(np.abs(rest).astype(float) * (1 + 4 * UNIT_ROUNDOFF) + layers, 1.0)
    with np.errstate(under="ignore"):
        squares = 2 * float((magnitude ** (2 * (count - 2))).sum())
    # a sum of errors over places is at most the root of the sum of squared errors over frequencies
    error = 1.02 * relative * math.sqrt(squares) + size * UNIT_ROUNDOFF
    power = _power(rest, count - 1)
    above, below = [], []
    for spectrum in one:
        masses = np.maximum(np.roll(np.fft.irfft(power * spectrum, size), -(first % size)).astype(float), 0.0)
        above.append(np.append(np.cumsum(masses[::-1])[::-1], 0.0))
        below.append(np.append(0.0, np.cumsum(masses)))
    return above, below, error + max(_wrapped(centred, usual, masses, count, size) for masses in others)


def _wrapped(centred: Array, usual: Array, other: Array, count: int, size: int) -> float:
    """Chernoff's bound of the probability that the sum of centred scores leaves the window on either side."""
    total = 0.0
    for sign in (1.0, -1.0):
        tilts = TILTS / (size / 2)
        exponents = sign * tilts[:, None] * centred
        peak = exponents.max(axis=1)
        growth = np.exp(exponents - peak[:, None])
        log_usual, log_other = (peak + np.log(growth @ masses) for masses in (usual, other))
        slack = 1e-9 + 1e-12 * count
        total += math.exp(min(float(np.min((count - 1) * log_usual + log_other - tilts * (size / 2 - 1))) + slack, 0.0))
    return total


def _power(spectrum: np.ndarray, count: int) -> np.ndarray:
    """The power by squaring; what is too small to matter is dropped before it makes every product slow."""
    result, square = np.ones_like(spectrum), spectrum.copy()
    while count:
        square[np.abs(square) < 1e-140] = 0.0
        if count & 1:
            result = result * square
        count >>= 1
        square = square * square
    return result
