"""Neighbouring relations, kinds of release and kinds of sampling: the words of which a process is made."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum


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
SAMPLINGS = ("none", "poisson", "fixed", "allocation", "shuffle")


class Release(StrEnum):
    """The kind of release of a mechanism, by which the table of theorems is looked up; named by each mechanism."""

    GAUSS = "Gaussian noise on a query"
    LAPLACE = "Laplace noise on a query"
    WHOLE = "discrete noise on a whole number"
    BOUNDED = "bounded noise on a number"
    RESPONSE = "a randomised answer"
    SELECTION = "a selection of bounded range"
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
