"""The plan of a release, from its declaration and public parameters alone: no row is read for it."""

from __future__ import annotations

import datetime
import uuid
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property

from wpriv.core.guarantee import Guarantee
from wpriv.core.process import Process
from wpriv.errors import UnknownName, UsageError
from wpriv.files.columns import BOOLEAN, DATE, INTEGER, NUMBER, TEXT, UUIDS
from wpriv.numerics.numbers import number, positive_number, short, shown, text, whole
from wpriv.releases import noise_plan, tables
from wpriv.releases.bounding import NORMALISE, Cell, canonical, normalised
from wpriv.releases.noise_plan import Budget, NoisePlan
from wpriv.releases.outputs import PERSONS, Column, Count, Limits, Output, Part
from wpriv.releases.sampling import GAUSS, LAPLACE
from wpriv.releases.tables import Table

UNKNOWN = "unknown"
ROW = "row"
NOT_PRIVATE = (
    "NOT PRIVATE: the seed is fixed and recorded, and whoever knows it can subtract the noise. Leave it out for a "
    "release."
)


def names_keys(output: Output) -> bool:
    """Whether an output counts persons by key, so that unknown keys can be shown by it."""
    return isinstance(output, Count) and output.of == PERSONS and not output.overall


@dataclass(frozen=True)
class Question:
    """What is to be released, of whom, and for how much.

    Args:
        person: the column that names the person of a row, or ``row`` for persons of one row each.
        outputs: what is released. by: the column of the key, or None. keys: the declared keys, or ``unknown``.
        other: a key for all rows of undeclared keys. normalise: nfc, strip, casefold.
        null: text that stands for a missing cell, beside the empty one. distinct: drop equal rows of a person.
        nonnegative: counts below 0 are shown as 0. records: the number of persons, as it is publicly known.
        seed: of repeatable noise, which protects nobody. typed: columns whose type is declared.
    """

    person: str
    outputs: tuple[Output, ...]
    limits: Limits
    budget: Budget
    by: str | None = None
    keys: tuple[Cell, ...] | str | None = None
    other: str | None = None
    normalise: tuple[str, ...] = ()
    null: tuple[str, ...] = ()
    distinct: bool = False
    nonnegative: bool = False
    records: int | None = None
    seed: int | None = None
    typed: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        if not isinstance(self.person, str) or not self.person:
            raise UsageError(
                "`person` names the column whose value is the person of a row; or it is `row`, where every row is a "
                "person of its own"
            )
        if not self.outputs:
            raise UsageError("a release needs an output: a count, sum, mean, histogram or quantile; found none")
        if (self.by is None) != (self.keys is None):
            wants = "`keys` needs `by`, the column that holds them" if self.by is None else self._needs_keys()
            raise UsageError(wants)
        for form in self.normalise:
            if form not in NORMALISE:
                raise UnknownName("form of keys", str(form), NORMALISE, place="`normalise`")
        if self.normalise and self.by is None:
            raise UsageError("`normalise` is about keys: it needs `by`, or is left out")
        if self.other is not None and (self.keys is None or self.has_unknown_keys):
            raise UsageError("`other` is the key of all rows whose key is not declared: it needs declared `keys`")
        if not isinstance(self.keys, str):
            for key in self.keys or ():
                if canonical(key) is None and key is not None and key != "":
                    raise UsageError(f"`keys` are text, whole numbers, booleans or dates; found {shown(key)}")
        if not self.has_unknown_keys and self.keys is not None and not 0 < len(self.canonical_keys) == len(self.keys):
            raise UsageError("`keys` are one or more different keys, also after `normalise`, or unknown")
        without = [output.name for output in self.outputs if output.se is None]
        if self.budget.eps is not None and len(without) < len(self.outputs):
            raise UsageError("give `eps` or `se`: one of them is asked for, and the other follows")
        if self.budget.eps is None and without:
            raise UsageError(f"give `eps` of the whole release, or `se`, the standard error of {without[0]}")
        if self.by is None and any(output.overall for output in self.outputs):
            raise UsageError("`overall` is for all keys together: it needs `by`, or is left out")
        names = [(output.name, output.overall or self.by is None) for output in self.outputs]
        if len(set(names)) < len(names):
            raise UsageError("an output is asked for twice; its two answers would cost as much as two outputs")
        if self.has_unknown_keys and not any(names_keys(output) for output in self.outputs):
            if self.budget.eps is None:
                raise UsageError("unknown keys are shown by a count of persons; ask for it too, with its `se`")
            object.__setattr__(self, "outputs", (Count(), *self.outputs))

    def _needs_keys(self) -> str:
        return (
            f"`by` {self.by} needs `keys`: the keys to report, A,B,C, which are public and each get a number, also 0; "
            f"or `keys` unknown, which shows those with enough persons"
        )

    @property
    def has_unknown_keys(self) -> bool:
        return self.keys == UNKNOWN

    @cached_property
    def names(self) -> tuple[str, ...]:
        """The declared keys as text, in order, and ``other``; none without ``by`` or where they are unknown."""
        if self.keys is None or isinstance(self.keys, str):
            return ()
        return tuple(map(str, self.keys)) + (() if self.other is None else (self.other,))

    @property
    def canonical_keys(self) -> dict[str | None, int]:
        """The place of each declared key, by its canonical text; None is the missing one."""
        keys = () if self.keys is None or isinstance(self.keys, str) else self.keys
        return {canonical(normalised(key, self.normalise)): place for place, key in enumerate(keys)}

    def has_keys(self, output: Output) -> bool:
        """Whether an output has a number for each key."""
        return self.by is not None and not output.overall

    def columns(self) -> list[str]:
        """The columns that are read."""
        person = [] if self.person == ROW else [self.person]
        by = [] if self.by is None else [self.by]
        return list(dict.fromkeys([*person, *by, *(name for output in self.outputs for name in output.columns)]))

    def describe(self, data: Mapping[str, object]) -> dict[str, object]:
        """Return it as a recipe about some ``data``; the same release has the same one."""
        limits = {"max_groups": self.limits.groups, "max_rows": self.limits.rows}
        by = {"column": self.by, "keys": UNKNOWN if self.has_unknown_keys else list(map(str, self.keys or ()))}
        by |= {"other": self.other, "normalise": list(self.normalise)}
        types = {column: output.type for output in self.outputs for column in output.columns if output.type}
        is_plain = self.budget.family == GAUSS or self.budget.delta == 0
        about: dict[str, object] = {
            "kind": "release",
            "data": _given({**data, "types": types, "null": list(self.null)}),
            "person": self.person,
            "limits": _given(limits),
            "by": _given(by) if self.by is not None else None,
            "outputs": [output.describe() for output in self.outputs],
            "eps": self.budget.eps,
            "delta": self.budget.delta,
            "noise": None if is_plain else self.budget.family,
            "key_delta": self.budget.key_delta if self.has_unknown_keys else None,
            "records": self.records,
            "distinct": self.distinct,
            "nonnegative": self.nonnegative,
        }
        return _given(about) | ({} if self.seed is None else {"seed": self.seed})


