"""Projection of records onto an l1 or l2 ball, exact on a grid on which norms are integers."""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

from wpriv.errors import UsageError

Array = NDArray[np.float64]


def spacing(radius: float, noise: float) -> float:
    """Return the spacing of the grid: a power of two, with at least 2^25 points in a radius, or wider under huge noise.

    Multiples of it up to 2^52 are floats, so that neither records nor records with noise of that scale are rounded off
    it.
    """
    return 2.0 ** (math.floor(math.log2(max(radius, noise * 2.0**-16))) - 25)


def nearest(x: Array, radius: float, p: int) -> Array:
    """Project each row onto the l_p ball, in the Euclidean distance.

    For p = 2 the row is scaled down. For p = 1 all magnitudes are lowered by one amount, but not below 0, such that
    their sum becomes the radius.

    Args:
        x: [n, d] finite float64. radius: of the ball, in the units of x. p: 1 or 2.
    Returns:
        [n, d]; rows inside the ball are unchanged. Rounding may leave a norm above the radius by a few units in the
        last place.
    Source: Duchi, Shalev-Shwartz, Singer, Chandra (2008), Figure 1, for p = 1.

    >>> nearest(np.array([[3.0, -1.0], [0.2, 0.1]]), 1.0, 1).tolist()
    [[1.0, -0.0], [0.2, 0.1]]
    """
    largest = np.maximum(np.abs(x).max(axis=1, initial=0.0), radius)
    # relative to the largest entry nothing overflows
    relative = np.abs(x / largest[:, None])
    norm = relative.sum(axis=1) if p == 1 else np.sqrt(np.square(relative).sum(axis=1))
    outside = norm > radius / largest
    projected = np.array(x, np.float64)
    if p == 2:
        projected[outside] = (x / largest[:, None] * (radius / np.maximum(norm, 1e-300))[:, None])[outside]
    elif outside.any():
        projected[outside] = np.copysign(_onto_simplex(np.abs(x[outside]), radius), x[outside])
    return projected


def _onto_simplex(magnitudes: Array, radius: float) -> Array:
    """Project rows of nonnegative entries with a sum above the radius onto {y >= 0, sum of y = radius}."""
    # a common shift of a row does not change its projection; this one leaves numbers from 0 to the radius, whatever
    # their size
    shifted = np.maximum(radius - (magnitudes.max(axis=1, keepdims=True) - magnitudes), 0.0)
    ordered = -np.sort(-shifted, axis=1)
    excess = np.cumsum(ordered, axis=1) - radius
    counts = np.arange(1, shifted.shape[1] + 1)
    last = (ordered * counts > excess).sum(axis=1) - 1
    rows = np.arange(len(shifted))
    projected: Array = np.maximum(shifted - (excess[rows, last] / counts[last])[:, None], 0.0)
    return projected


def on_grid(x: Array, radius: float, p: int, step: float) -> Array:
    """Round projected rows to integer multiples of ``step`` that lie exactly in the ball.

    Entries are rounded towards 0. The sums of magnitudes or squares are then sums of integers below 2^53, hence exact.
    Rows that still exceed floor(radius/step), which rounding can cause, lose one cell in each entry.

    Args:
        x: [n, d] from ``nearest``. radius, p: of the ball, as for ``nearest``. step: from ``spacing``.
    Returns:
        [n, d] float64 of integers k without negative zeros; ||k||_p <= floor(radius/step).
    """
    cells = np.trunc(x / step) + 0.0  # -0 becomes 0: the sign of a zero must reveal nothing
    limit = math.floor(radius / step)
    while (over := _power_sum(cells, p) > limit**p).any():
        cells[over] -= np.sign(cells[over])
    return cells


def _power_sum(cells: Array, p: int) -> Array:
    """||k||_p^p of each row."""
    sums: Array = np.abs(cells).sum(axis=1) if p == 1 else np.square(cells).sum(axis=1)
    return sums


def check(radius: float, noise: float) -> None:
    """Refuse a ball and noise for which the grid is too coarse or exceeds the range of floats."""
    if not 1e-9 <= radius <= 1e9:
        raise UsageError(f"the radius must lie between 1e-9 and 1e9; found {radius:g}. Use other units")
    if not 2.0**-14 <= noise / radius <= 1e30:
        raise UsageError(
            f"the noise must lie between 1/16384 of the radius (less gives no privacy) and 1e30 times the radius; "
            f"found {noise:g} at radius {radius:g}"
        )
