"""Laws of atoms that certifiably dominate the steps of a group, or are dominated by them, on losses that need not lie on a lattice.

A pair of few atoms is its own law, from above and from below. Any other pair is dotted on nodes that gather where its tilted mass does.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np

from wpriv.core.atomic_pair import AtomicPair
from wpriv.errors import Unsupported
from wpriv.numerics.arrays import Array
from wpriv.pld.lattice.discretize import cell_masses, discretize_optimistic, discretize_pessimistic
from wpriv.pld.lattice.step_pmfs import choose_nodes
from wpriv.pld.saddle_point import ApproximatePmf
from wpriv.pld.stacking import StepGroup
from wpriv.pld.transform.atomic_transforms import TiltedAtoms

# atoms up to which a pair is taken as it is
MOST_ATOMS = 6000
# nodes lie as near to each other as this part of their mean distance allows
FINEST = 1e-6
# the widest spacing of nodes, in nats: beyond it dots have nothing to gain
WIDEST = 1.0

Sides = tuple[TiltedAtoms, Callable[[], TiltedAtoms]]


def scatter_atoms(
    group: StepGroup,
    p: ApproximatePmf,
    error: float,
    tilts: tuple[float, float],
    masses: tuple[float, float],
    focus: tuple[float, float] | None,
) -> Sides:
    """A group's upper law, and what makes its lower law.

    Args:
        error: what one step's law may be too high by, in ln E[e^{tilt L}] over the tilt, about.
        tilts: the one that decides where nodes are needed, and that of the laws.
        masses: those that may be neglected above and below, as for ``lattice.nodes``.
        focus: where single losses decide the answer, whatever their weight, if anywhere.
    Raises:
        Unsupported: its losses are too large for dots, or too many nodes would be needed.
    """
    pair, (dotted, tilt) = group.pair, tilts
    if isinstance(pair, AtomicPair) and pair.losses.size <= MOST_ATOMS:
        return _exact_atoms(pair, tilt, group, masses[0])
    distance = math.sqrt(8 * error / (dotted + 1))
    if distance > WIDEST:
        raise Unsupported("pld finds the losses of a step too large for its nodes at this tolerance. Use rdp")
    step = FINEST * distance
    index = choose_nodes(group, p, step, dotted, *masses, extra=FINEST**-2, focus=focus)
    y = np.asarray(index * step, dtype=np.float64)
    if pair.atoms.size <= 64:
        y = _with_atoms(y, pair.atoms, step)
    made = cell_masses(pair, y)
    mass, infinity = discretize_pessimistic(made, pair.mass_at_plus_infinity)
    own = np.full(group.counts.size, float(pair.mass_at_plus_infinity))
    counts = group.counts

    def lower() -> TiltedAtoms:
        return TiltedAtoms.of(y, discretize_optimistic(made, pair.mass_at_plus_infinity), tilt, counts, own)

    return TiltedAtoms.of(y, mass, tilt, counts, np.broadcast_to(np.atleast_1d(infinity), counts.shape)), lower


def _exact_atoms(pair: AtomicPair, tilt: float, group: StepGroup, top_mass: float) -> Sides:
    """The atoms themselves; those above which there is next to no mass go to infinity in the upper law."""
    mass = np.exp(pair.log_p)
    above = np.append(np.cumsum(mass[::-1])[::-1], 0.0)
    last = max(int(np.searchsorted(-above, -top_mass)), 1)
    beyond = float(above[last]) + math.exp(pair.log_beyond)
    own = np.full(group.counts.size, pair.mass_at_plus_infinity)
    upper = TiltedAtoms.of(pair.losses[:last], mass[:last], tilt, group.counts, own + beyond)
    return upper, lambda: TiltedAtoms.of(pair.losses[:last], mass[:last], tilt, group.counts, own)


def _with_atoms(y: Array, atoms: Array, step: float) -> Array:
    """The nodes with the atoms among them, those next to an atom left out."""
    inside = atoms[(atoms > y[0]) & (atoms < y[-1])]
    if not inside.size:
        return y
    at = np.searchsorted(inside, y)
    near = np.minimum(np.abs(y - inside[np.minimum(at, inside.size - 1)]), np.abs(y - inside[np.maximum(at - 1, 0)]))
    kept = near > 0.25 * step
    kept[[0, -1]] = True
    return np.unique(np.concatenate([y[kept], inside]))
