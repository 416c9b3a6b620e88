"""Pessimistic and optimistic tilted PMFs of the steps of a group on a lattice.

Rare large losses would force a long fine lattice on every step. Where they are rare enough they are split off: with B
the PLD of the losses within a cut and R the rest, of P-mass r, a step is (1-r) B' + R, B' = B / (1-r), and n steps are
sums over the number k of jumps of B'^(n-k) R^k. Adding a step of B' raises delta, up to a shift of eps by ln kappa,
kappa = E[e^-Y] under B' (Jensen), so for at most K jumps the composition of B'^n with ((1-r) at zero + R)^n, eps
shifted by K ln kappa, lies above, and that of B'^(n-K) with the same lies below. The jumps can then live on the last,
coarse lattice only. Where B' is so narrow that the first lattice does not resolve it, its optimistic PMF is a point at
-ln kappa (Jensen once more): zero, with eps shifted by n ln kappa in all.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from wpriv.errors import Unsupported
from wpriv.numerics.arrays import Array, Counts
from wpriv.pld import constants
from wpriv.pld.lattice.convex_minorant import push_down
from wpriv.pld.lattice.discretize import (
    CellMasses,
    cell_masses,
    discretize_bulk,
    discretize_optimistic,
    discretize_pessimistic,
    round_losses,
)
from wpriv.pld.lattice.jump_cut import max_jump_count
from wpriv.pld.lattice.lattice_pmf import LatticePmf
from wpriv.pld.lattice.staging import StagePlan
from wpriv.pld.lattice.step_nodes import choose_nodes
from wpriv.pld.saddle_point import ApproximatePmf
from wpriv.pld.stacking import StepGroup


@dataclass(frozen=True)
class Jumps:
    """The rare large losses of a group's steps, on the last lattice.

    Attributes:
        upper: pessimistic PMFs, with an atom at zero.
        lower: the same, optimistic.
        max_count: [K] number of jumps of each step that are accounted for.
        log_kappa: [K] shift of eps by one jump.
        eps_slack: by how much in eps the optimistic composition lies too high, over all steps.
    """

    upper: LatticePmf
    lower: LatticePmf
    max_count: Counts
    log_kappa: Array
    eps_slack: float


@dataclass(frozen=True)
class DiscretizedStep:
    """The tilted PMFs of a group's steps on the first lattice.

    Attributes:
        upper: pessimistic PMFs.
        lower: makes the optimistic PMFs, once they are needed.
        mass_at_plus_infinity: [K] mass of the pessimistic PMFs at +infinity.
        jumps: the rare large losses, if they were split off.
    """

    upper: LatticePmf
    lower: Callable[[], LatticePmf]
    mass_at_plus_infinity: Array
    jumps: Jumps | None = None


def discretize_step(
    group: StepGroup, pmf: ApproximatePmf, step: float, tilt: float, top_mass: float, bottom_mass: float
) -> DiscretizedStep:
    """Discretise a group's pairs in full; see ``choose_nodes`` for the masses that may be neglected."""
    pair, index = group.pair, choose_nodes(group, pmf, step, tilt, top_mass, bottom_mass)
    infinity = pair.mass_at_plus_infinity
    y = np.asarray(index * step, dtype=np.float64)
    if step > constants.MAX_CHORD_SPACING:
        upper_mass, lower_mass, beyond = round_losses(pair, y)
        upper = tilt_pmf(index, upper_mass, y, tilt, beyond)
        return DiscretizedStep(upper, lambda: tilt_pmf(index, lower_mass, y, tilt, infinity), np.atleast_1d(beyond))
    cells = cell_masses(pair, y)
    upper_mass, beyond = discretize_pessimistic(cells, infinity)

    def lower() -> LatticePmf:
        mass = np.atleast_2d(discretize_optimistic(cells, infinity))
        if infinity > 0:
            return tilt_pmf(index, mass, y, tilt, infinity)
        # without mass at infinity, a pair dominates a point at zero
        return _optimistic_bulk(index, mass, step, tilt, np.zeros(mass.shape[0]))[0]

    return DiscretizedStep(tilt_pmf(index, upper_mass, y, tilt, beyond), lower, np.atleast_1d(beyond))


