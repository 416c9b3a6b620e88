"""Records brought into an l1 or l2 ball, exactly: on a grid on which norms are whole numbers and can be checked without rounding."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from numpy.typing import NDArray

from wpriv.errors import UsageError

Array = NDArray[Any]


def spacing(radius: float, noise: float) -> float:
    """The distance of the grid's points: the largest power of two with at least 2^25 of them in a radius, or wider under huge noise.

    Multiples of it up to 2^52 are floats, so that neither records nor records with noise of that scale are ever rounded off it.
    """
    return 2.0 ** (math.floor(math.log2(max(radius, noise * 2.0**-16))) - 25)


def nearest(x: Array, radius: float, p: int) -> Array:
    """Each row's nearest point, in the Euclidean distance, of the ball of the l_p norm.

    For p = 2 the row is scaled down. For p = 1 all its magnitudes are lowered by one amount, down to 0 at most, that brings their sum
    to the radius.

    Args:
        x: [n, d] finite float64. radius: of the ball, in the units of x. p: 1 or 2.
    Returns:
        [n, d]; rows inside the ball are untouched. Rounding may leave a norm above the radius by a few units in the last place.
    Source:
        Duchi, Shalev-Shwartz, Singer, Chandra (2008), Figure 1, for p = 1.

    >>> nearest(np.array([[3.0, -1.0], [0.2, 0.1]]), 1.0, 1).tolist()
    [[1.0, 0.0], [0.2, 0.1]]
    """
    top = np.maximum(np.abs(x).max(axis=1, initial=0.0), radius)
    # relative to the largest entry nothing overflows
    relative = np.abs(x / top[:, None])
    norm = relative.sum(axis=1) if p == 1 else np.sqrt(np.square(relative).sum(axis=1))
    outside = norm > radius / top
    found = np.array(x, np.float64)
    if p == 2:
        found[outside] = (x / top[:, None] * (radius / np.maximum(norm, 1e-300))[:, None])[outside]
    elif outside.any():
        found[outside] = np.copysign(_simplex(np.abs(x[outside]), radius), x[outside])
    return found


def _simplex(magnitudes: Array, radius: float) -> Array:
    """The nearest points, with entries of at least 0 that sum to the radius, of rows whose sum is larger."""
    # a shift of all entries of a row changes nothing; this one leaves numbers from 0 to the radius, whatever their size was
    low = np.maximum(radius - (magnitudes.max(axis=1, keepdims=True) - magnitudes), 0.0)
    ordered = -np.sort(-low, axis=1)
    excess = np.cumsum(ordered, axis=1) - radius
    counts = np.arange(1, low.shape[1] + 1)
    last = (ordered * counts > excess).sum(axis=1) - 1
    rows = np.arange(len(low))
    found: Array = np.maximum(low - (excess[rows, last] / counts[last])[:, None], 0.0)
    return found


def on_grid(x: Array, radius: float, p: int, step: float) -> Array:
    """Rows in the ball, give or take rounding, as whole multiples of ``step``, exactly in the ball.

    Entries are rounded towards 0. The sums of magnitudes or squares are then sums of whole numbers below 2^53, hence exact, and
    rows that still exceed the whole part of radius/step, which rounding can bring about, lose one cell in each entry.

    Args:
        x: [n, d] from ``nearest``. step: from ``spacing``.
    Returns:
        [n, d] float64 of whole numbers k without negative zeros; ||k||_p <= floor(radius/step).
    """
    cells = np.trunc(x / step) + 0.0  # -0 becomes 0: the sign of a zero must tell nothing
    most = math.floor(radius / step)
    while (over := _size(cells, p) > most**p).any():
        cells[over] -= np.sign(cells[over])
    return cells


def _size(cells: Array, p: int) -> Array:
    found: Array = np.abs(cells).sum(axis=1) if p == 1 else np.square(cells).sum(axis=1)
    return found


def check(radius: float, noise: float) -> None:
    """Refuses a ball and noise for which the grid is no fine one, or leaves the range of floats.

    Raises:
        UsageError: radius is outside 1e-9 to 1e9, or noise/radius outside 2^-14 to 1e30.
    """
    if not 1e-9 <= radius <= 1e9:
        raise UsageError(f"the radius must lie between 1e-9 and 1e9; found {radius:g}. Use other units")
    if not 2.0**-14 <= noise / radius <= 1e30:
        raise UsageError(
            f"noise is drawn from 1/16384 of the radius (below which it hides nothing) to 1e30 of it; found {noise:g} at radius {radius:g}"
        )
