"""Discretise a privacy loss distribution pessimistically and optimistically.

A pair's privacy profile f(t), t = e^eps, is convex. On nodes t_i a piecewise-linear function above f is the profile of
a discrete pair that dominates; a convex one below f is the profile of a pair that is dominated (Blackwell; Zhu, Dong,
Wang 2022).

- The pessimistic discretisation joins the points of f by chords (Doroshenko, Ghazi, Kamath, Kumar, Manurangsi, "Connect
  the Dots", PETS 2022).
- The optimistic discretisation pushes each node below f by the largest amount by which a neighbouring chord can exceed
  f, so that every chord comes to lie below f. The amount is bounded by the tangents of f at both ends and at the middle
  of the cell, which is rigorous by convexity alone. Where a node cannot be pushed (at the ends of the support) its
  neighbour is pushed below a tangent instead.

Both errors are O(h^2) in the loss, and both discretisations keep the P- and the Q-mass of what they replace.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

import numpy as np

from wpriv.core.loss_pair import LossPair, Tails
from wpriv.errors import Unsupported
from wpriv.numerics.arrays import Array
from wpriv.pld import constants, work
from wpriv.pld.lattice.cell_halves import Half, half_of_tails, mass_between, narrow_halves, positive
from wpriv.pld.lattice.convex_minorant import push_down


@dataclass(frozen=True)
class CellMasses:
    """Masses of the cells [a, b] between neighbouring nodes, from which both discretisations are made.

    All are P-masses unless stated otherwise, with one row per member for batched pairs.

    Attributes:
        nodes: [m] increasing losses.
        mass: mass of each cell.
        left: the part of it that the chord puts on a.
        error: how far ``left`` may be off by rounding.
        above: P - e^a Q of the cell: f minus its tangent at b, taken at a; exact.
        below: e^b Q - P of the cell: f minus its tangent at a, taken at b; exact.
        gap: bound on how far the chord exceeds f inside the cell.
        atoms: mass on the nodes themselves.
        top: what lies above the last node, as e^(last node) Q and the rest of P.
        bottom: mass below the first node.
        rest: mass above the first node.
    """

    nodes: Array
    mass: Array
    left: Array
    error: Array
    above: Array
    below: Array
    gap: Array
    atoms: Array
    top: tuple[Array, Array]
    bottom: Array
    rest: Array

    def chords(self, sign: int) -> Array:
        """P-mass on each node of the chord interpolation, without what lies beyond the ends.

        Rounding is on the safe side of the profile: losses are too large (sign +1), or too small (sign -1).
        """
        mass, left = self.atoms.copy(), np.clip(self.left - sign * self.error, 0.0, self.mass)
        mass[..., :-1] += left
        mass[..., 1:] += self.mass - left
        return mass


def cell_masses(pair: LossPair, nodes: Array) -> CellMasses:
    """Evaluate a pair on increasing nodes (losses in nats)."""
    width, a = np.diff(nodes), nodes[:-1]
    # e^a Q is computed from logarithms only where an underflow of Q would show in it
    plain = float(nodes[-1]) < constants.MAX_PLAIN_TAIL_LOSS
    tails = pair.probabilities if plain else pair.tails
    ends = nodes
    if pair.atoms.size:
        offset = constants.NODE_HALF_WIDTH * np.maximum(np.abs(nodes), width.min())
        before, after = tails(nodes - offset), tails(nodes + offset)
        at_nodes = (before.sf_p, before.cdf_p, after.sf_p, after.cdf_p)
        atoms = mass_between(*at_nodes) if plain else mass_between(*map(np.exp, at_nodes))
        # an atom within the offset of a node counts as on it
        nearest = pair.atoms[np.searchsorted((pair.atoms[1:] + pair.atoms[:-1]) / 2, nodes)]
        ends = np.where(np.abs(nearest - nodes) <= offset, nearest, nodes)
    else:
        before = after = tails(nodes)
        atoms = np.zeros(before.sf_p.shape)
    start, end = Tails(*(tail[..., :-1] for tail in after)), Tails(*(tail[..., 1:] for tail in before))
    work.add("node", atoms.size)
    middle = tails(a + width / 2)
    first, second = half_of_tails(start, middle, a, width, plain), half_of_tails(middle, end, a, width, plain)
    parts = narrow_halves(pair, ends[:-1], ends[1:], a + width / 2)
    if parts is not None:
        known = np.isfinite(parts[0].above + parts[0].below + parts[1].above + parts[1].below) & (width <= 1)
        first, second = (
            Half(*(np.where(known, new, old) for new, old in zip(one, other, strict=True)))
            for one, other in zip(parts, (first, second), strict=True)
        )
    above, below, p = first.above + second.above, first.below + second.below, first.p + second.p
    with np.errstate(over="ignore", invalid="ignore"):
        growth = np.expm1(width)
        # the chord keeps P and Q of the cell; of two ways to write it, the one whose terms are the smaller
        near_start = (above > p / 2 * -np.expm1(-width)) & (width <= 1)
        left = np.clip(np.where(near_start, below / growth, p - above / -np.expm1(-width)), 0.0, p)
        q1, q2 = growth * (first.p - first.above), growth * (second.p - second.above)
    error = np.minimum((first.error + second.error) / -np.expm1(-width), p)
    gap = _gap(first.above, second.below, q1, q2)
    last, lowest = Tails(*(tail[..., -1] for tail in after)), Tails(*(tail[..., 0] for tail in before))
    p_top = last.sf_p if plain else np.exp(last.sf_p)
    q_top = last.sf_q * math.exp(nodes[-1]) if plain else np.exp(np.minimum(last.sf_q + nodes[-1], 0.0))
    q_top = np.minimum(q_top, p_top)
    top = (q_top, positive(p_top - q_top))
    beyond = (tail if plain else np.exp(tail) for tail in (lowest.cdf_p, lowest.sf_p))
    return CellMasses(nodes, p, left, error, above, below, gap, atoms, top, *beyond)


def _gap(above1: Array, below2: Array, q1: Array, q2: Array) -> Array:
    """Bound on how far the chord over a cell exceeds f: the tangents' envelope has each half's mass at its barycentre.

    ``above1`` is the first half's P - e^a Q, ``below2`` the second's e^b Q - P; ``q1``, ``q2`` are (e^b - e^a) Q of the
    halves.
    """
    with np.errstate(invalid="ignore", divide="ignore"):
        x1 = np.where(q1 > 0, np.minimum(above1 / q1, 1.0), 0.0)
        x2 = np.where(q2 > 0, np.minimum(below2 / q2, 1.0), 0.0)
    gap: Array = np.maximum(above1 * (1 - x1) + below2 * x1, below2 * (1 - x2) + above1 * x2)
    return gap


def discretize_pessimistic(c: CellMasses, infinity: float) -> tuple[Array, Array]:
    """P-mass on each node, and at +infinity, of the least pair on the nodes that dominates one with ``infinity``."""
    mass = c.chords(+1)
    mass[..., -1] += c.top[0]
    mass[..., 0] += c.bottom
    beyond = np.maximum(c.top[1], infinity)
    return _normalised(mass, 1 - beyond), beyond


def discretize_optimistic(c: CellMasses, infinity: float) -> Array:
    """P-mass on each node of a pair that is dominated; its mass at +infinity is the pair's own ``infinity``."""
    return _normalised(_pushed_down(c, infinity), c.rest - infinity)


def discretize_jumps(c: CellMasses, infinity: float) -> Array:
    """The same for the losses above the first node, which is at the cut: an atom on it is a loss of the bulk."""
    atoms = c.atoms.copy()
    atoms[..., 0] = 0.0
    return _pushed_down(replace(c, atoms=atoms), infinity)


def _pushed_down(c: CellMasses, infinity: float) -> Array:
    mass = c.chords(-1)
    # losses above the last node are moved down to it and those below the first dropped: both only lower the composed
    # profile
    mass[..., -1] += positive(c.top[0] + c.top[1] - infinity)
    return push_down(np.diff(c.nodes), mass, c.gap, c.below, c.above)


def _normalised(mass: Array, total: Array) -> Array:
    """The masses scaled to their known sum."""
    current = mass.sum(axis=-1)
    known = (current > 0) & (total > 0)
    scale = np.where(known, total / np.where(known, current, 1.0), 1.0)
    if np.any(np.abs(scale - 1) > constants.MAX_MASS_CORRECTION):
        raise Unsupported("pld finds losses so close that their probabilities cannot be told apart. Use rdp")
    return np.asarray(mass * scale[..., None])
