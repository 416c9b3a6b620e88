"""Lattice distributions above and below the distribution of a density ratio, in the order of their puts.

A random ratio X >= 0 with mean at most one is the density ratio of a pair of distributions; one minus its mean is the
mass at an infinite ratio. X is *above* Y if E[(x - X)_+] >= E[(x - Y)_+] for every x. Then the pair of X is easier to
distinguish than that of Y, and sums of independent ratios above others are above their sums
(docs/theory/allocation.md).

- ``spread_masses`` divides the mass of every cell between its ends so that the mean stays the same: the result is above
  X (chords of the profile).
- ``contracted_masses`` lowers the profile at every node by more than a chord can exceed it: the result is below X (a
  convex minorant of the profile).

Both errors are of second order in the spacing.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from wpriv.numerics.arrays import Array

# negative mass that rounding may move down from the last node, and the most nodes whose mass is shared out
LOST_TO_ROUNDING, MAX_SHARED_NODES = 2e-14, 100_000


class RatioCells(NamedTuple):
    """The masses of a ratio between the nodes 0, h, ..., N h; every cell is halved at its middle.

    Attributes:
        step: h, the spacing of the nodes.
        q: [2, N] mass of the lower and of the upper half of each cell.
        p: [2, N] mean of the ratio over the same halves: their mass under the first distribution of the pair.
        top_q: mass above N h.
        excess: E[(X - N h)_+], with the mass at infinity.
        infinity: mass at an infinite ratio.
    """

    step: float
    q: Array
    p: Array
    top_q: float
    excess: float
    infinity: float


def spread_masses(cells: RatioCells) -> Array:
    """[N + 1] masses on the nodes of a ratio above X; what lies above the last node moves down to it."""
    h = cells.step
    nodes = h * np.arange(cells.q.shape[1] + 1)
    q, p = cells.q.sum(axis=0), cells.p.sum(axis=0)
    right = np.clip((p - nodes[:-1] * q) / h, 0.0, q)
    mass = np.zeros(nodes.size)
    mass[:-1] = q - right
    mass[1:] += right
    mass[-1] += cells.top_q
    return mass


def contracted_masses(cells: RatioCells) -> Array | None:
    """[N + 1] masses on the nodes of a ratio below X with its mean; None where the nodes are too few for one."""
    h, last = cells.step, cells.q.shape[1]
    nodes = h * np.arange(last + 1)
    middles = nodes[:-1] + h / 2
    # excess of the first half over the left end and of the second one below the right end, and the whole cell's
    (q1, q2), (p1, p2) = cells.q, cells.p
    above1, above2 = np.maximum(p1 - nodes[:-1] * q1, 0.0), np.maximum(p2 - middles * q2, 0.0) + h / 2 * q2
    below2, below1 = np.maximum(nodes[1:] * q2 - p2, 0.0), np.maximum(middles * q1 - p1, 0.0) + h / 2 * q1
    above, below = above1 + above2, below1 + below2
    gap = _largest_gap(above1, below2, h * q1, h * q2)
    required = np.maximum(np.append(gap, 0.0), np.append(0.0, gap))
    # E[(x - X)_+] and E[(X - x)_+] at the nodes, without the mass at infinity, as sums of positive terms
    mass_below = np.append(0.0, np.cumsum(q1 + q2))
    mass_above = cells.top_q + np.append(np.cumsum((q1 + q2)[::-1])[::-1], 0.0)
    put = np.append(0.0, np.cumsum(h * mass_below[:-1] + below))
    call = max(cells.excess - cells.infinity, 0.0) + np.append(np.cumsum((h * mass_above[1:] + above)[::-1])[::-1], 0.0)
    cramped_left, cramped_right = required > put, required > call
    cramped_left[0] = cramped_right[-1] = True
    middle = int(np.argmin(np.abs(nodes - 1)))
    first = int(np.flatnonzero(cramped_left[: middle + 1])[-1]) + 1
    final = middle + int(np.argmax(cramped_right[middle:])) - 1
    if cramped_left[middle:].any() or cramped_right[: middle + 1].any() or first > final:
        return None
    lowering = required
    lowering[:first], lowering[final + 1 :] = put[:first], call[final + 1 :]
    lowering[first] = max(lowering[first], below[first - 1])
    lowering[final] = max(lowering[final], above[final])
    slope = np.diff(lowering) / h
    mass = spread_masses(cells)
    mass[:-1] -= slope
    mass[1:] += slope
    mass[: first - 1] = mass[final + 2 :] = 0.0
    return _without_negative(mass)


def _largest_gap(above1: Array, below2: Array, q1: Array, q2: Array) -> Array:
    """Bound on chord minus profile in each cell, from the tangents at its ends and its middle (certified-pld, Lemma 5).

    ``q1`` and ``q2`` are the masses of the halves times the width of a cell.
    """
    with np.errstate(invalid="ignore", divide="ignore"):
        x1 = np.where(q1 > 0, np.minimum(above1 / q1, 1.0), 0.0)
        x2 = np.where(q2 > 0, 1 - np.minimum(below2 / q2, 1.0), 1.0)
    return np.asarray(np.maximum(above1 * (1 - x1) + below2 * x1, above1 * (1 - x2) + below2 * x2))


def _without_negative(mass: Array) -> Array | None:
    """Share every negative mass between its neighbours, keeping mass and mean, which lowers the puts further."""
    negative = [int(i) for i in np.flatnonzero(mass < 0)]
    if len(negative) > MAX_SHARED_NODES:
        return None
    before: dict[int, int] = {}
    after: dict[int, int] = {}
    lost = 0.0
    while negative:
        i = negative.pop()
        amount, mass[i] = float(mass[i]), 0.0
        if amount >= 0:
            mass[i] = amount
            continue
        left, right = before.get(i, i - 1), after.get(i, i + 1)
        if left >= 0:
            after[left] = right
        if right < mass.size:
            before[right] = left
        if left < 0:
            return None
        if right >= mass.size:
            # moved down, what is left lies lower still, but its mean exceeds that of X by this times the spacing
            lost -= amount
            mass[left] += amount
            negative += [left] if mass[left] < 0 else []
            continue
        share = (i - left) / (right - left)
        mass[left] += (1 - share) * amount
        mass[right] += share * amount
        negative += [k for k in (left, right) if mass[k] < 0]
    return mass if lost <= LOST_TO_ROUNDING else None


def log_moments(mass: Array, thetas: Array, size: int = 2048) -> Array:
    """Upper bounds of ln E[e^{theta i}] for masses on the whole numbers i, from at most about ``size`` wider cells.

    Dividing the mass of a wide cell between its ends can only raise a convex mean, by a second-order amount.
    """
    factor = -(-mass.size // size)
    count = -(-mass.size // factor)
    block = np.zeros((count, factor))
    block.ravel()[: mass.size] = mass
    share = np.arange(factor) / factor
    coarse = np.zeros(count + 1)
    coarse[:-1] = block @ (1 - share)
    coarse[1:] += block @ share
    place = factor * np.flatnonzero(coarse > 0).astype(float)
    exponent = thetas[:, None] * place + np.log(coarse[coarse > 0])
    peak = exponent.max(axis=1)
    return np.asarray(peak + np.log(np.exp(exponent - peak[:, None]).sum(axis=1)))
