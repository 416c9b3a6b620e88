"""Masses of a sum of independent equal lattice variables, each between two proven bounds that are close in relation.

One FFT power gives all masses, but with an error that is small only beside the largest of them. The variables are
therefore tilted by e^{theta i} for several theta, and each mass is taken from the tilt whose error there is least
(docs/theory/allocation.md, Lemma 4). What wraps around is bounded by Chernoff's bound.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np

from wpriv.errors import Unsupported
from wpriv.numerics.arrays import Array
from wpriv.numerics.ratio_lattice import log_moments

UNIT_ROUNDOFF = 2.0**-53
# no format is trusted to be more accurate than that of 64 bits
EXTENDED_ROUNDOFF = 2.0**-64
# roundings of a coefficient in each of the log2(n) layers of an FFT, of a complex product, and of a tilted mass (mostly
# of the exponent, which is below 50 on average)
LAYER_ROUNDINGS, PRODUCT_ROUNDINGS, MASS_ROUNDINGS = 8.0, 4.0, 64.0
# ln of the probability outside the window; least that of the tilted mean; standard deviations from one tilt to the next
WINDOW_LOG_MASS, TILT_LOG_MASS, TILT_DEVIATIONS = -44.0, -36.0, 5.5
MAX_TILTS = 24
MAX_WINDOW = 1 << 23


class SumMasses(NamedTuple):
    """Bounds of the masses of a sum on the nodes first, first + 1, ...

    Attributes:
        first: the first node.
        low, high: lower and upper bound of each mass.
        log_above: ln of an upper bound of the mean of the sum over all larger nodes.
        log_below: ln of an upper bound of the mass on all smaller nodes.
    """

    first: int
    low: Array
    high: Array
    log_above: float
    log_below: float


def sum_masses(mass: Array, count: int) -> SumMasses:
    """Bound the masses of the sum of ``count`` independent variables with ``mass[i]`` at i.

    Raises:
        Unsupported: the window needs more than ``MAX_WINDOW`` nodes.
    """
    mean = float(mass @ np.arange(mass.size))
    deviation = math.sqrt(max(float(mass @ (np.arange(mass.size) - mean) ** 2), 1e-300))
    thetas = np.geomspace(min(0.02 / (math.sqrt(count) * deviation), 1 / mass.size), 80 / deviation, 64)
    thetas = np.concatenate([-thetas[::-1], thetas])
    cgf = count * log_moments(mass, thetas)
    up = thetas > 0
    top = min(math.ceil(float(np.min((cgf[up] - WINDOW_LOG_MASS) / thetas[up]))), count * (mass.size - 1))
    bottom = max(math.floor(float(np.max((cgf[~up] - WINDOW_LOG_MASS) / thetas[~up]))), 0)
    size = _fast_length(top - bottom + 1)
    bounds = (thetas, cgf, bottom, top)
    tilts = [theta for sign in (1, -1) for theta in _tilts(mass, count, sign, (bottom, top))]
    best = np.full(top - bottom + 1, math.inf)
    low, high = np.zeros(best.size), np.full(best.size, 1.0)
    for theta in dict.fromkeys(tilts):
        _improve(mass, count, theta, size, bounds, (best, low, high))
    log_above = -math.inf
    if top < count * (mass.size - 1):
        # S <= top e^{(S - top) / top} above top, so that E[S; S > top] <= top E[e^{theta (S - top)}], theta >= 1 / top
        steep = thetas * top >= 1
        log_above = math.log(top) + float(np.min(cgf[steep] - thetas[steep] * top, initial=math.inf))
    log_below = float(np.min(cgf[~up] - thetas[~up] * bottom)) if bottom else -math.inf
    return SumMasses(bottom, low, high, log_above, log_below)


def _tilts(mass: Array, count: int, sign: int, window: tuple[int, int]) -> list[float]:
    """Tilts from zero outwards whose sums lie a few standard deviations apart, as far as the sum matters."""
    place = np.arange(mass.size)
    theta, tilts = 0.0, []
    for _ in range(MAX_TILTS):
        weight, log_norm = _tilted(mass, theta)
        mean = float(weight @ place)
        variance = float(weight @ (place - mean) ** 2)
        rate = count * (log_norm - theta * mean)
        if not window[0] < count * mean < window[1] or rate < TILT_LOG_MASS:
            break
        tilts.append(theta)
        theta += sign * TILT_DEVIATIONS / math.sqrt(max(count * variance, 1e-300))
    return tilts or [0.0]


def _tilted(mass: Array, theta: float) -> tuple[Array, float]:
    """The masses times e^{theta i}, scaled to add up to one, and ln of their sum before that."""
    with np.errstate(divide="ignore"):
        exponent = theta * np.arange(mass.size) + np.log(mass)
    peak = float(exponent.max())
    weight = np.exp(exponent - peak)
    total = float(weight.sum())
    return weight / total, peak + math.log(total)


def _improve(
    mass: Array,
    count: int,
    theta: float,
    size: int,
    bounds: tuple[Array, Array, int, int],
    result: tuple[Array, Array, Array],
) -> None:
    """Compute the masses at one tilt, and take them wherever their error is less than before."""
    thetas, cgf, bottom, top = bounds
    best, low, high = result
    weight, log_moment = _tilted(mass, theta)
    log_norm = count * log_moment
    folded = np.zeros(size)
    for start in range(0, weight.size, size):
        part = weight[start : start + size]
        folded[: part.size] += part
    # in extended precision where the processor and numpy have it
    spectrum = np.fft.rfft(folded.astype(np.longdouble))
    unit = max(float(np.finfo(spectrum.real.dtype).eps) / 2, EXTENDED_ROUNDOFF)
    layers = LAYER_ROUNDINGS * unit * (math.log2(size) + 4)
    magnitude = np.minimum(np.abs(spectrum).astype(float) * (1 + 4 * UNIT_ROUNDOFF) + layers, 1.0)
    with np.errstate(under="ignore"):
        spread = (2 * float((magnitude ** (count - 1)).sum())) / size
    rounding = (count * (layers + PRODUCT_ROUNDINGS * unit) + layers) * 1.01 * spread
    wrapped = 0.0
    with np.errstate(over="ignore"):
        if top < count * (mass.size - 1):
            at = thetas > theta
            above = cgf[at] - log_norm - (thetas[at] - theta) * (top + 1)
            wrapped += float(np.exp(np.min(above, initial=math.inf)))
        if bottom > 0:
            at = thetas < theta
            below = cgf[at] - log_norm - (thetas[at] - theta) * (bottom - 1)
            wrapped += float(np.exp(np.min(below, initial=math.inf)))
    sums = np.fft.irfft(_power(spectrum, count), size).astype(float)
    value = np.roll(sums, -(bottom % size))[: best.size]
    scale = log_norm - theta * np.arange(bottom, top + 1)
    with np.errstate(divide="ignore", over="ignore", under="ignore", invalid="ignore"):
        error = scale + math.log(rounding + wrapped) if rounding + wrapped < math.inf else np.full(best.size, math.inf)
        better = np.flatnonzero(error < best)
        factor = np.exp(np.minimum(scale[better], 600.0))
        relative = MASS_ROUNDINGS * UNIT_ROUNDOFF * (count + abs(log_norm) + float(np.abs(scale).max()) + 4)
        upper = np.minimum(factor * (np.maximum(value[better], 0.0) * (1 + relative) + rounding), 1.0)
        lower = factor * np.maximum(value[better] * (1 - relative) - rounding - wrapped, 0.0)
    best[better], low[better], high[better] = error[better], lower, upper


def _power(spectrum: np.ndarray, count: int) -> np.ndarray:
    """The power by squaring: at most ``count`` products' roundings."""
    result = None
    square = spectrum.copy()
    # what is too small to matter is dropped before it makes every product slow
    square[np.abs(square) < 1e-30] = 0.0
    while True:
        if count & 1:
            result = square.copy() if result is None else result * square
            result[np.abs(result) < 1e-140] = 0.0
        count >>= 1
        if not count:
            return np.asarray(result)
        square *= square
        square[np.abs(square) < 1e-140] = 0.0


def _fast_length(size: int) -> int:
    """The least even product of a power of two and 1, 3, 5 or 9 that is not below ``size``."""
    if size > MAX_WINDOW:
        raise Unsupported(
            f"a pass needs {size:,} cells at this tolerance; the limit is {MAX_WINDOW:,}. Raise `tol`, add noise, or "
            f"use fewer steps a pass"
        )
    return min(odd << max(1, math.ceil(math.log2(size / odd))) for odd in (1, 3, 5, 9))
