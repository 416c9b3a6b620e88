"""Privacy profile of one release and its inverse, over both orders of the neighbours, for the composition theorems."""

from __future__ import annotations

import math

import numpy as np

from wpriv.core.loss_pair import LossPair
from wpriv.core.process import Process
from wpriv.numerics.arrays import Array

_LADDER = np.exp2(np.arange(-80.0, 80.0))


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
