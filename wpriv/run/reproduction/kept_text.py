"""Kept results as Markdown, which hosts of repositories show: an overview, and a page with figures for each paper."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from wpriv.files import durable_writes
from wpriv.run.reproduction import collect, page, together
from wpriv.run.reproduction.collect import ItemResult, RecipeResult, Row
from wpriv.run.reproduction.items import Paper, slug
from wpriv.run.results import expectations, web_page

README = "README.md"
ABOUT = """\
# Kept results of the reproductions

Every table, figure and statement of the five papers, as far as it was run: the number of the paper beside ours. Nothing
has to be run to read this: the pages below have numbers and figures, `index.html` is the same in a browser, and
`report.json` the same as data.

This folder is written by `wpriv reproduce all --keep reproductions`, not by hand. For each recipe the commit, the
machine and the time of its own run are stated; runs at other commits replace what they have run, and leave the rest.
Tables are shortened to 60 rows, but for those of statements, and figures drawn for small files; `wpriv reproduce PAPER`
computes all of them. An own number of the same commit as the results was compared with itself, and is not counted among
the numbers met.

An expected number is published (printed in the paper), a reference (computed apart: a closed form, mpmath or another
program) or our own (an earlier run of the same recipe). The difference of ours from it, and the tolerance beside it
("within"), are relative, in percent, or, for an absolute tolerance, in the unit of the number. "Or more" and "or less"
stand behind numbers that ours may exceed, or stay below, by any amount. After ± stands the standard deviation of one
training, of so many seeds. Accuracies are shares of 1. "Our claim" says whether our number is exact, certified by a
bracket, an upper bound, approximate, a formula as published, or measured by a training.

Times are by the clock, of runs that shared their machine with other work; `wpriv recipe ls` has those of one core.
The columns of trainings are explained in `docs/reference/tasks.md`, those of tables in `docs/reference/figures.md`.
Tables of a paper that only define notation or list the layers of a network have no item.
"""


def write(papers: Sequence[Paper], results: Sequence[ItemResult], folder: Path) -> list[Path]:
    """Write ``README.md`` and a page for each paper into a folder of kept results; return the files."""
    files = []
    parts = [ABOUT, _verdicts()]
    for paper in papers:
        of_paper = [result for result in results if result.item.paper == paper.name]
        parts.append(_overview(paper, of_paper))
        files.append(folder / f"{paper.name}.md")
        durable_writes.replace(files[-1], _paper(paper, of_paper, folder))
    files.append(folder / README)
    durable_writes.replace(files[-1], "\n".join(parts))
    return files


def _verdicts() -> str:
    rows = [[word, meaning] for word, meaning in collect.VERDICTS.items()]
    return _table(["verdict", "meaning"], rows)


def _overview(paper: Paper, results: Sequence[ItemResult]) -> str:
    """The items of a paper, and the numbers that it prints beside ours."""
    items = [
        [
            f"[{_cell(each.item.name)}]({paper.name}.md#{slug(each.item.name)})",
            each.item.about,
            f"**{each.verdict}**",
            collect.counts(each),
        ]
        for each in results
    ]
    parts = [
        f"## {paper.title}\n",
        f"{paper.authors}: {page.summary_of(results)}. Figures and all numbers: [{paper.name}.md]({paper.name}.md).\n",
        _table(["item", "what it shows", "verdict", "numbers met"], items),
    ]
    numbers = [
        [each.item.name, _place(result, row), row["column"], *_numbers(row)]
        for each in results
        for result in each.recipes
        for row in result.expect
        if row["kind"] == "published"
    ]
    if numbers:
        parts.append(f"Numbers that the paper prints, beside ours ({len(numbers)}):\n")
        parts.append(_table(["item", "at", "column", "published", "ours", "difference", "within", "verdict"], numbers))
    return "\n".join(parts)


def _paper(paper: Paper, results: Sequence[ItemResult], folder: Path) -> str:
    parts = [f"# {paper.title}\n", f"{paper.authors}: {page.summary_of(results)}. [All papers]({README}).\n"]
    for each in results:
        parts.append(f'<a id="{slug(each.item.name)}"></a>\n\n## {each.item.name}\n')
        parts.append(f"**{each.verdict}**: {each.item.about}.\n")
        if each.item.missing:
            parts.append(f"Not reproduced: {each.item.missing}.\n")
        if (folder / (file := together.file_name(each))).is_file():
            parts.append(f"![{each.item.name} from all recipes]({file})\n")
            if outdated := together.outdated_panels(each, folder / file):
                parts.append(f"{together.note(outdated)}.\n")
        parts += [_recipe(result, folder) for result in each.recipes]
    return "\n".join(parts)


def _recipe(result: RecipeResult, folder: Path) -> str:
    """The command of a recipe, the origin of its results, its numbers, claims and figures."""
    if result.status != "done":
        return f"`{page.command_of(result)}`: {result.status}.\n"
    note = f" {result.note}." if result.note else ""
    parts = [f"`{page.command_of(result)}`: {web_page.origin(result.provenance)}.{note}\n"]
    if result.failing:
        parts.append(f"{page.failing_in_words(result)}.\n")
    for claim in result.claims:
        parts.append(
            f"> The paper says: {claim['paper']}\n>\n> We find: {claim['found']}\n>\n> Because: {claim['because']}\n"
        )
    for path in sorted(result.folder.glob("*.svg")):
        parts.append(f"![{path.stem} of {result.name}]({path.relative_to(folder).as_posix()})\n")
    if result.expect:
        rows = [
            [web_page.place(row), row["column"], _kind(row), *_numbers(row), row.get("claim") or "", row["source"]]
            for row in result.expect
        ]
        header = ["at", "column", "kind", "expected", "ours", "difference", "within", "verdict", "our claim", "source"]
        met = expectations.counts(result.expect)
        summary = f"{met} numbers within their tolerances" if met else f"{len(rows)} numbers, not compared"
        parts.append(f"<details{' open' * (len(rows) <= web_page.MOST_OPEN)}><summary>{summary}</summary>\n")
        parts.append(_table(header, rows) + "\n</details>\n")
    return "\n".join(parts)


def _place(result: RecipeResult, row: Row) -> str:
    """The recipe of an expected number, and where in its results the number is, unless they have one row alone."""
    place = web_page.place(row)
    return f"{result.name}: {place}" if place else result.name


def _kind(row: Row) -> str:
    return f"{row['kind']}, commit {row['commit']}" if row.get("commit") else str(row["kind"])


def _numbers(row: Row) -> list[str]:
    word = expectations.verdict_word(row).lower()
    verdict = f"**{word}**" if expectations.is_missed(row) else word
    distance = (web_page.difference(row), web_page.tolerance(row))
    return [web_page.expected_number(row), web_page.ours(row), *distance, verdict]


def _table(header: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    lines = [header, ["---"] * len(header), *rows]
    return "".join(f"| {' | '.join(_cell(cell) for cell in line)} |\n" for line in lines)


def _cell(text: str) -> str:
    """Text without what ends a cell of a table."""
    return str(text).replace("|", "\\|").replace("\n", " ")
