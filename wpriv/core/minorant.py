"""Lower dots: a piecewise-linear convex function below a profile, worked out in masses so that nothing cancels.

Pushing the value at a node down by g changes the P-mass there and at its neighbours by second differences of g; what a node may be
pushed by is bounded by its cells, and at the ends of the law by the room it has above the straight line that ends the profile.
"""

from __future__ import annotations

import math

import numpy as np

from wpriv.core.pair import Array

# a node is taken to have room once so many nodes in a row have it
ROOMY = 32


def push_down(width: Array, mass: Array, gap: Array, tangent_left: Array, tangent_right: Array, tilt: float) -> Array:
    """Turns the masses of a chord interpolation into those of a convex function below the profile.

    Args:
        width: [k] distances between neighbouring nodes (nats).
        mass: [k+1] P-masses of the chord interpolation, tilted by e^{tilt loss}.
        gap: [k] bound on chord minus profile inside each cell, tilted as at the cell's left node.
        tangent_left: [k] profile minus its left end's tangent, at the right node (tilted there).
        tangent_right: [k] profile minus its right end's tangent, at the left node (tilted there).
    Returns:
        [k+1] non-negative masses with no more P-mass than given.
    """
    grow = np.exp(tilt * width)
    push = np.zeros(mass.size)
    push[:-1] = gap
    push[1:] = np.maximum(push[1:], gap * grow)
    first = _settle_end(width, mass, push, tangent_left, tilt, +1)
    last = mass.size - 1 - _settle_end(width[::-1], mass[::-1], push[::-1], tangent_right[::-1], tilt, -1)
    low = mass.copy()
    right = (push[1:] / grow - push[:-1]) / np.expm1(width)
    left = (push[1:] - push[:-1] * grow) / -np.expm1(-width)
    low[:-1] -= right
    low[1:] += left
    low[: max(first - 1, 0)] = 0.0
    low[last + 2 :] = 0.0
    settled = convexify(width, low, tilt) if first <= last else None
    if settled is not None:
        return settled
    # too little room for dots: every chord mass came from losses above the node before its own, and may fall there
    low = np.zeros(mass.size)
    low[:-1] = mass[1:] / grow
    low[0] += mass[0]
    return low


def _settle_end(width: Array, mass: Array, push: Array, tangent: Array, tilt: float, direction: int) -> int:
    """Fixes ``push`` in place from one end inwards until nodes have room for it; returns the first such node's index.

    Room is how far the profile lies above the straight line that ends it: zero at the end, growing inwards. A node without
    enough room is put on that line, and its inner neighbour must then stay under the tangent at the node.
    """
    room, total, good = 0.0, float(mass[0]), 0
    rooms = [0.0]
    for i in range(1, mass.size):
        d = direction * float(width[i - 1])
        factor = math.exp(tilt * d)
        room = factor * (math.exp(d) * room + direction * math.expm1(d) * total)
        total = total * factor + float(mass[i])
        rooms.append(room)
        good = good + 1 if room >= max(float(push[i]), float(tangent[i - 1])) else 0
        if good == ROOMY:
            break
    first = len(rooms) - good
    push[:first] = rooms[:first]
    if first < mass.size:
        push[first] = max(push[first], tangent[first - 1])
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
