"""Optimistic discretisation: a piecewise-linear convex minorant of the privacy profile, computed on masses.

Working on masses avoids cancellation: lowering the profile's value at a node by g changes the P-mass there and at its
neighbours by second differences of g. How far a node must be lowered follows from its cells; how far it can be lowered
at the ends of the PMF is limited by its distance from the straight line that ends the profile.
"""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

from wpriv.numerics.arrays import Array
from wpriv.pld import constants, work


def push_down(width: Array, mass: Array, gap: Array, tangent_left: Array, tangent_right: Array) -> Array:
    """Turn the masses of chord interpolations into those of convex functions below the profiles, row by row.

    Args:
        width: [k] distances between neighbouring nodes (nats).
        mass: [..., k+1] P-masses of the chord interpolation.
        gap: [..., k] bound on chord minus profile inside each cell.
        tangent_left: [..., k] profile minus its left end's tangent, at the right node.
        tangent_right: [..., k] profile minus its right end's tangent, at the left node.
    Returns:
        [..., k+1] non-negative masses with no more P-mass than given.
    """
    rows, gaps = mass.reshape(-1, mass.shape[-1]), gap.reshape(-1, width.size)
    push = np.zeros(rows.shape)
    push[:, :-1] = gaps
    push[:, 1:] = np.maximum(push[:, 1:], gaps)
    lefts, rights = tangent_left.reshape(gaps.shape), tangent_right.reshape(gaps.shape)
    first = _settle_end(width, rows, push, lefts, +1)
    last = width.size - _settle_end(width[::-1], rows[:, ::-1], push[:, ::-1], rights[:, ::-1], -1)
    low = rows.copy()
    rise = push[:, 1:] - push[:, :-1]
    low[:, :-1] -= rise / np.expm1(width)
    low[:, 1:] += rise / -np.expm1(-width)
    _empty_end(width, low, first, +1)
    _empty_end(width[::-1], low[:, ::-1], width.size - last, -1)
    for i in np.flatnonzero((low < 0).any(axis=1) | (first > last)):
        row = convexify(width, low[i]) if first[i] <= last[i] else None
        if row is None:
            # no convex minorant by this construction: each chord mass came from losses above the previous node, and
            # moves there
            row = np.append(rows[i, 1:], 0.0)
            row[0] += rows[i, 0]
        low[i] = row
    return low.reshape(mass.shape)


def _settle_end(width: Array, mass: Array, push: Array, tangent: Array, direction: int) -> NDArray[np.int64]:
    """Fix ``push`` in place from one end inwards until nodes are feasible; return each row's first feasible node.

    A node is feasible if the profile lies far enough above the straight line that ends it to be pushed down as
    required. That distance (``room``) is zero up to the first node with mass and grows inwards. An infeasible node is
    put on the line, and its inner neighbour must then stay below the tangent at the node.
    """
    k, row = width.size, np.arange(mass.shape[0])[:, None]
    start = (mass > 0).argmax(axis=1)
    required = np.maximum(push[:, 1:], tangent)
    rooms = np.zeros(mass.shape)
    room, total = np.zeros(row.size), mass[row[:, 0], start]
    # the last infeasible node, and the node after it once enough nodes in a row are feasible
    last_infeasible, first = start.copy(), np.full(row.size, -1)
    processed, block = 0, constants.MINORANT_BLOCK
    while (first < 0).any():
        d = width[np.minimum(start[:, None] + processed + np.arange(block), k - 1)]
        if block > 1 and float(d.sum(axis=1).max()) > constants.MAX_EXPONENT_MINORANT:
            block //= 2
            continue
        at = start[:, None] + processed + 1 + np.arange(block)
        inside, at = at <= k, np.minimum(at, k)
        distance = direction * np.cumsum(d, axis=1)
        # scaled to the block's first node, both recurrences are sums of terms of one sign
        totals = total[:, None] + np.cumsum(mass[row, at], axis=1)
        before = np.concatenate([total[:, None], totals[:, :-1]], axis=1)
        growth = np.exp(distance)
        increments = before * direction * np.expm1(direction * d) / growth
        with np.errstate(over="ignore"):  # no term is negative: a room that overflows is feasible all the more
            block_rooms = growth * (room[:, None] + np.cumsum(increments, axis=1))
        feasible = ~inside | (block_rooms >= required[row, at - 1])
        infeasible = np.maximum.accumulate(np.where(feasible, -1, at), axis=1)
        infeasible = np.maximum(infeasible, last_infeasible[:, None])
        settled = ~inside | (at - infeasible >= constants.FEASIBLE_RUN_LENGTH)
        here = settled.argmax(axis=1)
        first = np.where((first < 0) & settled.any(axis=1), infeasible[row[:, 0], here] + 1, first)
        rooms[row, at] = np.where(inside, block_rooms, rooms[row, at])
        room, total, last_infeasible = block_rooms[:, -1], totals[:, -1], infeasible[:, -1]
        processed += block
    unsettled = np.arange(k + 1) < first[:, None]
    push[unsettled] = rooms[unsettled]
    inner = np.flatnonzero(first <= k)
    push[inner, first[inner]] = np.maximum(push[inner, first[inner]], tangent[inner, first[inner] - 1])
    return first


