"""Pessimistic and optimistic tilted PMFs of the steps of a group on scattered losses, which need not lie on a lattice.

A pair of few atoms is used exactly. Any other pair is discretised on nodes that are dense where its tilted mass lies.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np

from wpriv.core.atomic_pair import AtomicPair
from wpriv.numerics.arrays import Array
from wpriv.pld import constants
from wpriv.pld.lattice.discretize import cell_masses, discretize_optimistic, discretize_pessimistic
from wpriv.pld.lattice.step_nodes import choose_nodes
from wpriv.pld.saddle_point import ApproximatePmf
from wpriv.pld.stacking import StepGroup
from wpriv.pld.transform import transform_constants
from wpriv.pld.transform.atomic_transforms import TiltedAtoms

Sides = tuple[TiltedAtoms, Callable[[], TiltedAtoms]]


def scatter_atoms(
    group: StepGroup,
    pmf: ApproximatePmf,
    distance: float,
    tilts: tuple[float, float],
    masses: tuple[float, float],
    focus: tuple[float, float] | None,
) -> Sides:
    """Discretise a group's pairs.

    Args:
        distance: mean spacing of the nodes where the tilted mass lies, in nats.
        tilts: the tilt that decides where nodes are needed, and that of the PMFs.
        masses: P-mass above, and tilted mass below the nodes that may be neglected, as for ``choose_nodes``.
        focus: range of losses where single ones decide the answer, whatever their weight, if there is one.
    Returns:
        The pessimistic PMFs, and a function that makes the optimistic ones.
    Raises:
        Unsupported: too many nodes would be needed.
    """
    pair, (node_tilt, tilt) = group.pair, tilts
    if isinstance(pair, AtomicPair) and pair.losses.size <= transform_constants.MAX_EXACT_ATOMS:
        return _exact_atoms(pair, tilt, group, masses[0])
    finest = transform_constants.FINEST_NODE_SPACING
    step = finest * min(distance, constants.MAX_CHORD_SPACING)
    limit = transform_constants.MAX_SCATTERED_NODES
    index = choose_nodes(group, pmf, step, node_tilt, *masses, extra=finest**-2, focus=focus, limit=limit)
    y = np.asarray(index * step, dtype=np.float64)
    if pair.atoms.size <= constants.MAX_NODE_ATOMS:
        y = _with_atoms(y, pair.atoms, step)
    cells, counts, infinity = cell_masses(pair, y), group.counts, float(pair.mass_at_plus_infinity)
    mass, beyond = discretize_pessimistic(cells, pair.mass_at_plus_infinity)
    upper = TiltedAtoms.of(y, mass, tilt, counts, np.broadcast_to(np.atleast_1d(beyond), counts.shape))

    def lower() -> TiltedAtoms:
        lower_mass = discretize_optimistic(cells, pair.mass_at_plus_infinity)
        return TiltedAtoms.of(y, lower_mass, tilt, counts, np.full(counts.size, infinity))

    return upper, lower


def _exact_atoms(pair: AtomicPair, tilt: float, group: StepGroup, top_mass: float) -> Sides:
    """The atoms themselves; the largest, of at most ``top_mass`` together, move to infinity in the pessimistic PMF."""
    mass = np.exp(pair.log_p)
    above = np.append(np.cumsum(mass[::-1])[::-1], 0.0)
    last = max(int(np.searchsorted(-above, -top_mass)), 1)
    beyond = float(above[last]) + math.exp(pair.log_beyond)
    losses, mass = pair.losses[:last], mass[:last]
    infinity = np.full(group.counts.size, pair.mass_at_plus_infinity)
    upper = TiltedAtoms.of(losses, mass, tilt, group.counts, infinity + beyond)
    return upper, lambda: TiltedAtoms.of(losses, mass, tilt, group.counts, infinity)


def _with_atoms(y: Array, atoms: Array, step: float) -> Array:
    """The nodes with the atoms among them, without the nodes next to an atom.

    An atom next to the first or the last node takes its place.
    """
    inside = atoms[(atoms > y[0]) & (atoms < y[-1])]
    if not inside.size:
        return y
    at = np.searchsorted(inside, y)
    distance = np.minimum(
        np.abs(y - inside[np.minimum(at, inside.size - 1)]), np.abs(y - inside[np.maximum(at - 1, 0)])
    )
    # an atom must not lie next to two nodes, where the rounding of tails would count it twice
    apart = distance > transform_constants.ATOM_NODE_WIDTHS * constants.NODE_HALF_WIDTH * np.abs(y)
    kept = apart & (distance > transform_constants.ATOM_NODE_DISTANCE * step)
    kept[[0, -1]] = apart[[0, -1]]
    return np.unique(np.concatenate([y[kept], inside]))
