"""Few values for a normal of a chain, below and above it in convex order, with all of its loads at once.

docs/theory/balls-in-bins.md, Theorem 8, has the proofs.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np
from scipy.special import ndtr, ndtri

from wpriv.accounting.mechanisms._lognormal_sums import normal_masses
from wpriv.numerics.arrays import Array

# the density of values: its deviation and least size, how far the highest is beyond the place that matters, and the
# lowest: of no value, and less for each
DENSITY, LEAST_DENSITY, HIGHEST, LOWEST = 1.7, 0.1, 1.6, (-1.5, 0.03)


class Values(NamedTuple):
    """A normal that has been exchanged for few values: [n] masses and [k, n] factors of the terms with its k loads.

    ``lost``: of the mean of all factors.
    """

    mass: Array
    factors: Array
    lost: float


def values_below(loads: Array, count: int, deep: float) -> Values:
    """The conditional means of e^(load z - load^2 / 2) on ``count`` cells of a normal z that matters up to ``deep``."""
    edges = np.concatenate([[-math.inf], _edges(count, deep, HIGHEST + deep), [math.inf]])
    mass = normal_masses(edges)
    factors = np.stack([normal_masses(edges - load) for load in loads]) / mass
    return Values(mass, factors, 0.0)


def values_above(loads: Array, count: int, deep: float, lost: float) -> Values:
    """Values above a normal: slopes of concave lines above the means of e^(load z - load^2 / 2) over the largest z.

    The lines of all loads bend at the same edges of cells; the lowest cell has the value 0.
    """
    largest = float(np.abs(loads).max())
    edges = _tangent_edges(largest, _edges(count, deep, largest - float(ndtri(lost))))
    mass = normal_masses(np.concatenate([[-math.inf], edges, [math.inf]]))
    factors, left = np.zeros((len(loads), count)), 1e-14
    for each, load in zip(factors, loads.tolist(), strict=True):
        heights = _heights(load, edges, lost)
        if not heights.max() <= 1:
            # too few cells
            return Values(mass, np.zeros((len(loads), count)), 1.0)
        each[:] = np.diff(-heights) / mass
        left += float(heights[-1])
        # the least concave line above: neighbours with decreasing values join
        blocks: list[list[float]] = []
        for value, weight in zip(each.tolist(), mass.tolist(), strict=True):
            blocks.append([value, weight, 1])
            while len(blocks) > 1 and blocks[-2][0] > blocks[-1][0]:
                last, before = blocks.pop(), blocks.pop()
                whole = last[1] + before[1]
                blocks.append([(last[0] * last[1] + before[0] * before[1]) / whole, whole, last[2] + before[2]])
        each[:] = np.concatenate([np.full(int(size), value) for value, _, size in blocks])
    return Values(mass, np.maximum(factors, 0.0), left)


def _heights(load: float, edges: Array, lost: float) -> Array:
    """[n + 1] heights at the edges, and at both ends, of lines above the mean of e^(load z - load^2 / 2) over larger z.

    Tangents meet at the edges, from both ends to the middle, where lines are lifted as far as they have to be.
    """
    places = np.concatenate([[-math.inf], edges, [math.inf]])
    tails, middle = ndtr(-places), len(edges) // 2
    heights: Array = np.concatenate([[1.0], np.zeros(len(edges)), [lost]])
    heights[1] = 1.0
    for k in range(1, middle):
        heights[k + 1] = _on_tangent(load, places[k], heights[k], places[k + 1], 1.0)
    for k in range(len(edges) + 1, middle + 1, -1):
        heights[k - 1] = _on_tangent(load, places[k], heights[k], places[k - 1], -1.0)
    slope = max(float(heights[middle] - heights[middle + 1]) / float(tails[middle] - tails[middle + 1]), 1e-300)
    t = min(max((math.log(slope) + load**2 / 2) / load, float(places[middle])), float(places[middle + 1]))
    chord = float(heights[middle + 1]) + slope * float(ndtr(-t) - tails[middle + 1])
    heights[middle : middle + 2] += max(float(ndtr(load - t)) - chord, 0.0)
    return heights


def _on_tangent(load: float, place: float, height: float, other: float, sign: float) -> float:
    """The height at another place of the tangent that has this height at a place, and touches in the direction."""
    tail = float(ndtr(-place))

    def at(t: float, tail: float) -> float:
        return float(ndtr(load - t)) + math.exp(load * t - load * load / 2) * (tail - float(ndtr(-t)))

    low, high = (place, place + 30.0) if math.isfinite(place) else (-30.0, 30.0)
    if sign < 0:
        low, high = (place - 30.0, place) if math.isfinite(place) else (-30.0, 30.0)
    for _ in range(60):
        t = (low + high) / 2
        far = (at(t, tail) < height) == (sign > 0)
        low, high = (t, high) if far else (low, t)
    return at(high if sign > 0 else low, float(ndtr(-other)))


def _tangent_edges(load: float, touching: Array) -> Array:
    """[n] the places at which neighbouring tangents intersect; they touch at n places, after a line of height 1."""
    heights = np.append(1.0, ndtr(load - touching))
    tails, slopes = np.append(1.0, ndtr(-touching)), np.append(0.0, np.exp(load * touching - load**2 / 2))
    starts = heights - slopes * tails
    edges = -ndtri(np.diff(starts) / -np.diff(slopes))
    # any increasing edges will do
    return np.asarray(edges if np.all(np.isfinite(edges)) and np.all(np.diff(edges) > 0) else touching)


def _edges(count: int, deep: float, high: float) -> Array:
    """[count - 1] places between cells of a normal up to ``high``: densest between 0 and ``deep``."""
    z = np.linspace(LOWEST[0] - LOWEST[1] * count, high, 2001)
    away = np.maximum(np.maximum(-z, z - deep), 0.0)
    shares = np.cumsum(np.exp(-((away / DENSITY) ** 2) / 2) + LEAST_DENSITY)
    return np.asarray(np.interp(np.linspace(shares[0], shares[-1], count - 1), shares, z))
