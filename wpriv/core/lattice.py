"""Where a pair's lattice lies, and the pair's upper and lower tilted laws on it.

Rare large losses would force a long fine lattice on every step. Where they are rare enough they are split off: with B the law of the
losses within a cut and R the rest, of P-mass r, a step is (1-r) B' + R, B' = B / (1-r), and n steps are sums over the number k of jumps of
B'^(n-k) R^k. Adding a step of B' raises delta, up to a shift of eps by ln kappa, kappa = E[e^-Y] under B' (Jensen), so for at most K jumps
the composition of B'^n with ((1-r) at zero + R)^n, eps shifted by K ln kappa, lies above, and that of B'^(n-K) with the same lies below.
The jumps can then live on the last, coarse lattice only.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from wpriv.core.compose import Law
from wpriv.core.grid import Cells, cells, lower_dots, rounded, upper_dots, within
from wpriv.core.minorant import push_down
from wpriv.core.pair import Array, LossPair
from wpriv.core.probe import Probe
from wpriv.errors import Unsupported

MAX_NODES = 1 << 22


@dataclass(frozen=True)
class Plan:
    """Stages (blocks left, cells then merged into one), the first and last spacing, and the cut of the jumps in last cells."""

    stages: list[tuple[int, int]]
    step: float
    last: float
    cut: int | None


@dataclass(frozen=True)
class Jumps:
    """The rare large losses of one kind of step, on the last lattice: laws with an atom at zero, and how many to reckon with."""

    upper: Law
    lower: Law
    most: int
    log_kappa: float


@dataclass(frozen=True)
class Dotted:
    """One step's upper and lower tilted laws on the first lattice, the upper one's mass at +infinity, and its jumps if split off."""

    upper: Law
    lower: Law
    infinity: float
    jumps: Jumps | None = None


def dot(pair: LossPair, p: Probe, step: float, tilt: float, top_mass: float, bottom_mass: float) -> Dotted:
    """Dots a whole pair; see ``nodes`` for the masses that may be neglected."""
    index = nodes(pair, p, step, tilt, top_mass, bottom_mass)
    y = np.asarray(index * step, dtype=np.float64)
    if step > 1:
        mass, low, infinity = rounded(pair, y)
    else:
        made = cells(pair, y)
        mass, infinity = upper_dots(made, pair.infinity)
        low = lower_dots(made, pair.infinity)
    return Dotted(_tilted(index, mass, y, tilt), _tilted(index, low, y, tilt), infinity)


def dot_split(pair: LossPair, p: Probe, plan: Plan, n: int, tilt: float, top_mass: float, bottom_mass: float, tail: float) -> Dotted:
    """Dots the losses within the plan's cut on its first lattice, and the jumps beyond, on either side, on its last.

    Args:
        n: how often the step is run. tail: tilted probability that more jumps happen than are reckoned with.
    """
    assert plan.cut is not None
    step, coarse, cut = plan.step, plan.last, plan.cut
    inner, edge = nodes(pair, p, step, tilt, top_mass, bottom_mass), cut * coarse
    bound, falls = round(edge / step), bool(inner[0] * step < -edge)
    last = min(bound, math.ceil(pair.support[1] / step)) if math.isfinite(pair.support[1]) else bound
    inner = np.concatenate([[-bound] if falls else [], inner[(inner > -bound) & (inner < last)], [last]]).astype(np.int64)
    y = np.asarray(inner * step, dtype=np.float64)
    bulk = cells(pair, y)
    outer = nodes(pair, p, coarse, tilt, top_mass, bottom_mass, weight=n / plan.stages[-2][0])
    high = np.concatenate([[cut], outer[outer > cut]]) if outer[-1] > cut else np.array([cut, cut + 1])
    up, infinity = _jumps_above(cells(pair, high * coarse), pair.infinity)
    spots, upper, lower = [np.array([0]), high], [up[0]], [up[1]]
    if falls:
        low = np.concatenate([outer[outer < -cut], [-cut]])
        down = _jumps_below(cells(pair, low * coarse))
        spots, upper, lower = [low, *spots], [down[0], *upper], [down[1], *lower]
    rest, kappa, bulk_upper, bulk_lower = within(bulk, falls)
    index = np.concatenate(spots).astype(np.int64)
    laws = []
    for parts in (upper, lower):
        mass = np.concatenate([*parts[:-1], [rest], parts[-1]])
        far = np.asarray(index * coarse, dtype=np.float64)
        laws.append(_tilted(index, mass, far, tilt))
    at_zero = float(laws[0].mass[laws[0].index == 0].sum())
    jumps = Jumps(laws[0], laws[1], most_jumps(n * (1 - at_zero), tail), max(kappa, 0.0))
    return Dotted(_tilted(inner, bulk_upper / rest, y, tilt), _tilted(inner, bulk_lower / rest, y, tilt), infinity, jumps)


def _jumps_above(c: Cells, infinity: float) -> tuple[tuple[Array, Array], float]:
    """Upper and lower masses of the losses above the first node, and the upper mass at +infinity."""
    upper, low = c.chords(), c.chords()
    upper[-1] += c.top[0]
    low[-1] += max(math.fsum(c.top) - infinity, 0.0)
    return (upper, push_down(np.diff(c.nodes), low, c.gap, c.below, c.above, 0.0)), max(c.top[1], infinity)


def _jumps_below(c: Cells) -> tuple[Array, Array]:
    """Upper and lower masses of the losses below the last node."""
    upper = c.chords()
    low = push_down(np.diff(c.nodes), upper.copy(), c.gap, c.below, c.above, 0.0)
    upper[0] += c.bottom
    return upper, low


def most_jumps(mean: float, tail: float) -> int:
    """The least K with P(more than K jumps) <= tail for a number of rare jumps of this mean (Chernoff)."""
    count = max(1, math.ceil(mean))
    while count * math.log((count + 1) / max(mean, 1e-300)) - count - 1 + mean < -math.log(tail) and count < 10**6:
        count += 1
    return count


def _tilted(index: NDArray[np.int64], mass: Array, y: Array, tilt: float) -> Law:
    keep = mass > 0
    if not keep.any():
        keep[0], mass[0] = True, 1e-300
    index, mass, y = index[keep], mass[keep], y[keep]
    exponent = tilt * y
    if float(exponent.max()) < 1.0:
        # ln E[e^{tilt Y}] of a small loss is of second order: taken from E[e^{tilt Y} - 1], or n steps would amplify its rounding
        log_norm = math.log1p(float(mass @ np.expm1(exponent)) + _excess(mass))
        weight = mass * np.exp(exponent)
        return Law(index, weight / weight.sum(), log_norm)
    log_mass = np.log(mass) + exponent
    peak = float(log_mass.max())
    return Law(index, np.exp(log_mass - peak), peak).normalised()


def _excess(mass: Array) -> float:
    """The sum of the masses less one, zero where it differs by no more than rounding."""
    excess = math.fsum(mass.tolist()) - 1.0
    return 0.0 if abs(excess) < 1e-14 else excess


def weights(p: Probe, tilt: float) -> Array:
    exponent = p.log_p + tilt * p.y
    weight = np.exp(exponent - exponent.max())
    normal: Array = weight / weight.sum()
    return normal


def _top(p: Probe, top_mass: float) -> int:
    """Index of the probe's loss beyond which the P-mass is below ``top_mass``."""
    plain = np.cumsum(np.exp(p.log_p)[::-1])[::-1]
    return min(int(np.searchsorted(-plain, -top_mass)), p.y.size - 1)


