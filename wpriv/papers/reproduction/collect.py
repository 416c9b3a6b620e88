"""Collect the results of a reproduction item by item: numbers beside ours, verdicts, and where they are from."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from wpriv.accounting import load_recipe
from wpriv.config.recipe import Recipe
from wpriv.errors import WprivError
from wpriv.files.durable_writes import plain
from wpriv.papers.reproduction import reproduce
from wpriv.papers.reproduction.reproduce import Item, Paper, slug
from wpriv.results import expectations, model, storage
from wpriv.results import plot as composite_figure
from wpriv.results.expectations import Verdict
from wpriv.results.model import Claim, Claims, Row, Stored, Together
from wpriv.training.reports import folder_page

SCHEMA = "wpriv.reproduction/1"
VERDICTS = {
    "reproduced": "all that the item shows is reproduced within the tolerances",
    "partly": "a part of the item is reproduced; what is missing is said",
    "contradicted": "what the paper says or prints is wrong; the proof, the counterexample, the exact value or the run "
    "of its own procedure is named",
    "other procedure": "it was run by another procedure than the paper's, which is named; this is no evidence for or "
    "against the paper",
    "not reached": "it was run with a smaller budget than the paper's, or with settings that the paper does not state, "
    "and does not reach what it prints; this is no evidence against the paper",
    "not run": "there is a recipe that can run, and no finished run of it is kept",
    "no data": "the data are not to be had",
}
COLUMNS = ("panel", "where", "column", "kind", "ours", "difference", "within", "absolute", "source", "claim")
OPTIONAL = ("commit", "noise_version", "seeds", "deviation", "side", "procedure", "contradicted", "setting")
ORIGIN = ("wpriv", "git_commit", "platform", "device", "seed", "seeds", "noise_version", "wall_seconds")


@dataclass(frozen=True)
class RecipeResult:
    """What a recipe left in its folder.

    Attributes:
        name: of the recipe.
        folder: its results folder; of kept results, the beginning of the paths of its pictures.
        status: done, refused, failed, not run or damaged; ``reason`` says why it is not done.
        expect: its expected numbers beside ours, as in ``expect.json``.
        claims: statements of the paper that are not borne out, with the finding and the reason.
        provenance: what ran where, as in ``provenance.json``.
        table: the rows of its table; of repeated trainings their means and deviations.
        runs: of repeated trainings a row for each of them.
        together: what all trainings of it together keep, as in their statement; empty for a single one.
        kept: whether the results are kept ones of an earlier run, with their pictures.
        rows: of kept results the number of rows that their tables had.
        note: what a reader must know of the results besides: that the recipe has changed since.
        setting: the procedure where it is not the paper's, and the settings in which the runs deviate from the printed
            ones, with the place where these are printed.
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
    rows: Mapping[str, int] = field(default_factory=dict)
    note: str = ""
    setting: str = ""

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
        more = {"setting": self.setting, "runs": self.runs, "note": self.note, "together": together, "origin": origin}
        return {**facts, "kept": self.kept, **{key: value for key, value in more.items() if value}}


@dataclass(frozen=True)
class ItemResult:
    """An item with the results of its recipes and the verdict.

    Attributes:
        verdict: a key of ``VERDICTS``.
        figure: the kept figure over its recipes. drawn: what tells the runs in it from others, by recipe; empty where
            there is none.
    """

    item: Item
    recipes: list[RecipeResult]
    verdict: str
    figure: Path | None = None
    drawn: Mapping[str, object] = field(default_factory=dict)

    def as_dict(self) -> Row:
        """The item as ``report.json`` holds it."""
        rows = [{"recipe": result.name, **_numbers(row)} for result in self.recipes for row in result.expect]
        return {**self.facts(), "recipes": [each.as_dict() for each in self.recipes], "rows": rows}

    def facts(self) -> Row:
        """The item alone, with its verdict."""
        item = self.item
        facts = {"paper": item.paper, "item": item.name, "about": item.about}
        seen = {"seen": item.seen.says} if item.seen is not None else {}
        no_data = {"no_data": item.no_data} if item.no_data else {}
        return {**facts, "verdict": self.verdict, "missing": item.missing, **seen, **no_data, "failures": self.failures}

    @property
    def failures(self) -> list[str]:
        """Failures of this program, as against errors of the paper: numbers missed, and results damaged."""
        done = [result for result in self.recipes if result.status == "done"]
        missed = sum(row.is_missed for result in done for row in result.expect)
        broken = [f"{each.name} {each.status}" for each in self.recipes if each.status in ("failed", "damaged")]
        return [*([f"{plural(missed, 'number')} missed"] if missed else []), *broken]


