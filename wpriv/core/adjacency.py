"""Adjacency and sampling: which inputs are neighbours, and which samplings have a proven dominating pair under each."""

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
        "that the number of records and the size of every batch are the same and public"
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
# the adjacencies under which each sampling has a proven dominating pair (Zhu, Dong, Wang 2022; for random allocation
# Feldman, Shenfeld 2025; for shuffled batches that of no sampling; Poisson sampling under replace-one for Gaussian
# noise only, docs/theory/groups.md); the first is the default
PROVEN = {
    "poisson": (Adjacency.ADD_REMOVE, Adjacency.ZERO_OUT, Adjacency.REPLACE_ONE),
    "fixed": (Adjacency.REPLACE_ONE, Adjacency.WITHIN_GROUP),
    "allocation": (Adjacency.ADD_REMOVE, Adjacency.ZERO_OUT),
    "shuffle": (Adjacency.ZERO_OUT,),
}
SAMPLINGS = ("none", *PROVEN)


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


def with_zero_out(adjacencies: tuple[Adjacency, ...]) -> tuple[Adjacency, ...]:
    """The adjacencies under which a mechanism is defined, with zero-out where add-remove is among them.

    A record that contributes nothing is one that does not exist, where the release depends on contributions only.
    """
    return (*adjacencies, Adjacency.ZERO_OUT) if Adjacency.ADD_REMOVE in adjacencies else adjacencies


def default_adjacency(sampling: str) -> Adjacency:
    """The adjacency that a kind of sampling is accounted for under where none is given."""
    return PROVEN.get(sampling, STANDARD_ADJACENCIES)[0]
