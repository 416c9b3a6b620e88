"""Pairs alike enough to share their nodes: evaluated together, a row each, so that a hundred kinds of steps cost little more than ten."""

from __future__ import annotations

import math
from collections.abc import Hashable
from dataclasses import dataclass

import numpy as np

from wpriv.core.loss_pair import LossPair
from wpriv.numerics.arrays import Counts

# parameters that fall into the same bucket differ by no more than this factor; those dotted together are more alike (core/lattice.py)
BUCKET = 4.0
MOST_MEMBERS = 128


@dataclass(frozen=True, eq=False)
class StepGroup:
    """``pair`` gives tails of shape [m], or [K, m] for K members; ``counts`` [K] says how often the step of each is run."""

    members: tuple[LossPair, ...]
    counts: Counts
    pair: LossPair


def group_pairs(merged: dict[LossPair, int]) -> list[StepGroup]:
    """Groups the pairs of a run; a pair that cannot be stacked, or has mass at an infinite loss, stands alone."""
    buckets: dict[Hashable, list[LossPair]] = {}
    for pair in merged:
        found = pair.batch_key()
        key: Hashable = pair
        if found is not None and pair.mass_at_plus_infinity == 0 and pair.mass_at_minus_infinity == 0:
            key = found[0], tuple(round(math.log(number) / math.log(BUCKET)) for number in found[1])
        buckets.setdefault(key, []).append(pair)
    made = []
    for alike in buckets.values():
        for start in range(0, len(alike), MOST_MEMBERS):
            members = tuple(alike[start : start + MOST_MEMBERS])
            counts = np.array([merged[pair] for pair in members], dtype=np.int64)
            made.append(StepGroup(members, counts, batch_pairs(members)))
    return made


def batch_pairs(members: tuple[LossPair, ...]) -> LossPair:
    """One pair whose tails have a row for each member, or the only member itself."""
    return members[0] if len(members) == 1 else members[0].batched(members)
