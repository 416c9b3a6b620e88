"""The items of the five papers (the lists in ``items/``), and the run of their recipes into one folder."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from wpriv.accounting import load_recipe
from wpriv.config import resolve, yaml_document
from wpriv.config.recipe import Check, Recipe
from wpriv.errors import CheckFailed, Interrupted, MissingResource, UsageError, WprivError
from wpriv.files import durable_writes
from wpriv.hints import did_you_mean
from wpriv.numerics import numbers
from wpriv.results import expectations, model, storage
from wpriv.results.expectations import Verdict
from wpriv.results.model import Row

PAPERS = ("plc", "wdp", "dpswd", "wgrad", "ldp")
_FOLDER = Path(__file__).parent / "items"


@dataclass(frozen=True)
class Seen:
    """What a person saw who looked at the kept figure of an item beside the paper's: a verdict, and the reason."""

    verdict: str
    says: str


@dataclass(frozen=True)
class Headline:
    """A claim that the paper makes in its abstract, the verdict on it, and the reason."""

    claim: str
    verdict: str
    because: str


@dataclass(frozen=True)
class Item:
    """A table, figure or statement of a paper.

    Attributes:
        paper: short name of the paper.
        name: as the paper calls it, such as ``Figure 4``.
        about: what it shows.
        recipes: names of the shipped recipes that reproduce it; empty where nothing does.
        missing: what is not reproduced and why; empty where all is.
        together: the figure, and the name of the panels of each recipe, of one figure over several recipes.
        has_claims: False where the claims and expected numbers of its recipes are about other items.
        seen: of an item whose figure has no number to compare. no_data: why its data cannot be had; empty if they can.
    """

    paper: str
    name: str
    about: str
    recipes: tuple[str, ...] = ()
    missing: str = ""
    together: tuple[str, tuple[tuple[str, str], ...]] | None = None
    has_claims: bool = True
    seen: Seen | None = None
    no_data: str = ""


@dataclass(frozen=True)
class Paper:
    """A paper, its items, and the claims of its abstract."""

    name: str
    title: str
    authors: str
    items: tuple[Item, ...]
    headlines: tuple[Headline, ...] = ()


def paper(name: str) -> Paper:
    """Read the items of one paper."""
    data = yaml_document.read(_FOLDER / f"{name}.yaml").data
    items = []
    for row in data["items"]:
        fields = {**row, "name": row["item"], "recipes": tuple(row.get("recipes", ()))}
        if "together" in row:
            fields["together"] = str(row["together"]["figure"]), tuple(row["together"]["panels"].items())
        if "seen" in row:
            fields["seen"] = Seen(**row["seen"])
        items.append(Item(name, **{key: value for key, value in fields.items() if key != "item"}))
    headlines = tuple(Headline(**row) for row in data.get("headlines", ()))
    return Paper(name, data["title"], data["authors"], tuple(items), headlines)


def select(word: str) -> list[Paper]:
    """Return the papers, with those of their items that a word names: ``all``, a paper or an item of one.

    An item is named as ``plc/figure-4``, or by one of its recipes, as ``plc/fig4-adp-pdp``.

    Raises:
        UsageError: the word names nothing.
    """
    if word == "all":
        return [paper(name) for name in PAPERS]
    name, _, rest = word.partition("/")
    if name not in PAPERS:
        raise UsageError(
            f"no paper called {name[:60]!r}{did_you_mean(name, ['all', *PAPERS]) or '.'} Known: all, "
            f"{', '.join(PAPERS)}"
        )
    chosen = paper(name)
    if not rest:
        return [chosen]
    some = tuple(item for item in chosen.items if rest == slug(item.name) or word in item.recipes)
    if not some:
        known = [slug(item.name) for item in chosen.items]
        raise UsageError(
            f"{name} has no item {rest[:60]!r}{did_you_mean(rest, known) or '.'} Its items: {', '.join(known)}"
        )
    return [replace(chosen, items=some)]


def slug(name: str) -> str:
    """Return the name of an item as it stands in a command: ``figures-1-5-and-6``."""
    kept = "".join(letter if letter.isalnum() else " " for letter in name.lower())
    return "-".join(kept.split())


# Expected numbers, sources and claims of a recipe may change after it was run; the results stay those of the recipe.

# columns of which the claim of a row speaks; other columns of trainings are measured
_PROMISED = ("epsilon", "delta", "sigma", "noise")


def is_of(recipe: Recipe, folder: Path) -> bool:
    """Return True if a folder holds results of this recipe, with equal keys in all that decides the results."""
    return is_same(recipe, storage.recipe_in(folder))


