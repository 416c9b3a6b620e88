"""Expected numbers beside ours, with the stated tolerance, and the means over repeated trainings."""

from __future__ import annotations

import json
import math
import statistics
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

from wpriv.config.field_types import Setting
from wpriv.config.recipe import Check, Recipe
from wpriv.config.resolve import overridden
from wpriv.config.schema import BOUND_COLUMNS
from wpriv.core import registry
from wpriv.errors import CheckFailed, MissingResource, UsageError
from wpriv.files import durable_writes
from wpriv.files.durable_writes import plain
from wpriv.numerics.numbers import to_int
from wpriv.results import model, storage
from wpriv.results.model import Number, Row, Stored

# the column that tells the runs of one setting apart, numbered from 1
RUN = "run"
# columns of a table of means: the number of runs, and the end of the names of standard deviations
SEEDS, DEVIATION = "seeds", "_sd"
# not measured: the same for all runs of a setting, or, of eps by observed distances, as large as that of the worst run
_PLANNED = (*BOUND_COLUMNS, "epoch", "step", "sigma", "noise", "n")
# the columns by which rows of metrics of several trainings are of the same moment of the same setting
MOMENT = ("panel", "case", "epoch", "step")


def means(rows: Iterable[Row], labels: Sequence[str]) -> list[Row]:
    """Return one row for each group of rows that agree in some columns: means of what was measured, with deviations.

    A column ``accuracy`` gets a column ``accuracy_sd`` beside it, the standard deviation of a single run estimated
    from the n runs of the group (the root of the sum of squared deviations over n - 1; none for n = 1). ``seeds`` is n.
    A quantity that some run lacks, or that is not finite, has no mean. Bounds on eps and delta are the largest, and
    their lower ends the least, of the runs.
    """
    groups: dict[tuple[object, ...], list[Row]] = {}
    for row in rows:
        groups.setdefault(tuple(row.get(name) for name in labels), []).append(row)
    return [_mean(group, labels) for group in groups.values()]


def _mean(rows: list[Row], labels: Sequence[str]) -> Row:
    mean: Row = {name: rows[0][name] for name in labels if name in rows[0]}
    mean[SEEDS] = len(rows)
    for name in dict.fromkeys(name for row in rows for name in row if name not in (*labels, RUN)):
        values = [row.get(name) for row in rows]
        if name in _PLANNED:
            mean[name] = _worst(name, values)
        elif all(isinstance(value, (int, float)) and math.isfinite(value) for value in values):
            mean[name] = statistics.fmean(values)  # type: ignore[arg-type]
            if len(rows) > 1 and name != "seconds":
                mean[name + DEVIATION] = statistics.stdev(values)  # type: ignore[type-var]
        else:
            mean[name] = values[0] if all(isinstance(value, str) and value == values[0] for value in values) else None
    return mean


def _worst(name: str, values: list[object]) -> Number | None:
    """The value that holds for every run; None where one has none."""
    numbers = [value for value in values if isinstance(value, (int, float))]
    if len(numbers) < len(values):
        return None
    return min(numbers) if name.endswith("_lower") else max(numbers)


# relative differences below this are rounding errors: linspace(0, 4, 81) holds 0.30000000000000004
ROUNDING = 1e-9
SCHEMA = "wpriv.expect/1"
# relative differences from here on have a percentage of three digits
LARGE = 0.995
WORDS = {
    "met": "our number is within the tolerance",
    "above": "ours exceeds the paper's by more than the tolerance: a better result, or another procedure",
    "contradicted": "the paper's number is wrong; the proof is named",
    "other procedure": "ours is of a procedure that is named, not of the paper's, and says nothing about the number",
    "not reached": "this run, at the settings that are named, does not reach the number",
    "missed": "our failure: a number that this program must give, and does not",
    "same commit": "our number of an earlier run was given by the same commit, so that nothing was compared",
    "not measured": "the number is expected since the results were stored",
}
MAX_SHOWN = 5  # missed numbers in an error


