"""Compose steps of which few have a large loss, where such losses decide: the sum without large losses is left out.

It is too concentrated to reach eps: what it adds to delta is bounded by Chernoff's bound. The other outcomes have a
small mass, to which all rounding is relative, so that it need not be tilted to where eps lies, which would give weight
to losses far above eps. docs/theory/certified-pld.md has the proof.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial

import numpy as np

from wpriv.accounting.pld import constants
from wpriv.accounting.pld.discretize import (
    Sides,
    cell_masses,
    choose_nodes,
    discretize_jumps,
    discretize_optimistic,
    discretize_pessimistic,
)
from wpriv.accounting.pld.lattice import (
    LatticeComposition,
    LatticePmf,
    Spectrum,
    check_cells,
    compose_window,
    spectrum,
    tilt_pmf,
    transform_error,
)
from wpriv.accounting.pld.saddle_point import ApproximatePmf, StepGroup
from wpriv.accounting.pld.step_groups import (
    Steps,
    TwoSidedComposition,
    compose_sides,
    rare_cut,
    single_loss_delta,
    single_loss_slope,
    small_tilt,
)
from wpriv.errors import Unsupported
from wpriv.numerics.arrays import Array
from wpriv.numerics.log_space import log_one_plus


def compose_rare_losses(steps: Steps, tilt: float, eps: float, relative: float, delta: float) -> TwoSidedComposition:
    """Compose pessimistically and optimistically, accurate near eps.

    Args:
        tilt: the largest that may be used. relative: relative error of delta that is allowed, about.
        delta: delta at eps, about.
    """
    slope = single_loss_slope(steps, eps)
    cut = rare_cut(steps, eps, math.log(delta) + math.log(relative) + constants.BULK_LOG_MARGIN)
    if cut is None:
        raise Unsupported("pld finds that single large losses do not decide here")
    tilt = small_tilt(steps, tilt, eps, delta, cut, relative)
    state = steps.cumulants(tilt)
    share = math.exp(min(math.log(delta) - state.cgf + tilt * eps, 0.0))
    tail = max(constants.WRAPAROUND_SHARE * relative * share, 1e-250)
    # chords of this spacing raise delta by about so much where it falls like e^{-slope eps}
    spacing = max(math.sqrt(relative / (slope * (slope + 1))), steps.least_spacing())
    longest = max(float(pmf.end if math.isfinite(pmf.end) else pmf.y[-1]) - float(pmf.y[0]) for pmf in steps.pmfs)
    check_cells(longest / spacing * steps.distinct_steps, constants.MAX_RARE_CELLS)
    lattice = _Lattice(spacing, tilt, round(cut / spacing), slope)
    focus = (eps / constants.FOCUS_RATIO, eps * constants.FOCUS_RATIO)
    bottom = steps.negligible_bottom(share)
    sides = [
        _discretize(group, pmf, lattice, (steps.negligible_mass(delta, group.counts), bottom), focus)
        for group, pmf in zip(steps.groups, steps.pmfs, strict=True)
    ]
    # the large losses add up to about eps, many deviations of a step's loss; and norms are rounded, of every step
    unit = constants.UNIT_ROUNDOFF
    slack = steps.rounding_shift(state) + 4 * constants.TAIL_ROUNDINGS * unit * eps + 16 * unit * steps.total / slope
    return compose_sides(sides, partial(_compose, lattice=lattice, tail=tail), slack, 1 / slope)


@dataclass(frozen=True)
class _Lattice:
    """A lattice: its spacing, the tilt of its PMFs, the index of the cut, and the slope of -ln delta at eps."""

    step: float
    tilt: float
    edge: int
    slope: float


def _discretize(
    group: StepGroup, pmf: ApproximatePmf, lattice: _Lattice, masses: tuple[float, float], focus: tuple[float, float]
) -> Sides[LatticePmf]:
    """Discretise a group's pairs; ``masses`` and ``focus`` as for ``choose_nodes``."""
    pair, counts, infinity = group.pair, group.counts, group.pair.mass_at_plus_infinity
    step, tilt, edge = lattice.step, lattice.tilt, lattice.edge
    index = choose_nodes(group, pmf, step, tilt, *masses, focus=focus)
    if not index[0] <= edge:
        raise Unsupported("pld finds that single large losses do not decide here")
    index = np.union1d(index, [edge]) if index[0] < edge < index[-1] else index
    y = np.asarray(index * step, dtype=np.float64)
    cells = cell_masses(pair, y)
    mass, beyond = discretize_pessimistic(cells, infinity)

    def lower() -> LatticePmf:
        mass, bulk = np.atleast_2d(discretize_optimistic(cells, infinity)), index <= edge
        weight = np.exp(np.maximum(lattice.slope * (y[bulk] - y[bulk][-1]), -700.0))
        if bool(((mass[:, bulk] * weight) @ y[bulk] >= 0).all()) or not index[-1] > edge:
            return tilt_pmf(index, mass, y, tilt, counts, infinity)
        # the bulk is too narrow for the lattice: a point at -ln(Q/P) of it lies below (Jensen), which is moved to zero
        high = index[index >= edge]
        jumps = discretize_jumps(cell_masses(pair, np.asarray(high * step, dtype=np.float64)), infinity)
        tails = pair.probabilities(np.array([edge * step * (1 + constants.NODE_HALF_WIDTH)]))
        shift = np.maximum(np.log1p(-tails.sf_q) - np.log1p(-tails.sf_p), 0.0).reshape(-1) + 1e-15
        jumps = np.atleast_2d(jumps)
        rest = np.broadcast_to((1 - tails.sf_p).reshape(-1, 1), (jumps.shape[0], 1))
        nodes = np.concatenate([[0], high])
        mass, moved = np.concatenate([rest, jumps], axis=1), float(counts @ np.broadcast_to(shift, counts.shape))
        return tilt_pmf(nodes, mass, np.asarray(nodes * step), tilt, counts, infinity, moved)

    return tilt_pmf(index, mass, y, tilt, counts, beyond), lower


