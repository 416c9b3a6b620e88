"""Kinds of sampling: the ways in which the records of a step are drawn."""

from __future__ import annotations

import reprlib
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from wpriv.core.adjacency import SAMPLINGS
from wpriv.core.parameters import MAX_COUNT
from wpriv.errors import UsageError
from wpriv.numerics.parse_numbers import finite_number, number, whole

# distance of 1/rate from a whole number up to which it is taken for one
WHOLE_PASS_TOLERANCE = 1e-3
# kinds in which every record takes part in one step of each pass, with their names in messages
PASSES = {"allocation": "random allocation", "shuffle": "a shuffled loader"}
# keys of a step that describe its sampling
SAMPLING_KEYS = ("sampling", "rate", "max_batch", "parts")
# beside every figure of shuffled batches
WIDE = (
    "shuffled batches: no amplification is proven, so that the upper end is that of one release without sampling for "
    "each pass; a known worst case reaches the lower end. `sampling='poisson'` or `sampling='allocation'` has a narrow "
    "bracket"
)


@dataclass(frozen=True)
class Sampling:
    """The way in which the records of a step are drawn.

    Args:
        kind: ``none`` (all take part), ``poisson`` (independently), ``fixed`` (a fixed number, without replacement),
            ``allocation`` (each in one random step of every pass of 1 / rate steps), or ``shuffle`` (the shuffled
            records are cut into the 1 / rate equal batches of a pass).
        rate: the probability that a record takes part, in (0, 1]; 1 without sampling.
        max_batch: for Poisson sampling, the largest number of records of a step, of which a random part is kept where
            more were drawn; 0 where there is no limit.

    Raises:
        UsageError: an unknown kind, a rate outside (0, 1], a rate below 1 without sampling, one of allocation or
            shuffle that is not one over a whole number, or a largest batch without Poisson sampling.
    """

    kind: str = "none"
    rate: float = 1.0
    max_batch: int = 0
    parts: int = 1

    def __post_init__(self) -> None:
        if not isinstance(self.kind, str) or self.kind not in SAMPLINGS:
            raise UsageError(f"sampling must be one of {', '.join(SAMPLINGS)}; found {reprlib.repr(self.kind)}")
        object.__setattr__(self, "rate", finite_number(self.rate, "the sampling rate"))
        if not 0 < self.rate <= 1:
            raise UsageError(f"the sampling rate must lie in (0, 1]; found {self.rate}")
        if self.kind == "none" and self.rate != 1:
            raise UsageError(
                f"a rate of {self.rate:g} needs `sampling='poisson'` or `sampling='fixed'`; found sampling 'none'"
            )
        object.__setattr__(self, "max_batch", finite_number(self.max_batch, "the largest batch", whole=True))
        if self.max_batch < 0 or (self.max_batch and self.kind != "poisson"):
            raise UsageError(
                f"`max_batch`, the largest batch, is a whole number above 0 and needs `sampling='poisson'`; found "
                f"{self.max_batch} with sampling {self.kind!r}"
            )
        object.__setattr__(self, "parts", finite_number(self.parts, "the number of parts", whole=True))
        if self.parts < 1 or (self.parts > 1 and self.kind != "poisson"):
            raise UsageError(
                f"the parts of the records, for bands, are a whole number of at least 1 and need `sampling='poisson'`; "
                f"found {self.parts} with sampling {self.kind!r}"
            )
        if self.kind not in PASSES:
            return
        rate = whole_pass_rate(self.rate)
        if rate is None:
            raise UsageError(
                f"{PASSES[self.kind]} has passes of a whole number of steps t, and rate 1/t; found rate {self.rate:g}, "
                f"or {1 / self.rate:g} steps a pass. Use `rate={1 / self.pass_steps:.10g}`, or `sampling='poisson'`"
            )
        object.__setattr__(self, "rate", rate)

    @classmethod
    def from_dict(cls, row: Mapping[str, Any]) -> Sampling:
        """The sampling that a step's keys ``sampling``, ``rate``, ``max_batch`` and ``parts`` (of bands) describe.

        Numbers may be text as users type it; a key that is None counts as left out.

        Raises:
            UsageError: a sampling without a rate, or as for ``Sampling``.
        """
        kind, rate, cut, parts = (row.get(key) for key in SAMPLING_KEYS)
        kind = "none" if kind is None else kind
        if kind in SAMPLINGS and kind != "none" and rate is None:
            raise UsageError(f"`sampling='{kind}'` needs a rate: give `rate`, or `batch` with `records`")
        most = 0 if cut is None else whole(cut, "max_batch")
        if cut is not None and most < 1:
            raise UsageError(f"`max_batch`, the largest number of records of a step, must be at least 1; found {most}")
        share = 1.0 if rate is None else number(rate, "rate")
        return cls(str(kind), share, most, 1 if parts is None else whole(parts, "parts"))

    @property
    def pass_steps(self) -> int:
        """Number of steps of a pass in which each record takes part in one of them; 1 where there are no passes."""
        return round(1 / self.rate) if self.kind in PASSES else 1

    def caveats(self) -> tuple[str, ...]:
        """What must be said beside every figure of this sampling."""
        return (WIDE,) if self.kind == "shuffle" and self.pass_steps > 1 else ()

    def whole_passes(self, steps: int) -> int:
        """Number of steps of the fewest whole passes that hold so many steps; ``steps`` itself where passes are steps.

        A pass that was cut short is accounted for as a whole one (docs/theory/allocation.md).
        """
        return -(-steps // self.pass_steps) * self.pass_steps


def whole_pass_rate(rate: float) -> float | None:
    """The rate 1/t with a whole number t that a rate in (0, 1] stands for, or None if it is close to none.

    A rate that was printed with a few digits still stands for one.

    Raises:
        UsageError: a pass would have more than 2^40 steps.
    """
    if rate * MAX_COUNT < 0.5:
        raise UsageError(f"a pass has at most 2^40 steps; found rate {rate:g}")
    steps = round(1 / rate)
    return 1 / steps if abs(1 / rate - steps) <= WHOLE_PASS_TOLERANCE else None


def Poisson(rate: float, max_batch: int = 0) -> Sampling:
    """Poisson sampling: every record takes part in a step independently with probability ``rate``.

    With ``max_batch``, of more records than that a uniformly random part of this size is kept.
    """
    return Sampling("poisson", rate, max_batch)


def FixedSize(rate: float) -> Sampling:
    """Sampling without replacement: a step takes a uniformly random set of ``rate`` times the number of records."""
    return Sampling("fixed", rate)


def Allocation(rate: float) -> Sampling:
    """Random allocation: in each pass of t = 1 / ``rate`` steps a record takes part in one, drawn uniformly."""
    return Sampling("allocation", rate)


def Shuffle(rate: float) -> Sampling:
    """Shuffled batches: the records are shuffled afresh in each pass and cut into t = 1 / ``rate`` equal batches."""
    return Sampling("shuffle", rate)
