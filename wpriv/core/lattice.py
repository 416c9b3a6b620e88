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
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from wpriv.core.grid import Cells, cells, lower_dots, rounded, upper_dots, within
from wpriv.core.group import Group
from wpriv.core.law import Law
from wpriv.core.minorant import push_down
from wpriv.core.pair import Array, Counts, LossPair
from wpriv.core.probe import Probe
from wpriv.errors import Unsupported

MAX_NODES = 1 << 22
# the share of the lattice's own error that sparser nodes may add
EXTRA = 0.3


@dataclass(frozen=True)
class Plan:
    """Stages (blocks left, cells then merged into one), the first and last spacing, and the cut of the jumps in last cells."""

    stages: list[tuple[int, int]]
    step: float
    last: float
    cut: int | None


@dataclass(frozen=True)
class Jumps:
    """The rare large losses of a group's steps, on the last lattice: laws with an atom at zero, and how many [K] to reckon with.

    ``fall`` is by how much the lower laws lie too high, over all steps, in eps.
    """

    upper: Law
    lower: Law
    most: Counts
    log_kappa: Array
    fall: float


@dataclass(frozen=True)
class Dotted:
    """A group's upper and lower tilted laws on the first lattice, the upper ones' mass at +infinity [K], and the jumps if split off."""

    upper: Law
    lower: Law
    infinity: Array
    jumps: Jumps | None = None


def dot(group: Group, p: Probe, step: float, tilt: float, top_mass: float, bottom_mass: float) -> Dotted:
    """Dots whole pairs; see ``nodes`` for the masses that may be neglected."""
    pair, index = group.pair, nodes(group.pair, p, step, tilt, top_mass, bottom_mass)
    y = np.asarray(index * step, dtype=np.float64)
    if step > 1:
        mass, low, infinity = rounded(pair, y)
    else:
        made = cells(pair, y)
        mass, infinity = upper_dots(made, pair.infinity)
        low = lower_dots(made, pair.infinity)
    return Dotted(_tilted(index, mass, y, tilt), _tilted(index, low, y, tilt), np.atleast_1d(infinity))


def dot_split(group: Group, p: Probe, plan: Plan, tilt: float, top_mass: float, bottom_mass: float, tail: float) -> Dotted:
    """Dots the losses within the plan's cut on its first lattice, and the jumps beyond, on either side, on its last.

    Args:
        tail: tilted probability that more jumps of a kind happen than are reckoned with.
    """
    assert plan.cut is not None
    pair, counts = group.pair, group.counts
    step, coarse, cut = plan.step, plan.last, plan.cut
    inner, edge = nodes(pair, p, step, tilt, top_mass, bottom_mass), cut * coarse
    bound, falls = round(edge / step), bool(inner[0] * step < -edge)
    last = min(bound, math.ceil(pair.support[1] / step)) if math.isfinite(pair.support[1]) else bound
    inner = np.unique(np.concatenate([[-bound] if falls else [], inner[(inner > -bound) & (inner < last)], [0, last]])).astype(np.int64)
    y = np.asarray(inner * step, dtype=np.float64)
    bulk = cells(pair, y)
    outer = nodes(pair, p, coarse, tilt, top_mass, bottom_mass, weight=int(counts.max()) / plan.stages[-2][0])
    high = np.concatenate([[cut], outer[outer > cut]]) if outer[-1] > cut else np.array([cut, cut + 1])
    up, infinity = _jumps_above(cells(pair, high * coarse), pair.infinity)
    rest, kappa, bulk_upper, bulk_lower = within(bulk, falls)
    spots, upper, lower = [np.array([0]), high], [rest[..., None], up[0]], [rest[..., None], up[1]]
    if falls:
        low = np.concatenate([outer[outer < -cut], [-cut]])
        down = _jumps_below(cells(pair, low * coarse))
        spots, upper, lower = [low, *spots], [down[0], *upper], [down[1], *lower]
    index = np.concatenate(spots).astype(np.int64)
    far = np.asarray(index * coarse, dtype=np.float64)
    laws = [_tilted(index, np.concatenate(parts, axis=-1), far, tilt) for parts in (upper, lower)]
    at_zero = laws[0].rows[:, laws[0].index == 0].sum(axis=1)
    most = np.array([most_jumps(n * (1 - share), tail) for n, share in zip(counts.tolist(), at_zero.tolist(), strict=True)])
    above, below = (_tilted(inner, mass / rest[..., None], y, tilt) for mass in (bulk_upper, bulk_lower))
    log_kappa = np.atleast_1d(np.maximum(kappa, 0.0))
    unresolved = below.moments(step)[0] < -log_kappa
    if unresolved.any():
        point = np.where(below.index == 0, 1.0, 0.0)
        below = Law(below.index, np.where(unresolved[:, None], point, below.rows), np.where(unresolved, 0.0, below.log_norm))
    fall = float((counts * log_kappa)[unresolved].sum())
    return Dotted(above, below, np.atleast_1d(infinity), Jumps(laws[0], laws[1], most, log_kappa, fall))