class Verdict(Stored):
    """One expected number: ``difference`` is relative unless ``absolute``; ``ours`` is None without a row or an answer.

    ``kind`` is published (printed in the source), reference (computed apart) or own (an earlier run, of the version
    ``commit``). ``ok`` is whether it is within the tolerance, or on the free side of a bound from one ``side``; a
    number that is only shown (``held`` is false), has the proof that it is wrong (``contradicted``) or is of another
    ``procedure`` is never missed. Of repeated runs ``ours`` is the mean of ``seeds`` runs, and ``deviation`` the
    standard deviation of one.

    Pages also have the ``claim`` of our number, the ``setting`` in which the run deviates from the printed one, whether
    the number is expected since the results were stored (``not_measured``), and whether it comes from the
    ``same_commit``.
    """

    panel: str
    where: dict[str, object]
    column: str
    kind: str
    expected: float
    ours: Number | None
    difference: float | None
    within: float
    absolute: bool
    ok: bool
    held: bool
    source: str
    commit: str | None = None
    noise_version: int | None = None
    seeds: int = 1
    deviation: float | None = None
    claim: str | None = None
    side: str | None = None
    procedure: str = ""
    contradicted: str = ""
    setting: str = ""
    not_measured: bool = False
    same_commit: bool = False

    def with_entries(self, **entries: object) -> Verdict:
        """Return the verdict with further entries, which its file then has as well."""
        return self.model_copy(update=entries)

    @property
    def word(self) -> str:
        """The verdict, one of ``WORDS``."""
        if self.not_measured:
            return "not measured"
        if self.kind == "published" and self.procedure:
            return "other procedure"
        if self.ok:
            return "same commit" if self.same_commit else "above" if self._is_above else "met"
        return "missed" if self.is_missed else "contradicted" if self.contradicted else "not reached"

    @property
    def word_with_amount(self) -> str:
        """The verdict, of a number above the published one with the difference."""
        return f"above by {self.difference_words.lstrip('+')}" if self.word == "above" else self.word

    @property
    def remarks(self) -> list[str]:
        """Another procedure, a proof against the paper's number, and deviating settings; none of an own number."""
        return (
            [] if self.kind == "own" else [each for each in (self.procedure, self.contradicted, self.setting) if each]
        )

    @property
    def is_missed(self) -> bool:
        """True if a number that is required to agree lies outside its tolerance."""
        is_refuted = bool(self.contradicted) and self.ours is not None
        is_free = self.not_measured or (self.kind == "published" and (bool(self.procedure) or is_refuted))
        return self.held and not self.ok and not is_free

    @property
    def _is_above(self) -> bool:
        """True if ours is better than a published number, of which the recipe requires no more, by the tolerance."""
        is_from_below = self.kind == "published" and self.side == "at least"
        return is_from_below and self.difference is not None and self.difference > self.within

    @property
    def place(self) -> str:
        """The panel and the columns that select the row, in words."""
        entries = {**({"panel": self.panel} if self.panel else {}), **self.where}
        # the path of a key in the recipe is left out: privacy.eps
        return ", ".join(f"{key.rpartition('.')[2]} {value}" for key, value in entries.items())

    @property
    def kind_words(self) -> str:
        """The kind of the expected number, of an own one with its commit."""
        return f"{self.kind}, commit {self.commit}" if self.commit else self.kind

    @property
    def expected_words(self) -> str:
        """The expected number; of a bound from one side, with that side."""
        return number(self.expected) + {"at least": " or more", "at most": " or less"}.get(self.side or "", "")

    @property
    def ours_words(self) -> str:
        """Our number; of repeated trainings mean, deviation of one (two digits, as the mean), and their number."""
        mean, deviation = self.ours, self.deviation
        if deviation is None or mean is None:
            return number(mean)
        decimals = max(0, 1 - math.floor(math.log10(deviation))) if deviation > 0 else 0
        mean_text = f"{mean:.{decimals}f}" if deviation > 0 else number(mean)
        return f"{mean_text} ± {deviation:.{decimals}f} ({self.seeds} seeds)"

    @property
    def difference_words(self) -> str:
        """The difference in percent, or in its unit at an absolute tolerance; relative rounding is shown as 0."""
        value = self.difference
        if value is None or not math.isfinite(value):
            return number(value)
        if self.absolute:
            return f"{value:+.2g}" if value else "0"
        return "0" if abs(value) < ROUNDING else f"{100 * value:+.{2 if abs(value) < LARGE else 3}g}%"

    @property
    def within_words(self) -> str:
        """The tolerance in the unit of the difference."""
        return f"{self.within:g}" if self.absolute else f"{100 * self.within:g}%"


