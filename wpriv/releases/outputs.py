"""What a release can hold: counts, sums, means, histograms and quantiles, as users declare them.

An output has cells, one for each key and bin, and for each cell one or two integers with noise (``Part``): a mean is a
count and a sum of differences from a fixed middle. docs/guides/release.md says what each costs.
"""

from __future__ import annotations

import datetime
import itertools
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from decimal import Decimal
from fractions import Fraction
from functools import cached_property
from typing import ClassVar

from wpriv.errors import UnknownName, UsageError
from wpriv.files.columns import EPOCH
from wpriv.numerics.numbers import positive_number, shown
from wpriv.releases.bounding import Grid, bound, exact_decimal

PERSONS, ROWS = "persons", "rows"
DEFAULT_STEPS = 2**20
LEAST_WHOLE = 10  # whole bounds of a column of no declared type, from which on it is taken to have whole numbers
OUTSIDE = ("drop", "clip", "bins")


def bound_text(value: Fraction, dates: bool = False) -> str:
    """A bound, an edge or a grid as a recipe has it: an exact decimal, or a date.

    >>> bound_text(Fraction(1, 8)), bound_text(Fraction(20454), dates=True)
    ('0.125', '2026-01-01')
    """
    return datetime.date.fromordinal(int(value) + EPOCH).isoformat() if dates else f"{exact_decimal(value):f}"


@dataclass(frozen=True)
class Part:
    """One noisy integer of every cell of an output.

    Args:
        output: the place of the output. role: count, persons, sum or quantile. sensitivity: the largest change of a
            cell by one person, in grid steps. copies: cells that one person changes. weight: its share.
        at: of quantiles. error: the standard error asked for, in grid steps; None where its noise follows from eps.
    """

    output: int
    role: str
    sensitivity: int
    copies: int
    weight: float
    at: tuple[Fraction, ...] = ()
    error: float | None = None


@dataclass(frozen=True)
class Limits:
    """At most ``groups`` keys of a person, and ``rows`` rows of it in each; None where they were not given."""

    groups: int | None = None
    rows: int | None = None

    def __post_init__(self) -> None:
        for name, value in (("max_groups", self.groups), ("max_rows", self.rows)):
            if value is not None and not 1 <= positive_number(value, f"`{name}`", whole=True) <= 2**31:
                raise UsageError(f"`{name}` must be a whole number from 1 to 2^31; found {shown(value)}")

    def require_groups(self, what: str) -> int:
        if self.groups is None:
            raise UsageError(
                f"{what} needs `max_groups`, the number of keys that one person may count in: rows of a person in "
                f"further keys are left out. Noise grows with its square root; choose it without looking at the data"
            )
        return self.groups

    def require_rows(self, what: str) -> int:
        if self.rows is None:
            raise UsageError(
                f"{what} needs `max_rows`, the number of rows of one person that count in a key: further ones are left "
                f"out. Noise grows in proportion to it; choose it without looking at the data"
            )
        return self.rows


@dataclass(frozen=True, kw_only=True)
class Output:
    """What all outputs have.

    Args:
        weight: its share of the budget, relative to the others. overall: whether ``by`` is ignored.
        se: instead of eps: the standard error of its noise, in the unit of its values.
    """

    weight: float = 1.0
    overall: bool = False
    se: float | None = None
    kind: ClassVar[str] = ""

    def __post_init__(self) -> None:
        object.__setattr__(self, "weight", float(positive_number(self.weight, "`weight`")))
        if self.se is not None:
            object.__setattr__(self, "se", float(positive_number(self.se, "`se`")))

    @property
    def type(self) -> str | None:
        """What its column is declared to hold: integer, number or date; None where that is the table's to say."""
        return None

    @property
    def columns(self) -> tuple[str, ...]:
        """The columns that it reads, beside person and key."""
        return ()

    @property
    def name(self) -> str:
        return self.kind

    @property
    def grid(self) -> Grid | None:
        """Bounds and spacing of its column, if it has bounds."""
        return None

    def bins(self) -> list[str]:
        """The names of the cells of one key."""
        return [""]

    def groups(self, limits: Limits, by: bool) -> int:
        """The number of cells that one person may change."""
        return limits.require_groups(f"{self.name} by key") if by else 1

    def parts(self, place: int, limits: Limits, by: bool) -> list[Part]:
        """The noisy integers of a cell."""
        raise NotImplementedError

    def planned(self, place: int, limits: Limits, by: bool) -> list[Part]:
        """The noisy integers of a cell, with the standard error that is asked for."""
        parts = self.parts(place, limits, by)
        if self.se is None:
            return parts
        if self.kind in ("mean", "quantile"):
            raise UsageError(f"`se` is of counts, sums and histograms: the error of a {self.kind} depends on the data")
        step = Fraction(1) if self.grid is None else self.grid.step
        return [replace(part, error=float(Fraction(repr(self.se)) / step)) for part in parts]

    def describe(self) -> dict[str, object]:
        """Return it as the list ``outputs`` of a recipe has it; equal outputs have the same one."""
        about: dict[str, object] = {"weight": self.weight} if self.weight != 1 else {}
        about |= {"se": self.se} if self.se is not None else {}
        return self.words() | about | ({"overall": True} if self.overall else {})

    def words(self) -> dict[str, object]:
        """The keys of its kind."""
        raise NotImplementedError