@dataclass(frozen=True)
class Lattice:
    """Where the first lattice should lie: atoms on nodes cost nothing, so only the rest of the mass asks for a fine spacing."""

    fine: float
    spacing: float
    atoms: Array
    comb: bool

    @staticmethod
    def of(pairs: list[LossPair], counts: list[int], fine: float) -> Lattice:
        """``fine`` is the spacing that mass off the nodes needs; pairs with more than a few atoms count as having none."""
        sets = [np.unique(np.abs(pair.atoms[pair.atoms != 0])) if pair.atoms.size <= 8 else np.empty(0) for pair in pairs]
        atoms = np.unique(np.concatenate(sets))
        if not 0 < atoms.size <= 8:
            return Lattice(fine, fine, np.empty(0), False)
        loose = [_loose(pair) if pair.atoms.size <= 8 else 1.0 for pair in pairs]
        share = sum(n * part for n, part in zip(counts, loose, strict=True)) / sum(counts)
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
    """The share of the P-mass that is not on the pair's atoms."""
    if not pair.atoms.size:
        return 1.0
    hair = 1e-12 * np.maximum(np.abs(pair.atoms), float(np.abs(pair.atoms).max()))
    before, after = pair.tails(pair.atoms - hair), pair.tails(pair.atoms + hair)
    mass = np.maximum(np.exp(before.sf_p) - np.exp(after.sf_p), np.exp(after.cdf_p) - np.exp(before.cdf_p))
    return min(max(1.0 - float(mass.sum()), 0.0), 1.0)


def _steepness(p: Probe) -> Array:
    """How fast the tails fall at each of the probe's losses, per nat of loss: the larger of the two hazard rates."""
    mass = np.exp(p.log_p)
    rates = [np.zeros(p.y.size)]
    for order in (slice(None), slice(None, None, -1)):
        tail = np.log(np.cumsum(mass[order])[order])
        rates.append(np.abs(np.gradient(tail, p.y)) if p.y.size > 1 else rates[0])
    return np.maximum(np.maximum(rates[1], rates[2]), 1e-300)


def top_index(p: Probe, top_mass: float) -> int:
    """Index of the probe's loss beyond which the P-mass is below ``top_mass``."""
    plain = np.cumsum(np.exp(p.log_p)[::-1])[::-1]
    return min(int(np.searchsorted(-plain, -top_mass)), p.y.size - 1)


def nodes(
    pair: LossPair, p: Probe, step: float, tilt: float, top_mass: float, bottom_mass: float, *, weight: float = 1.0
) -> NDArray[np.int64]:
    """Lattice indices to dot a pair on: every one where the tilted law lives, ever sparser where it has little mass.

    The top is where the P-mass beyond falls below ``top_mass``, the bottom where that below would weigh
    less than ``bottom_mass`` when tilted.
    """
    share = weight * weights(p, tilt)
    above, below = np.cumsum(share[::-1])[::-1], np.cumsum(share)
    last = top_index(p, top_mass)
    # whatever lies below the bottom is raised to it, and weighs e^{tilt loss} there
    raised = np.log(np.cumsum(np.exp(p.log_p))) + tilt * p.y - np.logaddexp.reduce(p.log_p + tilt * p.y)
    first = max(int(np.searchsorted(raised, math.log(bottom_mass))) - 1, 0)
    low, high = pair.support
    if first > 0 or not math.isfinite(low):
        low = max(float(p.y[first]) - step, low)
    if last < p.y.size - 1 or not math.isfinite(high):
        high = min(float(p.y[min(last + 1, p.y.size - 1)]) + step, high)
    high = max(high, low + step)
    y = np.concatenate([[low], p.y[(p.y > low) & (p.y < high)], [high]])
    rare = np.interp(y, p.y, np.minimum(above, below))
    spacing = np.clip(np.sqrt(0.02 / np.maximum(rare, 1e-300)), 1.0, max(1.0, 0.3 / ((tilt + 1) * step))) * step
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
