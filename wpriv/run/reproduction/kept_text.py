"""Kept results as Markdown, which hosts of repositories show: an overview, and a page with figures for each paper."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from wpriv.files import durable_writes
from wpriv.run.reproduction import collect, page, together
from wpriv.run.reproduction.collect import ItemResult, RecipeResult
from wpriv.run.reproduction.items import Paper
from wpriv.run.results import expectations, render, web_page

README = "README.md"


def write(papers: Sequence[Paper], results: Sequence[ItemResult], folder: Path) -> list[Path]:
    """Write ``README.md`` and a page for each paper into a folder of kept results; return the files."""
    files, entries = [], []
    for paper in papers:
        of_paper = [result for result in results if result.item.paper == paper.name]
        entries.append({**page.entry(paper, of_paper), "published": _published(of_paper)})
        files.append(folder / f"{paper.name}.md")
        text = render.filled(
            "paper.md.j2",
            paper=paper,
            summary=page.summary_of(of_paper),
            items=[_item(result, folder) for result in of_paper],
            most_open=web_page.MOST_OPEN,
        )
        durable_writes.replace(files[-1], text.rstrip() + "\n")
    files.append(folder / README)
    durable_writes.replace(files[-1], render.filled("overview.md.j2", verdicts=collect.VERDICTS, papers=entries))
    return files


def _published(results: Sequence[ItemResult]) -> list[tuple[str, str, expectations.Verdict]]:
    """The numbers that a paper prints: the item, the recipe with the place in its results, and the verdict."""
    return [
        (each.item.name, f"{result.name}: {row.place}" if row.place else result.name, row)
        for each in results
        for result in each.recipes
        for row in result.expect
        if row.kind == "published"
    ]


def _item(result: ItemResult, folder: Path) -> dict[str, object]:
    file = together.file_name(result)
    is_there = (folder / file).is_file()
    outdated = together.outdated_panels(result, folder / file) if is_there else []
    figure = {"together": file if is_there else "", "outdated": together.note(outdated) if outdated else ""}
    recipes = [recipe_of_page(each, folder) for each in result.recipes]
    return {**page.item_facts(result), **figure, "recipes": recipes}


def recipe_of_page(result: RecipeResult, folder: Path) -> dict[str, object]:
    """Return what a page says of a recipe, with the names and paths of its figures."""
    pictures = [(path.stem, path.relative_to(folder).as_posix()) for path in sorted(result.folder.glob("*.svg"))]
    return {**page.recipe_facts(result), "pictures": pictures, "met": expectations.counts(result.expect)}