class KeptRecipe(Stored):
    """What kept results hold of a recipe; tables are lines of CSV, ``rows`` how many rows they had."""

    seconds: float | None
    recipe: dict[str, object]
    provenance: dict[str, object]
    rows: dict[str, int]
    expect: list[Verdict]
    together: Together | None
    table: list[str]
    runs: list[str]


class Kept(Stored):
    """The report of kept results: recipes by name, and for each figure over several ones what tells its runs apart."""

    recipes: dict[str, object]
    figures: dict[str, dict[str, object]]


KEEP_AGAIN = "Remove its entry and keep the results of the recipe again"


def collect(papers: Iterable[Paper], out: Path, *, quick: bool, kept: Path | None = None) -> list[ItemResult]:
    """Read the results of the items of some papers.

    Args:
        kept: folder of kept results, which stand for recipes that are not done in ``out``.
    """
    status = reproduce.stored_status(out)
    stored = Kept(recipes={}, figures={}) if kept is None else model.read(Kept, kept / reproduce.REPORT, KEEP_AGAIN)
    results = []
    for paper in papers:
        for item in paper.items:
            recipes = []
            for name in item.recipes:
                result = _result(name, out, status, quick=quick)
                if result.status != "done" and kept is not None and name in stored.recipes:
                    result = _kept(name, kept, stored.recipes[name])
                recipes.append(result if item.has_claims else replace(result, claims=[], expect=[]))
            result_of_item = ItemResult(item, recipes, _verdict(item, recipes, quick=quick))
            if kept is not None and (kept / (file := file_name(result_of_item))).is_file():
                result_of_item = replace(result_of_item, figure=kept / file, drawn=stored.figures.get(file, {}))
            results.append(result_of_item)
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
    result = RecipeResult(name, folder, str(noted.get("status")), str(noted.get("reason", "")))
    if result.status != "done":
        return result
    try:
        return _by_today(_finished(result), storage.recipe_in(folder), quick=quick)
    except WprivError as error:
        return replace(result, status="damaged", reason=f"{error}. Remove {folder} and run it again")


def _finished(result: RecipeResult) -> RecipeResult:
    """The results in the folder of a recipe."""
    folder = result.folder
    file = folder / storage.PROVENANCE
    files = [folder / storage.TABLE, folder / storage.METRICS]
    return replace(
        result,
        expect=expectations.read(folder / storage.EXPECT),
        provenance=model.json_object(file) if file.exists() else {},
        table=next((storage.table(path) for path in files if path.is_file()), []),
        runs=storage.table(folder / storage.RUNS) if (folder / storage.RUNS).is_file() else [],
        together=folder_page.statement_of_all(folder)[0],
    )


def _kept(name: str, folder: Path, entry: object) -> RecipeResult:
    """The kept results of a recipe, whose pictures begin with its name and a dot."""
    place = f"{folder / reproduce.REPORT}: {name}"
    result = RecipeResult(name, folder / name, "done", "", kept=True)
    try:
        record = model.checked(KeptRecipe, entry, place, KEEP_AGAIN)
        table, runs = (
            storage.parsed_table("\n".join(lines), place) if lines else [] for lines in (record.table, record.runs)
        )
        result = replace(result, expect=record.expect, table=table, runs=runs, rows=record.rows)
        result = replace(result, provenance=record.provenance, together=record.together)
        return _by_today(result, record.recipe, quick=False)
    except WprivError as error:
        return replace(result, status="damaged", reason=str(error))


def _by_today(result: RecipeResult, ran: object, *, quick: bool) -> RecipeResult:
    """Results beside the numbers that their recipe expects today, or with a note where it has changed since."""
    recipe = load_recipe.read(result.name, quick=quick)
    expect, table, note = result.expect, result.table, ""
    claims = model.checked(Claims, result.provenance, result.folder / storage.PROVENANCE, "Run the recipe again").claims
    if reproduce.is_same(recipe, ran):
        length = result.rows.get(storage.TABLE)
        expect = reproduce.today(recipe, expect, table if length in (None, len(table)) else ())
        claims = [Claim(**claim.model_dump()) for claim in recipe.claims]
    else:
        note = "The recipe has changed since; these are the results of the recipe as it was then"
    expect = reproduce.with_claims(expect, table, recipe.kind)
    expect = reproduce.with_same_commit(expect, result.provenance.get("git_commit"))
    setting = "" if note else _setting(recipe, result)
    return replace(result, expect=expect, claims=claims, note=note, setting=setting)


