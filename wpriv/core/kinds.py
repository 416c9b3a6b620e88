"""Neighbouring relations, kinds of release and kinds of sampling: the words of which a process is made."""

from __future__ import annotations

import reprlib
from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum

from wpriv.core.parameters import MAX_COUNT
from wpriv.errors import UnknownName, UsageError
from wpriv.hints import plain
from wpriv.numerics.numbers import finite_number, number, whole


class Adjacency(StrEnum):
    """A neighbouring relation, named as users type it; a plain string to ``repr``, JSON and comparisons."""

    ADD_REMOVE = "add-remove"
    REPLACE_ONE = "replace-one"
    # one record is replaced by nothing, its place in the data staying
    ZERO_OUT = "zero-out"
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
    Adjacency.ZERO_OUT: (
        "two data sets are neighbours where one record of one contributes nothing in the other; its place stays, so "
        "that the number of records is the same and may be public"
    ),
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
# the kinds of sampling, with what each is
SAMPLINGS = {
    "none": "all records take part in every step",
    "poisson": "each record takes part in a step independently of all others, with probability `rate`",
    "fixed": "a fixed number of records in each step, drawn without replacement",
    "allocation": "each record takes part in one random step of every pass of 1 / `rate` steps",
    "shuffle": "shuffled batches: the records are shuffled and cut into the equal batches of a pass",
}


def sampling_kind(word: object) -> str:
    """The kind of sampling that a word means, synonyms included; ``none`` for None."""
    kind = plain("samplings", word) if isinstance(word, str) else "none" if word is None else ""
    if kind not in SAMPLINGS:
        raise UnknownName("sampling", word if isinstance(word, str) else reprlib.repr(word), list(SAMPLINGS))
    return kind


class Release(StrEnum):
    """The kind of release of a mechanism, by which the table of theorems is looked up; named by each mechanism."""

    GAUSS = "Gaussian noise on a query"
    LAPLACE = "Laplace noise on a query"
    WHOLE = "discrete noise on a whole number"
    BOUNDED = "bounded noise on a number"
    RESPONSE = "a randomised answer"
    SELECTION = "a selection of bounded range"
    SCORES = "a selection by noisy scores"
    KEYS = "noisy counts of unknown keys"
    DP = "a stated (eps, delta)-DP guarantee"
    GDP = "a stated mu-GDP guarantee"
    ZCDP = "a stated rho-zCDP guarantee"
    RENYI = "a stated table of Renyi divergences"
    LOCAL = "a report with noise of its own"
    HISTOGRAM = "two given distributions"
    PROJECTION = "noisy random projections"
    WASSERSTEIN = "a noisy Wasserstein gradient"
    MATRIX = "correlated Gaussian noise on given steps"
    PAIR = "a pair that a plug-in states"


@dataclass(frozen=True)
class Neighbours:
    """Which data sets are neighbours.

    Args:
        adjacency: the neighbouring relation of single records.
        group: number m of records of one person; neighbours differ by up to m records, of one data set or of both.
        records: the largest number of records of a data set (the number, under replace-one); 0 where it does not
            matter.
    """

    adjacency: str = ""
    group: int = 1
    records: int = 0


def default_adjacency(sampling: str) -> Adjacency:
    """The adjacency that a kind of sampling is accounted for under where none is given."""
    natural = {"fixed": Adjacency.REPLACE_ONE, "shuffle": Adjacency.ZERO_OUT}
    return natural.get(sampling, Adjacency.ADD_REMOVE)


