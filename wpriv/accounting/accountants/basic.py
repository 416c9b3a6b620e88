"""Basic composition: the eps of all releases add up, and so do their deltas.

The simplest theorem and the loosest; ``advanced`` and ``kov`` make better use of the same guarantees of single
releases. delta is divided among the releases that ran, so that their parameters have to be fixed in advance.
"""

from __future__ import annotations

import math

import numpy as np

from wpriv.core.guarantee import Curve
from wpriv.core.loss_pair import LossPair
from wpriv.core.process import Process, refuse_passes
from wpriv.numerics.arrays import Array
from wpriv.numerics.bracket import Bracket, safe_exp
from wpriv.numerics.root_finding import smallest_meeting

NOTION = "approximate-dp"
CLAIM = "upper-bound"
SOURCE = "Dwork, Kenthapadi, McSherry, Mironov, Naor 2006, Theorem 1"
EXPLAIN = """\
eps = sum of eps_i at delta = sum of delta_i; each release is (eps_i, delta_i)-DP by its exact profile.
delta is split over the releases equally or in proportion to eps_i, whichever is better.
A rigorous upper bound for every mechanism, adaptively chosen queries included.
It grows like n where the true eps grows like sqrt(n)."""
_LOWEST = -1e5  # ln of a delta far below the smallest double
_LADDER = np.exp2(np.arange(-80.0, 80.0))


def account(process: Process, *, tol: float = 1e-3) -> Curve:
    """Account for a process by basic composition of the exact profiles of single releases; ``tol`` is not used."""
    refuse_passes(process, "basic")
    steps = single_releases(process)
    top = math.fsum(step.n * step.top for step in steps)
    floor = math.fsum(step.n * step.mass_at_plus_infinity for step in steps)

    def delta(eps: float) -> Bracket:
        if eps >= top:
            return Bracket.above(min(floor, 1.0))
        if _total(steps, 0.0) > eps:
            return Bracket.above(1.0)
        return Bracket.above(safe_exp(smallest_meeting(lambda x: _total(steps, x) - eps, -10.0, low=_LOWEST, high=0.0)))

    def epsilon(delta: float) -> Bracket:
        return Bracket.above(_total(steps, math.log(delta)))

    return Curve(process, "basic", NOTION, CLAIM, SOURCE, delta, epsilon)


def _total(steps: list[SingleRelease], log_delta: float) -> float:
    """The sum of eps at one delta, split equally or in proportion to the eps of an equal split, if smaller."""
    count = sum(step.n for step in steps)
    equal = np.array([float(step.epsilon(np.array([log_delta - math.log(count)]))[0]) for step in steps])
    counts = np.array([step.n for step in steps], dtype=float)
    total = float(counts @ equal)
    if len(steps) == 1 or not 0 < total < math.inf or equal.min() == 0:
        return total
    shares = log_delta + np.log(equal / total)
    weighted = [float(step.epsilon(np.array([share]))[0]) for step, share in zip(steps, shares, strict=True)]
    return min(total, float(counts @ np.array(weighted)))


# The privacy profile of one release and its inverse, for the composition theorems.


class SingleRelease:
    """One release of a step: its loss pair in each order of the neighbours, and the number n of such releases.

    ``mass_at_plus_infinity`` is the infimum of delta; ``top`` is the eps that attains it, the largest finite loss (0
    where no loss is positive).
    """

    def __init__(self, pairs: tuple[LossPair, ...], n: int):
        self.pairs, self.n = pairs, n
        self.mass_at_plus_infinity = max(pair.mass_at_plus_infinity for pair in pairs)
        self.top = max(0.0, *(pair.support[1] for pair in pairs)) * (1 + 1e-15)
        self._ladder = np.concatenate(
            [[0.0], _LADDER[self.top > _LADDER], [self.top] if math.isfinite(self.top) else []]
        )
        self._log_deltas = self.log_delta(self._ladder)

    def log_delta(self, eps: Array) -> Array:
        """[k] ln delta at [k] eps >= 0: the larger of the two orders."""
        below_top = np.max([pair.log_delta(eps) for pair in self.pairs], axis=0)
        floor = math.log(self.mass_at_plus_infinity) if self.mass_at_plus_infinity > 0 else -math.inf
        return np.where(eps >= self.top, floor, below_top)

    def epsilon(self, log_delta: Array) -> Array:
        """[k] the smallest eps >= 0 with ln delta at most ``log_delta`` [k], rounded up by 1e-12 relative, or inf."""
        target = np.asarray(log_delta, dtype=float)
        reached = self._log_deltas <= target[:, None]
        first = np.argmax(reached, axis=1)
        high, low = self._ladder[first], self._ladder[np.maximum(first - 1, 0)]
        for _ in range(10):
            grid = low[:, None] + (high - low)[:, None] * np.arange(1, 16) / 16
            below = (self.log_delta(grid) > target[:, None]).sum(axis=1, keepdims=True)
            grid = np.concatenate([low[:, None], grid, high[:, None]], axis=1)
            low, high = np.take_along_axis(grid, below, 1)[:, 0], np.take_along_axis(grid, below + 1, 1)[:, 0]
        return np.where(reached.any(axis=1), high, np.inf)


def single_releases(process: Process) -> list[SingleRelease]:
    """The releases of a process with their counts; steps of equal mechanism and sampling are merged into one entry."""
    kinds = [(step.mechanism, step.sampling) for step in process.steps]
    counts: dict[int, int] = {}
    for step, kind in zip(process.steps, kinds, strict=True):
        first = kinds.index(kind)
        counts[first] = counts.get(first, 0) + step.n
    directions = process.directions()
    return [SingleRelease(tuple(weighted[place][0] for weighted in directions), n) for place, n in counts.items()]
