"""The steps of one run as they are composed: groups of like pairs, their counts, and what probing them has shown."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np

from wpriv.numerics.arrays import Counts
from wpriv.pld.lattice.spectra import UNIT
from wpriv.pld.saddle_point import ApproximatePmf, Cumulants, cumulants
from wpriv.pld.stacking import StepGroup

# the tails are taken to be right to this many roundings, relative to the loss they are asked at; a step's loss is shifted by as much
TAIL_ROUNDINGS = 16


@dataclass(frozen=True)
class Steps:
    """Groups with a probe each, the part of delta that may be lost to rare losses, and ln of the chance that no loss is infinite."""

    groups: list[StepGroup]
    probes: list[ApproximatePmf]
    neglected: float
    log_finite: float

    @cached_property
    def counts(self) -> list[Counts]:
        return [group.counts for group in self.groups]

    @cached_property
    def total(self) -> int:
        """How many steps there are."""
        return sum(int(n.sum()) for n in self.counts)

    @cached_property
    def kinds(self) -> int:
        """Of how many kinds they are."""
        return sum(n.size for n in self.counts)

    def cumulants(self, tilt: float) -> Cumulants:
        """The cumulant function of the composed loss at a tilt, about."""
        return cumulants(self.probes, self.counts, tilt)

    def negligible(self, delta: float, counts: Counts) -> float:
        """P-mass of one of a group's steps that may go to +infinity without being seen in delta."""
        return max(self.neglected * delta / (int(counts.max()) * self.kinds), 1e-300)

    def drift(self, state: Cumulants) -> float:
        """By how much in eps rounding in the tails may shift the composed loss."""
        sizes = [np.abs(m) + 10 * np.sqrt(v) for m, v in zip(state.means, state.variances, strict=True)]
        return TAIL_ROUNDINGS * UNIT * sum(float(n @ size) for n, size in zip(self.counts, sizes, strict=True))