def is_same(recipe: Recipe, data: object) -> bool:
    """Return True if the data of another recipe equal those of a recipe in all that decides the results."""
    return bool(essence(data) == essence(json.loads(json.dumps(recipe.data))))


def essence(data: Any) -> Any:
    """Return what decides the results of a recipe: without texts, figures and expected numbers, files by name."""
    return with_names_of_files(resolve.essence(data))


def with_names_of_files(data: Any) -> Any:
    """A recipe with the files of observations that it reads without the folders that hold them."""
    if isinstance(data, Mapping):
        return {
            key: Path(value).name if key == "file" and isinstance(value, str) else with_names_of_files(value)
            for key, value in data.items()
        }
    return [with_names_of_files(value) for value in data] if isinstance(data, list) else data


def answered(check: Check, column: str, expected: float, entries: Sequence[Verdict]) -> Verdict | None:
    """Return the verdict on an expected number by those of an earlier run, with the claim of our number.

    None where they have no answer at that place.
    """
    for entry in entries:
        is_same_place = entry.column == column and entry.panel == check.panel and set(entry.where) == set(check.where)
        if is_same_place and all(expectations.is_same(entry.where[key], value) for key, value in check.where.items()):
            row = {
                "panel": check.panel,
                **check.where,
                column: entry.ours,
                expectations.SEEDS: entry.seeds,
                f"{column}{expectations.DEVIATION}": entry.deviation,
            }
            return expectations.verdict(check, column, expected, [row]).with_entries(claim=entry.claim)
    return None


def today(recipe: Recipe, entries: Sequence[Verdict], table: Sequence[Row] = ()) -> list[Verdict]:
    """Return verdicts on the numbers that a recipe expects today, by the answers of its earlier run.

    A number that is expected since then is looked up in the table of that run. Where it has none, it is not measured; a
    quick run, whose grid lacks most of the numbers, has no such verdicts.

    Args:
        entries: the verdicts of that run. table: all rows of the results, or none where some were left out.
    """
    verdicts = []
    for check in recipe.checks:
        for column, number in check.columns.items():
            verdict = answered(check, column, float(number), entries) or _of_table(recipe, check, column, number, table)
            if verdict is not None:
                verdicts.append(verdict)
            elif not recipe.quick:
                verdict = expectations.verdict(check, column, float(number), [])
                verdicts.append(verdict.with_entries(claim=None, not_measured=True))
    return [expectations.with_setting(each, recipe, table) for each in verdicts]


def _of_table(recipe: Recipe, check: Check, column: str, expected: float, table: Sequence[Row]) -> Verdict | None:
    """The verdict on an expected number by the table of a run; None where no row has an answer."""
    training = recipe.training
    # the table of one training is its course, of which the end counts
    rows = list(table[-1:] if training is not None and not training.has_several else table)
    first = training is not None and training.sweep is None
    verdict = expectations.verdict(check, column, float(expected), rows, first=first)
    return None if verdict.ours is None else verdict.with_entries(claim=None)


def with_claims(verdicts: list[Verdict], table: Sequence[Row], kind: str) -> list[Verdict]:
    """Return verdicts with the claim of our number: exact, certified, ..., or measured.

    Args:
        table: the rows of the results. kind: of the recipe.
    """
    return [each if each.claim else each.with_entries(claim=_claim(each, table, kind)) for each in verdicts]


def with_same_commit(verdicts: list[Verdict], commit: object) -> list[Verdict]:
    """Return verdicts, those marked whose expected number is an own one of the commit of the results."""
    return [
        each.with_entries(same_commit=True)
        if each.kind == "own" and each.commit and str(commit).startswith(each.commit)
        else each
        for each in verdicts
    ]


def _claim(verdict: Verdict, table: Sequence[Row], kind: str) -> str | None:
    if kind == "train" and verdict.column not in _PROMISED:
        return "measured"
    place = {**({"panel": verdict.panel} if verdict.panel else {}), **verdict.where}
    words = {
        row.get("claim")
        for row in table
        if all(expectations.is_same(row.get(key), value) for key, value in place.items())
    }
    return words.pop() if len(words) == 1 else None


STATUS, REPORT = "status.json", "report.json"
# the schema of the report of kept results, a folder in which nothing is run
KEPT = "wpriv.kept/1"
# nothing is known of the time of a recipe without one
UNKNOWN_SECONDS = 3600.0


@dataclass(frozen=True)
class Planned:
    """A recipe to be run, its folder below that of the reproduction, and the seconds that it takes on one core."""

    name: str
    recipe: Recipe
    folder: Path
    seconds: float


