"""The tails of loss pairs on nodes that gather where their mass does, so that no scale has to be known beforehand.

A scan serves both orders of the neighbours. It steers the certified computation (see ``probe``), and by itself gives a certified, if
crude, bound of delta: Chernoff's, which often settles that a second order of the neighbours lies below the first.
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
from wpriv.pld.stacking import batch_pairs

_LADDER = np.geomspace(1e-15, 1e9, 60)
# a cell is divided where it has more than the first share of all mass, or more than the second (third) of what its tail has left, if that
# is more than the depth asked (no deeper than 1e-15); what many pairs share may be rougher
FINE, ROUGH = (0.02, 0.7, 0.3), (0.1, 0.9, 0.7)
# parts that a wide cell is divided into
PARTS = 4
# pairs, by each of their parameters, that find the nodes for all that are like them
SCOUTS = 4
Flags = NDArray[np.bool_]
Shares = tuple[float, float, float]
# roundings that a tail and what is made of it may have gathered, and more than an underflow loses
ROUNDINGS, UNIT, TINY = 16, 2.0**-53, 1e-305


class MomentBound(NamedTuple):
    """[K] ln of an upper bound of E[e^{tilt L}], about the mean and mean square of the tilted loss, and the P-mass that is left out."""

    log: Array
    mean: Array
    square: Array
    above: Array


@dataclass(frozen=True)
class TailScan:
    """Increasing losses y [m] and the tails [4, K, m] there of K stacked pairs: P above, P up to, Q above and Q up to each loss."""

    y: Array
    tails: Array

    def masses(self) -> tuple[Array, Array]:
        """[K, m-1] the P- and the Q-mass of every cell."""
        start, end = self.tails[:, :, :-1], self.tails[:, :, 1:]
        return _between(start[0], start[1], end[0], end[1]), _between(start[2], start[3], end[2], end[3])

    def mirrored(self) -> TailScan:
        """The scan of the pairs (Q, P), where no loss has an atom."""
        return TailScan(-self.y[::-1], self.tails[::-1, :, ::-1].copy())

    def chernoff(self, tilt: float, rare: float = 0.0) -> MomentBound:
        """Bounds E[e^{tilt L}], tilt > 0, over the losses up to the first node that every row has at most ``rare`` P-mass above."""
        last = min(int(np.searchsorted(-self.tails[0].max(axis=0), -rare)), self.y.size - 1)
        y, raised = self.y[: last + 1], self._raised[:, : last + 1]
        exponent = tilt * y
        exponent += ROUNDINGS * UNIT * np.abs(exponent)
        peak = float(exponent.max())
        weight = np.exp(exponent - peak)
        total, mean, square = (raised @ each for each in (weight, weight * y, weight * y * y))
        return MomentBound(
            peak + np.log(total) + ROUNDINGS * UNIT * (y.size + 1),
            mean / total,
            square / total,
            self.tails[0, :, last] + TINY,
        )

    @cached_property
    def _raised(self) -> Array:
        """[K, m] masses on the nodes that have no smaller exponential moment than the law: the chords of the privacy profile.

        Of all laws with a cell's P- and Q-mass, that on its ends has the largest moment.
        """
        y, (p, q) = self.y, self.masses()
        start, width, hair = y[:-1], np.diff(y), ROUNDINGS * UNIT
        tail_p, tail_q = (np.minimum(t[:, :-1], u[:, 1:]) for t, u in (self.tails[:2], self.tails[2:]))
        # what rounding or underflow may have taken from a mass is added; the share of the upper end is raised likewise
        p += hair * tail_p + TINY
        with np.errstate(over="ignore", invalid="ignore"):
            grow = np.exp(start)
            noise = hair * (2 + np.abs(start)) * (tail_p + np.where(tail_q > 0, grow * tail_q, 0.0)) + TINY
            left = (np.where(q > 0, grow * q, 0.0) - p * np.exp(-width) - noise) / -np.expm1(-width)
        left = np.where(left < p, np.maximum(left, 0.0), np.maximum(p - noise, 0.0))
        raised = np.zeros(self.tails.shape[1:])
        raised[:, :-1] = left
        raised[:, 1:] += p - left
        raised[:, 0] += self.tails[1, :, 0] + TINY
        return raised


@lru_cache(maxsize=512)
def scan_tails(*members: LossPair, depth: float) -> TailScan:
    """Scans one pair, or several that can be stacked, down to P-masses (and Q-masses of the reverse) of ``depth``; cached by the pairs.

    Of many like pairs a few find the nodes for all, no more than they need.
    """
    pair = batch_pairs(members)
    if isinstance(pair, Reversed) and not pair.atoms.size:
        return scan_tails(
            *(member.forward for member in members if isinstance(member, Reversed)), depth=depth
        ).mirrored()
    if len(members) <= 2 * SCOUTS:
        return _refined(pair, depth, FINE)
    y = _needed(batch_pairs(_spread(members)), depth)
    return TailScan(y, _tails(pair, y))


def _spread(members: tuple[LossPair, ...]) -> tuple[LossPair, ...]:
    """Some of many like members: in the order of each of their parameters the ends, and some evenly between."""
    values = np.array([found[1] for found in (member.batch_key() for member in members) if found is not None])
    places = np.linspace(0, len(members) - 1, SCOUTS).astype(int)
    return tuple(members[k] for k in np.unique(np.argsort(values, axis=0, kind="stable")[places]))


def _refined(pair: LossPair, depth: float, shares: Shares) -> TailScan:
    """The tails on the first nodes, and on those that cells are divided by as long as they are too wide."""
    y = _first_nodes(pair)
    tails = _tails(pair, y)
    nodes, found = [y], [tails]
    # the cells not yet looked at: their ends and the tails there
    low, high, start, end = y[:-1], y[1:], tails[:, :, :-1], tails[:, :, 1:]
    while True:
        wide = _wide((low, high), (start, end), (y, tails), pair, depth, shares)
        if not wide.any():
            break
        low, high, start, end = low[wide], high[wide], start[:, :, None, wide], end[:, :, None, wide]
        new = low + (high - low) * np.arange(1, PARTS)[:, None] / PARTS
        more = _tails(pair, new.ravel())
        nodes.append(new.ravel())
        found.append(more)
        inner = more.reshape(*more.shape[:2], *new.shape)
        low, high = np.concatenate([low[None], new]).ravel(), np.concatenate([new, high[None]]).ravel()
        start, end = (
            np.concatenate(ends, axis=2).reshape(*more.shape[:2], -1) for ends in ((start, inner), (inner, end))
        )
    y = np.concatenate(nodes)
    order = np.argsort(y, kind="stable")
    return TailScan(y[order], np.concatenate(found, axis=2)[:, :, order])


def _needed(pair: LossPair, depth: float) -> Array:
    """The nodes of a roughly refined scan without every second one, where the cell around it is not too wide."""
    y, tails = (found := _refined(pair, depth, ROUGH)).y, found.tails
    second = np.arange(1, y.size - 1, 2)
    wide = _wide(
        (y[second - 1], y[second + 1]),
        (tails[:, :, second - 1], tails[:, :, second + 1]),
        (y, tails),
        pair,
        depth,
        ROUGH,
    )
    return np.delete(y, second[~(wide | np.isin(y[second], pair.atoms))])


def _first_nodes(pair: LossPair) -> Array:
    """A ladder of losses of every size within the support, its ends, and the atoms where they are few."""
    low, high = pair.support
    ladder = np.concatenate([-_LADDER[::-1], [0.0], _LADDER])
    y = ladder[(ladder > low) & (ladder < high)]
    ends = [v for v in (low, high) if math.isfinite(v)]
    if len(ends) == 2 and high > low:
        # a bounded loss has its law's detail near the ends
        inwards = (high - low) * np.geomspace(1e-7, 0.5, 30)
        y = np.concatenate([y, low + inwards, high - inwards])
    few_atoms = pair.atoms if pair.atoms.size <= 64 else np.empty(0)
    y = np.unique(np.concatenate([y, ends, few_atoms]))
    if y.size < 2:
        y = np.array([y[0] - 1e-9, y[0]]) if y.size else np.array([-1e-9, 0.0])
    return y


def _wide(
    ends: tuple[Array, Array],
    tails: tuple[Array, Array],
    ladder: tuple[Array, Array],
    pair: LossPair,
    depth: float,
    shares: Shares,
) -> Flags:
    """Which cells are to be divided: those with much mass, and those over which a tail falls steeply.

    Args:
        ends: [c] the cells' ends. tails: [4, K, c] the tails there. ladder: the first nodes, and the tails there.
    """
    (low, high), (start, end) = ends, tails
    first, last = ladder[0][0], ladder[0][-1]
    mass = _between(start[0], start[1], end[0], end[1])
    mass[:, low == first] = np.maximum(mass, np.minimum(end[1], 1.0 - pair.mass_at_plus_infinity))[:, low == first]
    heavy = np.any(mass > shares[0], axis=0)
    steep = _steep(mass, start[0], ladder[1][0, :, -1], depth, shares) & (high < last)
    if not pair.symmetric and not pair.atoms.size:
        steep |= _steep(_between(start[2], start[3], end[2], end[3]), end[3], ladder[1][3, :, 0], depth, shares) & (
            low > first
        )
    # no finer than the ladder: an atom at zero would be halved for ever
    finest = np.maximum(np.where(heavy, 1e-9, 0.01) * np.abs(high), 1e-15)
    found: Flags = (heavy | steep) & (high - low > finest)
    return found


def _steep(mass: Array, tail: Array, rest: Array, depth: float, shares: Shares) -> Flags:
    """Where, in some row, a cell's mass is most of its tail, but for the ``rest`` beyond all nodes."""
    beyond = np.maximum(tail - rest[:, None], 4 * UNIT * rest[:, None])
    return np.asarray(
        np.any((mass > shares[1] * beyond) & (mass > depth) | (mass > shares[2] * beyond) & (mass > 1e-15), axis=0)
    )


def _tails(pair: LossPair, y: Array) -> Array:
    return np.array([np.atleast_2d(tail) for tail in pair.probabilities(y)])


def _between(above: Array, below: Array, next_above: Array, next_below: Array) -> Array:
    """The mass of every cell from the tails at its two ends, by whichever is the smaller."""
    return np.maximum(np.where(above < next_below, above - next_above, next_below - below), 0.0)
