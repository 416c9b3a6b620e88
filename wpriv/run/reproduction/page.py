"""Write a reproduction as web pages, one for each paper and one over all: self-contained, figures as inline SVG."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable, Sequence
from pathlib import Path

from wpriv.config import yaml_document
from wpriv.files import durable_writes
from wpriv.files.json_values import plain
from wpriv.run import recipe_files
from wpriv.run.reproduction import collect, together
from wpriv.run.reproduction.collect import ItemResult, RecipeResult, Row
from wpriv.run.reproduction.items import Paper, slug
from wpriv.run.results import file_names, plot, summary, web_page

REPORT, INDEX = "report.json", "index.html"


def write(papers: Sequence[Paper], results: Sequence[ItemResult], out: Path, *, quick: bool) -> list[Path]:
    """Write ``report.json``, a page for each paper and ``index.html``; return the files."""
    durable_writes.make_folder(out)
    content = json.dumps(plain(collect.report(list(results), quick=quick)), indent=1, allow_nan=False) + "\n"
    files = [out / REPORT]
    durable_writes.replace(files[0], content)
    for paper in papers:
        of_paper = [result for result in results if result.item.paper == paper.name]
        files.append(out / f"{paper.name}.html")
        durable_writes.replace(files[-1], _paper_page(paper, of_paper, out, quick=quick))
    files.append(out / INDEX)
    durable_writes.replace(files[-1], _index(papers, results, quick=quick))
    return files


def _index(papers: Sequence[Paper], results: Sequence[ItemResult], *, quick: bool) -> str:
    """The page over all papers: one line for each item."""
    parts = ["<h1>Tables, figures and statements of five papers, beside what wpriv finds</h1>", _legend(quick)]
    for paper in papers:
        of_paper = [result for result in results if result.item.paper == paper.name]
        rows = [
            [
                f'<a href="{paper.name}.html#{slug(each.item.name)}">{web_page.text(each.item.name)}</a>',
                web_page.text(each.item.about),
                web_page.word(each.verdict),
                web_page.text(collect.counts(each)),
            ]
            for each in of_paper
        ]
        parts.append(
            f'<section><h2><a href="{paper.name}.html">{web_page.text(paper.title)}</a></h2>'
            f'<p class="soft">{web_page.text(paper.authors)}: {web_page.text(summary_of(of_paper))}</p>'
            f"{web_page.table(['item', 'what it shows', 'verdict', 'numbers met'], rows, name='items')}</section>"
        )
    return web_page.document("wpriv: the five papers reproduced", "\n".join(parts))


def _paper_page(paper: Paper, results: Sequence[ItemResult], out: Path, *, quick: bool) -> str:
    head = (
        f'<p class="soft"><a href="{INDEX}">all papers</a></p><h1>{web_page.text(paper.title)}</h1>'
        f"<p>{web_page.text(paper.authors)}. {web_page.text(summary_of(results))}.</p>{_legend(quick)}"
    )
    sections = (_section(result, out) for result in results)
    return web_page.document(f"{paper.title}: reproduced", "\n".join([head, _contents(results), *sections]))


def _contents(results: Sequence[ItemResult]) -> str:
    """The items of a page with their verdicts, each linked."""
    rows = [
        [
            f'<a href="#{slug(each.item.name)}">{web_page.text(each.item.name)}</a>',
            web_page.word(each.verdict),
            web_page.text(collect.counts(each)),
        ]
        for each in results
    ]
    table = web_page.table(["item", "verdict", "numbers met"], rows)
    return f"<details><summary>Contents: {len(rows)} items</summary>{table}</details>"


def _legend(quick: bool) -> str:
    words = "; ".join(f"{web_page.word(word)}: {web_page.text(meaning)}" for word, meaning in collect.VERDICTS.items())
    note = (
        '<p class="missing">These runs used the quick settings of the recipes: less data, fewer steps, coarser grids. '
        "Their numbers are no reproduction.</p>"
        if quick
        else ""
    )
    return (
        f'<p class="soft">{words}. A number is <b>published</b> (printed in the paper), a <b>reference</b> (computed '
        f"apart: closed form, mpmath, another program) or our <b>own</b> (an earlier run of the same recipe, by the "
        f"program of a commit; <b>same commit</b>: the results are of this commit too, so that nothing was compared). "
        f"A difference is in percent, or in the unit of the number where the tolerance is absolute. "
        f"After ± stands the standard deviation of one training, of so many seeds.</p>{note}"
    )


def _section(result: ItemResult, out: Path) -> str:
    """One item: the verdict, what is missing, and for each recipe its numbers, claims and figures."""
    item = result.item
    head = f'<section id="{slug(item.name)}"><h2>{web_page.text(item.name)}</h2>'
    parts = [f"{head} {web_page.word(result.verdict)}<p>{web_page.text(item.about)}</p>"]
    if item.missing:
        parts.append(f'<p class="missing">Not reproduced: {web_page.text(item.missing)}.</p>')
    parts += _together_figure(result, out)
    for each in result.recipes:
        parts.append(_recipe(each, out))
    return "\n".join([*parts, "</section>"])


def _recipe(result: RecipeResult, out: Path) -> str:
    is_own = result.folder == out / result.name
    command = f"<code>{web_page.text(command_of(result))}</code>"
    if result.status != "done":
        reason = f": {web_page.text(result.reason)}" if result.reason else ""
        return f'<p class="missing">{command} {web_page.text(result.status)}{reason}</p>'
    parts = [f"<p>{command}</p>"]
    if result.kept and not is_own:
        parts.append(f'<p class="kept">Kept results of an earlier run: {web_page.text(commit_of(result))}.</p>')
    if result.note:
        parts.append(f'<p class="kept">{web_page.text(result.note)}.</p>')
    if result.expect:
        parts.append(web_page.expected(result.expect))
    if result.failing:
        parts.append(f'<p class="missing">{web_page.text(failing_in_words(result))}.</p>')
    parts += web_page.claims(result.claims)
    parts += _figures(result, out if is_own else None)
    lengths = result.provenance.get("rows") if result.kept else None
    lengths = lengths if isinstance(lengths, dict) else {}
    parts.append(web_page.numbers_behind(result.table, length=int(lengths.get(file_names.TABLE, 0))))
    parts.append(web_page.numbers_behind(result.runs, "Each training", length=int(lengths.get(file_names.RUNS, 0))))
    parts.append(_of_all(result.together))
    parts.append(f'<p class="soft">{web_page.text(web_page.origin(result.provenance))}</p>')
    return "\n".join(parts)


def _of_all(together: Row) -> str:
    """The cost of all trainings of a recipe together; empty for a single one, and where none is private."""
    if not together.get("trainings"):
        return ""
    guarantee = web_page.text(summary.guarantee_of_all(together))
    return f'<p class="soft">All {together["trainings"]} private trainings together: {guarantee}.</p>'


def _figures(result: RecipeResult, base: Path | None) -> list[str]:
    """The figures of a results folder as inline SVG; kept ones below the folder ``base`` as links to their files."""
    name, label = result.name.replace("/", "-"), f"Figure of {result.name}; its numbers are in the table below"
    if result.kept:
        files = sorted(result.folder.glob("*.svg"))
        if base is not None:
            return web_page.linked([path.relative_to(base).as_posix() for path in files], label)
        return web_page.inline([path.read_text(encoding="utf-8") for path in files], name, label)

    def draw(folder: Path) -> list[Path]:
        return plot.plot(result.folder, formats=("svg",), out=folder)

    return web_page.figures(draw, name, label)


def _together_figure(result: ItemResult, out: Path) -> list[str]:
    """The figure over all recipes of an item, where it has one and their results are there."""
    name = f"{result.item.paper}-{slug(result.item.name)}-together"
    label = f"{result.item.name} from all recipes; their numbers are in the tables below"
    if together.can_be_drawn(result):
        return web_page.figures(lambda folder: together.plot(result, folder), name, label)
    file = together.file_name(result)
    if not (out / file).is_file():
        return []
    outdated = together.outdated_panels(result, out / file)
    words = [f'<p class="missing">{web_page.text(together.note(outdated))}.</p>'] if outdated else []
    return [*words, *web_page.linked([file], label)]


def failing_in_words(result: RecipeResult) -> str:
    """Return in how many rows of a table of statements they fail, by how many errors of the paper, and in which."""
    errors = f", by {collect.plural(result.errors, 'error')} of the paper" if result.errors else ""
    words = f"{len(result.failing)} of {collect.plural(len(result.table), 'row')}{errors}"
    return f"The statement fails in {words}: {'; '.join(result.failing)}"


def commit_of(result: RecipeResult) -> str:
    """Return the commit that computed results, in words."""
    commit = result.provenance.get("git_commit")
    return f"commit {str(commit)[:12]}" if commit else f"wpriv {result.provenance.get('wpriv', 'of unknown version')}"


def command_of(result: RecipeResult) -> str:
    """Return the command that runs the recipe."""
    kind = yaml_document.read(recipe_files.find(result.name)).data["kind"]
    return f"wpriv {kind} {result.name}"


def summary_of(results: Iterable[ItemResult]) -> str:
    """Return how many items have each verdict, in words."""
    counts = Counter(result.verdict for result in results)
    return ", ".join(f"{counts[word]} {word}" for word in collect.VERDICTS if counts[word])
