"""Rates of tests on a sum of scores: one score for each of t independent values, all but one of them from one
distribution.

The scores are whole numbers, so that the sum has a distribution on a lattice, which one power of a transform gives with
a proven error (docs/theory/shuffling.md, Lemma 5).
"""

from __future__ import annotations

import math

import numpy as np

from wpriv.numerics.arrays import Array, Counts

UNIT_ROUNDOFF = 2.0**-53
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
    rest, *one = (np.fft.rfft(_on_circle(scores, masses, size)) for masses in (usual, *others))
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


def _on_circle(scores: Counts, masses: Array, size: int) -> np.ndarray:
    circle = np.zeros(size, dtype=np.longdouble)
    np.add.at(circle, scores % size, masses)
    return circle


def _wrapped(centred: Array, usual: Array, other: Array, count: int, size: int) -> float:
    """Chernoff's bound of the probability that the sum of centred scores leaves the window on either side."""
    total = 0.0
    for sign in (1.0, -1.0):
        tilts = TILTS / (size / 2)
        exponents = sign * tilts[:, None] * centred
        log_usual, log_other = (_log_mean_exp(exponents, masses) for masses in (usual, other))
        slack = 1e-9 + 1e-12 * count
        total += math.exp(min(float(np.min((count - 1) * log_usual + log_other - tilts * (size / 2 - 1))) + slack, 0.0))
    return total


def _log_mean_exp(exponents: Array, masses: Array) -> Array:
    peak = exponents.max(axis=1)
    return np.asarray(peak + np.log(np.exp(exponents - peak[:, None]) @ masses))


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