def planned(papers: Iterable[Paper], out: Path, *, quick: bool) -> list[Planned]:
    """Return the recipes of some papers, the fastest first."""
    names = dict.fromkeys(name for paper in papers for item in paper.items for name in item.recipes)
    plans = []
    for name in names:
        recipe = load_recipe.read(name, quick=quick)
        seconds = UNKNOWN_SECONDS if recipe.time is None else recipe.time.seconds
        plans.append(Planned(name, recipe, folder_of(out, name, quick=quick), seconds))
    return sorted(plans, key=lambda each: each.seconds)


def folder_of(out: Path, name: str, *, quick: bool) -> Path:
    """Return the results folder of a recipe within a reproduction."""
    return out / (f"{name}-quick" if quick else name)


def run(
    plans: list[Planned],
    out: Path,
    *,
    at_most: float,
    jobs: int = 1,
    root: Path | None = None,
    say: Callable[[str], None],
) -> dict[str, dict[str, Any]]:
    """Run recipes one after another; one that fails is noted, and the others still run.

    Args:
        at_most: seconds of one core; a recipe that would exceed what is left of them is not begun.
        jobs: trainings of a sweep that run at the same time.
        root: folder of the data sets.
        say: called with a line before each recipe that is run, and for each that cannot be run.
    Returns:
        For each recipe ``status`` (done, refused where data or a device is missing, failed, or not run), ``reason``
        and ``seconds``; also kept in the folder.
    Raises:
        Interrupted: a signal arrived; the same command continues.
        UsageError: the folder is one of kept results.
    """
    if is_kept(out):
        raise UsageError(
            f"{out} holds kept results, in which nothing is run. Name another folder with --out, and give this one "
            f"with --keep"
        )
    left = at_most
    for number, plan in enumerate(plans, start=1):
        key, is_same = str(plan.folder.relative_to(out)), is_of(plan.recipe, plan.folder)
        if stored_status(out).get(key, {}).get("status") == "done" and is_same:
            continue
        duration = numbers.duration(plan.seconds)
        if plan.seconds > left:
            note: dict[str, Any] = {"status": "not run", "reason": f"it takes about {duration} of one core"}
        else:
            say(f"{number} of {len(plans)}: {plan.name}, about {duration}")
            changed = not is_same and (plan.folder / storage.RECIPE).is_file()
            # a run that is killed has the folder of this recipe with the results of its earlier form
            _note(out, key, {"status": "not run", "reason": "it was begun and has not ended; the same command goes on"})
            note = _run_one(plan, jobs=jobs, root=root, changed=changed)
            if note["status"] != "done":
                say(f"{plan.name} was not run: {note['reason']}")
            left -= plan.seconds
        _note(out, key, note)
    return stored_status(out)


def _note(out: Path, key: str, note: dict[str, Any]) -> None:
    """Note the state of one recipe beside what this command and others have noted of other recipes."""
    durable_writes.make_folder(out)
    status = stored_status(out) | {key: note}
    durable_writes.replace(out / STATUS, json.dumps(status, indent=2, sort_keys=True) + "\n")


def is_kept(folder: Path) -> bool:
    """Return whether a folder holds kept results of a reproduction."""
    try:
        return model.json_object(folder / REPORT).get("schema") == KEPT
    except (UsageError, MissingResource):
        return False


def stored_status(out: Path) -> dict[str, dict[str, Any]]:
    """Return what earlier runs noted of each recipe; nothing where the file is missing or damaged."""
    try:
        status = json.loads((out / STATUS).read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return {}
    if not isinstance(status, dict):
        return {}
    return {name: note for name, note in status.items() if isinstance(note, dict)}


def _run_one(plan: Planned, *, jobs: int, root: Path | None, changed: bool) -> dict[str, Any]:
    """Run one recipe where it stopped, or anew where it has changed since, and say how it ended."""
    started = time.monotonic()
    try:
        if plan.recipe.kind == "train":
            _train(plan, jobs=jobs, root=root)
        else:
            from wpriv.accounting.comparison import compare

            compare.run(plan.recipe, plan.folder, fresh=changed)
    except Interrupted:
        raise Interrupted(f"{plan.name} was interrupted; its progress is saved. The same command continues") from None
    except CheckFailed:
        pass  # an expected number was missed: the page shows it
    except WprivError as error:
        status = "refused" if isinstance(error, MissingResource) else "failed"
        return {"status": status, "reason": str(error), "seconds": round(time.monotonic() - started, 1)}
    return {"status": "done", "reason": "", "seconds": round(time.monotonic() - started, 1)}


def _train(plan: Planned, *, jobs: int, root: Path | None) -> None:
    from wpriv.training import sweep, train

    training = plan.recipe.training
    if training is not None and training.has_several:
        sweep.run(plan.recipe, plan.folder, jobs=jobs, root=root)
    else:
        train.run(plan.recipe, plan.folder, root=root, resume=True)
