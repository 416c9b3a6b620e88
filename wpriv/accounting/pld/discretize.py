"""Discretisation of privacy losses on nodes, from above and from below, and the choice of the nodes."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import NamedTuple, TypeVar

import numpy as np
from numpy.typing import NDArray

from wpriv.accounting.pld import constants
from wpriv.accounting.pld.saddle_point import ApproximatePmf, StepGroup, batch_pairs, tilted_weights
from wpriv.core.loss_pair import LossPair, Tails
from wpriv.errors import Unsupported
from wpriv.numerics.arrays import Array, mass_between

Pmf = TypeVar("Pmf")
# a pessimistic PMF, and a function that makes the optimistic one once it is needed
Sides = tuple[Pmf, Callable[[], Pmf]]


class Half(NamedTuple):
    """One half of each cell [a, b]: P-mass, P - e^a Q, e^b Q - P, and a bound of the rounding of the last two."""

    p: Array
    above: Array
    below: Array
    error: Array


def half_of_tails(start: Tails, end: Tails, a: Array, width: Array, plain: bool) -> Half:
    """The half of the cells from a, of this width, between ``start`` and ``end``, by differences of tails."""
    p, q = (_masses if plain else _masses_from_logs)(start, end, a)
    with np.errstate(over="ignore", invalid="ignore"):
        below = np.where(q > 0, positive(np.expm1(width) * q - (p - q)), 0.0)
    tails = [np.minimum(t, u) for t, u in ((start.sf_p, end.cdf_p), (start.sf_q, end.cdf_q))]
    with np.errstate(over="ignore"):
        tail_p, tail_q = (tails[0], tails[1] * np.exp(a)) if plain else (np.exp(tails[0]), np.exp(tails[1] + a))
    # where the Q-mass times e^a exceeds the P-mass it is the latter
    rounding = constants.TAIL_ROUNDINGS * constants.UNIT_ROUNDOFF * (tail_p + np.minimum(tail_q, 1.0))
    return Half(p, p - q, below, rounding)


def narrow_halves(pair: LossPair, low: Array, high: Array, middle: Array) -> tuple[Half, Half] | None:
    """Both halves of the cells, middle in the first, from parts known to rounding; nan where they are not."""
    first = pair.cell_parts(low, np.nextafter(middle, np.inf))
    second = pair.cell_parts(middle, high)
    if first is None or second is None:
        return None
    h1, h2 = middle - low, high - middle
    with np.errstate(over="ignore", invalid="ignore", divide="ignore"):
        p1, p2 = first.mass(h1), second.mass(h2)
        above2 = -np.expm1(-h1) * p2 + np.exp(-h1) * second.above
        below1 = np.expm1(h2) * p1 + np.exp(h2) * first.below
    unit = constants.PART_ROUNDINGS * constants.UNIT_ROUNDOFF
    return (
        Half(p1, first.above, below1, unit * np.minimum(first.above, below1)),
        Half(p2, above2, second.below, unit * np.minimum(above2, second.below)),
    )


def _masses(start: Tails, end: Tails, a: Array) -> tuple[Array, Array]:
    """P-mass and e^a times Q-mass of the cells from ``start`` to ``end``, given as probabilities."""
    p = mass_between(start.sf_p, start.cdf_p, end.sf_p, end.cdf_p)
    # e^a Q <= P in exact arithmetic: a loss in the cell exceeds a
    return p, np.minimum(mass_between(start.sf_q, start.cdf_q, end.sf_q, end.cdf_q) * np.exp(a), p)


def _masses_from_logs(start: Tails, end: Tails, a: Array) -> tuple[Array, Array]:
    """As ``_masses``, from the logarithms of the probabilities."""
    p = mass_between(*map(np.exp, (start.sf_p, start.cdf_p, end.sf_p, end.cdf_p)))
    with np.errstate(over="ignore"):
        right = np.exp(start.sf_q + a) - np.exp(end.sf_q + a)
        left = np.exp(end.cdf_q + np.minimum(a, 700.0)) - np.exp(start.cdf_q + np.minimum(a, 700.0))
    return p, np.minimum(positive(np.where(start.sf_q < end.cdf_q, right, left)), p)


def positive(x: Array) -> Array:
    return np.maximum(x, 0.0)


# Optimistic discretisation: a piecewise-linear convex minorant of the privacy profile, computed on masses.
#
# Working on masses avoids cancellation: lowering the profile's value at a node by g changes the P-mass there and at its
# neighbours by second differences of g. How far a node must be lowered follows from its cells; how far it can be
# lowered at the ends of the PMF is limited by its distance from the straight line that ends the profile.


def push_down(width: Array, mass: Array, gap: Array, tangent_left: Array, tangent_right: Array) -> Array:
    """Turn the masses of chord interpolations into those of convex functions below the profiles, row by row.

    Args:
        width: [k] distances between neighbouring nodes (nats). mass: [..., k+1] P-masses of the chord interpolation.
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
                constants.add("removal", removals)
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
    constants.add("removal", removals)
    mass[:] = masses
    return mass