def _given(keys: Mapping[str, object]) -> dict[str, object]:
    """The keys that say something."""
    return {name: value for name, value in keys.items() if value or (value == 0 and not isinstance(value, bool))}


def asked(
    *,
    person: str,
    outputs: Sequence[object],
    eps: object = None,
    delta: object = None,
    se: float | None = None,
    by: str | None = None,
    keys: Sequence[Cell] | str | None = None,
    other: str | None = None,
    normalise: Sequence[str] = (),
    max_groups: object = None,
    max_rows: object = None,
    noise: str | None = None,
    key_delta: object = 0.1,
    null: Sequence[str] = (),
    distinct: bool = False,
    nonnegative: bool = False,
    records: object = None,
    seed: object = None,
    typed: Sequence[str] = (),
) -> Question:
    """The question of some arguments of the verb ``release``, whose numbers may be text.

    Raises:
        UsageError: one is missing, or out of range.
    """
    if delta is None:
        raise UsageError("give `delta`, well below 1 / persons, such as 1e-6; or 0, for Laplace noise (pure DP)")
    for output in outputs:
        if not isinstance(output, Output):
            raise UsageError(f"`outputs` are Count, Sum, Mean, BinCounts or Quantile; found {type(output).__name__}")
    given = [output for output in outputs if isinstance(output, Output)]
    with_error = given if se is None else [replace(each, se=se) if each.se is None else each for each in given]
    share = number(delta, "`delta`")
    family = noise or (LAPLACE if share == 0 else GAUSS)
    named = (("max_groups", max_groups), ("max_rows", max_rows))
    limits = [None if each is None else whole(each, f"`{name}`") for name, each in named]
    count = None if records is None else positive_number(whole(records, "`records`"), "`records`", whole=True)
    budget = Budget(None if eps is None else number(eps, "`eps`"), share, family, number(key_delta, "`key_delta`"))
    return Question(
        person, tuple(with_error), Limits(*limits), budget, by, other=other, records=count,
        keys=keys if keys is None or isinstance(keys, str) else tuple(keys), normalise=texts(normalise, "normalise"),
        null=texts(null, "null"), distinct=distinct, nonnegative=nonnegative,
        seed=None if seed is None else _seed(seed), typed=texts(typed, "types"),
    )  # fmt: skip