@dataclass(frozen=True)
class Count(Output):
    """The number of persons (default) or of rows.

    Args:
        of: ``persons``, or ``rows``, which needs the limit ``max_rows``.
    """

    of: str = PERSONS
    kind: ClassVar[str] = "count"

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.of not in (PERSONS, ROWS):
            raise UnknownName("count", str(self.of), (PERSONS, ROWS))

    @property
    def name(self) -> str:
        return self.of

    def parts(self, place: int, limits: Limits, by: bool) -> list[Part]:
        most = 1 if self.of == PERSONS else limits.require_rows("a count of rows")
        return [Part(place, self.of, most, self.groups(limits, by), self.weight)]

    def words(self) -> dict[str, object]:
        return {"count": self.of}


@dataclass(frozen=True)
class _OfColumn(Output):
    """An output of the values of a column."""

    column: str = ""

    def __post_init__(self) -> None:
        super().__post_init__()
        if not isinstance(self.column, str) or not self.column:
            raise UsageError(f"{self.kind} needs the name of a column; found {shown(self.column)}")

    @property
    def columns(self) -> tuple[str, ...]:
        return (self.column,)

    @property
    def name(self) -> str:
        return f"{self.kind} {self.column}"


@dataclass(frozen=True)
class Column(_OfColumn):
    """An output of the values of a column between bounds.

    Args:
        column: its name. lo, hi: bounds to which values are clipped, chosen without looking at the data; exact
            decimals as text or Decimal, or dates. step: spacing of the grid on which values are rounded; by default 1
            where ``whole`` says so, else the least power of two of at least the larger bound over 2^20.
        dates: whether the column has dates. whole: whether it has whole numbers; by default where
            both bounds are, and the larger one is at least 10.
    """

    lo: object = None
    hi: object = None
    step: object = None
    dates: bool = False
    whole: bool | None = None
    bounds: Grid = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.lo is None or self.hi is None:
            raise UsageError(
                f"{self.kind} of {self.column} needs bounds, to which values are clipped: `bounds` {self.column}=LO:HI."
                f" Choose them without looking at the data; noise grows with the larger one"
            )
        lo, hi = (bound(end, f"a bound of {self.column}", dates=self.dates) for end in (self.lo, self.hi))
        object.__setattr__(self, "bounds", Grid(lo, hi, self._step(lo, hi), self.dates))

    def _step(self, lo: Fraction, hi: Fraction) -> Fraction:
        if self.step is not None:
            return bound(self.step, f"the grid of {self.column}")
        most = max(abs(lo), abs(hi))
        likely = lo.denominator == hi.denominator == 1 and most >= LEAST_WHOLE
        is_whole = likely if self.whole is None else self.whole
        if is_whole or self.dates or most == 0:
            return Fraction(1)
        least = most / DEFAULT_STEPS
        power = least.numerator.bit_length() - least.denominator.bit_length() - 1
        while Fraction(2) ** power < least:
            power += 1
        return Fraction(2) ** power

    @property
    def grid(self) -> Grid | None:
        return self.bounds

    def _rows(self, limits: Limits) -> int:
        return limits.require_rows(f"{self.kind} of {self.column}")

    @property
    def type(self) -> str | None:
        return "date" if self.dates else None if self.whole is None else "integer" if self.whole else "number"

    def words(self) -> dict[str, object]:
        ends = [bound_text(end, self.dates) for end in (self.bounds.lo, self.bounds.hi)]
        grid = {} if self.step is None else {"grid": bound_text(self.bounds.step)}
        return {self.kind: self.column, "bounds": ends, **grid}


@dataclass(frozen=True)
class Sum(Column):
    """The sum of a column; see ``Column``."""

    kind: ClassVar[str] = "sum"

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.dates:
            raise UsageError(f"{self.column} has dates, which have no sum; ask for its mean or its quantiles")

    def parts(self, place: int, limits: Limits, by: bool) -> list[Part]:
        most = max(abs(self.bounds.least), abs(self.bounds.most))
        if most == 0:
            raise UsageError(f"sum of {self.column}: the only number within the bounds is 0; give wider `bounds`")
        return [Part(place, "sum", self._rows(limits) * most, self.groups(limits, by), self.weight)]


