"""Where the lattice of a group of pairs lies, and the pairs' upper and lower tilted laws on it.

Rare large losses would force a long fine lattice on every step. Where they are rare enough they are split off: with B the law of the
losses within a cut and R the rest, of P-mass r, a step is (1-r) B' + R, B' = B / (1-r), and n steps are sums over the number k of jumps of
B'^(n-k) R^k. Adding a step of B' raises delta, up to a shift of eps by ln kappa, kappa = E[e^-Y] under B' (Jensen), so for at most K jumps
the composition of B'^n with ((1-r) at zero + R)^n, eps shifted by K ln kappa, lies above, and that of B'^(n-K) with the same lies below.
The jumps can then live on the last, coarse lattice only. Where B' is so narrow that the first lattice does not resolve it, its lower law
is a point at -ln kappa (Jensen once more): zero, with eps shifted by n ln kappa in all.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from wpriv.errors import Unsupported
from wpriv.numerics.arrays import Array, Counts
from wpriv.pld.lattice.convex_minorant import push_down
from wpriv.pld.lattice.discretize import (
    CellMasses,
    cell_masses,
    discretize_bulk,
    discretize_optimistic,
    discretize_pessimistic,
    round_losses,
)
from wpriv.pld.lattice.lattice_pmf import LatticePmf
from wpriv.pld.lattice.staging import StagePlan, max_jump_count, off_lattice_mass
from wpriv.pld.saddle_point import ApproximatePmf, tilted_weights
from wpriv.pld.stacking import StepGroup, batch_pairs

MAX_NODES = 1 << 22
# the share of the lattice's own error that sparser nodes may add
EXTRA = 0.5
# pairs of a group whose numbers of nodes differ by more than this factor are dotted apart
UNLIKE = 2.5


@dataclass(frozen=True)
class Jumps:
    """The rare large losses of a group's steps, on the last lattice: laws with an atom at zero, and how many [K] to reckon with.

    ``fall`` is by how much the lower laws lie too high, over all steps, in eps.
    """

    upper: LatticePmf
    lower: LatticePmf
    most: Counts
    log_kappa: Array
    fall: float


@dataclass(frozen=True)
class DiscretizedStep:
    """A group's upper and lower tilted laws on the first lattice, the upper ones' mass at +infinity [K], and the jumps if split off.

    ``lower`` makes the lower laws, once they are asked.
    """

    upper: LatticePmf
    lower: Callable[[], LatticePmf]
    mass_at_plus_infinity: Array
    jumps: Jumps | None = None


def split_by_node_count(group: StepGroup, p: ApproximatePmf, tilt: float) -> list[tuple[StepGroup, ApproximatePmf]]:
    """Splits a group into those that need about as many nodes as each other: what few nodes do for is not spread over many."""
    if len(group.members) == 1:
        return [(group, p)]
    # the fewest nodes for an error, each cell's being its mass times its width squared, go with density^(1/3)
    wanted = np.cbrt(tilted_weights(p, tilt) * np.gradient(p.y) ** 2).sum(axis=1) ** 1.5
    order, parts = np.argsort(-wanted), []
    while order.size:
        like = wanted[order] * UNLIKE >= wanted[order[0]]
        chosen, order = order[like], order[~like]
        members = tuple(group.members[k] for k in chosen)
        parts.append(
            (
                StepGroup(members, group.counts[chosen], batch_pairs(members)),
                ApproximatePmf(p.y, p.mass[chosen], p.end, p.shortened),
            )
        )
    return parts


def discretize_step(
    group: StepGroup, p: ApproximatePmf, step: float, tilt: float, top_mass: float, bottom_mass: float
) -> DiscretizedStep:
    """Dots whole pairs; see ``nodes`` for the masses that may be neglected."""
    pair, index = group.pair, choose_nodes(group, p, step, tilt, top_mass, bottom_mass)
    y = np.asarray(index * step, dtype=np.float64)
    if step > 1:
        mass, low, infinity = round_losses(pair, y)
        return DiscretizedStep(
            _tilt_pmf(index, mass, y, tilt), lambda: _tilt_pmf(index, low, y, tilt), np.atleast_1d(infinity)
        )
    made = cell_masses(pair, y)
    mass, infinity = discretize_pessimistic(made, pair.mass_at_plus_infinity)

    def lower() -> LatticePmf:
        low = np.atleast_2d(discretize_optimistic(made, pair.mass_at_plus_infinity))
        # without mass at infinity, a pair dominates a point at zero
        return (
            _tilt_pmf(index, low, y, tilt)
            if pair.mass_at_plus_infinity > 0
            else _optimistic_bulk(index, low, step, tilt, np.zeros(low.shape[0]))[0]
        )

    return DiscretizedStep(_tilt_pmf(index, mass, y, tilt), lower, np.atleast_1d(infinity))


def discretize_with_jumps(
    group: StepGroup, p: ApproximatePmf, plan: StagePlan, tilt: float, top_mass: float, bottom_mass: float, tail: float
) -> DiscretizedStep:
    """Dots the losses within the plan's cut on its first lattice, and the jumps beyond, on either side, on its last.

    Args:
        tail: tilted probability that more jumps of a kind happen than are reckoned with.
    """
    assert plan.cut is not None
    pair, counts = group.pair, group.counts
    step, coarse, cut = plan.step, plan.last, plan.cut
    inner, edge = choose_nodes(group, p, step, tilt, top_mass, bottom_mass), cut * coarse
    bound, falls = round(edge / step), bool(inner[0] * step < -edge)
    last = min(bound, math.ceil(pair.support[1] / step)) if math.isfinite(pair.support[1]) else bound
    inner = np.unique(
        np.concatenate([[-bound] if falls else [], inner[(inner > -bound) & (inner < last)], [0, last]])
    ).astype(np.int64)
    y = np.asarray(inner * step, dtype=np.float64)
    bulk = cell_masses(pair, y)
    outer = choose_nodes(group, p, coarse, tilt, top_mass, bottom_mass, weight=int(counts.max()) / plan.stages[-2][0])
    high = np.concatenate([[cut], outer[outer > cut]]) if outer[-1] > cut else np.array([cut, cut + 1])
    up, infinity = _jumps_above(cell_masses(pair, high * coarse), pair.mass_at_plus_infinity)
    rest, kappa, bulk_upper, bulk_lower, inner_kappa = discretize_bulk(bulk, falls)
    spots, upper, lower = [np.array([0]), high], [rest[..., None], up[0]], [rest[..., None], up[1]]
    if falls:
        low = np.concatenate([outer[outer < -cut], [-cut]])
        down = _jumps_below(cell_masses(pair, low * coarse))
        spots, upper, lower = [low, *spots], [down[0], *upper], [down[1], *lower]
    index = np.concatenate(spots).astype(np.int64)
    far = np.asarray(index * coarse, dtype=np.float64)
    laws = [_tilt_pmf(index, np.concatenate(parts, axis=-1), far, tilt) for parts in (upper, lower)]
    at_zero = laws[0].rows[:, laws[0].index == 0].sum(axis=1)
    most = np.array(
        [max_jump_count(n * (1 - share), tail) for n, share in zip(counts.tolist(), at_zero.tolist(), strict=True)]
    )
    above = _tilt_pmf(inner, bulk_upper / rest[..., None], y, tilt)
    below, fall = _optimistic_bulk(
        inner, np.atleast_2d(bulk_lower / rest[..., None]), step, tilt, np.atleast_1d(np.maximum(inner_kappa, 0.0))
    )
    log_kappa = np.atleast_1d(np.maximum(kappa, 0.0))
    return DiscretizedStep(
        above, lambda: below, np.atleast_1d(infinity), Jumps(laws[0], laws[1], most, log_kappa, float(counts @ fall))
    )


def _optimistic_bulk(
    index: NDArray[np.int64], mass: Array, step: float, tilt: float, log_kappa: Array
) -> tuple[LatticePmf, Array]:
    """Lower laws of bulks on the first lattice, a point at zero in the place of each that lies below it on average.

    Args:
        mass: [K, m] lower P-masses. log_kappa: [K] ln of the bulks' Q-mass over their P-mass.
    Returns:
        The tilted laws, and by how much in eps each then lies too high at every step.
    """
    below = _tilt_pmf(index, mass.copy(), np.asarray(index * step, dtype=np.float64), tilt)
    unresolved = below.moments(step)[0] < -log_kappa
    if unresolved.any() and index[0] <= 0:
        zero = index == index[index <= 0][-1]
        mass = np.where(unresolved[:, None], np.where(zero, mass.sum(axis=1)[:, None], 0.0), mass)
        below = _tilt_pmf(index, mass, np.asarray(index * step, dtype=np.float64), tilt)
    return below, np.where(unresolved, log_kappa, 0.0)


def _jumps_above(c: CellMasses, infinity: float) -> tuple[tuple[Array, Array], Array]:
    """Upper and lower masses of the losses above the first node, and the upper mass at +infinity."""
    upper, low = c.chords(), c.chords()
    upper[..., -1] += c.top[0]
    low[..., -1] += np.maximum(c.top[0] + c.top[1] - infinity, 0.0)
    return (upper, push_down(np.diff(c.nodes), low, c.gap, c.below, c.above, 0.0)), np.maximum(c.top[1], infinity)


def _jumps_below(c: CellMasses) -> tuple[Array, Array]:
    """Upper and lower masses of the losses below the last node."""
    upper = c.chords()
    low = push_down(np.diff(c.nodes), upper.copy(), c.gap, c.below, c.above, 0.0)
    upper[..., 0] += c.bottom
    return upper, low


def _tilt_pmf(index: NDArray[np.int64], mass: Array, y: Array, tilt: float) -> LatticePmf:
    mass = np.atleast_2d(mass)
    # a row without any mass keeps a trace, so that its logarithm exists
    mass[~(mass > 0).any(axis=1), 0] = 1e-300
    keep = (mass > 0).any(axis=0)
    index, mass, y = index[keep], mass[:, keep], y[keep]
    exponent = tilt * y
    if float(exponent.max()) < 1.0:
        # ln E[e^{tilt Y}] of a small loss is of second order: taken from E[e^{tilt Y} - 1], or n steps would amplify its rounding
        log_norm = np.log1p(mass @ np.expm1(exponent) + np.array([_excess(row) for row in mass]))
        weight = mass * np.exp(exponent)
        return LatticePmf(index, weight / weight.sum(axis=1)[:, None], log_norm)
    top = float(exponent.max())
    weight = mass * np.exp(exponent - top)
    # what underflows here is nothing beside a total that is far from it
    if float(weight.sum(axis=1).min()) > 1e-150:
        return LatticePmf(index, weight, np.full(mass.shape[0], top)).normalised()
    with np.errstate(divide="ignore"):
        log_mass = np.log(mass) + exponent
    peak = log_mass.max(axis=1)
    return LatticePmf(index, np.exp(log_mass - peak[:, None]), peak).normalised()


def _excess(mass: Array) -> float:
    """The sum of the masses less one, zero where it differs by no more than rounding."""
    excess = math.fsum(mass.tolist()) - 1.0
    return 0.0 if abs(excess) < 1e-14 else excess


def _steepness(y: Array, tails: tuple[Array, Array]) -> Array:
    """How fast tails [K, m] change at each loss, per nat of loss: the largest of the hazard rates."""
    if y.size == 1:
        return np.full(1, 1e-300)
    with np.errstate(divide="ignore", invalid="ignore"):
        falls = [np.abs(np.diff(np.log(tail))) for tail in tails]
    rate = np.max([np.where(np.isfinite(fall), fall, 0.0).max(axis=0) for fall in falls], axis=0) / np.diff(y)
    steepest: Array = np.maximum(np.maximum(np.append(rate, 0.0), np.append(0.0, rate)), 1e-300)
    return steepest


def _stretch(y: Array, share: Array, extra: float) -> Array:
    """How much wider than the lattice's the spacing may be at each loss, by the tilted mass ``share`` there.

    Errors are mass times spacing squared: for the fewest nodes the spacing goes with density^(-1/3), and all that is wider than the
    lattice's may add the part ``extra`` of the error that mass one costs on the lattice.
    """
    if y.size == 1:
        return np.ones(1)
    thin = np.maximum(share / np.gradient(y), 1e-300) ** (-2 / 3)
    # where all losses with less density than one of them are stretched, they add the sum of share (thin / its thin - 1)
    order = np.argsort(-thin, kind="stable")
    parts, shares = np.cumsum((share * thin)[order]), np.cumsum(share[order])
    last = max(int(np.searchsorted(parts / thin[order] - shares, extra)) - 1, 0)
    if not parts[last] > 0:
        # next to no mass anywhere: no spacing costs anything
        return np.full(y.size, math.sqrt(1 + extra))
    return np.asarray(np.sqrt(np.maximum(thin * (extra + shares[last]) / parts[last], 1.0)))


def choose_nodes(
    group: StepGroup,
    p: ApproximatePmf,
    step: float,
    tilt: float,
    top_mass: float,
    bottom_mass: float,
    *,
    weight: float = 1.0,
    extra: float = EXTRA,
    focus: tuple[float, float] | None = None,
) -> NDArray[np.int64]:
    """Lattice indices to dot a group on: every one where a tilted law lives, ever sparser where it has little mass.

    The top is where the P-mass beyond falls below ``top_mass``, the bottom where that below would weigh
    less than ``bottom_mass`` when tilted.
    """
    pair = group.pair
    above, up_to = np.cumsum(p.mass[:, ::-1], axis=1)[:, ::-1], np.cumsum(p.mass, axis=1)
    last = min(int(np.searchsorted(-above.max(axis=0), -top_mass)), p.y.size - 1)
    # whatever lies below the bottom is raised to it, and weighs e^{tilt loss} there
    log_norm, _, _ = p.tilted(tilt)
    with np.errstate(divide="ignore"):
        raised = np.log((up_to * np.exp(log_norm.min() - log_norm)[:, None]).max(axis=0)) - log_norm.min() + tilt * p.y
    first = min(max(int(np.searchsorted(raised, math.log(bottom_mass))) - 1, 0), last)
    low, high = pair.support
    if first > 0 or not math.isfinite(low):
        low = max(float(p.y[first]) - step, low)
    if last < p.y.size - 1 or not math.isfinite(high):
        high = min((float(p.y[last + 1]) if last < p.y.size - 1 else p.end) + step, high)
    high = max(high, low + step)
    y = np.concatenate([[low], p.y[(p.y > low) & (p.y < high)], [high]])
    extra *= max(off_lattice_mass(pair), 1e-9) if 0 < pair.atoms.size <= 8 else 1.0
    seen = slice(first, min(last + 2, p.y.size))
    # what a spacing costs is added up over all steps
    share = group.counts @ tilted_weights(p, tilt)[:, seen] / group.counts.sum()
    if focus is not None:
        within = group.counts @ np.where((p.y >= focus[0]) & (p.y <= focus[1]), p.mass, 0.0)[:, seen]
        share = (share + within / within.sum()) / 2 if within.sum() > 0 else share
    stretch = np.interp(y, p.y[seen], _stretch(p.y[seen], weight * share, extra))
    spacing = np.clip(stretch, 1.0, max(1.0, 0.3 / ((tilt + 1) * step))) * step
    # however little mass there is, the profile must not fall by a large factor within a cell, or the lower dots lose their footing
    spacing = np.maximum(
        np.minimum(spacing, 0.5 / np.interp(y, p.y[seen], _steepness(p.y[seen], (above[:, seen], up_to[:, seen])))),
        step,
    )
    count = np.concatenate([[0.0], np.cumsum(np.diff(y) / np.minimum(spacing[1:], spacing[:-1]))])
    total = math.ceil(count[-1]) + 1
    if total > MAX_NODES:
        raise Unsupported(
            f"pld needs {total:.3g} losses of a step at this tolerance; the limit is {MAX_NODES:,}. Raise --tol, or use rdp"
        )
    index = np.floor(np.interp(np.linspace(0, count[-1], total + 1), count, y) / step).astype(np.int64)
    ends = [math.floor(low / step), math.ceil(high / step)]
    marks: list[int] = []
    if pair.atoms.size <= 64:
        inside = pair.atoms[(pair.atoms >= low) & (pair.atoms <= high)] / step
        near = np.round(inside)
        on = np.abs(inside - near) < 1e-6
        marks = [*np.floor(inside[~on]), *np.ceil(inside[~on]), *near[on], *(near[on] - 1), *(near[on] + 1)]
        marks = [int(m) for m in marks if ends[0] <= m <= ends[1]]
    result: NDArray[np.int64] = np.unique(np.concatenate([index, ends, marks]).astype(np.int64))
    return result
