"""Adjacency and sampling: which inputs are neighbours, and which samplings have a proven dominating pair under each."""

from __future__ import annotations

import reprlib
from dataclasses import dataclass
from enum import StrEnum

from wpriv.errors import UsageError
from wpriv.numerics.parse_numbers import finite_number


class Adjacency(StrEnum):
    """A neighbouring relation, named as users type it; a plain string to ``repr``, JSON and comparisons."""

    ADD_REMOVE = "add-remove"
    REPLACE_ONE = "replace-one"
    # one record is replaced within its own group
    WITHIN_GROUP = "replace-within-group"
    ANY_TWO = "any-two"
    GIVEN_PAIR = "given-pair"

    __repr__ = str.__repr__

    @property
    def meaning(self) -> str:
        """A sentence that says which inputs are neighbours."""
        return _MEANINGS[self]


_MEANINGS = {
    Adjacency.ADD_REMOVE: "two data sets are neighbours where one of them has one record more",
    Adjacency.REPLACE_ONE: "two data sets are neighbours where one record of one is replaced by another",
    Adjacency.WITHIN_GROUP: (
        "two data sets are neighbours where one record of one is replaced by another of the same group; the groups "
        "and their sizes are the same and public"
    ),
    Adjacency.ANY_TWO: (
        "any two inputs are neighbours: one record may be anything at all, and its report looks much the same"
    ),
    Adjacency.GIVEN_PAIR: "the two given distributions are the neighbours, in both orders",
}
# of mechanisms on a data set
STANDARD_ADJACENCIES = (Adjacency.ADD_REMOVE, Adjacency.REPLACE_ONE)
# the adjacencies under which each sampling has a proven dominating pair (Zhu, Dong, Wang 2022; for random allocation
# Feldman, Shenfeld 2025); the first is the default
PROVEN = {
    "poisson": (Adjacency.ADD_REMOVE,),
    "fixed": (Adjacency.REPLACE_ONE, Adjacency.WITHIN_GROUP),
    "allocation": (Adjacency.ADD_REMOVE,),
}
SAMPLINGS = ("none", *PROVEN)


def default_adjacency(sampling: str) -> Adjacency:
    """The adjacency that a kind of sampling is accounted for under where none is given."""
    return PROVEN.get(sampling, STANDARD_ADJACENCIES)[0]


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
        # a rate that was printed with a few digits still names one whole number
        if abs(1 / self.rate - self.pass_steps) > 1e-3:
            raise UsageError(
                f"random allocation has passes of a whole number of steps t, and rate 1/t; found rate {self.rate:g}, "
                f"or {1 / self.rate:g} steps a pass. Use rate {1 / self.pass_steps:.10g}, or `sampling='poisson'`"
            )
        object.__setattr__(self, "rate", 1 / self.pass_steps)

    @property
    def pass_steps(self) -> int:
        """Number of steps of a pass of random allocation, in one of which each record takes part; else 1."""
        return round(1 / self.rate) if self.kind == "allocation" else 1


def Poisson(rate: float) -> Sampling:
    """Poisson sampling: every record takes part in a step independently with probability ``rate``."""
    return Sampling("poisson", rate)


def FixedSize(rate: float) -> Sampling:
    """Sampling without replacement: a step takes a uniformly random set of ``rate`` times the number of records."""
    return Sampling("fixed", rate)


def Allocation(rate: float) -> Sampling:
    """Random allocation: in each pass of t = 1 / ``rate`` steps a record takes part in one, drawn uniformly."""
    return Sampling("allocation", rate)
