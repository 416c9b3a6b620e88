"""The sensitivity of a strategy matrix of correlated noise, between two ends.

A record takes part in steps that lie at least ``separation`` apart, its pattern, and contributes a vector of norm at
most 1 to each of them. docs/theory/bands.md has the proofs.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np

from wpriv.numerics.arrays import Array

# operations up to which the bound of far pairs counts participations
MAX_WORK = 2e9
# unit of rounding, and what underflow may hide in a matrix whose largest entry is near 1
UNIT, HIDDEN = 2.0**-53, 1e-300
# moves from one pattern to a better one
MAX_MOVES = 30


class Sensitivity(NamedTuple):
    """Both ends of the largest norm of a record's contribution to the rows of C x.

    Attributes:
        lower, upper: the ends, rounded outwards.
        pattern: steps, counted from 0, whose contributions reach the lower end.
    """

    lower: float
    upper: float
    pattern: tuple[int, ...]


def strategy_sensitivity(matrix: Array, separation: int, participations: int = 0) -> Sensitivity:
    """Bound max |C x| over the contributions x of one record: both ends, equal up to rounding where that is proven.

    Args:
        matrix: [n, n] the strategy C; finite numbers, at least one of which is not 0.
        separation: the smallest distance of two steps in which a record takes part, at least 1.
        participations: the largest number of steps in which a record takes part; 0 for no limit but the separation.

    Source: Choquette-Choo et al. (2023), Theorem 2 and Algorithm 3 (orthogonal columns); Kalinin, Lampert (2024),
        Theorem 2 (decreasing Toeplitz matrices); docs/theory/bands.md, Theorems 3 to 5.
    """
    exponent = math.frexp(float(np.abs(matrix).max()))[1]
    scaled = np.ldexp(np.asarray(matrix, dtype=float), -exponent)
    size = scaled.shape[0]
    most = -(-size // separation)
    limit = min(participations, most) if participations else most
    counts = limit if limit < most else 0
    if limit == 1 or bands(matrix) <= separation:
        squares = np.einsum("ij,ij->j", scaled, scaled) * (1 + 2 * (size + 2) * UNIT) + HIDDEN
        best, start = _path(squares, None, separation, counts)
        return _ends(scaled, best * _slack(limit), [start], separation, counts, exponent)
    overlaps = _overlaps(scaled, separation)
    weights = np.diagonal(overlaps).copy()
    if bands(matrix) > 2 * separation:
        weights += _far(overlaps, separation, counts)
    best, start = _path(weights, overlaps, separation, counts)
    upper = min(best * _slack(2 * limit), _monotone_bound(overlaps, separation, limit))
    starts = [start, np.arange(0, size, separation)[:limit]]
    return _ends(scaled, upper, starts, separation, counts, exponent)


def bands(matrix: Array) -> int:
    """Number of diagonals of a lower-triangular matrix, from the main one to the last that is not 0."""
    size = matrix.shape[0]
    filled = matrix != 0
    last = size - 1 - np.argmax(filled[::-1], axis=0)
    return int(np.max(np.where(filled.any(axis=0), last - np.arange(size), 0))) + 1


def _slack(terms: int) -> float:
    """A factor above the rounding of a sum of so many terms that are not negative, each of which is such a sum."""
    return 1 + 8 * (terms + 8) * UNIT


def _overlaps(scaled: Array, separation: int) -> Array:
    """[n, n] upper ends of |<column i, column j>| for steps that may be in one pattern, and 0 for others."""
    size = scaled.shape[0]
    products = np.abs(scaled.T @ scaled)
    sizes = np.abs(scaled)
    # the error of an inner product of n terms, in whatever order they are added
    products += 4 * (size + 4) * UNIT * (sizes.T @ sizes) + HIDDEN
    for distance in range(1, min(separation, size)):
        rows = np.arange(size - distance)
        products[rows, rows + distance] = products[rows + distance, rows] = 0.0
    return products


def _path(weights: Array, overlaps: Array | None, separation: int, counts: int) -> tuple[float, Array]:
    """The largest sum of weights over a pattern, with twice the overlaps of participations less than 2 b apart.

    Args:
        weights: [n] not negative. overlaps: [n, n] or None for none.
        counts: the largest number of participations; 0 for no limit.
    Returns:
        The sum, and the pattern in ascending order.
    """
    size, columns = weights.size, max(counts, 1)
    # of patterns with at most c + 1 participations: the best that ends at a step, and the best before a step
    ending, before = np.zeros((size, columns)), np.zeros((size + 1, columns))
    near = separation if overlaps is None else 2 * separation
    for j in range(size):
        rest = before[max(0, j - near + 1)]
        first, last = max(0, j - near + 1), max(0, j - separation + 1)
        if overlaps is not None and last > first:
            rest = np.maximum(rest, (ending[first:last] + 2 * overlaps[first:last, j, None]).max(axis=0))
        ending[j] = weights[j]
        if counts:
            ending[j, 1:] += rest[:-1]
        else:
            ending[j] += rest
        before[j + 1] = np.maximum(before[j], ending[j])
    column = columns - 1
    j = int(np.argmax(ending[:, column]))
    pattern = [j]
    while column > 0 or not counts:
        column -= 1 if counts else 0
        first, last = max(0, j - near + 1), max(0, j - separation + 1)
        values = ending[:last, column].copy()
        if overlaps is not None:
            values[first:] += 2 * overlaps[first:last, j]
        if not values.size:
            break
        j = int(np.argmax(values))
        pattern.append(j)
    return float(before[size, -1]), np.array(pattern[::-1])


def _far(overlaps: Array, separation: int, counts: int) -> Array:
    """[n] the largest sum of overlaps of a step with others of a pattern that lie at least 2 b away from it."""
    size = overlaps.shape[0]
    counts = counts if counts * size * size <= MAX_WORK else 0
    left = _far_left(overlaps, separation, counts)
    right = _far_left(overlaps[::-1, ::-1], separation, counts)[::-1]
    # at most c participations on one side leave counts - 1 - c for the other
    return np.asarray((left + right[:, ::-1]).max(axis=1))


def _far_left(overlaps: Array, separation: int, counts: int) -> Array:
    """[n, counts] the same of steps before, for at most 0, 1, ... participations; [n, 1] without a limit."""
    size, columns = overlaps.shape[0], max(counts, 1)
    result = np.zeros((size, columns))
    history = np.zeros((separation, size, columns))
    best = np.zeros((size, columns))
    for i in range(size - 2 * separation):
        slot = i % separation
        extended = history[slot]
        column = overlaps[:, i, None]
        if counts:
            best[:, 1:] = np.maximum(best[:, 1:], extended[:, :-1] + column)
        else:
            best = np.maximum(best, extended + column)
        history[slot] = best
        result[i + 2 * separation] = best[i + 2 * separation]
    return result


def _monotone_bound(overlaps: Array, separation: int, limit: int) -> float:
    """The sum over the pattern 0, b, 2 b, ... of the least overlaps above the given ones that fall with both steps."""
    size = overlaps.shape[0]
    starts = np.arange(limit) * separation
    diagonal = np.maximum.accumulate(np.diagonal(overlaps)[::-1])[::-1]
    sums = [math.fsum(diagonal[starts].tolist())]
    largest = np.zeros(size)
    for distance in range(size - 1, separation - 1, -1):
        np.maximum(largest[distance:], np.diagonal(overlaps, distance), out=largest[distance:])
        if distance % separation == 0 and distance <= starts[-1]:
            falling = np.maximum.accumulate(largest[::-1])[::-1]
            sums.append(2 * math.fsum(falling[starts[starts >= distance]].tolist()))
    return math.fsum(sums) * _slack(0)


def _ends(scaled: Array, upper: float, starts: list[Array], separation: int, counts: int, exponent: int) -> Sensitivity:
    """Both ends: the root of an upper end, and the norm of the best contribution that a search reaches."""
    searches = [_improved(scaled, start, separation, counts) for start in starts]
    _, pattern, signs = max(searches, key=lambda contribution: contribution[0])
    rows = (scaled[:, pattern] * signs).tolist()
    moved = [math.fsum(row) for row in rows]
    lower = math.sqrt(math.fsum(value * value for value in moved)) * (1 - 8 * UNIT)
    top = math.sqrt(upper) * (1 + 4 * UNIT)
    return Sensitivity(
        math.ldexp(min(lower, top), exponent), math.ldexp(top, exponent), tuple(int(step) for step in pattern)
    )


def _improved(scaled: Array, pattern: Array, separation: int, counts: int) -> tuple[float, Array, Array]:
    """A contribution of signs, searched from a pattern: |C x|^2, its pattern, and its signs.

    The first signs are those that lengthen the sum, one participation after the other. |C x|^2 is convex in x, so that
    the x with the largest inner product with its gradient is at least as good.
    """
    signs, total = np.ones(pattern.size), np.zeros(scaled.shape[0])
    for place, step in enumerate(pattern):
        signs[place] = -1.0 if scaled[:, step] @ total < 0 else 1.0
        total += signs[place] * scaled[:, step]
    value = float(np.sum((scaled[:, pattern] @ signs) ** 2))
    for _ in range(MAX_MOVES):
        gradient = scaled.T @ (scaled[:, pattern] @ signs)
        _, other = _path(np.abs(gradient), None, separation, counts)
        other_signs = np.where(gradient[other] < 0, -1.0, 1.0)
        moved = float(np.sum((scaled[:, other] @ other_signs) ** 2))
        if moved <= value:
            break
        value, pattern, signs = moved, other, other_signs
    return value, pattern, signs