class Expected(Stored):
    """The content of ``expect.json``."""

    expect: list[Verdict]


def read(path: Path) -> list[Verdict]:
    """Return the verdicts in an ``expect.json``; none where it is missing, since the recipe expects no numbers.

    Raises:
        UsageError: the file is damaged. MissingResource: it cannot be read.
    """
    return model.read(Expected, path).expect if path.exists() else []


def number(value: object, digits: int = 6) -> str:
    """Return a number in short, other values as text, and nothing for None."""
    if value is None:
        return ""
    return f"{value:.{digits}g}" if isinstance(value, float) else str(value)


def counts(verdicts: Sequence[Verdict]) -> str:
    """Return how many expected numbers are met, of how many, and what the others are; empty where there are none.

    An own number that is met by the commit which it comes from is in neither count: it was compared with itself. Nor is
    a number that was not measured.
    """
    words = Counter(each.word for each in verdicts if each.word not in ("same commit", "not measured"))
    others = [f"{words[word]} {word}" for word in WORDS if word != "met" and words[word]]
    return ", ".join([f"{words['met']} of {words.total()}", *others]) if words else ""


def require(verdicts: list[Verdict]) -> None:
    """Raise CheckFailed if an expected number was missed."""
    missed = [verdict for verdict in verdicts if verdict.is_missed]
    if missed:
        words = "; ".join(map(_missed, missed[:MAX_SHOWN]))
        more = "; ..." if len(missed) > MAX_SHOWN else ""
        raise CheckFailed(f"{len(missed)} of {len(verdicts)} expected numbers are missed: {words}{more}")


def verdicts(recipe: Recipe, rows: list[Row], *, first: bool = False) -> list[Verdict]:
    """Return one verdict for every expected number; a ``quick`` recipe leaves out those outside its reduced grid.

    Args:
        first: if several rows match, compare with the first; otherwise the number is missed.
    """
    results = []
    for check in recipe.checks:
        if recipe.quick and not any(_matches(check, row) for row in rows):
            continue
        results += [verdict(check, name, float(number), rows, first=first) for name, number in check.columns.items()]
    return [with_setting(each, recipe, rows) for each in results]


def verdict(check: Check, column: str, expected: float, rows: list[Row], *, first: bool = False) -> Verdict:
    """Return the verdict on one expected number; ``first`` as for ``verdicts``."""
    matches = [row for row in rows if _matches(check, row)]
    row = matches[0] if len(matches) == 1 or (first and matches) else {}
    expect, ours = check.expect, row.get(column)
    difference, ok = None, False
    if ours is not None and math.isfinite(ours):
        difference = ours - expected if expect.absolute else _relative(ours - expected, expected)
        # above zero where the number is on the wrong side
        excess = -difference if expect.at_least else difference if expect.at_most else abs(difference)
        ok = excess <= expect.within
    compared = Verdict(
        panel=check.panel,
        where=check.where,
        column=column,
        kind=expect.kind,
        expected=expected,
        ours=ours,
        difference=difference,
        within=expect.within,
        absolute=expect.absolute,
        ok=ok,
        held=expect.held,
        source=expect.source,
        commit=expect.commit,
        noise_version=expect.noise_version,
        seeds=int(row.get(SEEDS) or 1),
        deviation=row.get(f"{column}{DEVIATION}"),
    )
    side = "at least" if expect.at_least else "at most" if expect.at_most else ""
    more = {"side": side, "procedure": check.procedure, "contradicted": expect.contradicted}
    return compared.with_entries(**{key: value for key, value in more.items() if value})


