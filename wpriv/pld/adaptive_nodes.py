"""Scan the tails of loss pairs on nodes that are refined where the mass lies, so that no scale need be known.

One scan serves both directions (add and remove). It steers the certified computation (see ``saddle_point``), and by
itself gives a certified, if loose, upper bound of delta (Chernoff's), which often suffices to dismiss one of the two
directions.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property, lru_cache
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from wpriv.core.loss_pair import LossPair, Reversed
from wpriv.numerics.arrays import Array
from wpriv.pld import constants, work
from wpriv.pld.stacking import batch_pairs

Flags = NDArray[np.bool_]
Shares = tuple[float, float, float]


class MomentBound(NamedTuple):
    """An upper bound of E[e^{tilt L}] for each of K losses, with approximate mean and mean square of the tilted loss.

    ``mass_above`` is the P-mass of the losses left out.
    """

    log_moment: Array
    mean: Array
    mean_square: Array
    mass_above: Array


@dataclass(frozen=True)
class TailScan:
    """Tails of K batched pairs on increasing losses.

    Attributes:
        y: [m] losses in nats.
        tails: [4, K, m] P(L > y), P(L <= y), Q(L > y), Q(L <= y).
        above: [K, m-1] P - e^a Q of every cell (a, b] to the rounding of the loss; nan where it is not known.
    """

    y: Array
    tails: Array
    above: Array

    @staticmethod
    def of(pair: LossPair, y: Array, tails: Array) -> TailScan:
        """The scan with what lies above the start of narrow cells."""
        narrow = np.diff(y) <= 1
        parts = pair.cell_parts(y[:-1], np.nextafter(y[1:], np.inf))
        above = np.nan if parts is None else np.where(narrow, parts.above, np.nan)
        return TailScan(y, tails, np.broadcast_to(above, (tails.shape[1], y.size - 1)))

    def cell_masses(self) -> tuple[Array, Array]:
        """[K, m-1] the P- and the Q-mass of every cell."""
        start, end = self.tails[:, :, :-1], self.tails[:, :, 1:]
        return _mass_between(start[0], start[1], end[0], end[1]), _mass_between(start[2], start[3], end[2], end[3])

    def mirrored(self) -> TailScan:
        """The scan of the pairs (Q, P), for losses without atoms."""
        width, mass = np.diff(self.y), self.cell_masses()[0]
        with np.errstate(over="ignore", invalid="ignore"):
            below = np.expm1(width) * mass - np.exp(width) * self.above
            above = (np.exp(-self.y[1:]) * below)[:, ::-1].copy()
        return TailScan(-self.y[::-1], self.tails[::-1, :, ::-1].copy(), above)

    def bound_moment(self, tilt: float, rare: float = 0.0) -> MomentBound:
        """Bound E[e^{tilt L}] from above, tilt > 0, over losses up to a node with P-mass at most ``rare`` above."""
        last = min(int(np.searchsorted(-self.tails[0].max(axis=0), -rare)), self.y.size - 1)
        y, masses = self.y[: last + 1], self._dominating_masses[:, : last + 1]
        rounding = constants.TAIL_ROUNDINGS * constants.UNIT_ROUNDOFF
        exponent = tilt * y
        exponent += rounding * np.abs(exponent)
        peak = float(exponent.max())
        weight = np.exp(exponent - peak)
        total, mean, square = (masses @ values for values in (weight, weight * y, weight * y * y))
        return MomentBound(
            peak + np.log(total) + rounding * (y.size + 1),
            mean / total,
            square / total,
            self.tails[0, :, last] + constants.UNDERFLOW_MASS,
        )

    def bound_affinity(self, share: float) -> Array:
        """[K] ln of an upper bound of E_P[e^{-share L}; L < inf], 0 < share <= 1: the integral of p^(1-share) q^share.

        By Hoelder's inequality that of a cell is at most P(cell)^(1-share) Q(cell)^share.
        """
        rounding, underflow = constants.TAIL_ROUNDINGS * constants.UNIT_ROUNDOFF, constants.UNDERFLOW_MASS
        parts = []
        for above, below in (self.tails[:2], self.tails[2:]):
            inner = _mass_between(above[:, :-1], below[:, :-1], above[:, 1:], below[:, 1:])
            inner += rounding * np.minimum(above[:, :-1], below[:, 1:])
            parts.append(np.concatenate([below[:, :1], inner, above[:, -1:]], axis=1) * (1 + rounding) + underflow)
        total = (parts[0] ** (1 - share) * parts[1] ** share).sum(axis=1)
        return np.asarray(np.log(total) + rounding * (self.y.size + 1))

    @cached_property
    def _dominating_masses(self) -> Array:
        """[K, m] masses on the nodes with at least the exponential moment of the loss (chords of the profile).

        Of all distributions with given P- and Q-mass in a cell, the one on the cell's ends has the largest moment.
        """
        y, (p, q) = self.y, self.cell_masses()
        start, width = y[:-1], np.diff(y)
        rounding, underflow = constants.TAIL_ROUNDINGS * constants.UNIT_ROUNDOFF, constants.UNDERFLOW_MASS
        tail_p, tail_q = (np.minimum(t[:, :-1], u[:, 1:]) for t, u in (self.tails[:2], self.tails[2:]))
        # masses are raised by what rounding or underflow may have taken; the share of the upper end likewise
        p += rounding * tail_p + underflow
        with np.errstate(over="ignore", invalid="ignore"):
            growth = np.exp(start)
            noise = rounding * (2 + np.abs(start)) * (tail_p + np.where(tail_q > 0, growth * tail_q, 0.0)) + underflow
            left = (np.where(q > 0, growth * q, 0.0) - p * np.exp(-width) - noise) / -np.expm1(-width)
        left = np.where(left < p, np.maximum(left, 0.0), np.maximum(p - noise, 0.0))
        masses = np.zeros(self.tails.shape[1:])
        masses[:, :-1] = left
        masses[:, 1:] += p - left
        masses[:, 0] += self.tails[1, :, 0] + underflow
        return masses


@lru_cache(maxsize=512)
def scan_tails(*members: LossPair, depth: float) -> TailScan:
    """Scan one pair, or several that can be batched, down to P-masses (Q-masses of the reverse) of ``depth``; cached.

    For large batches the nodes are refined on a few representative pairs and reused for the rest.
    """
    pair = batch_pairs(members)
    if isinstance(pair, Reversed) and not pair.atoms.size:
        forward = (member.forward for member in members if isinstance(member, Reversed))
        return scan_tails(*forward, depth=depth).mirrored()
    if len(members) <= 2 * constants.REPRESENTATIVES:
        return _refine_scan(pair, depth, constants.FINE_CELL_SHARES)
    y = _thinned_nodes(batch_pairs(_representatives(members)), depth)
    return TailScan.of(pair, y, _tails(pair, y))


def _representatives(members: tuple[LossPair, ...]) -> tuple[LossPair, ...]:
    """A few of many like pairs: by each parameter the smallest, the largest and some evenly spaced in rank."""
    keys = (member.batch_key() for member in members)
    parameters = np.array([key[1] for key in keys if key is not None])
    ranks = np.linspace(0, len(members) - 1, constants.REPRESENTATIVES).astype(int)
    return tuple(members[k] for k in np.unique(np.argsort(parameters, axis=0, kind="stable")[ranks]))


def _refine_scan(pair: LossPair, depth: float, shares: Shares) -> TailScan:
    """The tails on the first nodes, and on those of every cell that had to be divided."""
    y = _first_nodes(pair)
    tails = _tails(pair, y)
    node_parts, tail_parts, divisions = [y], [tails], constants.CELL_DIVISIONS
    # the cells not examined yet: their ends and the tails there
    low, high, start, end = y[:-1], y[1:], tails[:, :, :-1], tails[:, :, 1:]
    while True:
        too_wide = _too_wide((low, high), (start, end), (y, tails), pair, depth, shares)
        if not too_wide.any():
            break
        low, high = low[too_wide], high[too_wide]
        start, end = start[:, :, None, too_wide], end[:, :, None, too_wide]
        new = low + (high - low) * np.arange(1, divisions)[:, None] / divisions
        new_tails = _tails(pair, new.ravel())
        node_parts.append(new.ravel())
        tail_parts.append(new_tails)
        inner = new_tails.reshape(*new_tails.shape[:2], *new.shape)
        low, high = np.concatenate([low[None], new]).ravel(), np.concatenate([new, high[None]]).ravel()
        start, end = (
            np.concatenate(ends, axis=2).reshape(*new_tails.shape[:2], -1) for ends in ((start, inner), (inner, end))
        )
    y = np.concatenate(node_parts)
    order = np.argsort(y, kind="stable")
    return TailScan.of(pair, y[order], np.concatenate(tail_parts, axis=2)[:, :, order])


def _thinned_nodes(pair: LossPair, depth: float) -> Array:
    """The nodes of a roughly refined scan, without every second one where the cell around it is narrow enough."""
    shares = constants.ROUGH_CELL_SHARES
    scan = _refine_scan(pair, depth, shares)
    y, tails = scan.y, scan.tails
    second = np.arange(1, y.size - 1, 2)
    too_wide = _too_wide(
        (y[second - 1], y[second + 1]),
        (tails[:, :, second - 1], tails[:, :, second + 1]),
        (y, tails),
        pair,
        depth,
        shares,
    )
    return np.delete(y, second[~(too_wide | np.isin(y[second], pair.atoms))])


def _first_nodes(pair: LossPair) -> Array:
    """Losses of every order of magnitude within the support, its ends, and the atoms if they are few."""
    low, high = pair.support
    ladder = np.concatenate([-constants.FIRST_LOSSES[::-1], [0.0], constants.FIRST_LOSSES])
    y = ladder[(ladder > low) & (ladder < high)]
    ends = [v for v in (low, high) if math.isfinite(v)]
    if len(ends) == 2 and high > low:
        # the distribution of a bounded loss varies fastest near its ends
        distances = (high - low) * constants.FIRST_END_DISTANCES
        y = np.concatenate([y, low + distances, high - distances])
    few_atoms = pair.atoms if pair.atoms.size <= constants.MAX_NODE_ATOMS else np.empty(0)
    y = np.unique(np.concatenate([y, ends, few_atoms]))
    if y.size < 2:
        y = np.array([y[0] - 1e-9, y[0]]) if y.size else np.array([-1e-9, 0.0])
    return y


def _too_wide(
    ends: tuple[Array, Array],
    tails: tuple[Array, Array],
    ladder: tuple[Array, Array],
    pair: LossPair,
    depth: float,
    shares: Shares,
) -> Flags:
    """Flag the cells to be divided: those with much mass, and those over which a tail falls steeply.

    Args:
        ends: [c] lower and upper ends of the cells.
        tails: [4, K, c] tails at these ends.
        ladder: first nodes [m], and the tails there.
    """
    (low, high), (start, end) = ends, tails
    first, last = ladder[0][0], ladder[0][-1]
    mass = _mass_between(start[0], start[1], end[0], end[1])
    mass[:, low == first] = np.maximum(mass, np.minimum(end[1], 1.0 - pair.mass_at_plus_infinity))[:, low == first]
    heavy = np.any(mass > shares[0], axis=0)
    steep = _steep(mass, start[0], ladder[1][0, :, -1], depth, shares) & (high < last)
    if not pair.symmetric and not pair.atoms.size:
        q_mass = _mass_between(start[2], start[3], end[2], end[3])
        steep |= _steep(q_mass, end[3], ladder[1][3, :, 0], depth, shares) & (low > first)
    # a least width, since a cell with an atom at zero would be divided for ever
    relative_width = np.where(heavy, constants.MIN_HEAVY_CELL, constants.MIN_LIGHT_CELL)
    finest = np.maximum(relative_width * np.abs(high), constants.MIN_CELL_WIDTH)
    flags: Flags = (heavy | steep) & (high - low > finest)
    return flags


def _steep(mass: Array, tail: Array, rest: Array, depth: float, shares: Shares) -> Flags:
    """Flag the cells that hold, in some row, most of their tail, apart from the ``rest`` beyond all nodes."""
    beyond = np.maximum(tail - rest[:, None], 4 * constants.UNIT_ROUNDOFF * rest[:, None])
    deep = (mass > shares[1] * beyond) & (mass > depth)
    deepest = (mass > shares[2] * beyond) & (mass > constants.DEEPEST_MASS)
    return np.asarray(np.any(deep | deepest, axis=0))


def _tails(pair: LossPair, y: Array) -> Array:
    tails = np.array([np.atleast_2d(tail) for tail in pair.probabilities(y)])
    work.add("loss", tails[0].size)
    return tails


def _mass_between(above: Array, below: Array, next_above: Array, next_below: Array) -> Array:
    """Mass of every cell from the tails at its two ends, computed from whichever tail is smaller."""
    return np.maximum(np.where(above < next_below, above - next_above, next_below - below), 0.0)