def _setting(recipe: Recipe, result: RecipeResult) -> str:
    """The procedure of a recipe where it is not the paper's, and what is not as printed, in words."""
    procedure = str(recipe.data.get("procedure", ""))
    last = result.table[-1] if result.table else {}
    seeds = recipe.training.seeds if recipe.training is not None else None
    panels = [panel.name for panel in recipe.panels] or [""]
    deviations = (expectations.deviations(recipe, {}, panel, last, seeds or 1) for panel in panels)
    words = "; ".join(dict.fromkeys(each for each in deviations if each))
    printed = f"not as printed ({recipe.printed.source}): {words}" if words and recipe.printed is not None else ""
    return "; ".join(part for part in (procedure, printed) if part)


def counts(result: ItemResult) -> str:
    """Return how many expected numbers of an item are met, of how many, and how many statements fail, in words.

    Rows of a table of statements are counted apart, with the number of errors that they show.
    """
    numbers = expectations.counts([row for recipe in result.recipes for row in recipe.expect])
    claims = Counter(claim.verdict for recipe in result.recipes for claim in recipe.claims)
    statements = ", ".join(f"{plural(count, 'statement')} {verdict}" for verdict, count in claims.items())
    rows, errors = (sum(len(each.failing) for each in result.recipes), sum(each.errors for each in result.recipes))
    in_table = f"{plural(rows, 'row')} {'fail' if rows > 1 else 'fails'}" if rows else ""
    by = f" by {plural(errors, 'error')}" if errors else ""
    return ", ".join(part for part in (numbers, statements, in_table + by) if part)


def plural(count: int, word: str) -> str:
    """Return a count with its noun."""
    return f"{count} {word}{'s' * (count != 1)}"


def _verdict(item: Item, recipes: list[RecipeResult], *, quick: bool = False) -> str:
    """The verdict on an item; own numbers, which say nothing about the paper, have no part in it.

    What a person saw in the figure counts where it is worse than the verdict of the numbers, or there is none; quick
    runs have other figures.
    """
    done = [result for result in recipes if result.status == "done"]
    if not done:
        return "no data" if item.no_data else "not run"
    rows = [row for result in done for row in result.expect if row.kind in ("published", "reference")]
    words = Counter(row.word for row in rows)
    verdicts = [item.seen.verdict] if item.seen is not None and not quick else []
    verdicts += [claim.verdict for result in done for claim in result.claims]
    if words["contradicted"] or any(result.failing for result in done):
        verdicts.append("contradicted")
    elif words["not reached"] or words["missed"]:
        verdicts.append("not reached")
    elif words["met"] or words["above"]:
        is_whole = words.keys() <= {"met"} and len(done) == len(recipes) and not item.missing
        is_whole = is_whole and not any(row.setting for row in rows if row.kind == "published")
        verdicts.append("reproduced" if is_whole else "partly")
    elif words["other procedure"]:
        verdicts.append("other procedure")
    return max(verdicts, key=_WORSE.index, default="no data" if item.no_data else "not reached")


# what a verdict yields to another one of the same item
_WORSE = ("reproduced", "partly", "other procedure", "no data", "not reached", "contradicted")


def _numbers(row: Verdict) -> Row:
    """An expected number as a row of the report."""
    entries = vars(row)
    more = {key: entries[key] for key in OPTIONAL if key in row.model_fields_set and entries[key] is not None}
    published = row.expected if row.kind == "published" else None
    numbers = {"published": published, "expected": row.expected}
    return {**{key: entries[key] for key in COLUMNS}, **more, **numbers, "verdict": row.word}


# The figure of an item over several recipes, and the pictures of kept results.

# what tells a run from others in its provenance
_RUN = ("git_commit", "wall_seconds")


def pictures(path: Path) -> list[Path]:
    """Return the kept pictures of a recipe: the files beside its path that begin with its name and a dot."""
    return sorted(path.parent.glob(f"{path.name}.*.webp"))


def file_name(result: ItemResult) -> str:
    """Return the file of the figure of an item within a folder of kept results."""
    return f"{result.item.paper}/{slug(result.item.name)}.webp"


def origins(result: ItemResult) -> dict[str, dict[str, object]]:
    """Return what tells the runs of the recipes of an item from others: the commit and the time of each."""
    return {each.name: {key: each.provenance.get(key) for key in _RUN} for each in _panels(result)}


def outdated_panels(result: ItemResult) -> list[str]:
    """Return the recipes whose results are not those in the kept figure of an item; none if its runs are not known.

    A later run of one recipe replaces its results or is its first, and the figure stays until all are run again.
    """
    now = plain(origins(result)) if result.drawn else {}
    return [name for name, run in now.items() if result.drawn.get(name) != run]


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