def _jumps_above(c: Cells, infinity: float) -> tuple[tuple[Array, Array], Array]:
    """Upper and lower masses of the losses above the first node, and the upper mass at +infinity."""
    upper, low = c.chords(), c.chords()
    upper[..., -1] += c.top[0]
    low[..., -1] += np.maximum(c.top[0] + c.top[1] - infinity, 0.0)
    return (upper, push_down(np.diff(c.nodes), low, c.gap, c.below, c.above, 0.0)), np.maximum(c.top[1], infinity)


def _jumps_below(c: Cells) -> tuple[Array, Array]:
    """Upper and lower masses of the losses below the last node."""
    upper = c.chords()
    low = push_down(np.diff(c.nodes), upper.copy(), c.gap, c.below, c.above, 0.0)
    upper[..., 0] += c.bottom
    return upper, low


def most_jumps(mean: float, tail: float) -> int:
    """The least K with P(more than K jumps) <= tail for a number of rare jumps of this mean (Chernoff)."""
    count = max(1, math.ceil(mean))
    while count * math.log((count + 1) / max(mean, 1e-300)) - count - 1 + mean < -math.log(tail) and count < 10**6:
        count += 1
    return count


def _tilted(index: NDArray[np.int64], mass: Array, y: Array, tilt: float) -> Law:
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
        return Law(index, weight / weight.sum(axis=1)[:, None], log_norm)
    with np.errstate(divide="ignore"):
        log_mass = np.log(mass) + exponent
    peak = log_mass.max(axis=1)
    return Law(index, np.exp(log_mass - peak[:, None]), peak).normalised()


def _excess(mass: Array) -> float:
    """The sum of the masses less one, zero where it differs by no more than rounding."""
    excess = math.fsum(mass.tolist()) - 1.0
    return 0.0 if abs(excess) < 1e-14 else excess


def weights(p: Probe, tilt: float) -> Array:
    """[K, m] the tilted probabilities of the probe's losses."""
    exponent = p.log_p + tilt * p.y
    weight = np.exp(exponent - exponent.max(axis=1)[:, None])
    normal: Array = weight / weight.sum(axis=1)[:, None]
    return normal


@dataclass(frozen=True)
class Lattice:
    """Where the first lattice should lie: atoms on nodes cost nothing, so only the rest of the mass asks for a fine spacing."""

    fine: float
    spacing: float
    atoms: Array
    comb: bool

    @staticmethod
    def of(groups: list[Group], fine: float) -> Lattice:
        """``fine`` is the spacing that mass off the nodes needs; pairs with more than a few atoms count as having none."""
        few = [group.pair.atoms.size <= 8 for group in groups]
        sets = [np.unique(np.abs(g.pair.atoms[g.pair.atoms != 0])) if ok else np.empty(0) for g, ok in zip(groups, few, strict=True)]
        atoms = np.unique(np.concatenate(sets))
        if not 0 < atoms.size <= 8:
            return Lattice(fine, fine, np.empty(0), False)
        loose = [_loose(group.pair) if ok else 1.0 for group, ok in zip(groups, few, strict=True)]
        totals = [int(group.counts.sum()) for group in groups]
        share = sum(n * part for n, part in zip(totals, loose, strict=True)) / sum(totals)
        return Lattice(fine, fine / math.sqrt(max(share, 1e-12)), atoms, min(loose) < 0.5)

    def fit(self, divisor: float) -> tuple[float, int]:
        """A spacing of at most ``spacing / divisor`` that puts the atoms on nodes, or near, and their comb's period in cells."""
        step = self.spacing / divisor
        if self.atoms.size:
            unit = float(self.atoms[0])
            # where no spacing meets all atoms their mass is loose too, and the best of the fine ones has to do
            for wanted in (step, self.fine / divisor):
                least_parts = max(1, math.ceil(unit / wanted * (1 - 1e-9)))
                parts = np.arange(least_parts, 3 * least_parts + 20)
                places = np.outer(parts, self.atoms / unit)
                off = np.abs(places - np.round(places)).max(axis=1)
                exact = np.flatnonzero(off < 1e-7)
                count = int(parts[exact[0] if exact.size else off.argmin()])
                step = unit / count
                if exact.size:
                    return step, 2 * count if self.comb else 1
        return step, 1