def discretize_with_jumps(
    group: StepGroup,
    pmf: ApproximatePmf,
    plan: StagePlan,
    tilt: float,
    top_mass: float,
    bottom_mass: float,
    tail: float,
) -> DiscretizedStep:
    """Discretise losses within the plan's cut on its first lattice, and jumps beyond, on either side, on its last.

    Args:
        tail: tilted probability that more jumps of a step happen than are accounted for.
    Raises:
        Unsupported: as many jumps as steps would have to be accounted for, or they would shift eps too far.
    """
    assert plan.cut is not None
    pair, counts = group.pair, group.counts
    step, coarse, cut = plan.step, plan.last, plan.cut
    bulk_nodes, edge = choose_nodes(group, pmf, step, tilt, top_mass, bottom_mass), cut * coarse
    bound, cut_below = round(edge / step), bool(bulk_nodes[0] * step < -edge)
    last = min(bound, math.ceil(pair.support[1] / step)) if math.isfinite(pair.support[1]) else bound
    within = bulk_nodes[(bulk_nodes > -bound) & (bulk_nodes < last)]
    bulk_nodes = np.unique(np.concatenate([[-bound] if cut_below else [], within, [0, last]])).astype(np.int64)
    y = np.asarray(bulk_nodes * step, dtype=np.float64)
    bulk = discretize_bulk(cell_masses(pair, y), cut_below)
    rest, log_kappa, bulk_upper, bulk_lower, inner_log_kappa = bulk
    blocks = plan.stages[-2][0]
    jump_nodes = choose_nodes(group, pmf, coarse, tilt, top_mass, bottom_mass, weight=int(counts.max()) / blocks)
    jump_upper, jump_lower, infinity = _jump_pmfs(group, jump_nodes, cut, coarse, tilt, rest, cut_below)
    means = counts * jump_upper.rows[:, jump_upper.index != 0].sum(axis=1)
    max_count = np.array([max_jump_count(mean, tail) for mean in means.tolist()])
    log_kappa = np.atleast_1d(np.maximum(log_kappa, 0.0))
    # the cut was chosen from an approximate PMF. The optimistic bulk needs steps without a jump, and the bound of the
    # outcomes with more jumps holds up to this shift of eps by those that are accounted for
    most_shift = np.log((max_count + 1) / np.maximum(means, constants.MASS_FLOOR))
    if bool(((max_count >= counts) | (tilt * (max_count + 1) * log_kappa > most_shift)).any()):
        raise Unsupported("pld cannot set large losses apart where every step may have one. Raise `tol`, or use rdp")
    upper = tilt_pmf(bulk_nodes, bulk_upper / rest[..., None], y, tilt)
    inner_log_kappa = np.atleast_1d(np.maximum(inner_log_kappa, 0.0))
    lower, eps_slack = _optimistic_bulk(
        bulk_nodes, np.atleast_2d(bulk_lower / rest[..., None]), step, tilt, inner_log_kappa
    )
    jumps = Jumps(jump_upper, jump_lower, max_count, log_kappa, float(counts @ eps_slack))
    return DiscretizedStep(upper, lambda: lower, np.atleast_1d(infinity), jumps)


def _jump_pmfs(
    group: StepGroup,
    nodes: NDArray[np.int64],
    cut: int,
    coarse: float,
    tilt: float,
    rest: Array,
    cut_below: bool,
) -> tuple[LatticePmf, LatticePmf, Array]:
    """Pessimistic and optimistic PMFs of the jumps, with mass ``rest`` at zero; pessimistic mass at +infinity."""
    pair = group.pair
    high = np.concatenate([[cut], nodes[nodes > cut]]) if nodes[-1] > cut else np.array([cut, cut + 1])
    above, infinity = jumps_above(cell_masses(pair, high * coarse), pair.mass_at_plus_infinity)
    indices, upper, lower = [np.array([0]), high], [rest[..., None], above[0]], [rest[..., None], above[1]]
    if cut_below:
        low = np.concatenate([nodes[nodes < -cut], [-cut]])
        below = _jumps_below(cell_masses(pair, low * coarse))
        indices, upper, lower = [low, *indices], [below[0], *upper], [below[1], *lower]
    index = np.concatenate(indices).astype(np.int64)
    y = np.asarray(index * coarse, dtype=np.float64)
    jump_upper, jump_lower = (
        tilt_pmf(index, np.concatenate(parts, axis=-1), y, tilt, beyond)
        for parts, beyond in ((upper, infinity), (lower, pair.mass_at_plus_infinity))
    )
    return jump_upper, jump_lower, infinity


