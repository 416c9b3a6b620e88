"""Which records take part in a step. A sampler is drawn from and accounted as one object: its ``sampling`` is what ran.

Shuffling the data and cutting it into batches is none of these, and is not offered: nothing proves that it amplifies.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from wpriv.core.process import Sampling
from wpriv.errors import UsageError

Indices = NDArray[np.int64]


@dataclass(frozen=True)
class Sampler:
    """Draws the records of one step after another.

    Args:
        sampling: what is run and accounted: ``poisson`` (each record by a coin of its own), ``fixed`` (a set of ``batch`` records,
            all sets equally likely, fresh at every step) or ``none`` (all records).
        records: size of the data set. batch: the expected number of records of a step, by which a clipped sum is divided: it is
            public, while the number really drawn is not.
        groups: disjoint groups, as the places of their records and how many of them a step takes: one set after another, each in
            ascending order. Without them all records are one group.
        rng: where the coins come from; its state is the whole state of the sampler.
    """

    sampling: Sampling
    records: int
    batch: int
    rng: np.random.Generator = field(repr=False, compare=False)
    groups: tuple[tuple[Indices, int], ...] = field(default=(), repr=False, compare=False)

    def draw(self) -> Indices:
        """The places of the records of the next step, ascending and each at most once; under Poisson sampling there may be none."""
        if self.groups:
            return np.concatenate([np.sort(places[self._set(len(places), size)]) for places, size in self.groups])
        if self.sampling.kind == "none":
            return np.arange(self.records)
        if self.sampling.kind == "fixed":
            return np.sort(self._set(self.records, self.batch))
        return _coins(self.rng, self.records, self.sampling.rate)

    def _set(self, records: int, size: int) -> Indices:
        # floyd's algorithm or a partial shuffle inside: every set of this size is equally likely
        return self.rng.choice(records, size, replace=False, shuffle=False)

    def state(self) -> str:
        """The generator's state as JSON, from which ``restore`` goes on with the same draws."""
        return json.dumps(self.rng.bit_generator.state, default=int)

    def restore(self, state: str) -> None:
        self.rng.bit_generator.state = json.loads(state)


def sampler(
    sampling: Sampling, records: int, batch: int, rng: np.random.Generator, groups: Sequence[tuple[Indices, int]] = ()
) -> Sampler:
    """A sampler of ``records`` records whose steps have ``batch`` of them, on average under Poisson sampling.

    Args:
        groups: see ``Sampler``; what is accounted is the rate of the group that is sampled most.
    Raises:
        UsageError: the batch is empty or larger than the data set, or is not the share of it that ``sampling`` names.
    """
    if groups:
        return Sampler(sampling, records, batch, rng, _checked(sampling, groups))
    if not 1 <= batch <= records:
        raise UsageError(f"the batch must have from 1 record to all {records} of the data set; found {batch}")
    if sampling.rate != batch / records:
        raise UsageError(
            f"{batch} of {records} records are a share of {batch / records:g}; found the sampling rate {sampling.rate:g}"
        )
    return Sampler(sampling, records, batch, rng)


def _checked(sampling: Sampling, groups: Sequence[tuple[Indices, int]]) -> tuple[tuple[Indices, int], ...]:
    """Groups that are what is accounted: fixed sizes, no record twice, no share above the rate."""
    every = np.concatenate([places for places, _ in groups])
    if len(np.unique(every)) < len(every):
        raise UsageError("groups must be disjoint: a record that stands in two would take part twice")
    if any(not 1 <= size <= len(places) for places, size in groups):
        told = ", ".join(f"{size} of {len(places)}" for places, size in groups)
        raise UsageError(f"a step takes from 1 to all records of each group; found {told}")
    if sampling.kind == "poisson" or max(size / len(places) for places, size in groups) > sampling.rate:
        raise UsageError(f"groups are drawn in fixed sizes, no more of them than is accounted; found {sampling}")
    return tuple((np.asarray(places, dtype=np.int64), size) for places, size in groups)


def _coins(rng: np.random.Generator, records: int, rate: float) -> Indices:
    """The successes of one coin a record, by the gaps between them: geometric, so that the cost is that of the batch."""
    if rate >= 1:
        return np.arange(records)
    found: list[Any] = []
    last = -1
    while last < records:
        expected = (records - last) * rate
        gaps = rng.geometric(rate, int(expected + 4 * np.sqrt(expected) + 8))
        # a gap beyond the end is as good as any other there; cut, the sum cannot overflow
        places = last + np.cumsum(np.minimum(gaps, records + 1))
        found.append(places)
        last = int(places[-1])
    drawn = np.concatenate(found)
    return drawn[drawn < records]


def chunks(indices: Indices, most: int) -> list[Indices]:
    """The records of one step cut into physical batches of at most ``most``, of nearly equal size; none where there are no records."""
    return np.array_split(indices, -(-len(indices) // most)) if len(indices) else []
