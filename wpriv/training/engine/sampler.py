"""Draw the records of each step. The ``sampling`` of a sampler is both what runs and what is accounted for.

Shuffled epochs are not offered: no amplification by subsampling is proven for them.
"""

from __future__ import annotations

import json
import math
from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from wpriv.core.kinds import Sampling
from wpriv.errors import UsageError

Indices = NDArray[np.int64]


@dataclass
class Sampler:
    """Draws the records of one step after another.

    Args:
        sampling: ``poisson`` (each record independently), ``fixed`` (a new set of ``batch`` records at every step, all
            sets equally likely) or ``none`` (all records); ``allocation`` has a class of its own.
        records: size of the data set.
        batch: the expected number of records of a step, by which a clipped sum is divided. It is public, while the
            number that was drawn is not.
        groups: disjoint groups, as the places of their records and how many of them a step takes. A step has one set
            after another, each in ascending order. Without them all records are one group.
        rng: the generator; its state is the whole state of the sampler.
    """

    sampling: Sampling
    records: int
    batch: float
    rng: np.random.Generator = field(repr=False, compare=False)
    groups: tuple[tuple[Indices, int], ...] = field(default=(), repr=False, compare=False)

    def draw(self) -> Indices:
        """Return the distinct places of the next step's records, in ascending order; maybe none with Poisson."""
        if self.groups:
            return np.concatenate([np.sort(places[self._set(len(places), size)]) for places, size in self.groups])
        if self.sampling.kind == "none":
            return np.arange(self.records)
        if self.sampling.kind == "fixed":
            return np.sort(self._set(self.records, int(self.batch)))
        return _coins(self.rng, self.records, self.sampling.rate)

    def _set(self, records: int, size: int) -> Indices:
        # by Floyd's algorithm or a partial shuffle: every set of this size is equally likely
        return self.rng.choice(records, size, replace=False, shuffle=False)

    def state(self) -> str:
        """Return the generator's state as JSON, from which ``restore`` continues with the same draws."""
        return json.dumps(self.rng.bit_generator.state, default=int)

    def restore(self, state: str) -> None:
        self.rng.bit_generator.state = json.loads(state)


@dataclass
class AllocationSampler(Sampler):
    """Random allocation: in each pass of t steps every record takes part in one step, drawn uniformly by itself.

    The step of each record is drawn at the beginning of a pass, and kept in 1, 2 or 4 bytes a record. The state is that
    of the generator before this draw and the number of steps since, from which the same pass is drawn again.

    Args:
        once: draw them at the beginning of the first pass alone: a record has the same step in every pass, its bin.
    """

    once: bool = False

    _before_pass: Mapping[str, Any] = field(default_factory=dict, repr=False, compare=False)
    _steps_drawn: int = field(default=0, repr=False, compare=False)
    _step_of: NDArray[Any] | None = field(default=None, repr=False, compare=False)

    def draw(self) -> Indices:
        """Return the places of the records that drew the next step, in ascending order; maybe none."""
        if self._step_of is None or self._steps_drawn == self.sampling.pass_steps:
            if self._step_of is None or not self.once:
                self._step_of = self._next_pass()
            self._steps_drawn = 0
        places = np.flatnonzero(self._step_of == self._steps_drawn)
        self._steps_drawn += 1
        return places

    def _next_pass(self) -> NDArray[Any]:
        """Draw the step of each record in the next pass; [records] in the smallest type that holds the steps."""
        self._before_pass = self.rng.bit_generator.state
        steps = self.sampling.pass_steps
        return self.rng.integers(steps, size=self.records, dtype=np.min_scalar_type(steps - 1))

    def state(self) -> str:
        """Return the state as JSON, from which ``restore`` continues with the same draws, also within a pass."""
        before = self.rng.bit_generator.state if self._step_of is None else self._before_pass
        return json.dumps({"before_pass": before, "steps_drawn": self._steps_drawn}, default=int)

    def restore(self, state: str) -> None:
        stored = json.loads(state)
        self.rng.bit_generator.state = stored["before_pass"]
        self._steps_drawn = stored["steps_drawn"]
        self._step_of = self._next_pass() if self._steps_drawn else None


