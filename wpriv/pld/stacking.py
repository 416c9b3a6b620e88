"""Batches of like pairs, evaluated together with one row each: a hundred distinct steps cost little more than ten."""

from __future__ import annotations

import math
from collections.abc import Hashable
from dataclasses import dataclass

import numpy as np

from wpriv.core.loss_pair import LossPair
from wpriv.numerics.arrays import Counts
from wpriv.pld import constants


@dataclass(frozen=True, eq=False)
class StepGroup:
    """Like steps of a process.

    Attributes:
        members: K loss pairs, one for each distinct step.
        counts: [K] number of compositions of each.
        pair: the batched pair, whose tails have shape [m] for one member, else [K, m].
    """

    members: tuple[LossPair, ...]
    counts: Counts
    pair: LossPair


def group_pairs(counts: dict[LossPair, int]) -> list[StepGroup]:
    """Group like pairs; a pair that cannot be batched, or has mass at an infinite loss, forms a group of its own.

    Args:
        counts: number of compositions of each pair.
    """
    buckets: dict[Hashable, list[LossPair]] = {}
    for pair in counts:
        batch_key = pair.batch_key()
        bucket: Hashable = pair
        if batch_key is not None and pair.mass_at_plus_infinity == 0 and pair.mass_at_minus_infinity == 0:
            family, parameters = batch_key
            ratio = math.log(constants.BATCH_PARAMETER_RATIO)
            bucket = family, tuple(round(math.log(number) / ratio) for number in parameters)
        buckets.setdefault(bucket, []).append(pair)
    groups = []
    for pairs in buckets.values():
        for start in range(0, len(pairs), constants.MAX_BATCH_SIZE):
            members = tuple(pairs[start : start + constants.MAX_BATCH_SIZE])
            member_counts = np.array([counts[pair] for pair in members], dtype=np.int64)
            groups.append(StepGroup(members, member_counts, batch_pairs(members)))
    return groups


def batch_pairs(members: tuple[LossPair, ...]) -> LossPair:
    """One pair whose tails have a row for each member; a single member is returned itself."""
    return members[0] if len(members) == 1 else members[0].batched(members)
