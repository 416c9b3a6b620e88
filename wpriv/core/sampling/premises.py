"""The premises of the theorems behind a pair: what must be true of a program beside its parameters.

The sentences are fixed. Certificates carry them, and ``wpriv/verify/certificate.py`` has its own list of those that a
proof needs; a test compares the two.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Premise:
    """One premise.

    Args:
        sentence: the premise in words, as answers, certificates and the documentation print it.
        shown: whether every answer says it; the others are said by ``--explain`` and by the parameter's meaning.
    """

    sentence: str
    shown: bool = False


L2 = Premise("the query moves by at most the sensitivity between neighbours, in the l2 norm")
L1 = Premise("the query moves by at most the sensitivity between neighbours, in the l1 norm")
ONE_NUMBER = Premise(
    "a single number is released, which moves by at most the sensitivity between neighbours; discrete and uniform "
    "noise are for whole numbers"
)
GIVEN = Premise("the stated guarantee holds between the named neighbours, in both orders, on every set of records")
STATED_PAIR = Premise("the pair of the plug-in dominates between the named neighbours")
SCORES = Premise("a score moves by at most its sensitivity between the named neighbours")
CONTINUOUS = Premise("the noise on the counts is continuous, and a key occurs only through the records that hold it")
NO_BATCH = Premise("each person adds the noise to their own data")
SAME_COLUMN = Premise("column p of every file belongs to the same data set", shown=True)
KNOWN_SIZES = Premise("the size of the batches and the number of records are fixed and may be public")
PATTERNS = Premise("the steps in which a record takes part depend neither on the other records nor on the outputs")
BOTH_PATTERNS = Premise(
    "a replaced record takes its contributions away, and the other one adds its own in steps of its own: the release "
    "moves by up to twice sens(C) x sensitivity",
    shown=True,
)
SECRET_SIZES = Premise("the sizes of the drawn batches stay secret")
ONLY_RECORDS_PUBLIC = Premise(
    "the sizes of the drawn batches stay secret; the number of records alone may be public", shown=True
)
HALF = Premise(
    "poisson sampling under replace-one: adding or removing a record moves the query by at most half the sensitivity, "
    "as in a sum of vectors clipped to half of it",
    shown=True,
)
CUT = Premise(
    "of a batch of more records than the largest a uniformly random part is kept, and no data set has more records "
    "than stated"
)
PARTS = Premise(
    "the strategy matrix is lower triangular with so many bands and columns of l2 norm at most 1, each record belongs "
    "for good to one of as many parts whatever the other records, and only the part whose turn it is is drawn from"
)
STRATA = Premise(
    "every step draws a fixed number of records from each group by itself; the rate is the largest share of a group",
    shown=True,
)
RANDOM_ROWS = Premise("the rows of a batch are released in a random order that nobody learns", shown=True)
PUBLIC_SIZES = Premise("the order of the records and the sizes of the batches do not depend on what the records hold")
