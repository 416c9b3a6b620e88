"""The schema of recipes of kind release: a table of people, and the noisy numbers that are released of it."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Annotated, Literal

from pydantic import BeforeValidator, Field

from wpriv.config.document import Key
from wpriv.config.field_types import Count, Delta, Positive, Probability, StrictModel, Time, Word, key, optional

Type = Literal["text", "integer", "number", "date"]
Form = Literal["nfc", "strip", "casefold"]
# a bound, an edge or a key; numbers are read from the decimal that is written
Bound = Annotated[int | float | str, Field(union_mode="left_to_right")]
Label = Annotated[str | int | bool, Field(union_mode="left_to_right")]


def _listed(value: object) -> object:
    return [value] if isinstance(value, (str, int, float)) else value


Words = Annotated[list[Word], BeforeValidator(_listed, json_schema_input_type=Word | list[Word]), Field(min_length=1)]
Shares = Annotated[
    list[Bound], BeforeValidator(_listed, json_schema_input_type=Bound | list[Bound]), Field(min_length=1)
]


class ReleaseData(StrictModel):
    """Where the rows are."""

    file: Words | None = optional(
        "a file with a header, or a list of files that are one table; left out, --data names it"
    )
    name: Word | None = optional("instead: a table that was given in Python, which no recipe can read again")
    url: Word | None = optional("instead: a database, as sqlite:///clinic.db or postgresql://user@host/clinic")
    table: Word | None = optional("with url: the table")
    where: Word | None = optional("with table: a condition on its rows, such as year = 2026")
    query: Word | None = optional("with url, instead of table: a SELECT of which each row is of one person alone")
    public: Words | None = optional("with query: tables that hold nobody, and may be joined on anything")
    types: dict[Word, Type] = Field(
        default_factory=dict, description="what columns hold: text, integer, number or date; else as the table says"
    )
    null: Words | None = optional("text that stands for a missing cell, such as NA, beside the empty one")

    def rules(self) -> Iterator[tuple[Key, str]]:
        sources = [name for name in ("file", "name", "url") if getattr(self, name) is not None]
        if len(sources) > 1:
            yield (), f"data is one of file, name and url; found {' and '.join(sources)}"
        for name in ("table", "where", "query", "public"):
            if getattr(self, name) is not None and self.url is None:
                yield (name,), f"{name} is about a database; give its url"


class ReleaseLimits(StrictModel):
    """How much one person can do."""

    max_groups: Count | None = optional("keys that one person may count in; needed with by, and for histograms")
    max_rows: Count | None = optional("rows of one person that count in a key; needed for all but counts of persons")


class ReleaseKeys(StrictModel):
    """The keys, each of which gets a number."""

    column: Word = key("the column that holds them")
    keys: Annotated[list[Label], Field(min_length=1)] | Literal["unknown"] = key(
        "the keys to report, which are public; or unknown, for those with more persons than a threshold"
    )
    other: Word | None = optional("a key for the rows of all undeclared keys")
    normalise: Annotated[list[Form], BeforeValidator(_listed, json_schema_input_type=Form | list[Form])] | None = (
        optional("what makes keys equal: nfc, strip, casefold")
    )


# the keys beside each kind of output: those that it needs, and further ones
_VALUES = {"bounds"}, {"grid"}
_BESIDE: dict[str, tuple[set[str], set[str]]] = {
    "count": (set(), set()),
    "sum": _VALUES,
    "mean": _VALUES,
    "quantile": (_VALUES[0], {"grid", "at"}),
    "histogram": ({"edges"}, {"of", "outside"}),
}
_OF_ALL = {"weight", "se", "overall"}


class ReleaseOutput(StrictModel):
    """A count, sum, mean, quantile or histogram, by one key of that name."""

    count: Literal["persons", "rows"] | None = optional("how many persons or rows there are")
    sum: Word | None = optional("a column whose values are added; needs bounds")
    mean: Word | None = optional("a column whose mean is taken; needs bounds")
    quantile: Word | None = optional("a column of which quantiles are chosen; needs bounds")
    histogram: Word | None = optional("a column whose values are counted by bins; needs edges")
    bounds: Annotated[list[Bound], Field(min_length=2, max_length=2)] | None = optional(
        "the ends [lo, hi] to which values are clipped, chosen without looking at the data"
    )
    grid: Bound | None = optional("spacing on which values are rounded, such as .01 or 2^-10")
    at: Shares | None = optional("of quantile: shares between 0 and 1, such as [.5, .9] (default .5)")
    edges: Annotated[list[Bound], Field(min_length=2)] | None = optional("of histogram: rising edges of its bins")
    of: Literal["persons", "rows"] | None = optional("of histogram: what is counted (default rows)")
    outside: Literal["drop", "clip", "bins"] | None = optional(
        "of histogram: values beyond the edges are dropped (default), put into the nearest bin, or have bins"
    )
    weight: Positive | None = optional("its share of the whole budget, relative to the others (default 1)")
    se: Positive | None = optional("instead of eps: the standard error of its noise")
    overall: bool | None = optional("with by: one number of all rows, whatever their key")

    def rules(self) -> Iterator[tuple[Key, str]]:
        given = {name for name, value in self if value is not None}
        kinds = sorted(given & _BESIDE.keys())
        if len(kinds) != 1:
            known = ", ".join(_BESIDE)
            yield (), f"an output has one of the keys {known}; found {' and '.join(kinds) or 'none'}"
            return
        needed, further = _BESIDE[kinds[0]]
        for name in sorted(needed - given):
            yield (), f"{kinds[0]} needs {name}"
        for name in sorted(given - needed - further - _OF_ALL - set(kinds)):
            yield (name,), f"{name} means nothing for a {kinds[0]}; remove it"


class Release(StrictModel):
    """kind: release. Noisy counts, sums, means, quantiles and histograms of a table, private for each person."""

    kind: Literal["release"]
    source: Word | None = optional("where the job comes from; not used")
    time: Time | None = optional("how long the recipe takes")
    data: ReleaseData | None = optional("the table")
    person: Word = key("the column that names the person of a row; row: each row is a person")
    limits: ReleaseLimits = Field(default_factory=ReleaseLimits, description="how much one person can do")
    by: ReleaseKeys | None = optional("a number for each key of a column")
    outputs: Annotated[list[ReleaseOutput], Field(min_length=1)] = key("what is released")
    eps: Positive | None = optional("eps of the whole release")
    delta: Delta = key("delta of the whole release; 0 for Laplace noise (pure DP)")
    se: Positive | None = optional("instead of eps: the standard error of every output")
    noise: Literal["gauss", "laplace"] | None = optional("gauss (default) or laplace")
    key_delta: Probability | None = optional("share of delta for unknown keys (default .1)")
    records: Count | None = optional("how many persons there are about, as is publicly known; for warnings about delta")
    distinct: bool = key("drop equal rows of a person", False)
    nonnegative: bool = key("show counts below 0 as 0", False)
    seed: Annotated[int, Field(ge=0, lt=2**63)] | None = optional("repeatable noise, for tests: NOT PRIVATE")

    def rules(self) -> Iterator[tuple[Key, str]]:
        errors = [output for output in self.outputs if output.se is not None]
        if self.eps is not None and (self.se is not None or errors):
            yield (), "give either eps or se: one of them is asked for, and the other follows"
        elif self.eps is None and self.se is None and len(errors) < len(self.outputs):
            yield (), "the key 'eps' is missing; or give se, the standard error of every output"
        for place, output in enumerate(self.outputs):
            if output.overall and self.by is None:
                yield ("outputs", place, "overall"), "overall is for all keys together; it needs by"
        if self.person != "row":
            yield from self._missing_limits()

    def _missing_limits(self) -> Iterator[tuple[Key, str]]:
        """The limits that an output needs, with what a choice means."""
        by_key = self.by is not None and any(not output.overall for output in self.outputs)
        if self.limits.max_groups is None and (by_key or any(output.histogram for output in self.outputs)):
            message = (
                "max_groups is missing: the number of keys that one person may count in, beyond which rows are left "
                "out. Noise grows with its square root; choose it without looking at the data"
            )
            yield ("limits",), message
        of_persons = (output.count == "persons" or output.of == "persons" for output in self.outputs)
        if self.limits.max_rows is None and not all(of_persons):
            message = (
                "max_rows is missing: the number of rows of one person that count in a key, beyond which they are left "
                "out. Noise grows in proportion to it; choose it without looking at the data"
            )
            yield ("limits",), message