def _compose(pmfs: Sequence[LatticePmf], lattice: _Lattice, tail: float) -> LatticeComposition:
    """The outcomes with a loss above the cut, and a bound of what all others add to delta."""
    step, tilt, cut = lattice.step, lattice.tilt, (lattice.edge + 0.5) * lattice.step
    jumps = compose_window(pmfs, step, tilt, tail, partial(_outcomes_with_jumps, cut=cut, step=step))
    tilts = np.geomspace(*constants.BULK_TILTS, constants.BULK_TILT_COUNT) / cut
    return replace(jumps, bulk=(tilts, _bulk_logs(pmfs, cut, step, tilt, tilts)))


def _bulk_logs(pmfs: Sequence[LatticePmf], cut: float, step: float, tilt: float, tilts: Array) -> Array:
    """ln E[e^{b Y}; no loss above the cut] of the composed loss at tilts b, rounded up."""
    logs = np.zeros(tilts.size)
    for pmf in pmfs:
        y, n = pmf.losses(step), pmf.counts
        bulk = y <= cut
        if not bulk.any():
            logs += math.log(constants.MASS_FLOOR)
            continue
        exponent = (tilts[:, None] - tilt) * y[bulk]
        moment = np.exp(exponent) @ pmf.mass[:, bulk].T
        logs += (pmf.log_norm + np.log(np.maximum(moment, constants.MASS_FLOOR))) @ n
        logs += constants.UNIT_ROUNDOFF * float(n.sum()) * (bulk.sum() + 8 + 2 * np.abs(exponent).max(axis=1))
    return logs


def _outcomes_with_jumps(pmfs: Sequence[LatticePmf], size: int, cut: float, step: float) -> tuple[Spectrum, Array]:
    """The transform of the outcomes with a loss above the cut, and a bound on the error of each of its values.

    D = B^n (e^{n ln(1 + J/B)} - 1) where the transform B of the bulk is large, else (B + J)^n - B^n.
    """
    check_cells(size * sum(pmf.counts.size for pmf in pmfs), constants.MAX_RARE_CELLS)
    unit, frequencies = constants.UNIT_ROUNDOFF, size // 2 + 1
    log_bulk, log_all, log_ratio = np.zeros((3, frequencies), dtype=np.complex128)
    noise, least = np.zeros(frequencies), np.full(frequencies, np.inf)
    jump_total, transform_noise = 0.0, 0.0
    for pmf in pmfs:
        large = pmf.losses(step) > cut
        transform_noise = max(transform_noise, transform_error(pmf.index, size))
        for n, row in zip(pmf.counts.tolist(), pmf.mass, strict=True):
            mass = float(row[large].sum())
            # from the masses that move, so that the rounding of the mass at zero is not raised to the count
            moving = ~large & (pmf.index != 0)
            minus_one = spectrum(pmf.index[moving], row[moving], size) - float(row[moving].sum()) - mass
            jumps = spectrum(pmf.index[large], row[large], size) if mass > 0 else np.zeros(frequencies, np.complex128)
            modulus = np.abs(1 + minus_one)
            ratio = jumps / np.where(modulus > 0.25, 1 + minus_one, 1.0)
            parts = [_log(minus_one), _log(minus_one + jumps), _log(ratio)]
            logs = (total + n * part for total, part in zip((log_bulk, log_all, log_ratio), parts, strict=True))
            log_bulk, log_all, log_ratio = logs
            noise += n * (np.abs(parts[0]) + np.abs(parts[2]))
            least = np.minimum(least, modulus)
            jump_total += n * mass
    plain = _exp(log_all) - _exp(log_bulk)
    product = np.where(least > 0.25, _exp(log_bulk) * _exp_minus_one(log_ratio), plain)
    number = float(sum(pmf.counts.sum() for pmf in pmfs))
    size_all = np.exp(log_all.real)
    # the rounding of logarithms and exponentials: relative to D, and to all outcomes for the logarithm of the ratio
    error = 16 * unit * (np.abs(product) * (1 + noise) + size_all * np.abs(log_ratio))
    error = np.where(least > 0.25, error, 16 * unit * (1 + noise + number) * (size_all + np.exp(log_bulk.real)))
    # D is a polynomial in the transforms with coefficients above zero, and all moduli together are at most one
    error = error + 4 * transform_noise * jump_total * (1 + number)
    return product, error


