"""The verb ``release``: noisy counts, sums, means, histograms and quantiles of a table, accounted for as a whole.

The order that makes it safe: the plan and its guarantee come from public parameters; the lines of the ledger are on
disk before a row is read; what a row holds changes no message and no exit code after that.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from wpriv import randomness
from wpriv.core.guarantee import Guarantee
from wpriv.core.process import Process, Step
from wpriv.errors import UsageError
from wpriv.files.shown import Shown
from wpriv.numerics.numbers import number, positive_number, short, text
from wpriv.releases import aggregate, declaration, release_folder, tables
from wpriv.releases import plan as planning
from wpriv.releases.aggregate import Json
from wpriv.releases.bounding import Cell, canonical, exact_decimal, exact_value, normalised
from wpriv.releases.outputs import BinCounts, Column, Output
from wpriv.releases.plan import ROW, Plan, Question
from wpriv.releases.release_folder import Payment
from wpriv.releases.tables import Query, Table

Facts = list[tuple[str, str]]


@dataclass(frozen=True, eq=False, repr=False)
class Released(Shown):
    """Released numbers with their guarantee; ``float(released["persons"])`` is one of them.

    Args:
        answer: the whole as plain data (``wpriv.release/1``). stored: the day of an earlier release that is shown
            again, for which nothing was spent; empty of a new one. files: those that were written.
    """

    answer: Json
    stored: str = ""
    files: tuple[Path, ...] = ()

    @property
    def guarantee(self) -> Guarantee:
        """The guarantee of this release alone."""
        stated = self.answer["guarantee"]
        assert isinstance(stated, dict)  # as written by ``Guarantee.as_dict``
        steps = tuple(Step.from_dict(row) for row in stated["process"])
        return Guarantee.of_dict(stated, Process(steps, stated["adjacency"]))

    @property
    def statement(self) -> str:
        """The statement in words."""
        return str(self.answer["statement"])

    @property
    def warnings(self) -> tuple[str, ...]:
        """What every reader must know: that the noise is repeatable, if it is."""
        warnings = self.answer["warnings"]
        return tuple(map(str, warnings)) if isinstance(warnings, list) else ()

    @property
    def rows(self) -> list[Json]:
        """The entries of ``outputs``."""
        rows = self.answer["outputs"]
        return rows if isinstance(rows, list) else []

    @property
    def table(self) -> list[Json]:
        """One row for each number: key, output, value, half_width, lower, upper, standard_error, note and claim."""
        return [dict(zip(release_folder.HEADER, release_folder.cells(row), strict=True)) for row in self.rows]

    def __getitem__(self, name: str | tuple[str, str]) -> Answer:
        """The number of an output, by its name and, where it has some, its key or bin."""
        output, *labels = (name,) if isinstance(name, str) else name
        rows = [row for row in self.rows if row["name"] == output]
        rows = [row for row in rows if all(label in (row["key"], row.get("bin")) for label in labels)]
        if len(rows) != 1:
            known = dict.fromkeys(map(_label, self.rows))
            raise UsageError(f"no one output called {name!r}; there are {', '.join(known)}")
        return Answer(rows[0])

    def sentence(self) -> str:
        return planning.headline(self.guarantee, str(self.answer["unit"]))

    def in_all(self) -> Facts:
        """The guarantee of the ledger with this release, where it had lines before."""
        stated = self.answer["total"]
        if not isinstance(stated, dict):
            return []
        delta = short(stated["delta"]) if stated["delta"] > 0 else "0"
        eps = f"eps = {text(stated['epsilon'], up=True)} at delta {delta} ({stated['claim']})"
        return [("in all", f"{eps}, with what the ledger held before")]

    def expected(self, size: float) -> Facts:
        """The noise of each output where a count or sum is about ``size``, or so many rows have a mean or quantile."""
        known: dict[str, str] = {}
        for row in self.rows:
            name = " ".join(filter(None, (str(row["name"]), str(row.get("bin") or "") if "ranks" in row else "")))
            if "ranks" in row:
                ranks = row["ranks"]
                assert isinstance(ranks, float)
                percent = text(100 * ranks / size, up=True, digits=3)
                known[f"{name} of {size:g} rows"] = f"within {percent}% of the rows (95%, upper bound)"
            elif isinstance(row["noise"], list):
                low, high = aggregate.errors_of_mean(row, size)
                known[f"{name} of {size:g} rows"] = (
                    f"+- {low:.4g} (95%, approximate) at the middle of the bounds, {high:.4g} at an end"
                )
            else:
                known.setdefault(
                    f"{name} of {size:g}", f"{float(str(row['standard_error'])) / size:.2%} standard error"
                )
        return list(known.items())

    def facts(self) -> Facts:
        """The numbers."""
        return [(_label(row), "-" if row["value"] is None else str(row["value"])) for row in self.rows]


@dataclass(frozen=True)
class Answer:
    """One number of a release; ``float`` of it is its value."""

    row: Json

    def __float__(self) -> float:
        value = self.row["value"]
        if value is None:
            raise UsageError(f"{self.row['name']} has no value: {self.row['note'] or 'no row was read'}")
        return float(str(value))


def _label(row: Json) -> str:
    return " ".join(str(row[name]) for name in ("name", "key", "bin") if row.get(name))


def release(
    data: object,
    *,
    person: str,
    outputs: Sequence[Output],
    eps: float | None = None,
    delta: float | None = None,
    se: float | None = None,
    by: str | None = None,
    keys: Sequence[Cell] | str | None = None,
    other: str | None = None,
    normalise: Sequence[str] = (),
    max_groups: int | None = None,
    max_rows: int | None = None,
    noise: str | None = None,
    key_delta: float = 0.1,
    null: Sequence[str] = (),
    distinct: bool = False,
    nonnegative: bool = False,
    records: int | None = None,
    total: bool = False,
    max_eps: float | None = None,
    ledger: str | Path | None = None,
    out: str | Path | None = None,
    fresh: bool = False,
    dry_run: bool = False,
    seed: int | None = None,
    table: str = "",
    where: str = "",
    query: str = "",
    public: Sequence[str] = (),
    typed: Sequence[str] = (),
) -> Released:
    """Release counts, sums, means, histograms or quantiles of a table with noise: (eps, delta)-DP for each person.

    A person is all rows with one value of ``person``, and neighbours are tables with and without one person. Numbers
    may be text such as ``1e-6``. docs/guides/release.md explains how to choose limits and bounds.

    Args:
        data: the path of a file of CSV or Parquet, or of several; the URL of a database; a data frame, a table of
            Arrow, or a mapping from names to columns; or an iterator of these.
        person: the column that names the person of a row; ``row`` makes each row a person.
        outputs: such as ``[Count(), Mean("days", 0, 60)]``.
        eps, delta: of the whole release; at delta 0 the noise is Laplace. se: instead of eps, the standard error of
            every output that has none of its own.
        by: the column of keys, for each of which there is a number. keys: those to report; or ``unknown``: those with
            more persons than a threshold, for a share ``key_delta`` of delta. other: a key for the rows of all others.
        normalise: nfc, strip, casefold, of keys. null: text that stands for a missing cell.
        max_groups: keys that one person may count in. max_rows: rows of one person that count in a key.
        noise: gauss (default) or laplace.
        distinct: drop equal rows of a person. nonnegative: show counts below 0 as 0.
        records: about how many persons there are, as is publicly known, for warnings about delta.
        total: eps and delta are those of the ledger after this release. max_eps: refuse where its eps is then larger.
        ledger: a file that pays for the release before any row is read, else ``ledger.jsonl`` in ``out``; or the URL of
            a ledger.
        out: a folder for numbers, statement, recipe and ledger. The same release there is shown again and spends
            nothing. fresh: draw and spend anew.
        dry_run: read no row. seed: of repeatable noise, for tests.
        table, where: of a database, the table and a condition on its rows. query: instead, one SELECT, of which every
            row depends on rows of its own person, and on the tables that ``public`` names.
        typed: columns whose type a recipe or a flag declares, which must be in the table.
    Raises:
        UsageError: an argument is wrong, a limit is missing, or ``out`` holds another release. Unsupported: no noise
            meets the target. CheckFailed: the ledger would exceed ``max_eps``.
    """
    question = planning.asked(
        person=person, outputs=outputs, eps=eps, delta=delta, se=se, by=by, keys=keys, other=other,
        normalise=normalise, max_groups=max_groups, max_rows=max_rows, noise=noise, key_delta=key_delta, null=null,
        distinct=distinct, nonnegative=nonnegative, records=records, seed=seed, typed=typed,
    )  # fmt: skip
    folder = None if out is None else Path(out)
    read = Query(table, where, query, planning.texts(public, "public"))
    recipe = question.describe(declaration.described_data(data, read))
    if folder is not None and not dry_run:
        stored = release_folder.stored(folder, recipe)
        if stored is not None and not fresh:
            return Released(stored, stored=str(stored["released"]))
    source = tables.table(data, person, read, by)
    question = planning.checked(question, source)
    payment = Payment.of(
        ledger, folder, None if max_eps is None else positive_number(number(max_eps, "`max_eps`"), "`max_eps`")
    )
    if total:
        payment, before = payment.with_history()
        question = replace(question, budget=replace(question.budget, before=before))
    plan = planning.plan(question, source.name)
    if dry_run:
        return Released(release_folder.answer(plan, aggregate.described_empty(plan), payment.forecast(plan)))
    return _paid(plan, payment, source, folder, recipe, fresh=fresh)


def _paid(plan: Plan, payment: Payment, source: Table, folder: Path | None, recipe: Json, *, fresh: bool) -> Released:
    """Pay for a plan, read the rows and draw the numbers; or show those that another process has released meanwhile."""
    key = randomness.key("release", plan.question.seed)
    with release_folder.alone(folder):
        stored = None if fresh or folder is None else release_folder.stored(folder, recipe)
        if stored is not None:
            return Released(stored, stored=str(stored["released"]))
        with payment.spent(plan, key) as receipt:
            numbers = aggregate.released(plan, source.blocks(plan.question.columns()), key)
            answer = release_folder.answer(plan, numbers, receipt)
            files = () if folder is None else release_folder.write(folder, recipe, answer, source)
    return Released(answer, files=files)


# What limits and bounds leave out of the rows. It is PRIVATE: nothing here has any noise.


def diagnosed(data: object, **arguments: Any) -> Facts:
    """Count rows, persons, missing and clipped values, and what the limits leave out; nothing is released.

    Args:
        data: as for ``release``. arguments: the other ones of ``release`` that declare what is released.
    Raises:
        UsageError: as for ``release``.
    """
    read = {name: arguments.pop(name) for name in ("table", "where", "query", "public") if name in arguments}
    source = tables.table(data, str(arguments.get("person")), Query(**read), arguments.get("by"))
    question = planning.checked(planning.asked(**arguments), source)
    cells: dict[str, list[Cell]] = {name: [] for name in question.columns()}
    for block in source.blocks(question.columns()):
        for name, column in block.cells.items():
            values, codes = column.without(question.null).coded()
            cells[name] += [None if code < 0 else values[code] for code in codes.tolist()]
    count = max(map(len, cells.values()), default=0)
    persons = _persons(question, cells, count)
    facts = [("rows", f"{count:,}"), ("persons", f"{len(set(persons) - {None}):,}")]
    if question.person != ROW:
        facts.append((f"rows without {question.person}", f"{persons.count(None):,}"))
    keys: list[str | None] = [""] * count
    if question.by is not None:
        keys = [canonical(normalised(cell, question.normalise)) for cell in cells[question.by]]
        facts += _about_keys(question, keys)
    facts += [fact for output in question.outputs for fact in _about_values(output, cells)]
    return facts + _about_limits(question, persons, keys)


def _persons(question: Question, cells: Mapping[str, Sequence[Cell]], count: int) -> list[str | None]:
    return list(map(str, range(count))) if question.person == ROW else list(map(canonical, cells[question.person]))


def _about_keys(question: Question, keys: Sequence[str | None]) -> Facts:
    facts = [(f"rows without {question.by}", f"{keys.count(None):,}")]
    if question.has_unknown_keys:
        return [*facts, (f"different {question.by}", f"{len(set(keys) - {None}):,}")]
    declared = question.canonical_keys
    return [*facts, ("rows of undeclared keys", f"{sum(key is not None and key not in declared for key in keys):,}")]


def _about_values(output: Output, cells: Mapping[str, Sequence[Cell]]) -> Facts:
    """Missing values of a column, and those beyond its bounds or edges."""
    if not isinstance(output, (Column, BinCounts)):
        return []
    ends = output.limits if isinstance(output, BinCounts) else (output.bounds.lo, output.bounds.hi)
    low, high = exact_decimal(ends[0]), exact_decimal(ends[-1])
    values = [exact_value(cell, dates=output.dates) for cell in cells[output.column]]
    known = [value for value in values if value is not None and not value.is_nan()]
    below, above = sum(value < low for value in known), sum(value > high for value in known)
    what = "outside of the edges" if isinstance(output, BinCounts) else "clipped"
    text = f"{len(values) - len(known):,} missing, {below:,} below and {above:,} above {what}"
    return [(output.name, text)]


def _about_limits(question: Question, persons: Sequence[str | None], keys: Sequence[str | None]) -> Facts:
    """The largest numbers of keys and of rows of a person, and what is beyond the limits."""
    declared = {key for key in question.canonical_keys if question.other is None}
    pairs = Counter(
        (person, key)
        for person, key in zip(persons, keys, strict=True)
        if person is not None and key is not None and (not declared or key in declared)
    )
    groups = Counter(person for person, _ in pairs)
    facts = []
    if question.by is not None:
        most = question.limits.groups
        beyond = sum(max(0, number - most) for number in groups.values()) if most is not None else 0
        largest = max(groups.values(), default=0)
        facts.append(("keys of one person", f"{largest:,} at most; {beyond:,} beyond the limit"))
    most = question.limits.rows
    beyond = sum(max(0, number - most) for number in pairs.values()) if most is not None else 0
    where = "rows of one person" + (" in a key" if question.by is not None else "")
    return [*facts, (where, f"{max(pairs.values(), default=0):,} at most; {beyond:,} beyond the limit")]
