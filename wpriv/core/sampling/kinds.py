"""Kinds of sampling: the ways in which the records of a step are drawn."""

from __future__ import annotations

import reprlib
from dataclasses import dataclass

from wpriv.core.adjacency import SAMPLINGS
from wpriv.errors import UsageError
from wpriv.numerics.parse_numbers import finite_number

# distance of 1/rate from a whole number up to which it is taken for one
WHOLE_PASS_TOLERANCE = 1e-3


@dataclass(frozen=True)
class Sampling:
    """The way in which the records of a step are drawn.

    Args:
        kind: ``none`` (all take part), ``poisson`` (independently), ``fixed`` (a fixed number, without replacement), or
            ``allocation`` (each in one random step of every pass of 1 / rate steps).
        rate: the probability that a record takes part, in (0, 1]; 1 without sampling.

    Raises:
        UsageError: an unknown kind, a rate outside (0, 1], a rate below 1 without sampling, or one of allocation that
            is not one over a whole number.
    """

    kind: str = "none"
    rate: float = 1.0

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
        if self.kind != "allocation":
            return
        rate = allocation_rate(self.rate)
        if rate is None:
            raise UsageError(
                f"random allocation has passes of a whole number of steps t, and rate 1/t; found rate {self.rate:g}, "
                f"or {1 / self.rate:g} steps a pass. Use rate {1 / self.pass_steps:.10g}, or `sampling='poisson'`"
            )
        object.__setattr__(self, "rate", rate)

    @property
    def pass_steps(self) -> int:
        """Number of steps of a pass of random allocation, in one of which each record takes part; else 1."""
        return round(1 / self.rate) if self.kind == "allocation" else 1


def allocation_rate(rate: float) -> float | None:
    """The rate 1/t of random allocation that a rate in (0, 1] stands for, or None if it is close to none.

    A rate that was printed with a few digits still stands for one whole number t.
    """
    steps = round(1 / rate)
    return 1 / steps if abs(1 / rate - steps) <= WHOLE_PASS_TOLERANCE else None


def Poisson(rate: float) -> Sampling:
    """Poisson sampling: every record takes part in a step independently with probability ``rate``."""
    return Sampling("poisson", rate)


def FixedSize(rate: float) -> Sampling:
    """Sampling without replacement: a step takes a uniformly random set of ``rate`` times the number of records."""
    return Sampling("fixed", rate)


def Allocation(rate: float) -> Sampling:
    """Random allocation: in each pass of t = 1 / ``rate`` steps a record takes part in one, drawn uniformly."""
    return Sampling("allocation", rate)
