"""Collect the results of a reproduction item by item: numbers beside ours, verdicts, and where they are from."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from wpriv.errors import UsageError, WprivError
from wpriv.run.reproduction import reproduce
from wpriv.run.reproduction.items import Item, Paper
from wpriv.run.results import expectations, file_names, read, stored_json, summary

SCHEMA = "wpriv.reproduction/1"
VERDICTS = {
    "reproduced": "all that the item shows is reproduced within the tolerances",
    "partly": "a part of the item is reproduced; what is missing is said",
    "differs": "it was run, and what the paper says or prints is not borne out",
    "not run": "there is a recipe that was not run here, or could not be",
    "not covered": "no recipe reproduces it; the reason is said",
}
KEPT = ("panel", "where", "column", "kind", "ours", "difference", "within", "absolute", "source")  # of expect.json
CLAIM = {"paper", "found", "because"}  # the keys of a claim
Row = dict[str, Any]


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
    """

    name: str
    folder: Path
    status: str
    reason: str
    expect: list[Row] = field(default_factory=list)
    claims: list[dict[str, str]] = field(default_factory=list)
    provenance: Row = field(default_factory=dict)
    table: list[Row] = field(default_factory=list)
    runs: list[Row] = field(default_factory=list)
    together: Row = field(default_factory=dict)

    def as_dict(self) -> Row:
        """The recipe as ``report.json`` holds it, without its expected numbers."""
        kept = {"recipe": self.name, "status": self.status, "reason": self.reason, "claims": self.claims}
        return {**kept, **({"runs": self.runs} if self.runs else {})}


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


def collect(papers: Iterable[Paper], out: Path, *, quick: bool) -> list[ItemResult]:
    """Read the results of the items of some papers."""
    status = reproduce.stored_status(out)
    results = []
    for paper in papers:
        for item in paper.items:
            recipes = [_result(name, out, status, quick=quick) for name in item.recipes]
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
    if noted.get("status") != "done":
        return RecipeResult(name, folder, str(noted.get("status")), str(noted.get("reason", "")))
    files = [folder / file_names.TABLE, folder / file_names.METRICS]
    try:
        provenance = (
            stored_json.read(folder / file_names.PROVENANCE) if (folder / file_names.PROVENANCE).exists() else {}
        )
        expect = _expected(folder / file_names.EXPECT)
        table = next((read.table(path) for path in files if path.is_file()), [])
        runs = read.table(folder / file_names.RUNS) if (folder / file_names.RUNS).is_file() else []
        together = summary.statement_of_all(folder)[0] or {}
        claims = provenance.get("claims", [])
        if not isinstance(claims, list) or not all(isinstance(claim, dict) and set(claim) >= CLAIM for claim in claims):
            raise UsageError(f"{folder / file_names.PROVENANCE} is damaged: its claims are none")
    except WprivError as error:
        return RecipeResult(name, folder, "damaged", f"{error}. Remove {folder} and run it again")
    return RecipeResult(name, folder, "done", "", expect, claims, provenance, table, runs, together)


def _verdict(item: Item, recipes: list[RecipeResult]) -> str:
    if not recipes:
        return "not covered"
    done = [result for result in recipes if result.status == "done"]
    missed = any(not row["ok"] for result in done for row in result.expect)
    if missed or any(result.claims for result in done):
        return "differs"
    if not done:
        return "not run"
    return "reproduced" if len(done) == len(recipes) and not item.missing else "partly"


def _numbers(row: Row) -> Row:
    """An expected number of ``expect.json`` as a row of the report."""
    verdict = expectations.verdict_word(row).lower()
    more = {key: row[key] for key in ("commit", "noise_version", "seeds", "deviation") if row.get(key) is not None}
    return {**{key: row[key] for key in KEPT}, **more, "expected": row["expected"], "verdict": verdict}


def _expected(path: Path) -> list[Row]:
    """The rows of ``expect.json``; none where the recipe expects no numbers."""
    if not path.exists():
        return []
    rows = stored_json.read(path).get("expect")
    needed = {*KEPT, "expected", "ok", "held"}
    if not isinstance(rows, list) or not all(isinstance(row, dict) and needed <= set(row) for row in rows):
        raise UsageError(f"{path} is damaged: it lacks the expected numbers")
    return rows
