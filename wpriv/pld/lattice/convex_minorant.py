"""Lower dots: a piecewise-linear convex function below a profile, worked out in masses so that nothing cancels.

Pushing the value at a node down by g changes the P-mass there and at its neighbours by second differences of g; what a node may be
pushed by is bounded by its cells, and at the ends of the law by the room it has above the straight line that ends the profile.
"""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

from wpriv.numerics.arrays import Array

# a node is taken to have room once so many nodes in a row have it
ROOMY = 32
# nodes looked at together, as far as their exponentials allow
CHUNK, LOG_RANGE = 40, 500.0


def push_down(width: Array, mass: Array, gap: Array, tangent_left: Array, tangent_right: Array, tilt: float) -> Array:
    """Turns the masses of chord interpolations into those of convex functions below the profiles, a row (or a single law) each.

    Args:
        width: [k] distances between neighbouring nodes (nats).
        mass: [..., k+1] P-masses of the chord interpolation, tilted by e^{tilt loss}.
        gap: [..., k] bound on chord minus profile inside each cell, tilted as at the cell's left node.
        tangent_left: [..., k] profile minus its left end's tangent, at the right node (tilted there).
        tangent_right: [..., k] profile minus its right end's tangent, at the left node (tilted there).
    Returns:
        [..., k+1] non-negative masses with no more P-mass than given.
    """
    rows, gaps = mass.reshape(-1, mass.shape[-1]), gap.reshape(-1, width.size)
    grow = np.exp(tilt * width)
    push = np.zeros(rows.shape)
    push[:, :-1] = gaps
    push[:, 1:] = np.maximum(push[:, 1:], gaps * grow)
    lefts, rights = tangent_left.reshape(gaps.shape), tangent_right.reshape(gaps.shape)
    first = _settle_end(width, rows, push, lefts, tilt, +1)
    last = width.size - _settle_end(width[::-1], rows[:, ::-1], push[:, ::-1], rights[:, ::-1], tilt, -1)
    low = rows.copy()
    low[:, :-1] -= (push[:, 1:] / grow - push[:, :-1]) / np.expm1(width)
    low[:, 1:] += (push[:, 1:] - push[:, :-1] * grow) / -np.expm1(-width)
    node = np.arange(rows.shape[1])
    low[(node < first[:, None] - 1) | (node > last[:, None] + 1)] = 0.0
    for i in np.flatnonzero((low < 0).any(axis=1) | (first > last)):
        settled = convexify(width, low[i], tilt) if first[i] <= last[i] else None
        if settled is None:
            # too little room for dots: every chord mass came from losses above the node before its own, and may fall there
            settled = np.append(rows[i, 1:] / grow, 0.0)
            settled[0] += rows[i, 0]
        low[i] = settled
    return low.reshape(mass.shape)


def _settle_end(
    width: Array, mass: Array, push: Array, tangent: Array, tilt: float, direction: int
) -> NDArray[np.int64]:
    """Fixes ``push`` in place from one end inwards until nodes have room for it; returns each row's first such node.

    Room is how far the profile lies above the straight line that ends it: zero up to the first node with any mass, growing inwards.
    A node without enough room is put on that line, and its inner neighbour must then stay under the tangent at the node.
    """
    k, row = width.size, np.arange(mass.shape[0])[:, None]
    start = (mass > 0).argmax(axis=1)
    needed = np.maximum(push[:, 1:], tangent)
    rooms = np.zeros(mass.shape)
    room, total = np.zeros(row.size), mass[row[:, 0], start]
    # the last node without room, and the node after it once enough in a row have some
    wanting, first = start.copy(), np.full(row.size, -1)
    done, chunk = 0, CHUNK
    while (first < 0).any():
        d = width[np.minimum(start[:, None] + done + np.arange(chunk), k - 1)]
        if chunk > 1 and float(d.sum(axis=1).max()) * (1 + tilt) > LOG_RANGE:
            chunk //= 2
            continue
        at = start[:, None] + done + 1 + np.arange(chunk)
        inside, at = at <= k, np.minimum(at, k)
        away = direction * np.cumsum(d, axis=1)
        # scaled to the chunk's first node, both recurrences are sums of terms of one sign
        totals = total[:, None] + np.cumsum(mass[row, at] * np.exp(-tilt * away), axis=1)
        before = np.concatenate([total[:, None], totals[:, :-1]], axis=1)
        grown = np.exp(away)
        steps = before * direction * np.expm1(direction * d) / grown
        lift = np.exp(tilt * away)
        found = grown * lift * (room[:, None] + np.cumsum(steps, axis=1))
        enough = ~inside | (found >= needed[row, at - 1])
        lacking = np.maximum(np.maximum.accumulate(np.where(enough, -1, at), axis=1), wanting[:, None])
        settled = ~inside | (at - lacking >= ROOMY)
        here = settled.argmax(axis=1)
        first = np.where((first < 0) & settled.any(axis=1), lacking[row[:, 0], here] + 1, first)
        rooms[row, at] = np.where(inside, found, rooms[row, at])
        room, total, wanting = found[:, -1], totals[:, -1] * lift[:, -1], lacking[:, -1]
        done += chunk
    unsettled = np.arange(k + 1) < first[:, None]
    push[unsettled] = rooms[unsettled]
    inner = np.flatnonzero(first <= k)
    push[inner, first[inner]] = np.maximum(push[inner, first[inner]], tangent[inner, first[inner] - 1])
    return first


def convexify(width: Array, mass: Array, tilt: float) -> Array | None:
    """The greatest convex minorant, in masses: each negative mass is shared between its neighbours, keeping P- and Q-mass.

    A debt that reaches the lowest node moves up, which only lowers the profile; None where more than rounding reaches the highest.
    """
    bad = np.flatnonzero(mass < 0)
    if bad.size == 0:
        return mass
    y = np.concatenate([[0.0], np.cumsum(width)])
    before, after = list(range(-1, mass.size - 1)), list(range(1, mass.size + 1))
    todo = [int(i) for i in bad]
    gone = np.zeros(mass.size, dtype=bool)
    small = 1e-15 * float(mass.sum())
    while todo:
        i = todo.pop()
        if gone[i] or mass[i] >= 0:
            continue
        left, right = before[i], after[i]
        gone[i] = True
        amount, mass[i] = float(mass[i]), 0.0
        if right >= mass.size:
            if amount < -small:
                return None
            if left >= 0:
                after[left] = right
            continue
        share = 1.0
        if left >= 0:
            share = math.expm1(y[left] - y[i]) / math.expm1(y[left] - y[right])
            mass[left] += amount * (1 - share) * math.exp(tilt * (y[left] - y[i]))
            after[left] = right
        mass[right] += amount * share * math.exp(tilt * (y[right] - y[i]))
        before[right] = left
        todo += [k for k in (left, right) if k >= 0 and mass[k] < 0]
    return mass