def write(out: Path, recipe: Recipe, verdicts: list[Verdict]) -> tuple[Path, ...]:
    """Write the verdicts to ``expect.json`` and return its path; nothing where the recipe expects no numbers."""
    if not recipe.checks:
        return ()
    path = out / storage.EXPECT
    rows = plain([verdict.as_dict() for verdict in verdicts])
    text = json.dumps({"schema": SCHEMA, "recipe": recipe.name, "quick": recipe.quick, "expect": rows}, indent=2) + "\n"
    # a finished folder that may no longer be written to is still read
    if not path.is_file() or path.read_text(encoding="utf-8") != text:
        durable_writes.replace(path, text)
    return (path,)


def is_same(value: object, expected: object) -> bool:
    """Return True if a cell holds the expected value, for numbers up to rounding.

    >>> is_same(0.1 + 0.2, 0.3), is_same(math.inf, "inf")
    (True, True)
    """
    if isinstance(value, (int, float)) and isinstance(expected, (int, float)):
        return math.isclose(value, expected, rel_tol=ROUNDING)  # never true of an infinite and a finite one
    # recipes have infinity as a word, and stored tables are read with numbers
    return bool(value == expected) or str(value) == str(expected) == "inf"


def _missed(verdict: Verdict) -> str:
    place = ", ".join(f"{key}={value}" for key, value in verdict.where.items()) or "the only row"
    if verdict.ours is None:
        return f"{verdict.column} at {place} has no such row, or no answer there"
    wanted = f"{verdict.expected:g} within {verdict.within:g}"
    return f"{verdict.column} at {place} should be {wanted}, found {verdict.ours:.6g}"


def _matches(check: Check, row: Row) -> bool:
    if check.panel and row.get("panel") != check.panel:
        return False
    return all(is_same(row.get(name), value) for name, value in check.where.items())


def _relative(difference: float, expected: float) -> float:
    if expected:
        return difference / abs(expected)
    return math.copysign(math.inf, difference) if difference else 0.0


# Where a run deviates from the settings that its source prints, computed from the recipe as it ran.

# settings of which a run may have a part: "steps 228 of 41,652"
_AMOUNTS = ("steps", "epochs", "seeds", "records", "first", "limit", "directions", "samples", "n")
# columns of a training's results that say how long it was, where the recipe says it by the other key
_LENGTHS = {"steps": "step", "epochs": "epoch"}
_RECORDS = ("data.records", "data.first", "data.limit")
_NAMES = {"first": "records", "limit": "records", "mech": "mechanism"}


def deviations(recipe: Recipe, where: Mapping[str, object], panel: str, row: Row, seeds: int = 1) -> str:
    """Return in which settings a run deviates from the printed ones, in words; empty where in none.

    Args:
        recipe: as it ran, with the printed settings.
        where: the point of its sweep, by the columns of its axes; the settings of an axis that is left out are not
            compared. panel: of a comparison. row: the row of results, for the length of a training.
        seeds: the number of trainings of this row.
    """
    printed = {} if recipe.printed is None else recipe.printed.settings
    data = next((part for part in recipe.data.get("panels", ()) if part.get("name") == panel), recipe.data)
    varied: set[str] = set()
    sweep = data.get("sweep") or []
    for axis in [sweep] if isinstance(sweep, Mapping) else sweep:
        over, settings = axis["over"], axis.get("settings") or {}
        # a figure over n has every n on purpose
        if over not in where or recipe.kind == "compare":
            varied |= {over, *(path for keys in settings.values() for path in keys)}
        else:
            for path, value in settings.get(str(where[over]), {over: where[over]}).items():
                data = overridden(data, path, value)
    words = []
    for path, expected in printed.items():
        name = path.rpartition(".")[2]
        value = seeds if path == "seeds" else _value(data, path)
        if isinstance(expected, str) and isinstance(value, int):  # a printed 2^16 beside the n of a row
            expected = to_int(expected)
        if value is None and path in _LENGTHS:
            value = row.get(_LENGTHS[path])
        if value is None and path == f"options.{name}":
            fields = registry.load("tasks", recipe.train.task).TASK.options.model_fields
            value = fields[name].get_default() if name in fields else None
        is_open = any(path == each or path.startswith(f"{each}.") or name == each for each in varied)
        # a panel with a table of its own has no process, and a table in short no length
        is_unknown = is_open or (value is None and (path in _LENGTHS or path.partition(".")[0] not in data))
        if not is_unknown and not is_same(value, expected) and not (value is None and expected in (0, False, "none")):
            words.append(_words(path, value, expected))
    return "; ".join(words)