# Discretise a privacy loss distribution pessimistically and optimistically.
#
# A pair's privacy profile f(t), t = e^eps, is convex. On nodes t_i a piecewise-linear function above f is the profile
# of a discrete pair that dominates; a convex one below f is the profile of a pair that is dominated (Blackwell; Zhu,
# Dong, Wang 2022).
#
# - The pessimistic discretisation joins the points of f by chords (Doroshenko, Ghazi, Kamath, Kumar, Manurangsi,
# "Connect   the Dots", PETS 2022). - The optimistic discretisation pushes each node below f by the largest amount by
# which a neighbouring chord can exceed   f, so that every chord comes to lie below f. The amount is bounded by the
# tangents of f at both ends and at the middle   of the cell, which is rigorous by convexity alone. Where a node cannot
# be pushed (at the ends of the support) its   neighbour is pushed below a tangent instead.
#
# Both errors are O(h^2) in the loss, and both discretisations keep the P- and the Q-mass of what they replace.


@dataclass(frozen=True)
class CellMasses:
    """Masses of the cells [a, b] between neighbouring nodes, from which both discretisations are made.

    All are P-masses unless stated otherwise, with one row per member for batched pairs.

    Attributes:
        nodes: [m] increasing losses. mass: of each cell. left: the part of it that the chord puts on a.
        error: how far ``left`` may be off by rounding.
        above: P - e^a Q of the cell: f minus its tangent at b, taken at a; exact.
        below: e^b Q - P of the cell: f minus its tangent at a, taken at b; exact.
        gap: bound on how far the chord exceeds f inside the cell. atoms: mass on the nodes themselves.
        top: what lies above the last node, as e^(last node) Q and the rest of P. bottom, rest: below and above the
            first.
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
        """P-mass on each node of the chord interpolation; losses are too large (sign +1), or too small (sign -1)."""
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
    constants.add("node", atoms.size)
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


def discretize(pair: LossPair, nodes: Array, make: Callable[[Array, Array | float], Pmf]) -> Sides[Pmf]:
    """Both discretisations of a pair as PMFs that ``make`` returns for P-masses on the nodes and at +infinity."""
    cells, infinity = cell_masses(pair, nodes), pair.mass_at_plus_infinity
    upper = make(*discretize_pessimistic(cells, infinity))
    return upper, lambda: make(discretize_optimistic(cells, infinity), infinity)


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


# Choose the nodes on which the steps of a group are discretised: dense where tilted mass lies, sparse elsewhere.


def split_by_node_count(group: StepGroup, pmf: ApproximatePmf, tilt: float) -> list[tuple[StepGroup, ApproximatePmf]]:
    """Split a group into parts whose members need about as many nodes as each other."""
    if len(group.members) == 1:
        return [(group, pmf)]
    # for a given error, each cell's being its mass times its width squared, the number of nodes goes with density^(1/3)
    needed = np.cbrt(tilted_weights(pmf, tilt) * np.gradient(pmf.y) ** 2).sum(axis=1) ** 1.5
    order, parts = np.argsort(-needed), []
    while order.size:
        like = needed[order] * constants.MAX_NODE_COUNT_RATIO >= needed[order[0]]
        chosen, order = order[like], order[~like]
        members = tuple(group.members[k] for k in chosen)
        part = StepGroup(members, group.counts[chosen], batch_pairs(members))
        parts.append((part, ApproximatePmf(pmf.y, pmf.mass[chosen], pmf.end)))
    return parts


@dataclass(frozen=True)
class _Range:
    """The losses [low, high] to be covered, and the indices [first, last] of the approximate PMF within."""

    low: float
    high: float
    first: int
    last: int


def choose_nodes(
    group: StepGroup,
    pmf: ApproximatePmf,
    step: float,
    tilt: float,
    top_mass: float,
    bottom_mass: float,
    *,
    extra: float | None = None,
    focus: tuple[float, float] | None = None,
    limit: int | None = None,
) -> NDArray[np.int64]:
    """Lattice indices to discretise a group on: every one where tilted mass lies, ever sparser where there is little.

    Args:
        step: spacing of the lattice in nats. top_mass: P-mass that may lie above the last node.
        bottom_mass: tilted mass that the losses below the first node may have when raised to it.
        extra: share of the lattice's own error that sparser nodes may add, by default ``constants.SPARSE_NODE_ERROR``.
        focus: range of losses that matter whatever their tilted mass.
        limit: number of nodes, by default ``constants.MAX_STEP_NODES``.
    Returns:
        [m] increasing indices, the last of which covers the support or has at most ``top_mass`` above it.
    Raises:
        Unsupported: there would be more nodes than the limit.
    """
    pair = group.pair
    above, up_to = np.cumsum(pmf.mass[:, ::-1], axis=1)[:, ::-1], np.cumsum(pmf.mass, axis=1)
    covered = _covered_range(pair, pmf, step, tilt, above, up_to, top_mass, bottom_mass)
    low, high = covered.low, covered.high
    if not max(-low, high) < 2.0**53 * step:
        raise Unsupported("pld finds losses too far apart for a lattice. Raise `tol`, increase the noise, or use rdp")
    extra = constants.SPARSE_NODE_ERROR if extra is None else extra
    few_atoms = 0 < pair.atoms.size <= constants.MAX_LATTICE_ATOMS
    extra *= max(_off_lattice_mass(pair), constants.MIN_OFF_LATTICE_MASS) if few_atoms else 1.0
    inside = slice(covered.first, min(covered.last + 2, pmf.y.size))
    # the errors of a spacing add up over all steps
    share = group.counts @ tilted_weights(pmf, tilt)[:, inside] / group.counts.sum()
    if focus is not None:
        focused = group.counts @ np.where((pmf.y >= focus[0]) & (pmf.y <= focus[1]), pmf.mass, 0.0)[:, inside]
        share = (share + focused / focused.sum()) / 2 if focused.sum() > 0 else share
    known = pmf.y[inside]
    stretch, steepness = _stretch(known, share, extra), _steepness(known, (above[:, inside], up_to[:, inside]))
    y = np.concatenate([[low], pmf.y[(pmf.y > low) & (pmf.y < high)], [high]])
    widest = max(1.0, constants.MAX_TILTED_SPACING / ((tilt + 1) * step))
    spacing = np.clip(np.interp(y, known, stretch), 1.0, widest) * step
    # the profile must not fall by a large factor within a cell, or else the convex minorant collapses to zero
    spacing = np.maximum(np.minimum(spacing, constants.MAX_LOG_FALL / np.interp(y, known, steepness)), step)
    index = _spaced(y, spacing, step, constants.MAX_STEP_NODES if limit is None else limit)
    ends = [math.floor(low / step), math.ceil(high / step)]
    # nearly in order, so that a stable sort is far faster than np.unique
    every = np.concatenate([index, ends, _atom_nodes(pair, covered, step, ends)]).astype(np.int64)
    every.sort(kind="stable")
    nodes: NDArray[np.int64] = every[np.concatenate([[True], every[1:] > every[:-1]])]
    return nodes


def _spaced(y: Array, spacing: Array, step: float, limit: int) -> NDArray[np.int64]:
    """Lattice indices from the first to the last loss, as far apart as ``spacing`` says at each loss."""
    count = np.concatenate([[0.0], np.cumsum(np.diff(y) / np.minimum(spacing[1:], spacing[:-1]))])
    total = math.ceil(count[-1]) + 1
    if total > limit:
        needed = f"pld needs {total:.3g} losses of a step at this tolerance"
        raise Unsupported(f"{needed}; the limit is {limit:,}. Raise `tol`, or use rdp")
    return np.asarray(np.floor(np.interp(np.linspace(0, count[-1], total + 1), count, y) / step).astype(np.int64))


def _covered_range(
    pair: LossPair,
    pmf: ApproximatePmf,
    step: float,
    tilt: float,
    above: Array,
    up_to: Array,
    top_mass: float,
    bottom_mass: float,
) -> _Range:
    last = min(int(np.searchsorted(-above.max(axis=0), -top_mass)), pmf.y.size - 1)
    # mass below the first node is raised to it, and weighs e^{tilt loss} there
    log_norm, _, _ = pmf.tilted_moments(tilt)
    with np.errstate(divide="ignore"):
        logs = np.log((up_to * np.exp(log_norm.min() - log_norm)[:, None]).max(axis=0))
        raised = logs - log_norm.min() + tilt * pmf.y
    first = min(max(int(np.searchsorted(raised, math.log(bottom_mass))) - 1, 0), last)
    low, high = pair.support
    if first > 0 or not math.isfinite(low):
        low = max(float(pmf.y[first]) - step, low)
    # no loss beyond ``end`` has as much mass as may be neglected
    high = min((float(pmf.y[last + 1]) if last < pmf.y.size - 1 else pmf.end) + step, high)
    return _Range(low, max(high, low + step), first, last)


def _atom_nodes(pair: LossPair, covered: _Range, step: float, ends: list[int]) -> list[int]:
    """The nodes at the atoms, if these are few: the node itself and its neighbours, or both nodes around the atom."""
    if pair.atoms.size > constants.MAX_NODE_ATOMS:
        return []
    places = pair.atoms[(pair.atoms >= covered.low) & (pair.atoms <= covered.high)] / step
    near = np.round(places)
    on = np.abs(places - near) < constants.NODE_ATOM_TOLERANCE
    marks = [*np.floor(places[~on]), *np.ceil(places[~on]), *near[on], *(near[on] - 1), *(near[on] + 1)]
    return [int(m) for m in marks if ends[0] <= m <= ends[1]]


def _off_lattice_mass(pair: LossPair) -> float:
    """The P-mass that is not on the pair's atoms; for batched pairs, the largest."""
    if not pair.atoms.size:
        return 1.0
    offset = constants.ATOM_HALF_WIDTH * np.maximum(np.abs(pair.atoms), float(np.abs(pair.atoms).max()))
    before, after = pair.tails(pair.atoms - offset), pair.tails(pair.atoms + offset)
    mass = np.maximum(np.exp(before.sf_p) - np.exp(after.sf_p), np.exp(after.cdf_p) - np.exp(before.cdf_p))
    return min(max(1.0 - float(np.min(mass.sum(axis=-1))), 0.0), 1.0)


