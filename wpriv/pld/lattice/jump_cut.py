"""Choose where rare large losses are split off from the steps of a staged composition (see ``step_pmfs``).

This module affects speed and tightness only, except for ``max_jump_count``, which is a proven bound.
"""

from __future__ import annotations

import math

import numpy as np

from wpriv.numerics.arrays import Counts
from wpriv.pld import constants
from wpriv.pld.saddle_point import ApproximatePmf, tilted_weights


def choose_cut(
    pmfs: list[ApproximatePmf],
    counts: list[Counts],
    least_cut: float,
    step: float,
    last: float,
    tilt: float,
    error: float,
    tail: float,
) -> int | None:
    """The cut, in cells of the last lattice, beyond which losses are split off as jumps; None if they are not rare.

    It lies far enough out for the costs to be within the allowed error: the shift of eps by K ln kappa for K jumps,
    about their P-mass each, and the K steps that the optimistic composition leaves out; or a shift by ln kappa for
    every step whose PMF the first lattice does not resolve.
    """
    for multiple in constants.CUT_MULTIPLES:
        cut = max(math.ceil(multiple * least_cut / last), 2)
        if not any(pmf.reaches(cut * last) for pmf in pmfs):
            return None
        jumps = further = jump_cost = unresolved_shift = 0.0
        for pmf, n in zip(pmfs, counts, strict=True):
            expected, size = n @ tilted_weights(pmf, tilt), np.abs(pmf.y)
            jumps += float(expected[size > cut * last].sum())
            further += float(expected[size > (cut + 1) * last].sum())
            rare = pmf.mass[:, pmf.y > cut * last].sum(axis=1)
            near = np.abs(pmf.y) <= cut * last
            mass, loss = pmf.mass[:, near], pmf.y[near]
            left_out = mass @ np.expm1(tilt * loss) / max(tilt, 1e-9)
            unresolved_shift += float((n * rare)[mass @ loss**2 < step**2].sum())
            jump_cost = max(jump_cost, float(rare.max()), 2 * float(np.abs(left_out).max()))
        max_count = max_jump_count(jumps, tail)
        resolved = further > constants.MIN_RESOLVED_JUMPS * jumps or jumps * last < error
        if (
            resolved
            and jumps < constants.MAX_EXPECTED_JUMPS
            and max_count < min(int(n.min()) for n in counts) / constants.MIN_STEPS_PER_JUMP
            and max_count * jump_cost + unresolved_shift < constants.JUMP_ERROR_SHARE * error
        ):
            return cut
    return None


def max_jump_count(mean: float, tail: float) -> int:
    """A K, about the least, with P(more than K jumps) <= tail, for a number of jumps with this mean (Chernoff)."""
    count = max(1, math.ceil(mean))
    while count * math.log((count + 1) / max(mean, constants.MASS_FLOOR)) - count - 1 + mean < -math.log(tail):
        count += max(1, count >> 10)
    return count
