"""What (eps, delta)-DP a single release gives, in both orders of the neighbours, both ways: for the composition theorems."""

from __future__ import annotations

import math

import numpy as np

from wpriv.core.loss_pair import LossPair
from wpriv.core.process import Process
from wpriv.numerics.arrays import Array

_LADDER = np.exp2(np.arange(-80.0, 80.0))


class OneStep:
    """One release of a step: its loss pair in each order of the neighbours, and how often it runs.

    ``infinity`` is the least delta that any eps reaches; ``top`` the eps that reaches it, the largest finite loss (0 where none
    is positive).
    """

    def __init__(self, pairs: tuple[LossPair, ...], n: int):
        self.pairs, self.n = pairs, n
        self.mass_at_plus_infinity = max(pair.mass_at_plus_infinity for pair in pairs)
        self.top = max(0.0, *(pair.support[1] for pair in pairs)) * (1 + 1e-15)
        self._ladder = np.concatenate(
            [[0.0], _LADDER[self.top > _LADDER], [self.top] if math.isfinite(self.top) else []]
        )
        self._heights = self.log_delta(self._ladder)

    def log_delta(self, eps: Array) -> Array:
        """[k] ln delta at [k] eps >= 0: the larger of the two orders."""
        inside = np.max([pair.log_delta(eps) for pair in self.pairs], axis=0)
        return np.where(
            eps >= self.top,
            math.log(self.mass_at_plus_infinity) if self.mass_at_plus_infinity > 0 else -math.inf,
            inside,
        )

    def epsilon(self, log_delta: Array) -> Array:
        """[k] the least eps >= 0 whose ln delta is at most the one asked, rounded up by 1e-12 relative; inf where there is none."""
        target = np.asarray(log_delta, dtype=float)
        met = self._heights <= target[:, None]
        first = np.argmax(met, axis=1)
        high, low = self._ladder[first], self._ladder[np.maximum(first - 1, 0)]
        for _ in range(10):
            grid = low[:, None] + (high - low)[:, None] * np.arange(1, 16) / 16
            below = (self.log_delta(grid) > target[:, None]).sum(axis=1, keepdims=True)
            grid = np.concatenate([low[:, None], grid, high[:, None]], axis=1)
            low, high = np.take_along_axis(grid, below, 1)[:, 0], np.take_along_axis(grid, below + 1, 1)[:, 0]
        return np.where(met.any(axis=1), high, np.inf)


def one_steps(process: Process) -> list[OneStep]:
    """The releases of a process with their counts; steps that are alike are one entry."""
    kinds: list[tuple[object, object]] = []
    counts: list[int] = []
    pairs: list[tuple[LossPair, ...]] = []
    runs = process.directions()
    for at, step in enumerate(process.steps):
        kind = (step.mechanism, step.sampling)
        if kind in kinds:
            counts[kinds.index(kind)] += step.n
            continue
        kinds.append(kind)
        counts.append(step.n)
        pairs.append(tuple(run[at][0] for run in runs))
    return [OneStep(both, n) for both, n in zip(pairs, counts, strict=True)]
