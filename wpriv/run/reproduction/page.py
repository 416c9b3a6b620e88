"""Write a reproduction as web pages, one for each paper and one over all: self-contained, figures as inline SVG."""

from __future__ import annotations

import html
import json
import re
import tempfile
from collections import Counter
from collections.abc import Collection, Iterable, Sequence
from pathlib import Path
from typing import Any

from wpriv.errors import WprivError
from wpriv.files import durable_writes
from wpriv.files.json_values import plain
from wpriv.numerics.safe_rounding import text
from wpriv.run.reproduction import collect
from wpriv.run.reproduction.collect import ItemResult, RecipeResult, Row
from wpriv.run.reproduction.items import Paper, slug
from wpriv.run.results import plot

REPORT, INDEX = "report.json", "index.html"
STYLE = Path(__file__).parent / "page.css"
# rows of a table that a page shows in full below a figure
MAX_ROWS = 60
NO_COLUMNS = {"process", "source", "warnings", "reason"}


def write(papers: Sequence[Paper], results: Sequence[ItemResult], out: Path, *, quick: bool) -> list[Path]:
    """Write ``report.json``, a page for each paper and ``index.html``; return the files."""
    durable_writes.make_folder(out)
    content = json.dumps(plain(collect.report(list(results), quick=quick)), indent=1, allow_nan=False) + "\n"
    files = [out / REPORT]
    durable_writes.replace(files[0], content)
    for paper in papers:
        of_paper = [result for result in results if result.item.paper == paper.name]
        files.append(out / f"{paper.name}.html")
        durable_writes.replace(files[-1], _paper_page(paper, of_paper, quick=quick))
    files.append(out / INDEX)
    durable_writes.replace(files[-1], _index(papers, results, quick=quick))
    return files


def _document(title: str, body: str) -> str:
    return (
        f'<!doctype html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        f'<meta name="viewport" content="width=device-width, initial-scale=1">\n<title>{_text(title)}</title>\n'
        f"<style>\n{STYLE.read_text(encoding='utf-8')}</style>\n</head>\n<body>\n{body}\n</body>\n</html>\n"
    )


def _index(papers: Sequence[Paper], results: Sequence[ItemResult], *, quick: bool) -> str:
    """The page over all papers: one line for each item."""
    parts = ["<h1>Tables, figures and statements of five papers, beside what wpriv finds</h1>", _legend(quick)]
    for paper in papers:
        of_paper = [result for result in results if result.item.paper == paper.name]
        rows = [
            [
                f'<a href="{paper.name}.html#{slug(each.item.name)}">{_text(each.item.name)}</a>',
                _text(each.item.about),
                _word(each.verdict),
                _text(_counts(each)),
            ]
            for each in of_paper
        ]
        parts.append(
            f'<section><h2><a href="{paper.name}.html">{_text(paper.title)}</a></h2>'
            f'<p class="soft">{_text(paper.authors)}: {_text(_summary(of_paper))}</p>'
            f"{_table(['item', 'what it shows', 'verdict', 'numbers'], rows)}</section>"
        )
    return _document("wpriv: the five papers reproduced", "\n".join(parts))


def _paper_page(paper: Paper, results: Sequence[ItemResult], *, quick: bool) -> str:
    head = (
        f'<p class="soft"><a href="{INDEX}">all papers</a></p><h1>{_text(paper.title)}</h1>'
        f"<p>{_text(paper.authors)}. {_text(_summary(results))}.</p>{_legend(quick)}"
    )
    return _document(f"{paper.title}: reproduced", "\n".join([head, *(_section(result) for result in results)]))


def _legend(quick: bool) -> str:
    words = "; ".join(f"{_word(word)}: {_text(meaning)}" for word, meaning in collect.VERDICTS.items())
    note = (
        '<p class="missing">These runs used the quick settings of the recipes: less data, fewer steps, coarser grids. '
        "Their numbers are no reproduction.</p>"
        if quick
        else ""
    )
    return (
        f'<p class="soft">{words}. A number is <b>published</b> (printed in the paper), a <b>reference</b> (computed '
        f"apart: closed form, mpmath, another program) or our <b>own</b> (an earlier run of the same recipe, by the "
        f"program of a commit). After ± stands the standard deviation of one training, of so many seeds.</p>{note}"
    )