@dataclass(frozen=True)
class Mean(Column):
    """The mean of a column: the noisy sum of differences from the middle of the bounds, over the noisy count."""

    kind: ClassVar[str] = "mean"

    @property
    def middle(self) -> int:
        """The grid point nearest to the middle of the bounds, in steps."""
        nearest = round((self.bounds.lo + self.bounds.hi) / 2 / self.bounds.step)
        return min(max(nearest, self.bounds.least), self.bounds.most)

    def parts(self, place: int, limits: Limits, by: bool) -> list[Part]:
        rows, groups = self._rows(limits), self.groups(limits, by)
        most = max(self.bounds.most - self.middle, self.middle - self.bounds.least)
        if most == 0:
            raise UsageError(f"mean of {self.column}: there is one number within the bounds; give wider `bounds`")
        count = Part(place, ROWS, rows, groups, self.weight)
        return [count, Part(place, "sum", rows * most, groups, self.weight)]


@dataclass(frozen=True)
class Quantile(Column):
    """Quantiles of a column: of the grid points within the bounds, those of least noisy distance in ranks.

    Args:
        at: the shares, in (0, 1), such as ["0.5", "0.9"].
    """

    at: Sequence[object] = (0.5,)
    kind: ClassVar[str] = "quantile"

    def __post_init__(self) -> None:
        super().__post_init__()
        shares = self.shares()
        if not shares or len(set(shares)) < len(shares) or not all(0 < share < 1 for share in shares):
            raise UsageError(f"quantiles are different shares between 0 and 1, as in .5,.9; found {shown(self.at)}")

    def bins(self) -> list[str]:
        return [str(float(share)) for share in self.shares()]

    def shares(self) -> list[Fraction]:
        """The shares, exact and in order."""
        return [bound(share, "a quantile") for share in self.at]

    def parts(self, place: int, limits: Limits, by: bool) -> list[Part]:
        shares, rows = tuple(self.shares()), self._rows(limits)
        return [Part(place, "quantile", rows, self.groups(limits, by), self.weight, shares)]

    def words(self) -> dict[str, object]:
        return {**super().words(), "at": self.bins()}


@dataclass(frozen=True)
class BinCounts(_OfColumn):
    """Rows (or persons) in bins of a column, [e0, e1), [e1, e2), ..., of which the last holds its upper edge.

    Args:
        column: its name. edges: two or more rising numbers. of: ``rows`` (default) or ``persons``.
        outside: values beyond the edges are left out (``drop``, default), put into the nearest bin (``clip``), or have
            bins of their own (``bins``).
    """

    edges: Sequence[object] = ()
    of: str = ROWS
    outside: str = "drop"
    dates: bool = False
    kind: ClassVar[str] = "histogram"
    limits: tuple[Fraction, ...] = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        super().__post_init__()
        limits = tuple(bound(edge, f"an edge of {self.column}", dates=self.dates) for edge in self.edges)
        if len(limits) < 2 or any(low >= high for low, high in itertools.pairwise(limits)):
            raise UsageError(
                f"a histogram needs two or more rising edges, as in days=0,7,30; found {shown(self.edges)}"
            )
        if self.of not in (PERSONS, ROWS):
            raise UnknownName("count", str(self.of), (PERSONS, ROWS))
        if self.outside not in OUTSIDE:
            raise UnknownName("`outside`", str(self.outside), OUTSIDE)
        object.__setattr__(self, "limits", limits)

    @cached_property
    def ends(self) -> list[Decimal]:
        """The edges, to compare values with."""
        return [exact_decimal(edge) for edge in self.limits]

    def bins(self) -> list[str]:
        edges = [bound_text(edge, self.dates) for edge in self.limits]
        inner = [f"[{low},{high})" for low, high in itertools.pairwise(edges)]
        inner[-1] = inner[-1][:-1] + "]"
        return [f"below {edges[0]}", *inner, f"above {edges[-1]}"] if self.outside == "bins" else inner

    def groups(self, limits: Limits, by: bool) -> int:
        return limits.require_groups("a histogram, whose bins are keys,")

    def parts(self, place: int, limits: Limits, by: bool) -> list[Part]:
        most = 1 if self.of == PERSONS else limits.require_rows("a histogram of rows")
        return [Part(place, self.of, most, self.groups(limits, by), self.weight)]

    @property
    def type(self) -> str | None:
        return "date" if self.dates else None

    def words(self) -> dict[str, object]:
        edges = [bound_text(edge, self.dates) for edge in self.limits]
        return {"histogram": self.column, "edges": edges, "of": self.of, "outside": self.outside}
