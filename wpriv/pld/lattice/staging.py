"""Plan a staged composition: the first lattice, the stages that coarsen it, and where rare large losses are split off.

This module affects speed and tightness only; correctness does not depend on it.
"""

from __future__ import annotations

import itertools
import math
from dataclasses import dataclass

import numpy as np

from wpriv.core.loss_pair import LossPair
from wpriv.errors import Unsupported
from wpriv.numerics.arrays import Array, Counts
from wpriv.pld import constants
from wpriv.pld.lattice.jump_cut import choose_cut
from wpriv.pld.lattice.lattice_pmf import ChernoffTable, chernoff_points
from wpriv.pld.saddle_point import ApproximatePmf, cumulants, tilted_weights, top_index
from wpriv.pld.stacking import StepGroup


@dataclass(frozen=True)
class StagePlan:
    """A plan of composition in stages.

    Attributes:
        stages: per stage the number of blocks it leaves and the number of cells then merged into one.
        step: first spacing in nats.
        last: last spacing in nats.
        cut: losses beyond this many cells of the last lattice are split off as jumps; None where none are.
    """

    stages: list[tuple[int, int]]
    step: float
    last: float
    cut: int | None


@dataclass(frozen=True)
class LatticeFitter:
    """Choice of the first lattice: atoms on nodes cost no accuracy, so only the remaining mass needs a fine spacing.

    Attributes:
        fine_spacing: spacing in nats that mass off the nodes needs.
        spacing: spacing in nats that suffices with the atoms on nodes.
        atoms: increasing absolute losses of the atoms to be put on nodes.
        periodic: whether some PMF has most of its mass on few atoms.
    """

    fine_spacing: float
    spacing: float
    atoms: Array
    periodic: bool

    @staticmethod
    def of(groups: list[StepGroup], fine_spacing: float) -> LatticeFitter:
        """Collect the atoms of the pairs; pairs with more than a few atoms count as having none."""
        few = [group.pair.atoms.size <= constants.MAX_LATTICE_ATOMS for group in groups]
        sets = [
            np.unique(np.abs(g.pair.atoms[g.pair.atoms != 0])) if ok else np.empty(0)
            for g, ok in zip(groups, few, strict=True)
        ]
        atoms = np.unique(np.concatenate(sets))
        if not 0 < atoms.size <= constants.MAX_LATTICE_ATOMS:
            return LatticeFitter(fine_spacing, fine_spacing, np.empty(0), False)
        off_lattice = [off_lattice_mass(group.pair) if ok else 1.0 for group, ok in zip(groups, few, strict=True)]
        totals = [int(group.counts.sum()) for group in groups]
        share = sum(n * part for n, part in zip(totals, off_lattice, strict=True)) / sum(totals)
        spacing = fine_spacing / math.sqrt(max(share, constants.MIN_SPACING_SHARE))
        return LatticeFitter(fine_spacing, spacing, atoms, min(off_lattice) < constants.MAX_PERIODIC_OFF_LATTICE)

    def fit(self, divisor: float) -> tuple[float, int]:
        """A spacing of at most ``spacing / divisor`` that puts the atoms on or near nodes, and their period in cells.

        Raises:
            Unsupported: there would be too many cells between two atoms.
        """
        step = self.spacing / divisor
        if self.atoms.size:
            unit = float(self.atoms[0])
            # where no spacing meets all atoms, their mass is off the lattice too, and the best of the fine spacings is
            # taken
            for spacing in (step, self.fine_spacing / divisor):
                least_parts = max(1, math.ceil(unit / spacing * (1 - 1e-9)))
                if least_parts > constants.MAX_CELLS_BETWEEN_ATOMS:
                    raise Unsupported(
                        f"pld needs {least_parts:.3g} cells between two atoms at this tolerance; the limit is "
                        f"{constants.MAX_CELLS_BETWEEN_ATOMS:,}. Raise `tol`, or use rdp"
                    )
                parts = np.arange(least_parts, 3 * least_parts + 20)
                places = np.outer(parts, self.atoms / unit)
                off = np.abs(places - np.round(places)).max(axis=1)
                exact = np.flatnonzero(off < constants.LATTICE_ATOM_TOLERANCE)
                count = int(parts[exact[0] if exact.size else off.argmin()])
                step = unit / count
                if exact.size:
                    return step, 2 * count if self.periodic else 1
        return step, 1


