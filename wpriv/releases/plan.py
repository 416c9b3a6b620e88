"""The plan of a release, from its declaration and public parameters alone: no row is read for it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property

from wpriv.core.guarantee import Guarantee
from wpriv.core.process import Process
from wpriv.errors import UsageError
from wpriv.files.columns import BOOLEAN, INTEGER, NUMBER
from wpriv.numerics.numbers import short, text
from wpriv.releases import noise_plan, tables
from wpriv.releases.bounding import Cell, canonical, normalised
from wpriv.releases.noise_plan import Budget, NoisePlan
from wpriv.releases.outputs import PERSONS, Column, Count, Limits, Output, Part
from wpriv.releases.sampling import LAPLACE
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
        nonnegative: counts below 0 are shown as 0.
        seed: of repeatable noise, which protects nobody.
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
    seed: int | None = None

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
        if self.other is not None and (self.keys is None or self.has_unknown_keys):
            raise UsageError("`other` is the key of all rows whose key is not declared: it needs declared `keys`")
        if not self.has_unknown_keys and self.keys is not None and not 0 < len(self.canonical_keys) == len(self.keys):
            raise UsageError("`keys` are one or more different keys, also after `normalise`, or unknown")
        names = [(output.name, output.overall or self.by is None) for output in self.outputs]
        if len(set(names)) < len(names):
            raise UsageError("an output is asked for twice; its two answers would cost as much as two outputs")
        if self.has_unknown_keys and not any(names_keys(output) for output in self.outputs):
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

    def describe(self) -> dict[str, object]:
        """Return it as a recipe has it, without the data."""
        limits = {"max_groups": self.limits.groups, "max_rows": self.limits.rows}
        by = {"column": self.by, "keys": UNKNOWN if self.has_unknown_keys else list(self.names), "other": self.other}
        about: dict[str, object] = {"normalise": list(self.normalise), "null": list(self.null)}
        about |= {"distinct": self.distinct, "nonnegative": self.nonnegative}
        rows = [
            output.describe()
            | ({} if output.weight == 1 else {"weight": output.weight})
            | ({"overall": True} if output.overall else {})
            for output in self.outputs
        ]
        return {
            "kind": "release",
            "person": self.person,
            "limits": {name: value for name, value in limits.items() if value is not None},
            **({} if self.by is None else {"by": {name: value for name, value in by.items() if value is not None}}),
            **{name: value for name, value in about.items() if value},
            "outputs": rows,
            "eps": self.budget.eps,
            "delta": self.budget.delta,
            **({"noise": LAPLACE} if self.budget.family == LAPLACE and self.budget.delta > 0 else {}),
            **({"key_delta": self.budget.key_delta} if self.has_unknown_keys else {}),
            **({} if self.seed is None else {"seed": self.seed}),
        }


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
        return next(place for place, part in enumerate(self.parts) if names_keys(self.question.outputs[part.output]))

    def parts_of(self, output: int) -> list[int]:
        """The places of the parts of an output."""
        return [place for place, part in enumerate(self.parts) if part.output == output]


def recipe(question: Question, source: str) -> dict[str, object]:
    """The declaration as plain data, with the name of the data: the same release has the same one."""
    described = question.describe()
    return {"kind": described.pop("kind"), "data": source, **described}


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
    typed = tuple(_typed(output, table) for output in question.outputs)
    keys = question.keys
    if isinstance(keys, tuple):
        keys = tuple(tables.typed_key(key, table.types.get(question.by or "", "")) for key in keys)
    return replace(question, outputs=typed, keys=keys)


def _typed(output: Output, table: Table) -> Output:
    if isinstance(output, Column) and output.whole is None and table.types.get(output.column) in (INTEGER, BOOLEAN):
        return replace(output, whole=True)
    return output


def plan(question: Question, source: str) -> Plan:
    """Find the noise of a question, which has been ``checked``, about data of a public name.

    Raises:
        UsageError: a limit that an output needs is missing, or the grid is too fine. Unsupported: see ``noise_plan``.
    """
    limits = Limits(1, 1) if question.person == ROW else question.limits
    parts = [
        part
        for place, output in enumerate(question.outputs)
        for part in output.parts(place, limits, question.has_keys(output))
    ]
    named = None
    if question.has_unknown_keys:
        named = next(place for place, part in enumerate(parts) if names_keys(question.outputs[part.output]))
    return Plan(question, tuple(parts), noise_plan.solve(parts, question.budget, keys=named), source)


def outputs_of(outputs: Sequence[object]) -> tuple[Output, ...]:
    """Outputs as objects, checked."""
    for output in outputs:
        if not isinstance(output, Output):
            raise UsageError(f"`outputs` are Count, Sum, Mean, BinCounts or Quantile; found {type(output).__name__}")
    return tuple(output for output in outputs if isinstance(output, Output))
