"""Write a reproduction as web pages, one for each paper and one over all: self-contained, figures as inline SVG."""

from __future__ import annotations

import base64
import json
from collections import Counter
from collections.abc import Iterable, Sequence
from pathlib import Path

from wpriv.config import recipe_files, yaml_document
from wpriv.files import durable_writes
from wpriv.files.durable_writes import plain
from wpriv.papers.reproduction import collect
from wpriv.papers.reproduction.collect import ItemResult, RecipeResult
from wpriv.papers.reproduction.reproduce import REPORT, Paper, slug
from wpriv.results import expectations, plot, storage
from wpriv.training.reports import folder_page, render

INDEX = "index.html"
LEGEND = {"verdicts": collect.VERDICTS, "row_words": expectations.WORDS}
"""What a page says of verdicts: on items, and on expected numbers."""


def write(papers: Sequence[Paper], results: Sequence[ItemResult], out: Path, *, quick: bool) -> list[Path]:
    """Write ``report.json``, a page for each paper and ``index.html``; return the files."""
    durable_writes.make_folder(out)
    content = json.dumps(plain(collect.report(list(results), quick=quick)), indent=1, allow_nan=False) + "\n"
    files = [out / REPORT]
    durable_writes.replace(files[0], content)
    entries = []
    for paper in papers:
        of_paper = [result for result in results if result.item.paper == paper.name]
        files.append(out / f"{paper.name}.html")
        text = render.filled(
            "paper.html.j2",
            title=f"{paper.title}: what is reproduced",
            paper=paper,
            summary=summary_of(of_paper),
            **LEGEND,
            quick=quick,
            items=[_item(result) for result in of_paper],
        )
        durable_writes.replace(files[-1], text)
        entries.append(entry(paper, of_paper))
    files.append(out / INDEX)
    title = "wpriv: the five papers reproduced"
    text = render.filled("index.html.j2", title=title, **LEGEND, quick=quick, papers=entries)
    durable_writes.replace(files[-1], text)
    return files


def entry(paper: Paper, results: Sequence[ItemResult]) -> dict[str, object]:
    """Return what an overview says of a paper."""
    about = {"name": paper.name, "title": paper.title, "authors": paper.authors, "headlines": paper.headlines}
    about["summary"] = summary_of(results)
    return {**about, "items": [item_facts(result) for result in results]}


def item_facts(result: ItemResult) -> dict[str, object]:
    """Return what every page says of an item."""
    item = result.item
    facts = {"name": item.name, "slug": slug(item.name), "about": item.about, "missing": item.missing}
    facts |= {"seen": item.seen.says if item.seen else "", "no_data": item.no_data}
    return {**facts, "verdict": result.verdict, "failures": result.failures, "counts": collect.counts(result)}


def recipe_facts(result: RecipeResult) -> dict[str, object]:
    """Return what every page says of a recipe."""
    facts = {"name": result.name, "status": result.status, "reason": result.reason, "note": result.note}
    facts["setting"] = result.setting
    numbers = {"claims": result.claims, "expect": result.expect, "together": result.together}
    failing = failing_in_words(result) if result.failing else ""
    origin = folder_page.origin_line(result.provenance)
    command = f"wpriv {yaml_document.read(recipe_files.find(result.name)).data['kind']} {result.name}"
    return {**facts, **numbers, "failing": failing, "command": command, "origin": origin}


def _item(result: ItemResult) -> dict[str, object]:
    """One item: the verdict, what is missing, and for each recipe its numbers, claims and figures."""
    recipes = [recipe_of_page(each) for each in result.recipes]
    return {**item_facts(result), "together": together_figure(result), "recipes": recipes}


def recipe_of_page(result: RecipeResult) -> dict[str, object]:
    """Return what a page says of a recipe, with its tables and figures as HTML."""
    if result.status != "done":
        return recipe_facts(result)
    commit, version = (result.provenance.get(key) for key in ("git_commit", "wpriv"))
    origin = f"commit {str(commit)[:12]}" if commit else f"wpriv {version or 'of unknown version'}"
    lengths = [result.rows.get(name, 0) for name in (storage.TABLE, storage.RUNS)]
    return {
        **recipe_facts(result),
        "expected": folder_page.expected_table(result.expect) if result.expect else "",
        "kept_commit": origin if result.kept else "",
        "figures": _figures(result),
        "numbers": folder_page.numbers_behind(result.table, length=lengths[0]),
        "runs": folder_page.numbers_behind(result.runs, "Each training", length=lengths[1]),
    }


def _figures(result: RecipeResult) -> str:
    """The figures of a results folder as inline SVG, or the pictures of kept results."""
    label = f"Figure of {result.name}; its numbers are in the table below"
    if result.kept:
        return _pictures(collect.pictures(result.folder), label)
    return folder_page.figures(
        lambda out: plot.plot(result.folder, formats=("svg",), out=out), result.name.replace("/", "-"), label
    )


def _pictures(files: Sequence[Path], label: str) -> str:
    """WebP files within the page."""
    contents = [base64.b64encode(path.read_bytes()).decode("ascii") for path in files]
    return render.part("linked", [f"data:image/webp;base64,{content}" for content in contents], label)


def together_figure(result: ItemResult) -> str:
    """Return the figure over all recipes of an item, where it has one and their results are there, or a kept one."""
    name = f"{result.item.paper}-{slug(result.item.name)}-together"
    label = f"{result.item.name} from all recipes; their numbers are in the tables below"
    if collect.can_be_drawn(result):
        return folder_page.figures(lambda folder: collect.plot_item(result, folder), name, label)
    if result.figure is None:
        return ""
    outdated = collect.outdated_panels(result)
    older = render.part("note", f"{collect.note(outdated)}.") if outdated else ""
    return older + _pictures([result.figure], label)


def failing_in_words(result: RecipeResult) -> str:
    """Return in how many rows of a table of statements they fail, by how many errors of the paper, and in which."""
    errors = f", by {collect.plural(result.errors, 'error')} of the paper" if result.errors else ""
    words = f"{len(result.failing)} of {collect.plural(len(result.table), 'row')}{errors}"
    return f"The statement fails in {words}: {'; '.join(result.failing)}"


def summary_of(results: Iterable[ItemResult]) -> str:
    """Return how many items have each verdict, in words."""
    counts = Counter(result.verdict for result in results)
    return ", ".join(f"{counts[word]} {word}" for word in collect.VERDICTS if counts[word])