def off_lattice_mass(pair: LossPair) -> float:
    """The P-mass that is not on the pair's atoms; for batched pairs, the largest."""
    if not pair.atoms.size:
        return 1.0
    offset = constants.ATOM_HALF_WIDTH * np.maximum(np.abs(pair.atoms), float(np.abs(pair.atoms).max()))
    before, after = pair.tails(pair.atoms - offset), pair.tails(pair.atoms + offset)
    mass = np.maximum(np.exp(before.sf_p) - np.exp(after.sf_p), np.exp(after.cdf_p) - np.exp(before.cdf_p))
    return min(max(1.0 - float(np.min(mass.sum(axis=-1))), 0.0), 1.0)


def plan_stages(
    pmfs: list[ApproximatePmf],
    counts: list[Counts],
    top_masses: list[float],
    tilt: float,
    error: float,
    lattice: LatticeFitter,
    tail: float,
) -> StagePlan:
    """The cheapest plan: k stages share the allowed error, and each block's spacing grows with its standard deviation.

    Args:
        pmfs: an approximate PMF for each group of steps.
        counts: per group [K] number of compositions of each step.
        top_masses: per group the P-mass that may move to +infinity.
        error: allowed shift of eps in nats.
        tail: tilted mass that may wrap around.
    Raises:
        Unsupported: the windows would need far more than ``constants.MAX_WINDOW_CELLS`` cells.
    """
    distinct_steps, total = sum(n.size for n in counts), sum(int(n.sum()) for n in counts)
    max_count, limit = max(int(n.max()) for n in counts), constants.MAX_STAGES
    deepest = next(
        k for k in range(1, limit + 1) if k == limit or max_count ** (1 / (k + 1)) < constants.MIN_BLOCK_RATIO
    )
    if deepest == 1:
        step, _ = lattice.fit(1.0)
        return StagePlan([(1, 1)], step, step, None)
    variance, plain = cumulants(pmfs, counts, tilt).variance, cumulants(pmfs, counts, 0.0).variances
    widths = _WindowWidths(pmfs, top_masses, tilt, tail, variance, max_count)
    last_width, common = widths.width(counts, 1), math.gcd(*(int(count) for n in counts for count in n))
    best: tuple[float, StagePlan] | None = None
    cells = math.inf
    for k in range(1, deepest + 1):
        step, period = lattice.fit(math.sqrt(k))
        blocks = _choose_block_counts(common, [max_count ** ((k - s) / k) for s in range(1, k + 1)])
        spacings = [lattice.fine_spacing * math.sqrt(total / number / k) for number in blocks]
        stages = _choose_merge_factors(blocks, spacings, step, period)
        last = step * math.prod(factor for _, factor in stages)
        first = [-(-n // blocks[0]) for n in counts]
        width = widths.width(first, blocks[0])
        deviation = math.sqrt(sum(float(n @ v) for n, v in zip(first, plain, strict=True)))
        cut = None
        if k > 1 and last < constants.MAX_JUMP_SPACING and width > constants.MIN_JUMP_WINDOW_DEVIATIONS * deviation:
            cut = choose_cut(pmfs, counts, constants.MIN_CUT_DEVIATIONS * deviation, step, last, tilt, error, tail)
        if cut is not None:
            within_cut = _WindowWidths(pmfs, top_masses, tilt, tail, variance, max_count, cut * last)
            width = within_cut.width(first, blocks[0])
        cost = _cost(stages, (width / step, last_width / last), distinct_steps, cut is not None, variance, step)
        if best is None or cost < best[0]:
            best, cells = (cost, StagePlan(stages, step, last, cut)), max(width / step, last_width / last)
    assert best is not None
    # widths from approximate PMFs are only near the true ones: what is far too much is refused before any PMF is made
    if cells > constants.MAX_ESTIMATED_WINDOWS * constants.MAX_WINDOW_CELLS:
        check_cells(cells)
    return best[1]


def _cost(
    stages: list[tuple[int, int]],
    cells: tuple[float, float],
    distinct_steps: int,
    jumps: bool,
    variance: float,
    step: float,
) -> float:
    """Relative run time of a plan; ``cells`` are those of the first and of the last window."""
    per_step = constants.DISTINCT_STEP_COST * distinct_steps
    cost = (
        constants.STAGE_COST * len(stages) + cells[0] * (1 + per_step) + cells[1] * (1 + (per_step if jumps else 0.0))
    )
    spacing = step
    for (number, factor), (after, _) in itertools.pairwise(stages):
        spacing *= factor
        window = constants.BLOCK_WINDOW_DEVIATIONS * math.sqrt(variance / after)
        cost += window / spacing if number > 1 else 0.0
    return cost


def check_cells(cells: float) -> None:
    """Refuse a window of more than ``constants.MAX_WINDOW_CELLS`` cells."""
    if cells > constants.MAX_WINDOW_CELLS:
        raise Unsupported(
            f"pld needs {cells:.3g} cells at this tolerance; the limit is {constants.MAX_WINDOW_CELLS:,}. "
            "Raise `tol`, or use rdp"
        )


def _choose_block_counts(count: int, wanted: list[float]) -> list[int]:
    """Decreasing numbers of blocks near the wanted ones; each divides the count and the number before where possible.

    Steps that do not divide evenly make two distinct blocks, each with its own transforms.
    """
    numbers: list[int] = []
    for number in wanted:
        near = min(_smooth_divisors(count), key=lambda d: abs(math.log(d / number)))
        divides = abs(math.log(near / number)) < constants.BLOCK_COUNT_LOG_TOLERANCE
        numbers.append(near if divides else max(1, round(number)))
        count = math.gcd(count, numbers[-1])
    return numbers


def _smooth_divisors(count: int) -> list[int]:
    """The divisors without a prime factor above seven."""
    divisors = [1]
    for prime in (2, 3, 5, 7):
        powers = [1]
        while count % (prime * powers[-1]) == 0:
            powers.append(prime * powers[-1])
        divisors = [d * power for d in divisors for power in powers]
    return divisors


class _WindowWidths:
    """Estimated widths of windows that hold sums of tilted losses, outside ``tail`` on either side.

    Args:
        variance: that of the whole composition.
        max_blocks: largest number of blocks it may be split into.
        cut: losses beyond this (nats) are left out.
    Raises:
        Unsupported: the tilted losses of some step are all left out.
    """

    def __init__(
        self,
        pmfs: list[ApproximatePmf],
        top_masses: list[float],
        tilt: float,
        tail: float,
        variance: float,
        max_blocks: int,
        cut: float = math.inf,
    ):
        points, moments = [], []
        for pmf, top_mass in zip(pmfs, top_masses, strict=True):
            start = int(np.searchsorted(pmf.y, -cut))
            stop = min(top_index(pmf, top_mass), int(np.searchsorted(pmf.y, cut)) - 1) + 1
            y, weight = pmf.y[start:stop], tilted_weights(pmf, tilt)[:, start:stop]
            total = weight.sum(axis=1)[:, None]
            # where delta lies beyond the scanned tail, the tilt grows without limit: only losses left out have weight
            if not total.all():
                raise Unsupported("pld finds no lattice for this process at this delta. Use rdp")
            weight = weight / total
            mean = weight @ y
            points.append((y, weight))
            moments.append((mean, weight @ (y * y) - mean**2))
        self.depth = -math.log(tail)
        variances = [variance, variance / max_blocks]
        theta = chernoff_points(points, variances, self.depth, constants.PLAN_CHERNOFF_POINTS)
        self.table = ChernoffTable.of(points, moments, theta)

    def width(self, counts: list[Counts], blocks: int) -> float:
        """The width in nats of a sum of ``counts`` losses, one of so many blocks."""
        return sum(self.table.reach(counts, self.depth + math.log(blocks)))


def _choose_merge_factors(blocks: list[int], spacings: list[float], step: float, period: int) -> list[tuple[int, int]]:
    """Per stage the number of blocks it leaves and how many cells are then merged into one.

    A lattice whose atoms recur every ``period`` cells is merged by multiples of it, so that all atoms fall on nodes
    again.
    """
    stages = []
    for number, spacing in zip(blocks, spacings, strict=True):
        factor = 1 if number == 1 else max(1, int(spacing / step * (1 + 1e-9)) // period * period)
        stages.append((number, factor))
        step, period = step * factor, period if factor == 1 else 1
    return stages