def _loose(pair: LossPair) -> float:
    """The share of the P-mass that is not on the pair's atoms; of stacked pairs, the largest."""
    if not pair.atoms.size:
        return 1.0
    hair = 1e-12 * np.maximum(np.abs(pair.atoms), float(np.abs(pair.atoms).max()))
    before, after = pair.tails(pair.atoms - hair), pair.tails(pair.atoms + hair)
    mass = np.maximum(np.exp(before.sf_p) - np.exp(after.sf_p), np.exp(after.cdf_p) - np.exp(before.cdf_p))
    return min(max(1.0 - float(np.min(mass.sum(axis=-1))), 0.0), 1.0)


def _steepness(p: Probe) -> Array:
    """How fast the tails fall at each of the probe's losses, per nat of loss: the largest of the hazard rates."""
    if p.y.size == 1:
        return np.full(1, 1e-300)
    mass = np.exp(p.log_p)
    with np.errstate(divide="ignore", invalid="ignore"):
        tails = np.log([np.cumsum(mass[:, ::-1], axis=1)[:, ::-1], np.cumsum(mass, axis=1)])
        rates = np.abs(np.diff(tails, axis=2) / np.diff(p.y))
    rate = np.where(np.isfinite(rates), rates, 0.0).max(axis=(0, 1))
    steepest: Array = np.maximum(np.maximum(np.append(rate, 0.0), np.append(0.0, rate)), 1e-300)
    return steepest


def top_index(p: Probe, top_mass: float) -> int:
    """Index of the probe's loss beyond which every row's P-mass is below ``top_mass``."""
    plain = np.cumsum(np.exp(p.log_p)[:, ::-1], axis=1).max(axis=0)[::-1]
    return min(int(np.searchsorted(-plain, -top_mass)), p.y.size - 1)


def _stretch(p: Probe, share: Array, extra: float) -> Array:
    """How much wider than the lattice's the spacing may be at each of the probe's losses, by the tilted mass ``share`` there.

    Errors are mass times spacing squared: for the fewest nodes the spacing goes with density^(-1/3), and all that is wider than the
    lattice's may add the part ``extra`` of the error that mass one costs on the lattice.
    """
    if p.y.size == 1:
        return np.ones(1)
    log_density = np.log(np.maximum(share / np.gradient(p.y), 1e-300))
    low, high = float(log_density.min()), float(log_density.max())
    stretch = np.ones(p.y.size)
    for _ in range(24):
        middle = (low + high) / 2
        wider = np.exp(np.maximum(middle - log_density, 0.0) / 3)
        if float(share @ (wider * wider - 1)) > extra:
            high = middle
        else:
            low, stretch = middle, wider
    return stretch


def nodes(
    pair: LossPair, p: Probe, step: float, tilt: float, top_mass: float, bottom_mass: float, *, weight: float = 1.0
) -> NDArray[np.int64]:
    """Lattice indices to dot a group on: every one where a tilted law lives, ever sparser where it has little mass.

    The top is where the P-mass beyond falls below ``top_mass``, the bottom where that below would weigh
    less than ``bottom_mass`` when tilted.
    """
    last = top_index(p, top_mass)
    # whatever lies below the bottom is raised to it, and weighs e^{tilt loss} there
    exponent = p.log_p + tilt * p.y
    peak = exponent.max(axis=1)
    norm = peak + np.log(np.exp(exponent - peak[:, None]).sum(axis=1))
    with np.errstate(divide="ignore"):
        raised = (np.log(np.cumsum(np.exp(p.log_p), axis=1)) - norm[:, None]).max(axis=0) + tilt * p.y
    first = max(int(np.searchsorted(raised, math.log(bottom_mass))) - 1, 0)
    low, high = pair.support
    if first > 0 or not math.isfinite(low):
        low = max(float(p.y[first]) - step, low)
    if last < p.y.size - 1 or not math.isfinite(high):
        high = min(float(p.y[min(last + 1, p.y.size - 1)]) + step, high)
    high = max(high, low + step)
    y = np.concatenate([[low], p.y[(p.y > low) & (p.y < high)], [high]])
    extra = EXTRA * (_loose(pair) if 0 < pair.atoms.size <= 8 else 1.0)
    stretch = np.interp(y, p.y, _stretch(p, weight * weights(p, tilt).max(axis=0), extra))
    spacing = np.clip(stretch, 1.0, max(1.0, 0.3 / ((tilt + 1) * step))) * step
    # however little mass there is, the profile must not fall by a large factor within a cell, or the lower dots lose their footing
    spacing = np.maximum(np.minimum(spacing, 0.5 / np.interp(y, p.y, _steepness(p))), step)
    count = np.concatenate([[0.0], np.cumsum(np.diff(y) / np.minimum(spacing[1:], spacing[:-1]))])
    total = math.ceil(count[-1]) + 1
    if total > MAX_NODES:
        raise Unsupported(f"pld needs {total:.3g} losses of a step at this tolerance; the limit is {MAX_NODES:,}. Raise --tol, or use rdp")
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