def _empty_end(width: Array, low: Array, first: NDArray[np.int64], direction: int) -> None:
    """Empty, in place, the nodes on the straight line that ends a profile; ``first`` is each row's first node off it.

    Their masses are zero but for rounding, relative to the room over a width. It is moved to the two nodes after them
    with the P- and the Q-mass that it has, since many steps would add up its loss.
    """
    for row in np.flatnonzero((first > 1) & (first <= width.size)).tolist():
        k = int(first[row])
        distance = direction * np.cumsum(width[:k][::-1])[::-1]
        with np.errstate(over="ignore", invalid="ignore"):
            rest = low[row, : k - 1]
            share = float(rest @ np.expm1(distance[:-1])) / math.expm1(distance[-1])
            moved = share, float(rest.sum()) - share
        low[row, : k - 1] = 0.0
        if all(map(math.isfinite, moved)):
            low[row, k - 1 : k + 1] += moved


def convexify(width: Array, mass: Array) -> Array | None:
    """The greatest convex minorant on masses: negative mass is shared between its neighbours, keeping P- and Q-mass.

    Negative mass that reaches the lowest node moves up, which only lowers the profile.

    Returns:
        The masses, changed in place; None where more than rounding would be lost at the highest node.
    """
    negative = np.flatnonzero(mass < 0)
    if negative.size == 0:
        return mass
    # distances to the next node that remains: sums of widths, where differences of places would lose the narrow ones
    distance, size = width.tolist(), mass.size
    before, after = list(range(-1, size - 1)), list(range(1, size + 1))
    pending, removals = negative.tolist(), 0
    rounding = constants.MINORANT_ROUNDING * float(mass.sum())
    # a list, whose items are several times as quick to reach; no mass of a removed node is negative
    masses = mass.tolist()
    while pending:
        i = pending.pop()
        amount = masses[i]
        if amount >= 0:
            continue
        left, right = before[i], after[i]
        removals += 1
        masses[i] = 0.0
        if right >= size:
            if amount < -rounding:
                work.add("removal", removals)
                return None
            if left >= 0:
                after[left] = right
            continue
        share, d = 1.0, distance[i]
        if left >= 0:
            d_left = distance[left]
            whole = math.expm1(-d_left - d)
            share = math.expm1(-d_left) / whole
            masses[left] += amount * math.exp(-d_left) * math.expm1(-d) / whole
            after[left], distance[left] = right, d_left + d
        masses[right] += amount * share
        before[right] = left
        pending += [k for k in (left, right) if k >= 0 and masses[k] < 0]
    work.add("removal", removals)
    mass[:] = masses
    return mass