def _optimistic_bulk(
    index: NDArray[np.int64], mass: Array, step: float, tilt: float, log_kappa: Array
) -> tuple[LatticePmf, Array]:
    """Optimistic PMFs of bulks on the first lattice; a point at zero in place of each that lies below it on average.

    Args:
        mass: [K, m] optimistic P-masses.
        log_kappa: [K] ln of the bulks' Q-mass over their P-mass.
    Returns:
        The tilted PMFs, and by how much in eps [K] each then lies too high at every step.
    """
    lower = tilt_pmf(index, mass.copy(), np.asarray(index * step, dtype=np.float64), tilt)
    unresolved = lower.moments(step)[0] < -log_kappa
    if unresolved.any() and index[0] <= 0:
        zero = index == index[index <= 0][-1]
        mass = np.where(unresolved[:, None], np.where(zero, mass.sum(axis=1)[:, None], 0.0), mass)
        lower = tilt_pmf(index, mass, np.asarray(index * step, dtype=np.float64), tilt)
    return lower, np.where(unresolved, log_kappa, 0.0)


def jumps_above(c: CellMasses, infinity: float) -> tuple[tuple[Array, Array], Array]:
    """Pessimistic and optimistic masses of the losses above the first node, and the pessimistic mass at +infinity."""
    c = _without_atom(c, 0)
    upper, lower = c.chords(+1), c.chords(-1)
    upper[..., -1] += c.top[0]
    lower[..., -1] += np.maximum(c.top[0] + c.top[1] - infinity, 0.0)
    lower = push_down(np.diff(c.nodes), lower, c.gap, c.below, c.above, 0.0)
    return (upper, lower), np.maximum(c.top[1], infinity)


def _jumps_below(c: CellMasses) -> tuple[Array, Array]:
    """Pessimistic and optimistic masses of the losses below the last node."""
    c = _without_atom(c, -1)
    upper = c.chords(+1)
    lower = push_down(np.diff(c.nodes), c.chords(-1), c.gap, c.below, c.above, 0.0)
    upper[..., 0] += c.bottom
    return upper, lower


def _without_atom(c: CellMasses, node: int) -> CellMasses:
    """The masses without the atom on a node at the cut, which is a loss of the bulk."""
    atoms = c.atoms.copy()
    atoms[..., node] = 0.0
    return replace(c, atoms=atoms)


def tilt_pmf(index: NDArray[np.int64], mass: Array, y: Array, tilt: float, infinity: Array | float = 0.0) -> LatticePmf:
    """Tilt P-masses [K, m] on losses y [m]; nodes without mass are dropped.

    Args:
        infinity: [K] or one number, the P-mass at +infinity, which the masses lack.
    """
    mass = np.atleast_2d(mass)
    # a row without any mass keeps a trace of it, so that its logarithm exists
    mass[~(mass > 0).any(axis=1), 0] = constants.MASS_FLOOR
    keep = (mass > 0).any(axis=0)
    index, mass, y = index[keep], mass[:, keep], y[keep]
    exponent = tilt * y
    if float(exponent.max()) < constants.MAX_EXPONENT_ATOMS:
        growth = np.expm1(exponent)
        if float(exponent.max()) < 1.0 or float((mass @ np.abs(growth)).max()) < 0.5:
            # ln E[e^{tilt Y}] of a small or rare loss is from E[e^{tilt Y} - 1], or n steps would amplify its rounding
            log_norm = np.log1p(mass @ growth + total_excess(mass, infinity))
            weight = mass * np.exp(exponent)
            return LatticePmf(index, weight / weight.sum(axis=1)[:, None], log_norm)
    top = float(exponent.max())
    weight = mass * np.exp(exponent - top)
    # what underflows here is negligible beside a total this large
    if float(weight.sum(axis=1).min()) > 1e-150:
        return LatticePmf(index, weight, np.full(mass.shape[0], top)).normalised()
    with np.errstate(divide="ignore"):
        log_mass = np.log(mass) + exponent
    peak = log_mass.max(axis=1)
    return LatticePmf(index, np.exp(log_mass - peak[:, None]), peak).normalised()


def total_excess(mass: Array, infinity: Array | float) -> Array:
    """[K] sums of masses [K, m] less one: -infinity of each row, but where the sum differs by more than rounding."""
    beyond = np.broadcast_to(infinity, mass.shape[:1])
    excess = np.array([math.fsum([*row, part, -1.0]) for row, part in zip(mass.tolist(), beyond.tolist(), strict=True)])
    return np.asarray(np.where(np.abs(excess) < constants.NORMALISATION_ROUNDING, 0.0, excess) - beyond)