def _section(result: ItemResult) -> str:
    """One item: the verdict, what is missing, and for each recipe its numbers, claims and figures."""
    item = result.item
    parts = [
        f'<section id="{slug(item.name)}"><h2>{_text(item.name)}</h2> {_word(result.verdict)}<p>{_text(item.about)}</p>'
    ]
    if item.missing:
        parts.append(f'<p class="missing">Not reproduced: {_text(item.missing)}.</p>')
    for each in result.recipes:
        parts.append(_recipe(each))
    return "\n".join([*parts, "</section>"])


def _recipe(result: RecipeResult) -> str:
    command = f"<code>{_text(_command(result))}</code>"
    if result.status != "done":
        reason = f": {_text(result.reason)}" if result.reason else ""
        return f'<p class="missing">{command} {_text(result.status)}{reason}</p>'
    parts = [f"<p>{command}</p>"]
    if result.expect:
        rows = [_expected(row) for row in result.expect]
        header = ["at", "column", "kind", "expected", "ours", "difference", "within", "verdict", "source"]
        parts.append(_table(header, rows, numbers={3, 4, 5, 6}))
    for claim in result.claims:
        parts.append(
            f"<blockquote><p><b>The paper says:</b> {_text(claim['paper'])}</p><p><b>We find:</b> "
            f"{_text(claim['found'])}</p><p><b>Because:</b> {_text(claim['because'])}</p></blockquote>"
        )
    parts += _figures(result)
    parts.append(_fallback(result.table))
    parts.append(_fallback(result.runs, "Each training"))
    parts.append(_together(result.together))
    parts.append(f'<p class="soft">{_text(_origin(result.provenance))}</p>')
    return "\n".join(parts)


def _expected(row: Row) -> list[str]:
    place = {**({"panel": row["panel"]} if row["panel"] else {}), **row["where"]}
    verdict = "ok" if row["ok"] else "missed" if row["held"] else "not reached"
    within = f"{row['within']:g}" + (" absolute" if row["absolute"] else "")
    kind = f"{row['kind']}, commit {row['commit']}" if row.get("commit") else row["kind"]
    cells = [", ".join(f"{key} {value}" for key, value in place.items()), row["column"], kind]
    cells += [_number(row["expected"]), _ours(row), _number(row["difference"], 2), within]
    return [*map(_text, cells), _word(verdict), _text(row["source"])]


def _ours(row: Row) -> str:
    """Our number; of repeated trainings the mean, the standard deviation of one of them and their number."""
    if row.get("deviation") is None:
        return _number(row["ours"])
    return f"{_number(row['ours'])} ± {_number(row['deviation'], 2)} ({row['seeds']} seeds)"


def _together(together: Row) -> str:
    """The cost of all trainings of a recipe together; empty for a single one, and where none is private."""
    if not together.get("trainings"):
        return ""
    if together.get("epsilon") is None:
        found = f"no figure, since {together.get('problem')}"
    else:
        found = f"eps = {text(together['epsilon'], up=True)} at delta = {together['delta']:g}, {together['claim']}"
    return f'<p class="soft">All {together["trainings"]} private trainings together: {_text(found)}.</p>'


def _figures(result: RecipeResult) -> list[str]:
    """The figures of a results folder as inline SVG."""
    figures = []
    with tempfile.TemporaryDirectory() as folder:
        try:
            paths = plot.plot(result.folder, formats=("svg",), out=folder)
        except WprivError as error:
            return [f'<p class="soft">No figure: {_text(str(error))}</p>']
        for number, path in enumerate(paths):
            picture = path.read_text(encoding="utf-8")
            name = f"{result.name.replace('/', '-')}-{number}"
            label = _text(f"Figure of {result.name}; its numbers are in the table below")
            figures.append(f'<figure role="img" aria-label="{label}">{_inline(picture, name)}</figure>')
    return figures


