"""Choose the nodes on which the steps of a group are discretised: dense where tilted mass lies, sparse elsewhere."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from wpriv.accounting.pld import constants
from wpriv.accounting.pld.saddle_point import ApproximatePmf, StepGroup, batch_pairs, tilted_weights
from wpriv.core.loss_pair import LossPair
from wpriv.errors import Unsupported
from wpriv.numerics.arrays import Array


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
