"""How a run is composed: the first lattice, the stages that coarsen it, and where rare large losses are cut off.

Nothing here is certified: a bad plan costs time or width, never the truth.
"""

from __future__ import annotations

import itertools
import math
from dataclasses import dataclass

import numpy as np

from wpriv.core.loss_pair import LossPair
from wpriv.errors import Unsupported
from wpriv.numerics.arrays import Array, Counts
from wpriv.pld.lattice.lattice_pmf import ChernoffTable, chernoff_points
from wpriv.pld.saddle_point import ApproximatePmf, cumulants, tilted_weights, top_index
from wpriv.pld.stacking import StepGroup

# the most cells of a window, and of the lattice between two atoms
MAX_CELLS = MAX_PARTS = 1 << 22
# the share of the jumps that must lie a cell beyond the cut, or their lower law is not resolved and loses up to a cell of each
RESOLVED = 0.3
# by how much, in logs, a number of blocks may differ from the wanted one to divide the steps evenly
NEAR = 0.5


@dataclass(frozen=True)
class StagePlan:
    """Stages (blocks left, cells then merged into one), the first and last spacing, and the cut of the jumps in last cells."""

    stages: list[tuple[int, int]]
    step: float
    last: float
    cut: int | None


@dataclass(frozen=True)
class LatticeFitter:
    """Where the first lattice should lie: atoms on nodes cost nothing, so only the rest of the mass asks for a fine spacing."""

    fine: float
    spacing: float
    atoms: Array
    comb: bool

    @staticmethod
    def of(groups: list[StepGroup], fine: float) -> LatticeFitter:
        """``fine`` is the spacing that mass off the nodes needs; pairs with more than a few atoms count as having none."""
        few = [group.pair.atoms.size <= 8 for group in groups]
        sets = [
            np.unique(np.abs(g.pair.atoms[g.pair.atoms != 0])) if ok else np.empty(0)
            for g, ok in zip(groups, few, strict=True)
        ]
        atoms = np.unique(np.concatenate(sets))
        if not 0 < atoms.size <= 8:
            return LatticeFitter(fine, fine, np.empty(0), False)
        shares = [off_lattice_mass(group.pair) if ok else 1.0 for group, ok in zip(groups, few, strict=True)]
        totals = [int(group.counts.sum()) for group in groups]
        share = sum(n * part for n, part in zip(totals, shares, strict=True)) / sum(totals)
        return LatticeFitter(fine, fine / math.sqrt(max(share, 1e-12)), atoms, min(shares) < 0.5)

    def fit(self, divisor: float) -> tuple[float, int]:
        """A spacing of at most ``spacing / divisor`` that puts the atoms on nodes, or near, and their comb's period in cells."""
        step = self.spacing / divisor
        if self.atoms.size:
            unit = float(self.atoms[0])
            # where no spacing meets all atoms their mass is loose too, and the best of the fine ones has to do
            for wanted in (step, self.fine / divisor):
                least_parts = max(1, math.ceil(unit / wanted * (1 - 1e-9)))
                if least_parts > MAX_PARTS:
                    raise Unsupported(
                        f"pld needs {least_parts:.3g} cells between two atoms; the limit is {MAX_PARTS:,}. Raise --tol, or use rdp"
                    )
                parts = np.arange(least_parts, 3 * least_parts + 20)
                places = np.outer(parts, self.atoms / unit)
                off = np.abs(places - np.round(places)).max(axis=1)
                exact = np.flatnonzero(off < 1e-7)
                count = int(parts[exact[0] if exact.size else off.argmin()])
                step = unit / count
                if exact.size:
                    return step, 2 * count if self.comb else 1
        return step, 1


def off_lattice_mass(pair: LossPair) -> float:
    """The share of the P-mass that is not on the pair's atoms; of stacked pairs, the largest."""
    if not pair.atoms.size:
        return 1.0
    hair = 1e-12 * np.maximum(np.abs(pair.atoms), float(np.abs(pair.atoms).max()))
    before, after = pair.tails(pair.atoms - hair), pair.tails(pair.atoms + hair)
    mass = np.maximum(np.exp(before.sf_p) - np.exp(after.sf_p), np.exp(after.cdf_p) - np.exp(before.cdf_p))
    return min(max(1.0 - float(np.min(mass.sum(axis=-1))), 0.0), 1.0)


