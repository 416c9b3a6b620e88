"""Compose steps of few atoms by adding up their losses, on no lattice and without a tilt.

Losses as far apart as 1e-3 and 5,000 nats, as discrete noise far below one has them, fit on no lattice; but few sums of
them have a probability that matters. Every other sum is omitted, and its P-mass added to the upper end of delta. Sums
next to each other become one atom, and the largest distance by which a loss moves is a shift of eps.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from wpriv.accounting.pld import constants
from wpriv.accounting.pld.saddle_point import Cumulants
from wpriv.accounting.pld.step_groups import Steps, TwoSidedComposition
from wpriv.core.atomic_pair import AtomicPair
from wpriv.numerics.arrays import Array

UNIT = constants.UNIT_ROUNDOFF


@dataclass(frozen=True)
class AtomicSum:
    """The sums of the losses of some steps.

    Attributes:
        losses: [k] increasing losses in nats.
        mass: [k] their P-masses.
        omitted: bound on the P-mass of finite losses that are left out.
        shift: bound on the distance of a loss from the true one, in nats.
        rounding: bound on the relative error of a mass, in roundings.
    """

    losses: Array
    mass: Array
    omitted: float
    shift: float
    rounding: float

    def without_rare(self, share: float) -> AtomicSum:
        """Omit the rarest losses, of a P-mass of at most ``share`` together."""
        order = np.argsort(self.mass, kind="stable")
        total = np.cumsum(self.mass[order])
        rare = int(np.searchsorted(total, share, side="right"))
        kept = np.sort(order[rare:])
        lost = float(total[rare - 1]) * (1 + 1e-9) if rare else 0.0
        return AtomicSum(self.losses[kept], self.mass[kept], self.omitted + lost, self.shift, self.rounding)

    def plus(self, other: AtomicSum, width: float, share: float) -> AtomicSum:
        """The sums of both, those within ``width`` of one another as one, without the rarest of mass ``share``."""
        losses = np.add.outer(self.losses, other.losses).ravel()
        constants.add("sum", losses.size)
        order = np.argsort(losses, kind="stable")
        losses, mass = losses[order], np.multiply.outer(self.mass, other.mass).ravel()[order]
        largest = float(np.abs(losses).max(initial=0.0))
        cell = np.floor(losses / max(width, 8 * UNIT * largest, constants.MIN_CELL_WIDTH))
        starts = np.flatnonzero(np.concatenate([[True], np.diff(cell) > 0])) if losses.size else np.arange(0)
        first, last = losses[starts], losses[np.append(starts[1:], losses.size) - 1]
        moved = float((last - first).max(initial=0.0)) / 2 + 4 * UNIT * largest
        members = float(np.diff(np.append(starts, losses.size)).max(initial=0))
        mass = np.add.reduceat(mass, starts) if losses.size else mass
        shift, rounding = self.shift + other.shift + moved, self.rounding + other.rounding + members + 2
        merged = AtomicSum(first + (last - first) / 2, mass, self.omitted + other.omitted, shift, rounding)
        return merged.without_rare(share)


@dataclass(frozen=True)
class AtomicComposition:
    """Composed atoms (profile to rounding, ``centre`` of the loss), the omitted mass, and a shift of eps."""

    atoms: AtomicSum
    mass_at_plus_infinity: float
    centre: float
    tilt: float = 0.0

    @property
    def cells(self) -> int:
        """Number of atoms."""
        return int(self.atoms.losses.size)

    def delta(self, eps: float, sign: int) -> float:
        """delta at eps from above (sign +1) or from below (sign -1)."""
        start = int(np.searchsorted(self.atoms.losses, eps, side="right"))
        terms = -np.expm1(eps - self.atoms.losses[start:]) * self.atoms.mass[start:]
        relative = (self.atoms.rounding + self.cells + 16) * UNIT
        value = self.mass_at_plus_infinity + float(terms.sum())
        if sign < 0:
            return value * max(1 - relative, 0.0)
        return min((value + self.atoms.omitted) * (1 + relative) + constants.UNDERFLOW_MASS, 1.0)


def compose_few_atoms(
    steps: Steps, state: Cumulants, tilt: float, eps: float, error: float, delta: float
) -> TwoSidedComposition | None:
    """Compose steps whose losses have few sums that matter; arguments as for ``compose_by_transform``.

    Returns:
        The composition, or None where a step is not discrete or the sums are too many.
    """
    deviation = math.sqrt(state.variance)
    relative = min(max(error * (tilt + 1 / deviation), constants.MIN_RELATIVE_ERROR), constants.MAX_RELATIVE_ERROR)
    # each of the steps, and each of the fewer additions, may omit and move as much
    share = max(constants.OMITTED_SHARE * relative * delta / (2 * steps.total), constants.MASS_FLOOR)
    width = constants.MERGED_SHARE * error / steps.total
    composed: AtomicSum | None = None
    budget = constants.MAX_ATOM_SUMS
    for group in steps.groups:
        for pair, n in zip(group.members, group.counts.tolist(), strict=True):
            power = _atoms(pair, share) if isinstance(pair, AtomicPair) else None
            if power is None:
                return None
            while True:
                if n & 1:
                    budget -= 0 if composed is None else composed.losses.size * power.losses.size
                    if budget < 0:
                        return None
                    composed = power if composed is None else composed.plus(power, width, share)
                n >>= 1
                if not n:
                    break
                budget -= power.losses.size**2
                if budget < 0:
                    return None
                power = power.plus(power, width, share)
    if composed is None:
        return None
    infinite = max(-math.expm1(steps.log_finite), 0.0)
    composition = AtomicComposition(composed, infinite, state.mean)
    slack = composed.shift + 8 * UNIT * float(np.abs(composed.losses).max(initial=0.0))
    # a loss that is nearly constant has no deviation by which to search for an eps
    return TwoSidedComposition(composition, lambda: composition, slack, max(deviation, abs(state.mean)))


def _atoms(pair: AtomicPair, share: float) -> AtomicSum | None:
    """The losses of one step that matter, or None where they are many."""
    every = AtomicSum(pair.losses, np.exp(pair.log_p), math.exp(pair.log_beyond), 0.0, 0.0)
    atoms = every.without_rare(share)
    if not 0 < atoms.losses.size <= constants.MAX_FEW_ATOMS:
        return None
    shift = constants.TAIL_ROUNDINGS * UNIT * float(np.abs(atoms.losses).max())
    rounding = constants.TAIL_ROUNDINGS - float(np.log(atoms.mass.min()))
    return AtomicSum(atoms.losses, atoms.mass, atoms.omitted, shift, rounding)
