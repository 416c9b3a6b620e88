"""Collect the results of a reproduction item by item: numbers beside ours, verdicts, and where they are from."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from wpriv.accounting import load_recipe
from wpriv.errors import MissingResource, UsageError, WprivError
from wpriv.files.durable_writes import plain
from wpriv.papers.reproduction import reproduce
from wpriv.papers.reproduction.reproduce import Item, Paper, slug
from wpriv.results import expectations, model, storage
from wpriv.results import plot as composite_figure
from wpriv.results.expectations import Verdict
from wpriv.results.model import Claim, Claims, Row, Together
from wpriv.training.reports import folder_page

SCHEMA = "wpriv.reproduction/1"
VERDICTS = {
    "reproduced": "all that the item shows is reproduced within the tolerances",
    "shown": "it is computed and drawn, but neither the paper nor a reference has a number that it was compared with",
    "partly": "a part of the item is reproduced; what is missing is said",
    "not reached": "it was run with a smaller budget than the paper's, or by another procedure, as is said, and does "
    "not reach a number that the paper prints; this is no evidence against the paper",
    "differs": "it was run, and what the paper says or prints is not borne out",
    "not run": "there is a recipe that was not run here, or could not be",
    "not covered": "no recipe reproduces it; the reason is said",
}
COLUMNS = ("panel", "where", "column", "kind", "ours", "difference", "within", "absolute", "source", "claim")
OPTIONAL = ("commit", "noise_version", "seeds", "deviation", "side")
ORIGIN = ("wpriv", "git_commit", "platform", "device", "seed", "seeds", "noise_version", "wall_seconds")


@dataclass(frozen=True)
class RecipeResult:
    """What a recipe left in its folder.

    Attributes:
        name: of the recipe.
        folder: its results folder.
        status: done, refused, not run or damaged; ``reason`` says why it is not done.
        expect: its expected numbers beside ours, as in ``expect.json``.
        claims: statements of the paper that are not borne out, with the finding and the reason.
        provenance: what ran where, as in ``provenance.json``.
        table: the rows of its table; of repeated trainings their means and deviations.
        runs: of repeated trainings a row for each of them.
        together: what all trainings of it together keep, as in their statement; empty for a single one.
        kept: whether the results are kept ones of an earlier run, with their figures in the folder.
        note: what a reader must know of the results besides: that the recipe has changed since.
    """

    name: str
    folder: Path
    status: str
    reason: str
    expect: list[Verdict] = field(default_factory=list)
    claims: list[Claim] = field(default_factory=list)
    provenance: Row = field(default_factory=dict)
    table: list[Row] = field(default_factory=list)
    runs: list[Row] = field(default_factory=list)
    together: Together | None = None
    kept: bool = False
    note: str = ""

    @property
    def failing(self) -> list[str]:
        """The names of the statements that fail, of a recipe whose table has one in each row."""
        return [str(row.get("proposition")) for row in self.table if row.get("verdict") == "fails"]

    @property
    def errors(self) -> int:
        """The number of errors of the paper that the failing rows show; several rows can show the same one."""
        return len({row["error"] for row in self.table if row.get("verdict") == "fails" and row.get("error")})

    def as_dict(self) -> Row:
        """The recipe as ``report.json`` holds it, without its expected numbers."""
        claims = [claim.as_dict() for claim in self.claims]
        facts = {"recipe": self.name, "status": self.status, "reason": self.reason, "claims": claims}
        origin = {key: self.provenance[key] for key in ORIGIN if self.provenance.get(key) is not None}
        together = None if self.together is None else self.together.as_dict()
        more = {"runs": self.runs, "note": self.note, "together": together, "origin": origin}
        return {**facts, "kept": self.kept, **{key: value for key, value in more.items() if value}}


@dataclass(frozen=True)
class ItemResult:
    """An item with the results of its recipes and the verdict, a key of ``VERDICTS``."""

    item: Item
    recipes: list[RecipeResult]
    verdict: str

    def as_dict(self) -> Row:
        """The item as ``report.json`` holds it."""
        rows = [{"recipe": result.name, **_numbers(row)} for result in self.recipes for row in result.expect]
        return {
            "paper": self.item.paper,
            "item": self.item.name,
            "about": self.item.about,
            "verdict": self.verdict,
            "missing": self.item.missing,
            "recipes": [each.as_dict() for each in self.recipes],
            "rows": rows,
        }


def collect(papers: Iterable[Paper], out: Path, *, quick: bool, kept: Path | None = None) -> list[ItemResult]:
    """Read the results of the items of some papers.

    Args:
        kept: folder of kept results, which stand for recipes that are not done in ``out``.
    """
    status = reproduce.stored_status(out)
    stand_in = {} if kept is None or kept == out else reproduce.stored_status(kept)
    results = []
    for paper in papers:
        for item in paper.items:
            recipes = []
            for name in item.recipes:
                result = _result(name, out, status, quick=quick)
                if result.status != "done" and kept is not None and name in stand_in:
                    earlier = _result(name, kept, stand_in, quick=False)
                    result = earlier if earlier.status in ("done", "damaged") else result
                recipes.append(result if item.has_claims else replace(result, claims=[], expect=[]))
            results.append(ItemResult(item, recipes, _verdict(item, recipes)))
    return results


def report(results: list[ItemResult], *, quick: bool) -> Row:
    """The results of a reproduction as plain data, the content of ``report.json``."""
    return {
        "schema": SCHEMA,
        "quick": quick,
        "verdicts": dict(Counter(result.verdict for result in results)),
        "items": [result.as_dict() for result in results],
    }


def _result(name: str, out: Path, status: Mapping[str, Row], *, quick: bool) -> RecipeResult:
    folder = reproduce.folder_of(out, name, quick=quick)
    noted = status.get(str(folder.relative_to(out)), {"status": "not run", "reason": ""})
    word = noted.get("status")
    if word not in ("done", reproduce.KEPT):
        return RecipeResult(name, folder, str(word), str(noted.get("reason", "")))
    try:
        return _finished(name, folder, quick=quick, kept=word == reproduce.KEPT)
    except WprivError as error:
        return RecipeResult(name, folder, "damaged", f"{error}. Remove {folder} and run it again")


def _finished(name: str, folder: Path, *, quick: bool, kept: bool) -> RecipeResult:
    """The results in the folder of a recipe, its numbers beside those that the recipe expects today.

    Raises:
        UsageError: a file of the folder is damaged.
    """
    file = folder / storage.PROVENANCE
    provenance = model.json_object(file) if file.exists() else {}
    expect = expectations.read(folder / storage.EXPECT)
    files = [folder / storage.TABLE, folder / storage.METRICS]
    table = next((storage.table(path) for path in files if path.is_file()), [])
    runs = storage.table(folder / storage.RUNS) if (folder / storage.RUNS).is_file() else []
    together = folder_page.statement_of_all(folder)[0]
    claims = model.checked(Claims, provenance, file, "Run the recipe again").claims
    recipe, note = load_recipe.read(name, quick=quick), ""
    if reproduce.is_of(recipe, folder):
        lengths = provenance.get("rows")
        length = lengths.get(storage.TABLE) if isinstance(lengths, dict) else None
        expect = reproduce.today(recipe, expect, table if length in (None, len(table)) else ())
        claims = [Claim(**claim.model_dump()) for claim in recipe.claims]
    else:
        note = "The recipe has changed since; these are the results of the recipe as it was then"
    expect = reproduce.with_claims(expect, table, recipe.kind)
    expect = reproduce.with_same_commit(expect, provenance.get("git_commit"))
    return RecipeResult(name, folder, "done", "", expect, claims, provenance, table, runs, together, kept, note)


def counts(result: ItemResult) -> str:
    """Return how many expected numbers of an item are met, of how many, and how many statements fail, in words.

    Rows of a table of statements are counted apart, with the number of errors that they show.
    """
    numbers = expectations.counts([row for recipe in result.recipes for row in recipe.expect])
    claims, rows, errors = (
        sum(count)
        for count in zip(*((len(each.claims), len(each.failing), each.errors) for each in result.recipes), strict=True)
    )
    statements = f"{plural(claims, 'statement')} {'fail' if claims > 1 else 'fails'}" if claims else ""
    in_table = f"{plural(rows, 'row')} {'fail' if rows > 1 else 'fails'}" if rows else ""
    by = f" by {plural(errors, 'error')}" if errors else ""
    return ", ".join(part for part in (numbers, statements, in_table + by) if part)


def plural(count: int, word: str) -> str:
    """Return a count with its noun."""
    return f"{count} {word}{'s' * (count != 1)}"


def _verdict(item: Item, recipes: list[RecipeResult]) -> str:
    """The verdict on an item; own numbers, which say nothing about the paper, have no part in it."""
    if not recipes:
        return "not covered"
    done = [result for result in recipes if result.status == "done"]
    if not done:
        return "not run"
    numbers = [row for result in done for row in result.expect if row.kind in ("published", "reference")]
    compared = [row for row in numbers if not row.not_measured]
    missed = [row for row in compared if not row.ok]
    if any(row.held for row in missed) or any(result.claims or result.failing for result in done):
        return "differs"
    if missed:
        return "not reached"
    if not compared:
        return "shown"
    is_part = len(done) < len(recipes) or len(compared) < len(numbers) or item.missing
    return "partly" if is_part else "reproduced"


def _numbers(row: Verdict) -> Row:
    """An expected number as a row of the report."""
    entries = vars(row)
    more = {key: entries[key] for key in OPTIONAL if key in row.model_fields_set and entries[key] is not None}
    published = row.expected if row.kind == "published" else None
    numbers = {"published": published, "expected": row.expected}
    return {**{key: entries[key] for key in COLUMNS}, **more, **numbers, "verdict": row.word.lower()}


# One figure of an item from the results of its recipes, as a paper has it.

# what tells a run from others in its provenance
_RUN = ("git_commit", "wall_seconds")


def file_name(result: ItemResult) -> str:
    """Return the file of the figure of an item within a folder of kept results."""
    return f"{result.item.paper}/together/{slug(result.item.name)}.svg"


def origin_file(figure: Path) -> Path:
    """Return the file beside a kept figure that says which runs it was drawn from."""
    return figure.with_suffix(".json")


def origins(result: ItemResult) -> dict[str, dict[str, Any]]:
    """Return what tells the runs of the recipes of an item from others: the commit and the time of each."""
    return {each.name: {key: each.provenance.get(key) for key in _RUN} for each in _panels(result)}


def outdated_panels(result: ItemResult, figure: Path) -> list[str]:
    """Return the recipes whose results in a folder are not those in a kept figure; none if its runs are not known.

    A later run of one recipe replaces its results or is its first, and the figure stays until all are run again.
    """
    try:
        drawn = model.json_object(origin_file(figure))
    except (UsageError, MissingResource):
        return []
    now = plain(origins(result))
    return [name for name, run in now.items() if drawn.get(name) != run]


def note(names: Sequence[str]) -> str:
    """Return the sentence on a figure that does not show the latest results of some recipes."""
    return f"This figure does not show the latest results of {', '.join(names)}; they are below"


def can_be_drawn(result: ItemResult, *, needs_all: bool = False) -> bool:
    """Tell whether an item has such a figure, and whole results of two recipes of it at least, or of all."""
    count, wanted = len(_sources(result)), 0 if result.item.together is None else len(result.item.together[1])
    return count == wanted > 1 if needs_all else count > 1


def plot_item(result: ItemResult, out: Path, formats: Sequence[str] = ("svg",)) -> list[Path]:
    """Draw the figure of an item.

    Raises:
        UsageError: a folder lacks what the figure shows.
    """
    assert result.item.together is not None
    return composite_figure.plot_folders(
        _sources(result), result.item.together[0], formats=formats, out=out, stem=slug(result.item.name)
    )


def _panels(result: ItemResult) -> list[RecipeResult]:
    """The recipes whose results the figure of an item shows, as far as they are there."""
    names = [] if result.item.together is None else [name for name, _ in result.item.together[1]]
    return [each for each in result.recipes if each.name in names and each.status == "done"]


def _sources(result: ItemResult) -> dict[str, Path]:
    """The folders with whole results by the names of their panels."""
    if result.item.together is None:
        return {}
    done = {each.name: each.folder for each in result.recipes if each.status == "done" and not each.kept}
    return {label: done[name] for name, label in result.item.together[1] if name in done}