def plan_stages(
    probes: list[ApproximatePmf],
    counts: list[Counts],
    tops: list[float],
    tilt: float,
    error: float,
    lattice: LatticeFitter,
    tail: float,
) -> StagePlan:
    """The cheapest plan: k stages share the allowance, each block's lattice being as much coarser as its spread is larger.

    Raises:
        Unsupported: its windows would need far more than ``MAX_CELLS`` cells.
    """
    kinds, total = sum(n.size for n in counts), sum(int(n.sum()) for n in counts)
    most = max(int(n.max()) for n in counts)
    deepest = next(k for k in range(1, 6) if k == 5 or most ** (1 / (k + 1)) < 8)
    if deepest == 1:
        step, _ = lattice.fit(1.0)
        return StagePlan([(1, 1)], step, step, None)
    variance, plain = cumulants(probes, counts, tilt).variance, cumulants(probes, counts, 0.0).variances
    widths = _WindowWidths(probes, tops, tilt, tail, variance, most)
    whole, common = widths.of(counts, 1), math.gcd(*(int(count) for n in counts for count in n))
    best: tuple[float, StagePlan] | None = None
    cells = math.inf
    for k in range(1, deepest + 1):
        step, period = lattice.fit(math.sqrt(k))
        blocks = _choose_block_counts(common, [most ** ((k - s) / k) for s in range(1, k + 1)])
        stages = _choose_merge_factors(
            blocks, [lattice.fine * math.sqrt(total / number / k) for number in blocks], step, period
        )
        last = step * math.prod(factor for _, factor in stages)
        first = [-(-n // blocks[0]) for n in counts]
        width = widths.of(first, blocks[0])
        spread = math.sqrt(sum(float(n @ v) for n, v in zip(first, plain, strict=True)))
        cut = None
        if k > 1 and last < 0.3 and width > 24 * spread:
            cut = _choose_cut(probes, counts, 6 * spread, step, last, tilt, error, tail)
        if cut is not None:
            width = _WindowWidths(probes, tops, tilt, tail, variance, most, cut * last).of(first, blocks[0])
        cost = (
            8e3 * k + width / step * (1 + 0.2 * kinds) + whole / last * (1 + (0.2 * kinds if cut is not None else 0.0))
        )
        spacing = step
        for (number, factor), (after, _) in itertools.pairwise(stages):
            spacing *= factor
            cost += 14 * math.sqrt(variance / after) / spacing if number > 1 else 0.0
        if best is None or cost < best[0]:
            best, cells = (cost, StagePlan(stages, step, last, cut)), max(width / step, whole / last)
    assert best is not None
    # widths by the probes are only near those by the laws: what is far too much is refused here, before any law is made
    if cells > 2 * MAX_CELLS:
        check_cells(cells)
    return best[1]


def check_cells(cells: float) -> None:
    """Refuses a window of more than ``MAX_CELLS`` cells."""
    if cells > MAX_CELLS:
        raise Unsupported(
            f"pld needs {cells:.3g} cells at this tolerance; the limit is {MAX_CELLS:,}. Raise --tol, or use rdp"
        )


def _choose_block_counts(count: int, wanted: list[float]) -> list[int]:
    """Numbers of blocks near the wanted, falling, ones: into which a count, then each number before, divides evenly where it can.

    Steps that do not divide make blocks of two kinds, each with its own transforms.
    """
    found: list[int] = []
    for number in wanted:
        near = min(_smooth_divisors(count), key=lambda d: abs(math.log(d / number)))
        found.append(near if abs(math.log(near / number)) < NEAR else max(1, round(number)))
        count = math.gcd(count, found[-1])
    return found


def _smooth_divisors(count: int) -> list[int]:
    """The divisors without a prime factor above seven."""
    found = [1]
    for prime in (2, 3, 5, 7):
        powers = [1]
        while count % (prime * powers[-1]) == 0:
            powers.append(prime * powers[-1])
        found = [d * power for d in found for power in powers]
    return found


class _WindowWidths:
    """How wide sums of tilted losses are by the probes, outside ``tail`` on either side; of those within a cut, where one is given.

    ``variance`` is that of the whole composition, ``most`` how many blocks it may be split into.
    """

    def __init__(
        self,
        probes: list[ApproximatePmf],
        tops: list[float],
        tilt: float,
        tail: float,
        variance: float,
        most: int,
        cut: float = math.inf,
    ):
        points, moments = [], []
        for p, top in zip(probes, tops, strict=True):
            start = int(np.searchsorted(p.y, -cut))
            stop = min(top_index(p, top), int(np.searchsorted(p.y, cut)) - 1) + 1
            y, w = p.y[start:stop], tilted_weights(p, tilt)[:, start:stop]
            w = w / w.sum(axis=1)[:, None]
            mean = w @ y
            points.append((y, w))
            moments.append((mean, w @ (y * y) - mean**2))
        self.depth = -math.log(tail)
        self.table = ChernoffTable.of(
            points, moments, chernoff_points(points, [variance, variance / most], self.depth, 24)
        )

    def of(self, counts: list[Counts], blocks: int) -> float:
        """The width of a sum of ``counts`` losses, one of so many blocks."""
        return sum(self.table.reach(counts, self.depth + math.log(blocks)))


def _choose_cut(
    probes: list[ApproximatePmf],
    counts: list[Counts],
    least_cut: float,
    step: float,
    last: float,
    tilt: float,
    error: float,
    tail: float,
) -> int | None:
    """The cut, in cells of the last lattice, beyond which losses are split off as jumps; None where they are not rare enough.

    Far enough out for the costs to be within the allowance: the shift of eps by K ln kappa for K jumps, about their P-mass each, and
    the K steps that the lower law leaves out; or a shift by ln kappa for every step of a law that the first lattice does not resolve.
    """
    for wider in (1, 2, 4, 8, 16, 32):
        cut = max(math.ceil(wider * least_cut / last), 2)
        if not any(p.reaches(cut * last) for p in probes):
            return None
        jumps = further = cost = fall = 0.0
        for p, n in zip(probes, counts, strict=True):
            each, size = n @ tilted_weights(p, tilt), np.abs(p.y)
            jumps += float(each[size > cut * last].sum())
            further += float(each[size > (cut + 1) * last].sum())
            rare = p.mass[:, p.y > cut * last].sum(axis=1)
            near = np.abs(p.y) <= cut * last
            mass, loss = p.mass[:, near], p.y[near]
            left_out = mass @ np.expm1(tilt * loss) / max(tilt, 1e-9)
            fall += float((n * rare)[mass @ loss**2 < step**2].sum())
            cost = max(cost, float(rare.max()), 2 * float(np.abs(left_out).max()))
        most = max_jump_count(jumps, tail)
        resolved = further > RESOLVED * jumps or jumps * last < error
        if (
            resolved
            and jumps < 60
            and most < min(int(n.min()) for n in counts) / 4
            and most * cost + fall < 0.75 * error
        ):
            return cut
    return None


def _choose_merge_factors(blocks: list[int], spacings: list[float], step: float, period: int) -> list[tuple[int, int]]:
    """Per stage the number of blocks it leaves and how many cells are then merged into one.

    A lattice whose atoms recur every ``period`` cells is merged by multiples of it, so that their comb is not cut unevenly.
    """
    stages = []
    for number, spacing in zip(blocks, spacings, strict=True):
        factor = 1 if number == 1 else max(1, int(spacing / step * (1 + 1e-9)) // period * period)
        stages.append((number, factor))
        step, period = step * factor, period if factor == 1 else 1
    return stages


def max_jump_count(mean: float, tail: float) -> int:
    """The least K with P(more than K jumps) <= tail for a number of rare jumps of this mean (Chernoff)."""
    count = max(1, math.ceil(mean))
    while count * math.log((count + 1) / max(mean, 1e-300)) - count - 1 + mean < -math.log(tail) and count < 10**6:
        count += 1
    return count