class DrawnAhead(Sampler):
    """A sampler whose draws a loader takes some steps before they are trained on; the state is that of the training."""

    def __init__(self, source: Sampler):
        super().__init__(source.sampling, source.records, source.batch, source.rng, source.groups)
        # of each step that is drawn and not trained on: the state before its draw, and the places
        self.waiting: deque[tuple[str, Indices]] = deque()

    def ahead(self) -> Indices:
        """Draw the records of a later step, for a loader to fetch."""
        state = super().state()
        self.waiting.append((state, super().draw()))
        return self.waiting[-1][1]

    def draw(self) -> Indices:
        """Return the records of the next step that a loader has drawn."""
        return self.waiting.popleft()[1]

    def state(self) -> str:
        """Return the state before the first draw that is not trained on."""
        return self.waiting[0][0] if self.waiting else super().state()

    def restore(self, state: str) -> None:
        self.waiting.clear()
        super().restore(state)


def sampler(
    sampling: Sampling,
    records: int,
    batch: float,
    rng: np.random.Generator,
    groups: Sequence[tuple[Indices, int]] = (),
    *,
    once: bool = False,
) -> Sampler:
    """Return a sampler of ``batch`` of ``records`` records per step, on average where batches have random sizes.

    Args:
        batch: with random allocation records / t, for passes of t steps. groups: see ``Sampler``; the accounted rate is
            that of the group with the largest one. once: see ``AllocationSampler``.
    """
    if groups:
        return Sampler(sampling, records, batch, rng, _validated(sampling, groups))
    if not 1 <= batch <= records:
        raise UsageError(f"the batch must have from 1 record to all {records} of the data set; found {batch:g}")
    allocated = sampling.kind == "allocation"
    if not math.isclose(sampling.rate, batch / records, rel_tol=1e-12 if allocated else 0.0):
        raise UsageError(
            f"the sampling rate of {batch:g} of {records} records is {batch / records:g}; found {sampling.rate:g}"
        )
    if allocated:
        return AllocationSampler(sampling, records, batch, rng, once=once)
    return Sampler(sampling, records, batch, rng)


def _validated(sampling: Sampling, groups: Sequence[tuple[Indices, int]]) -> tuple[tuple[Indices, int], ...]:
    """Check that groups are as accounted for: fixed sizes, no record twice, no share above the rate."""
    grouped = np.concatenate([places for places, _ in groups])
    if len(np.unique(grouped)) < len(grouped):
        raise UsageError("groups must be disjoint; found a record in two of them")
    if any(not 1 <= size <= len(places) for places, size in groups):
        counts = ", ".join(f"{size} of {len(places)}" for places, size in groups)
        raise UsageError(f"a step takes from 1 to all records of each group; found {counts}")
    if sampling.kind in ("poisson", "allocation") or max(size / len(places) for places, size in groups) > sampling.rate:
        raise UsageError(f"groups are drawn in fixed sizes, at most at the accounted rate; found {sampling}")
    return tuple((np.asarray(places, dtype=np.int64), size) for places, size in groups)


def _coins(rng: np.random.Generator, records: int, rate: float) -> Indices:
    """Draw each record with probability ``rate``, by the geometric gaps between them: the cost is that of the batch."""
    if rate >= 1:
        return np.arange(records)
    pieces: list[Any] = []
    last = -1
    while last < records:
        expected = (records - last) * rate
        gaps = rng.geometric(rate, int(expected + 4 * np.sqrt(expected) + 8))
        # gaps beyond the end are cut, so that the sum cannot overflow
        places = last + np.cumsum(np.minimum(gaps, records + 1))
        pieces.append(places)
        last = int(places[-1])
    drawn = np.concatenate(pieces)
    return drawn[drawn < records]


def chunks(indices: Indices, size: int) -> list[Indices]:
    """Split the records of a step into physical batches of nearly equal sizes up to ``size``; [] without records."""
    return np.array_split(indices, -(-len(indices) // size)) if len(indices) else []
