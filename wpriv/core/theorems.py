"""The theorems behind the pairs: their premises, and which combinations they cover.

The sentences of premises are fixed. Certificates carry them, and ``wpriv/verify/certificate.py`` has its own list of
those that a proof needs; a test compares the two.
"""

from __future__ import annotations

from dataclasses import dataclass

from wpriv.core.kinds import STANDARD_ADJACENCIES, Adjacency, Release


@dataclass(frozen=True)
class Premise:
    """One premise in words, as answers, certificates and the documentation print it.

    ``shown``: every answer says it; the others are said by ``--explain`` and by the parameter's meaning.
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
FIXED_BINS = Premise(
    "each record draws one of the bins, uniformly and by itself, before the training, keeps it in every epoch, and "
    "takes part in the steps of this bin alone",
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


# Which release may be combined with which sampling, neighbours and option: one table, and the theorem of each row.
#
# What has no row is refused. ``docs/theory/combinations.md`` prints the table, and has or names the proofs.

ADD, REPLACE, ZERO = Adjacency.ADD_REMOVE, Adjacency.REPLACE_ONE, Adjacency.ZERO_OUT
WITHIN, ANY, GIVEN_PAIR = Adjacency.WITHIN_GROUP, Adjacency.ANY_TWO, Adjacency.GIVEN_PAIR
# what a step or its neighbours may have beside a kind of sampling, as users name it
GROUP, LARGEST_BATCH, BANDS = "group", "max_batch", "bands"
OPTIONS = {GROUP: "groups of records", LARGEST_BATCH: "a largest batch", BANDS: "bands"}

R = Release
NOISE = (R.GAUSS, R.LAPLACE, R.WHOLE, R.BOUNDED)
# releases of which only a guarantee is known
STATED = (R.DP, R.GDP, R.ZCDP, R.RENYI)
# releases whose pair is the same in both orders of the neighbours
SELECTIONS = (R.SELECTION, R.SCORES)
SYMMETRIC = (*NOISE, R.RESPONSE, R.DP, R.GDP, *SELECTIONS, R.PAIR)


@dataclass(frozen=True)
class Combination:
    """One row: releases, sampling, neighbours and option that a theorem covers, and what it assumes.

    Args:
        releases: the kinds of release. sampling: the kind of sampling. adjacencies: the neighbouring relations.
        theorem: its name. page: a page of ``docs/theory``, with the place of the proof.
        premises: what must be true of the program beside the parameters.
        option: a key of ``OPTIONS``, or "" for none of them.
    """

    releases: tuple[Release, ...]
    sampling: str
    adjacencies: tuple[Adjacency, ...]
    theorem: str
    page: str
    premises: tuple[Premise, ...] = ()
    option: str = ""

    def covers(self, release: Release, sampling: str, adjacency: str, option: str) -> bool:
        """Tell whether this is the row of a combination."""
        row = release in self.releases and adjacency in self.adjacencies
        return row and (sampling, option) == (self.sampling, self.option)

    def premises_of(self, release: Release) -> tuple[Premise, ...]:
        """The premises for one kind of release: those about the release, and those of the theorem."""
        return OF_RELEASE.get(release, ()) + self.premises


_ONE = "combinations.md#one-number"
_KEYS = "combinations.md#selections-and-unknown-keys"
_NULL = "combinations.md#zero-out"
_POISSON, _FIXED = "subsampling.md#theorem-1", "subsampling.md#theorem-2"
_GROUP = "groups.md#without-sampling"
_DEFINITION = "combinations.md#stated-guarantees"

# what is assumed of a kind of release, however it is sampled
OF_RELEASE: dict[Release, tuple[Premise, ...]] = {
    R.GAUSS: (L2,),
    R.LAPLACE: (L1,),
    R.WHOLE: (ONE_NUMBER,),
    R.BOUNDED: (ONE_NUMBER,),
    **dict.fromkeys(SELECTIONS, (SCORES,)),
    R.KEYS: (CONTINUOUS,),
    R.LOCAL: (NO_BATCH,),
    R.HISTOGRAM: (SAME_COLUMN,),
    R.PROJECTION: (L2,),
    R.MATRIX: (PATTERNS,),
    R.PAIR: (STATED_PAIR,),
    **dict.fromkeys(STATED, (GIVEN,)),
}
_ROTATION = "subsampling.md#two-facts-about-hockey-stick-divergences"
_ON_COORDINATES = "local-noise.md#theorem-2-laplace-noise-on-many-coordinates"
_IN_ORDER = "subsampling.md#rows-in-random-order"
_QUERY = (ADD, REPLACE, ZERO)
_FEW = (R.GAUSS, R.LAPLACE, R.GDP)
_FINITE = (R.GAUSS, R.LAPLACE, R.WHOLE, R.RESPONSE)

TABLE = (
    # without sampling
    Combination((R.GAUSS,), "none", _QUERY, "rotation", _ROTATION),
    Combination((R.LAPLACE,), "none", _QUERY, "Theorem 2", _ON_COORDINATES),
    Combination((R.WHOLE, R.BOUNDED), "none", _QUERY, "Theorem 1", _ONE),
    Combination((R.RESPONSE,), "none", _QUERY, "definition", _DEFINITION),
    Combination(STATED, "none", (*_QUERY, WITHIN, ANY), "definition", _DEFINITION),
    Combination((R.SELECTION,), "none", _QUERY, "Theorem 1", "bounded-range.md"),
    Combination((R.SCORES,), "none", _QUERY, "Theorems 1 to 5", "selection.md"),
    Combination((R.KEYS,), "none", (ADD, ZERO), "Theorems 1 and 2", "thresholds.md"),
    Combination((R.LOCAL,), "none", (ANY,), "Theorems 1 and 2", "local-noise.md"),
    Combination((R.HISTOGRAM,), "none", (GIVEN_PAIR,), "definition", _DEFINITION),
    Combination((R.PROJECTION,), "none", (REPLACE,), "Theorem 1", "random-projections.md"),
    Combination((R.WASSERSTEIN,), "none", (WITHIN,), "Theorems 1 and 2", "wasserstein-gradients.md", (KNOWN_SIZES,)),
    Combination((R.MATRIX,), "none", (ADD, ZERO), "Theorem 2", "bands.md#theorem-2"),
    Combination((R.MATRIX,), "none", (REPLACE,), "Theorem 5", "bands.md#theorem-5", (BOTH_PATTERNS,)),
    Combination((R.PAIR,), "none", tuple(Adjacency), "of the plug-in", _DEFINITION),
    # without sampling, groups of records
    Combination((*NOISE, *SELECTIONS, R.GDP, R.ZCDP), "none", STANDARD_ADJACENCIES, "sums", _GROUP, (), GROUP),
    Combination((R.DP,), "none", STANDARD_ADJACENCIES, "Theorem 7", "groups.md#theorem-7", (), GROUP),
    Combination((R.MATRIX,), "none", (ADD,), "Theorem 2", "bands.md#theorem-2", (), GROUP),
    Combination((R.MATRIX,), "none", (REPLACE,), "Theorem 5", "bands.md#theorem-5", (BOTH_PATTERNS,), GROUP),
    # Poisson sampling
    Combination((*NOISE, R.RESPONSE, R.DP, R.GDP, R.PAIR), "poisson", (ADD,), "Theorem 1", _POISSON, (SECRET_SIZES,)),
    Combination((*SELECTIONS, R.KEYS), "poisson", (ADD,), "Theorem 2", _KEYS, (SECRET_SIZES,)),
    Combination((*NOISE, R.RESPONSE, R.KEYS), "poisson", (ZERO,), "Theorem 3", _NULL, (ONLY_RECORDS_PUBLIC,)),
    Combination((R.GAUSS,), "poisson", (REPLACE,), "Theorem 5", "groups.md#theorem-5", (HALF, SECRET_SIZES)),
    Combination(_FEW, "poisson", (ADD,), "Theorem 2", "groups.md#theorem-2", (SECRET_SIZES,), GROUP),
    Combination(_FEW, "poisson", (ADD,), "Theorem 4", "groups.md#theorem-4", (CUT, SECRET_SIZES), LARGEST_BATCH),
    Combination((R.GAUSS,), "poisson", (ADD,), "Theorem 1", "bands.md#theorem-1", (PARTS, SECRET_SIZES), BANDS),
    # batches of a fixed size
    Combination(SYMMETRIC, "fixed", (REPLACE,), "Theorem 2", _FIXED, (KNOWN_SIZES,)),
    Combination((R.PROJECTION,), "fixed", (REPLACE,), "Theorem 2", _IN_ORDER, (RANDOM_ROWS, KNOWN_SIZES)),
    Combination((R.WASSERSTEIN,), "fixed", (WITHIN,), "Theorem 2", _FIXED, (STRATA, KNOWN_SIZES)),
    Combination((R.GAUSS, R.GDP), "fixed", (REPLACE,), "Theorem 3", "groups.md#theorem-3", (KNOWN_SIZES,), GROUP),
    # passes
    Combination(
        (*_FINITE, R.DP, R.GDP, R.PAIR), "allocation", (ADD,), "Theorem 2", "allocation.md#theorem-2", (SECRET_SIZES,)
    ),
    Combination(_FINITE, "allocation", (ZERO,), "Theorem 3", _NULL, (ONLY_RECORDS_PUBLIC,)),
    Combination(
        (R.MATRIX,), "allocation", (ADD,), "Theorem 2", "balls-in-bins.md#theorem-2", (FIXED_BINS, SECRET_SIZES)
    ),
    Combination((R.GAUSS, R.LAPLACE), "shuffle", (ZERO,), "Theorems 1 and 3", "shuffling.md", (PUBLIC_SIZES,)),
)


def find(release: Release, sampling: str, adjacency: str, option: str = "") -> Combination | None:
    """The row of a combination; None where there is none, so that it has no proven pair."""
    return next((row for row in TABLE if row.covers(release, sampling, adjacency, option)), None)


def adjacencies(sampling: str, release: Release | None = None, option: str = "") -> tuple[Adjacency, ...]:
    """The neighbouring relations with a row, of one kind of release or of any."""
    rows = [row for row in TABLE if (row.sampling, row.option) == (sampling, option)]
    kept = [row.adjacencies for row in rows if release is None or release in row.releases]
    return tuple(dict.fromkeys(each for adjacencies in kept for each in adjacencies))


def samplings(release: Release, adjacency: str, option: str = "") -> tuple[str, ...]:
    """The kinds of sampling with a row."""
    rows = [row for row in TABLE if row.option == option and release in row.releases and adjacency in row.adjacencies]
    return tuple(dict.fromkeys(row.sampling for row in rows))