def _inline(picture: str, name: str) -> str:
    """An SVG file without its prologue, its identifiers made unique on the page."""
    picture = picture[picture.index("<svg") :]
    picture = re.sub(r'\bid="([^"]+)"', rf'id="{name}-\1"', picture)
    picture = re.sub(r"url\(#([^)]+)\)", rf"url(#{name}-\1)", picture)
    return re.sub(r'(xlink:href|href)="#([^"]+)"', rf'\1="#{name}-\2"', picture)


def _fallback(rows: list[Row], title: str = "The numbers of the figure") -> str:
    """The table behind a figure, or another one, in plain text."""
    if not rows:
        return ""
    names = [
        name for name in rows[0] if name not in NO_COLUMNS and any(row.get(name) not in (None, "") for row in rows)
    ]
    step = -(-len(rows) // MAX_ROWS)
    shown = rows[::step]
    cells = [[_text(_number(row.get(name))) for name in names] for row in shown]
    count = f"{len(shown)} of {len(rows)} rows" if step > 1 else f"{len(rows)} rows"
    return f"<details><summary>{title}, {count}</summary>{_table(names, cells)}</details>"


def _origin(provenance: Row) -> str:
    """Where and when the numbers were computed."""
    parts = [f"wpriv {provenance.get('wpriv', '')}"]
    if provenance.get("git_commit"):
        parts.append(f"commit {str(provenance['git_commit'])[:12]}")
    if provenance.get("wall_seconds") is not None:
        parts.append(f"{provenance['wall_seconds']:.3g} s")
    parts.append(f"device {provenance.get('device', 'cpu')}")
    if provenance.get("seed") is not None:
        parts.append(f"seed {provenance['seed']}")
    if (provenance.get("seeds") or 1) > 1:
        parts.append(f"{provenance['seeds']} runs of each setting")
    parts += [str(provenance[key]) for key in ("platform",) if provenance.get(key)]
    return ", ".join(parts)


def _command(result: RecipeResult) -> str:
    verb = "train" if "task" in _stored_recipe(result.folder) else "compare"
    return f"wpriv {verb} {result.name}"


def _stored_recipe(folder: Path) -> dict[str, Any]:
    from wpriv.config import yaml_document
    from wpriv.run.results import file_names

    path = folder / file_names.RECIPE
    return yaml_document.read(path).data if path.is_file() else {}


def _summary(results: Iterable[ItemResult]) -> str:
    counts = Counter(result.verdict for result in results)
    return ", ".join(f"{counts[word]} {word}" for word in collect.VERDICTS if counts[word])


def _counts(result: ItemResult) -> str:
    rows = [row for recipe in result.recipes for row in recipe.expect]
    return f"{sum(row['ok'] for row in rows)} of {len(rows)}" if rows else ""


def _word(verdict: str) -> str:
    return f'<span class="verdict {slug(verdict)}">{_text(verdict)}</span>'


def _table(header: Sequence[str], rows: Iterable[Sequence[str]], numbers: Collection[int] = ()) -> str:
    """A table of cells that are HTML already; columns of ``numbers`` are set flush right."""

    def line(tag: str, cells: Sequence[str]) -> str:
        marks = (' class="number"' if place in numbers else "" for place in range(len(cells)))
        return (
            "<tr>" + "".join(f"<{tag}{mark}>{cell}</{tag}>" for mark, cell in zip(marks, cells, strict=True)) + "</tr>"
        )

    head = line("th", [_text(name) for name in header])
    body = "\n".join(line("td", row) for row in rows)
    return f'<div class="wide"><table><thead>{head}</thead><tbody>\n{body}\n</tbody></table></div>'


def _number(value: Any, digits: int = 6) -> str:
    if value is None:
        return ""
    return f"{value:.{digits}g}" if isinstance(value, float) else str(value)


def _text(value: str) -> str:
    return html.escape(str(value))