def _value(data: Row, path: str) -> object:
    """The value at a path, of the records the number that is used; None where there is none."""
    if path == "data.records":
        counts = [count for name in _RECORDS if isinstance(count := _value_at(data, name), int)]
        return min(counts, default=None)
    return _value_at(data, path)


def _value_at(data: object, path: str) -> object:
    for part in path.split("."):
        if isinstance(data, list) and part.isdigit() and int(part) < len(data):
            data = data[int(part)]
        elif isinstance(data, Mapping):
            data = data.get(part)
        else:
            return None
    return data


def _words(path: str, value: object, printed: Setting) -> str:
    """A setting and the printed one, as ``steps 228 of 41,652`` and ``lr 0.5 for 0.05``."""
    around, _, name = path.rpartition(".")
    word = around.rpartition(".")[2] if name == "name" else _NAMES.get(name, name)
    word = word.replace("_", " ")
    if value is None:
        return f"no {word} for {_shown(printed)}"
    is_part = name in _AMOUNTS and isinstance(value, (int, float)) and isinstance(printed, (int, float))
    joint = "of" if is_part and value < printed else "for"  # type: ignore[operator]
    return f"{word} {_shown(value)} {joint} {_shown(printed)}"


def _shown(value: object) -> str:
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, list):
        return ", ".join(map(_shown, value))
    if isinstance(value, float):
        return f"{value:,.6g}"
    return f"{value:,}" if isinstance(value, int) else str(value)


def with_setting(verdict: Verdict, recipe: Recipe, rows: Sequence[Row]) -> Verdict:
    """Return a verdict with the settings in which the run deviates from the printed ones, in words."""
    matches = [row for row in rows if all(is_same(row.get(name), value) for name, value in verdict.where.items())]
    last = matches[-1] if matches else {}
    words = deviations(recipe, verdict.where, verdict.panel, last, verdict.seeds)
    return verdict.with_entries(setting=words) if words else verdict


def of_file(path: Path) -> list[Verdict]:
    """Return the published numbers that ``expect.json`` names; none where it is missing or damaged."""
    try:
        return [row for row in read(path) if row.kind == "published"]
    except (UsageError, MissingResource):
        return []


def of_recipe(recipe: Recipe) -> list[Verdict]:
    """Return the published numbers that a recipe expects, without an answer."""
    checks = [check for check in recipe.checks if check.expect.kind == "published"]
    return [verdict(check, name, float(n), []) for check in checks for name, n in check.columns.items()]


def matched(rows: Sequence[Row], numbers: Sequence[Verdict]) -> list[tuple[Row, str, float]]:
    """The published numbers that belong to exactly one row: the row, the column and the number."""
    points = []
    for number in numbers:
        matches = [row for row in rows if all(is_same(row.get(key), value) for key, value in number.where.items())]
        # the row of a training is its last epoch
        if matches and (len(matches) == 1 or "epoch" in matches[-1]):
            points.append((matches[-1], number.column, number.expected))
    return points