def texts(value: object, name: str) -> tuple[str, ...]:
    """One text or several, as a tuple.

    Raises:
        UsageError: it is anything else, such as a number.
    """
    listed = [value] if isinstance(value, str) else list(value) if isinstance(value, Iterable) else [value]
    if not all(isinstance(each, str) for each in listed):
        raise UsageError(f"`{name}` is a text, or a list of texts; found {shown(value)}")
    return tuple(listed)


def _seed(seed: object) -> int:
    value = whole(seed, "`seed`")
    if not 0 <= value < 2**63:  # as recipes have it
        raise UsageError(f"`seed` must be a whole number from 0 to 2^63 - 1; found {shown(seed)}")
    return value


@dataclass(frozen=True)
class Plan:
    """A question with its noise.

    Args:
        question: as it was asked. parts: the noisy integers, in the order of the outputs. noise: of each.
        source: the public name of the data.
    """

    question: Question
    parts: tuple[Part, ...]
    noise: NoisePlan
    source: str

    @property
    def process(self) -> Process:
        return self.noise.process

    @property
    def naming(self) -> int:
        """The place of the count of persons by which unknown keys are shown."""
        return _naming(self.question, self.parts)

    def shown(self, persons: int) -> float:
        """The probability that an unknown key with so many persons is shown."""
        noise = self.noise.noises[self.naming]
        assert noise is not None  # a count
        short = self.noise.threshold + 1 - persons
        return noise.tail(short) if short >= 1 else 1 - noise.tail(1 - short)

    def sizes(self) -> list[int]:
        """Numbers of persons at which that probability says something: round ones, and the threshold."""
        tau = self.noise.threshold
        step = max(
            unit
            for unit in (10, *(scale * 10**k for k in range(2, 17) for scale in (0.5, 1)))
            if unit * 2 <= max(tau, 20)
        )
        sizes, size = {1, tau, tau + 1}, int(step)
        while size <= tau or (size <= 10 * tau and self.shown(size - int(step)) < 0.99):
            sizes.add(size)
            size += int(step)
        return sorted(sizes)

    def largest_eps(self, before: Process, limit: float) -> float | None:
        """The eps of such a release with which all of a ledger has an eps of ``limit``; None if there is none."""
        keys = self.naming if self.question.has_unknown_keys else None
        return noise_plan.largest_eps(self.parts, self.question.budget, before, limit, keys=keys)

    def parts_of(self, output: int) -> list[int]:
        """The places of the parts of an output."""
        return [place for place, part in enumerate(self.parts) if part.output == output]