def _log(z: Spectrum) -> Spectrum:
    """ln(1 + z) without cancellation; the smallest double stands for a modulus of zero."""
    log, argument = log_one_plus(np.asarray(z, dtype=np.complex128))
    return np.asarray(np.maximum(log, -700.0) + 1j * argument)


def _exp(log: Spectrum) -> Spectrum:
    return np.asarray(np.exp(np.maximum(log.real, -1e5) + 1j * log.imag))


def _exp_minus_one(z: Spectrum) -> Spectrum:
    """e^z - 1 without cancellation."""
    half, real = np.sin(z.imag / 2), np.minimum(z.real, 700.0)
    growth = np.expm1(real)
    return np.asarray(growth * np.cos(z.imag) - 2 * half * half + 1j * (growth + 1) * np.sin(z.imag))


# Brackets of delta and eps of steps of which few have a large loss, where such losses decide.
#
# There the saddle point says little: its tilt gives weight to losses far above eps. A sum of the steps' own deltas is
# delta to first order, and sets the scale of the question.

Ends = tuple[float, float]


def rare_losses_delta(steps: Steps, eps: float) -> float | None:
    """The sum of the deltas of all steps at eps, if outcomes without a large loss add nothing to it; else None."""
    if steps.distinct_steps > constants.MAX_RARE_KINDS or not 0 < eps <= constants.MAX_RARE_EPS:
        return None
    alone = single_loss_delta(steps.groups, eps)
    if not constants.MASS_FLOOR < alone < constants.MAX_RARE_DELTA:
        return None
    return None if rare_cut(steps, eps, math.log(alone) + constants.BULK_LOG_MARGIN) is None else alone


def rare_losses_epsilon(steps: Steps, delta: float) -> float | None:
    """The eps at which the sum of the deltas of all steps is ``delta``, about; None as for ``rare_losses_delta``."""
    low, high = 1e-12, max(float(pmf.end) for pmf in steps.pmfs)
    is_asked = low < high < math.inf and delta < constants.MAX_RARE_DELTA
    if not is_asked or steps.distinct_steps > constants.MAX_RARE_KINDS:
        return None
    for _ in range(constants.RARE_EPS_BISECTIONS):
        middle = math.sqrt(low * high)
        low, high = (middle, high) if single_loss_delta(steps.groups, middle) > delta else (low, middle)
    return high if rare_losses_delta(steps, high) is not None else None


def bracket_rare_losses(
    steps: Steps,
    eps: float,
    delta: float,
    tol: float,
    answer_is_eps: bool,
    read: Callable[[TwoSidedComposition, float], Ends],
    out_of_work: Callable[[], bool],
) -> tuple[Ends, list[TwoSidedComposition]]:
    """Bracket an answer about eps and delta, refining until it is as narrow as asked.

    Args:
        read: the bracket of the answer from a composition and the slope of -ln delta at eps.
        out_of_work: tells whether the question's work is spent.
    Returns:
        The bracket, (0, inf) where no composition fits; and the last composition, if any.
    """
    slope = single_loss_slope(steps, eps)
    # where eps is the answer, its relative error is the one of delta over slope * eps
    relative = constants.RARE_ACCURACY_SHARE * tol * (slope * eps if answer_is_eps else 1.0)
    best, composed = (0.0, math.inf), list[TwoSidedComposition]()
    for _ in range(constants.MAX_RARE_COMPOSITIONS):
        try:
            composition = compose_rare_losses(steps, slope, eps, relative, delta)
            low, high = read(composition, slope)
        except Unsupported:
            relative *= constants.RARE_COARSENING
            if composed or out_of_work():
                break
            continue
        composed = [composition]
        best = max(best[0], low), min(best[1], high)
        width = (best[1] - best[0]) / best[1] if 0 < best[1] < math.inf else 1.0
        if width <= tol or width > constants.HOPELESS_RARE_WIDTH or out_of_work():
            break
        relative *= max(0.8 * tol / width, 0.01)
    return best, composed