# Kinds of sampling: the ways in which the records of a step are drawn.

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
        object.__setattr__(self, "kind", sampling_kind(self.kind))
        object.__setattr__(self, "rate", finite_number(self.rate, "the sampling rate"))
        if not 0 < self.rate <= 1:
            raise UsageError(f"the sampling rate must lie in (0, 1]; found {self.rate}")
        if self.kind == "none" and self.rate != 1:
            ways = "`sampling='poisson'` or `sampling='fixed'`"
            raise UsageError(f"a rate of {self.rate:g} needs {ways}; found sampling 'none'")
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
        rate = whole_pass_rate(self.rate) if self.kind in PASSES else self.rate
        if rate is None:
            raise UsageError(
                f"{PASSES[self.kind]} has passes of a whole number of steps t, and rate 1/t; found rate {self.rate:g}, "
                f"or {1 / self.rate:g} steps a pass. Use `rate={1 / self.pass_steps:.10g}`, or `sampling='poisson'`"
            )
        object.__setattr__(self, "rate", rate)

    @classmethod
    def from_dict(cls, row: Mapping[str, object]) -> Sampling:
        """The sampling that a step's keys ``sampling``, ``rate``, ``max_batch`` and ``parts`` (of bands) describe.

        Numbers may be text as users type it; a key that is None counts as left out.

        Raises:
            UsageError: a sampling without a rate, or as for ``Sampling``.
        """
        kind, rate, cut, parts = (row.get(key) for key in SAMPLING_KEYS)
        kind = sampling_kind(kind)
        if kind != "none" and rate is None:
            raise UsageError(f"`sampling='{kind}'` needs a rate: give `rate`, or `batch` with `records`")
        most = 0 if cut is None else whole(cut, "max_batch")
        if cut is not None and most < 1:
            raise UsageError(f"`max_batch`, the largest number of records of a step, must be at least 1; found {most}")
        share = 1.0 if rate is None else number(rate, "rate")
        return cls(kind, share, most, 1 if parts is None else whole(parts, "parts"))

    @property
    def pass_steps(self) -> int:
        """Number of steps of a pass in which each record takes part in one of them; 1 where there are no passes."""
        return round(1 / self.rate) if self.kind in PASSES else 1

    def caveats(self) -> tuple[str, ...]:
        """Warnings for every guarantee under this sampling."""
        return (WIDE,) if self.kind == "shuffle" and self.pass_steps > 1 else ()


def whole_pass_rate(rate: float) -> float | None:
    """The rate 1/t, t whole, that a rate in (0, 1] stands for, also in few digits; None if it is close to none."""
    if rate * MAX_COUNT < 0.5:
        raise UsageError(f"a pass has at most 2^40 steps; found rate {rate:g}")
    steps = round(1 / rate)
    return 1 / steps if abs(1 / rate - steps) <= WHOLE_PASS_TOLERANCE else None


def Poisson(rate: float, max_batch: int = 0) -> Sampling:
    """Poisson sampling: every record takes part in a step independently with probability ``rate``.

    Args:
        rate: the probability, in (0, 1].
        max_batch: of more records than that a uniformly random part of this size is kept; 0 for no limit.
    Raises:
        UsageError: the rate lies outside (0, 1], or the limit is negative.
    """
    return Sampling("poisson", rate, max_batch)


def FixedSize(rate: float) -> Sampling:
    """Sampling without replacement: a step takes a uniformly random set of a fixed number of records.

    Args:
        rate: the size of the set over the number of records, in (0, 1].
    Raises:
        UsageError: the rate lies outside (0, 1].
    """
    return Sampling("fixed", rate)


def Allocation(rate: float) -> Sampling:
    """Random allocation: in each pass of t = 1 / ``rate`` steps a record takes part in one, drawn uniformly.

    Args:
        rate: one over the number t of steps of a pass.
    Raises:
        UsageError: the rate lies outside (0, 1], or is not one over a whole number of at most 2^40.
    """
    return Sampling("allocation", rate)


def Shuffle(rate: float) -> Sampling:
    """Shuffled batches: the records are shuffled afresh in each pass and cut into t = 1 / ``rate`` equal batches.

    Args:
        rate: one over the number t of batches of a pass.
    Raises:
        UsageError: the rate lies outside (0, 1], or is not one over a whole number of at most 2^40.
    """
    return Sampling("shuffle", rate)