def unit(question: Question) -> str:
    """Whom the guarantee protects, in words."""
    return "one row" if question.person == ROW else f"one {question.person}'s rows"


def headline(row: Guarantee, unit: str) -> str:
    """The guarantee in one line."""
    delta = short(row.delta.safe) if row.delta.safe > 0 else "0"
    return f"eps = {text(row.epsilon.safe, up=True)} ({row.claim}, delta {delta}) for {unit}"


def checked(question: Question, table: Table) -> Question:
    """The question after a look at the columns of the table, which are public; types of the schema are filled in.

    Raises:
        UsageError: a column is missing, or has no values that the output can use.
    """
    if question.person != ROW:
        tables.require_column(table, question.person, "person")
        tables.require_usable(table, question.person)
        tables.require_identifiers(table, question.person)
    elif ROW in table.columns:
        raise UsageError("`person` row makes each row a person, and there is a column of that name; rename it")
    if question.by is not None:
        tables.require_column(table, question.by, "by")
        tables.require_usable(table, question.by)
        if table.types.get(question.by) == NUMBER:
            raise UsageError(f"`by` {question.by} is a column of floats; keys are text, whole numbers or dates")
    for output in question.outputs:
        for name in output.columns:
            tables.require_column(table, name, output.kind)
            tables.require_usable(table, name)
    for name in question.typed:
        tables.require_column(table, name, "types")
    types = tables.declared_types(table)
    typed = tuple(_typed(output, types) for output in question.outputs)
    return replace(question, outputs=typed, keys=_typed_keys(question, table))


def _typed(output: Output, types: Mapping[str, str]) -> Output:
    if isinstance(output, Column) and output.whole is None and types.get(output.column) in (INTEGER, BOOLEAN):
        return replace(output, whole=True)
    return output


def _typed_keys(question: Question, table: Table) -> tuple[Cell, ...] | str | None:
    """Declared keys as the column of the key has them: text, whole numbers or dates."""
    if question.by is None or question.keys is None or isinstance(question.keys, str):
        return question.keys
    kind = table.types.get(question.by)
    if kind == TEXT:
        return tuple(map(str, question.keys))
    readers: dict[str, Callable[[str], Cell]] = {
        INTEGER: _as_integer, BOOLEAN: _as_integer, DATE: datetime.date.fromisoformat, UUIDS: uuid.UUID
    }  # fmt: skip
    read = readers.get(kind or "")
    if read is None:
        return question.keys
    try:
        return tuple(read(key) if isinstance(key, str) else key for key in question.keys)
    except ValueError:
        names = {INTEGER: "whole numbers", DATE: "dates such as 2026-01-31", UUIDS: "UUIDs"}
        wanted = names.get(str(kind), "true or false")
        raise UsageError(f"`keys` of {question.by} must be {wanted}, as the column has them") from None


def _as_integer(text: str) -> int:
    truths = {"true": True, "false": False}
    return truths[text.lower()] if text.lower() in truths else int(text)


def plan(question: Question, source: str) -> Plan:
    """Find the noise of a question, which has been ``checked``, about data of a public name.

    Raises:
        UsageError: a limit that an output needs is missing, or the grid is too fine. Unsupported: see ``noise_plan``.
    """
    limits = Limits(1, 1) if question.person == ROW else question.limits
    parts = [
        part
        for place, output in enumerate(question.outputs)
        for part in output.planned(place, limits, question.has_keys(output))
    ]
    named = _naming(question, parts) if question.has_unknown_keys else None
    return Plan(question, tuple(parts), noise_plan.solve(parts, question.budget, keys=named), source)


def _naming(question: Question, parts: Sequence[Part]) -> int:
    return next(place for place, part in enumerate(parts) if names_keys(question.outputs[part.output]))