def _steepness(y: Array, tails: tuple[Array, Array]) -> Array:
    """Relative rate of change of tails [K, m] per nat of loss, at each loss: the largest of the hazard rates."""
    if y.size == 1:
        return np.full(1, constants.MASS_FLOOR)
    with np.errstate(divide="ignore", invalid="ignore"):
        falls = [np.abs(np.diff(np.log(tail))) for tail in tails]
    rate = np.max([np.where(np.isfinite(fall), fall, 0.0).max(axis=0) for fall in falls], axis=0) / np.diff(y)
    steepest: Array = np.maximum(np.maximum(np.append(rate, 0.0), np.append(0.0, rate)), constants.MASS_FLOOR)
    return steepest


def _stretch(y: Array, share: Array, extra: float) -> Array:
    """Factor by which the spacing at each loss may exceed the lattice's, given the tilted mass ``share`` there.

    Errors are mass times spacing squared, so for the fewest nodes the spacing goes with density^(-1/3). Spacings wider
    than the lattice's may together add the part ``extra`` of the error that mass one causes on the lattice.
    """
    if y.size == 1:
        return np.ones(1)
    thin = np.maximum(share / np.gradient(y), constants.MASS_FLOOR) ** (-2 / 3)
    # if all losses with less density than one of them are stretched, they add the sum of share (thin / its thin - 1)
    order = np.argsort(-thin, kind="stable")
    parts, shares = np.cumsum((share * thin)[order]), np.cumsum(share[order])
    last = max(int(np.searchsorted(parts / thin[order] - shares, extra)) - 1, 0)
    if not parts[last] > 0:
        # almost no mass anywhere: no spacing costs anything
        return np.full(y.size, math.sqrt(1 + extra))
    with np.errstate(over="ignore"):  # the caller limits the spacing, but interpolates between finite factors
        squares = np.minimum(thin * (extra + shares[last]) / parts[last], 1e300)
    return np.asarray(np.sqrt(np.maximum(squares, 1.0)))
