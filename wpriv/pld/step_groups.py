"""The steps of one composition: groups of like pairs, their counts, and approximate PMFs of their losses."""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from wpriv.numerics.arrays import Counts
from wpriv.pld import constants
from wpriv.pld.saddle_point import ApproximatePmf, Cumulants, cumulants
from wpriv.pld.stacking import StepGroup


@dataclass(frozen=True)
class Steps:
    """The steps of one composition.

    Attributes:
        groups: groups of like pairs.
        pmfs: an approximate PMF for each group.
        negligible_share: share of delta by which it may change when rare losses are neglected.
        log_finite: ln of the probability that no loss is infinite.
    """

    groups: list[StepGroup]
    pmfs: list[ApproximatePmf]
    negligible_share: float
    log_finite: float

    @cached_property
    def counts(self) -> list[Counts]:
        return [group.counts for group in self.groups]

    @cached_property
    def total(self) -> int:
        """Number of steps, all compositions counted."""
        return sum(int(n.sum()) for n in self.counts)

    @cached_property
    def distinct_steps(self) -> int:
        """Number of distinct steps."""
        return sum(n.size for n in self.counts)

    def cumulants(self, tilt: float) -> Cumulants:
        """Estimated cumulants of the composed loss at a tilt."""
        return cumulants(self.pmfs, self.counts, tilt)

    def negligible_mass(self, delta: float, counts: Counts) -> float:
        """P-mass of one step of a group with these counts that may move to +infinity without affecting delta."""
        share = self.negligible_share * delta / (int(counts.max()) * self.distinct_steps)
        return max(share, constants.MASS_FLOOR)

    def rounding_shift(self, state: Cumulants) -> float:
        """Bound in eps on the shift of the composed loss by rounding of the tails."""
        deviations = constants.ROUNDING_DEVIATIONS
        sizes = [np.abs(m) + deviations * np.sqrt(v) for m, v in zip(state.means, state.variances, strict=True)]
        total = sum(float(n @ size) for n, size in zip(self.counts, sizes, strict=True))
        return constants.TAIL_ROUNDINGS * constants.UNIT_ROUNDOFF * total

    def least_spacing(self) -> float:
        """Spacing of nodes (nats) below which the rounding of tails would decide the masses on them."""
        ends = np.array([0.0]), np.array([1e-9])
        deviation = (
            sum(
                float(group.counts @ np.sqrt(variance))
                for group, variance in zip(self.groups, self.cumulants(0.0).variances, strict=True)
                if group.pair.cell_parts(*ends) is None
            )
            / self.total
        )
        return math.sqrt(constants.SPACING_ROUNDINGS * constants.UNIT_ROUNDOFF * deviation)

    def negligible_bottom(self, share: float) -> float:
        """Tilted mass of one step that may lie below its lowest node.

        Args:
            share: share of the tilted mass that decides delta.
        """
        return max(constants.NEGLIGIBLE_BOTTOM_SHARE * share / self.total, constants.MASS_FLOOR)
