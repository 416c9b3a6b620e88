"""Which records take part in a step. A sampler is drawn from and accounted as one object: its ``sampling`` is what ran.

Shuffling the data and cutting it into batches is none of these, and is not offered: nothing proves that it amplifies.
"""

from __future__ import annotations

import json
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
        rng: where the coins come from; its state is the whole state of the sampler.
    """

    sampling: Sampling
    records: int
    batch: int
    rng: np.random.Generator = field(repr=False, compare=False)

    def draw(self) -> Indices:
        """The places of the records of the next step, ascending and each at most once; under Poisson sampling there may be none."""
        if self.sampling.kind == "none":
            return np.arange(self.records)
        if self.sampling.kind == "fixed":
            # floyd's algorithm or a partial shuffle inside: every set of this size is equally likely
            return np.sort(self.rng.choice(self.records, self.batch, replace=False, shuffle=False))
        return _coins(self.rng, self.records, self.sampling.rate)

    def state(self) -> str:
        """The generator's state as JSON, from which ``restore`` goes on with the same draws."""
        return json.dumps(self.rng.bit_generator.state, default=int)

    def restore(self, state: str) -> None:
        self.rng.bit_generator.state = json.loads(state)


def sampler(sampling: Sampling, records: int, batch: int, rng: np.random.Generator) -> Sampler:
    """A sampler of ``records`` records whose steps have ``batch`` of them, on average under Poisson sampling.

    Raises:
        UsageError: the batch is empty or larger than the data set, or is not the share of it that ``sampling`` names.
    """
    if not 1 <= batch <= records:
        raise UsageError(f"the batch must have from 1 record to all {records} of the data set; found {batch}")
    if sampling.rate != batch / records:
        raise UsageError(f"{batch} of {records} records are a share of {batch / records:g}; found the sampling rate {sampling.rate:g}")
    return Sampler(sampling, records, batch, rng)


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
