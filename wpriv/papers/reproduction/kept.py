"""Figures as small SVG files: text as text instead of outlines of letters, coordinates to a tenth of a point."""

from __future__ import annotations

import base64
import io
import json
import re
import shutil
import tempfile
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from pathlib import Path

from wpriv.config import yaml_document
from wpriv.errors import MissingResource, UsageError, WprivError
from wpriv.files import durable_writes
from wpriv.files.durable_writes import plain
from wpriv.papers.reproduction import collect, page, reproduce
from wpriv.papers.reproduction.collect import ItemResult, RecipeResult
from wpriv.papers.reproduction.reproduce import Paper
from wpriv.results import expectations, model, plot, storage
from wpriv.results.model import Row
from wpriv.training.reports import folder_page, render

MAX_BYTES = 300_000
COLOURS = 64  # of pictures within a figure that is too large
_METADATA = re.compile(r"<metadata>.*?</metadata>|<!--.*?-->", re.S)
_TAG = re.compile(r"<[^>]*>")
# a number with three digits and more behind the point, as in the arguments of a transformation
_LONG = re.compile(r"(?<=[(, ])-?\d+\.\d{3,}(?=[ ,)])")
_PICTURE = re.compile(r"(?<=data:image/png;base64,)[A-Za-z0-9+/=\s]+")


def write_small_svg(draw: Callable[[Path], list[Path]], out: Path) -> list[Path]:
    """Draw figures into small files; none where there is nothing to draw.

    Args:
        draw: draws figures into a folder as SVG and returns the files, others among them.
    """
    from matplotlib import rc_context

    files = []
    with tempfile.TemporaryDirectory() as folder:
        try:
            with rc_context({"svg.fonttype": "none"}):
                pictures = draw(Path(folder))
        except WprivError:
            return []
        for path in pictures:
            if path.suffix == ".svg":
                files.append(out / path.name)
                durable_writes.replace(files[-1], small(path.read_text(encoding="utf-8")))
    return files


def small(picture: str) -> str:
    """Return an SVG file of matplotlib in fewer bytes; pictures in it are made coarser where it exceeds 300 kB."""
    text = shortened(picture)
    size = 1.0
    while len(text) > MAX_BYTES and size > 0.1 and _PICTURE.search(text):
        size /= 2
        text = _PICTURE.sub(partial(_coarser, size=size), shortened(picture))
    return text


def shortened(picture: str) -> str:
    """Return an SVG file without comments and metadata, and with shorter numbers and lines.

    Numbers are shortened within tags alone: those of texts, such as the values of a legend, are what the figure says.

    >>> shortened('<svg x="1.2345">\\n   <!-- a --> <path d="M 10.0625 -3.14159 "/></svg>')
    '<svg x="1.2">\\n<path d="M10.1 -3.1"/></svg>'
    """
    text = _METADATA.sub("", picture)
    text = re.sub(r'(?<= d=")[^"]*', lambda match: _path(match[0]), text)
    text = re.sub(r'(?<= [xy]=")-?\d+\.\d+(?=")', lambda match: _rounded(match[0]), text)
    text = _TAG.sub(lambda tag: _LONG.sub(lambda match: f"{float(match[0]):.2f}", tag[0]), text)
    return re.sub(r"\s*\n\s*", "\n", text).strip() + "\n" * picture.endswith("\n")


def _path(commands: str) -> str:
    """The commands of a path with coordinates to a tenth, steps that do not move left out."""
    text = re.sub(r"-?\d+\.\d+", lambda match: _rounded(match[0]), " ".join(commands.split()))
    text = re.sub(r"\s*([A-Za-z])\s*", r"\1", text)
    # the repeated step must end where the first one does: L1 30 is not the beginning of L1 300
    return re.sub(r"(L[^A-Za-z]+)\1+(?![^A-Za-z])", r"\1", text)


def _rounded(number: str) -> str:
    return f"{float(number):.1f}".removesuffix(".0")


def _coarser(match: re.Match[str], size: float) -> str:
    """A PNG in base64 with a part of its width and height, and fewer colours."""
    from PIL import Image

    picture = Image.open(io.BytesIO(base64.b64decode("".join(match[0].split())))).convert("RGB")
    width, height = (max(1, round(size * length)) for length in picture.size)
    content = io.BytesIO()
    picture.resize((width, height)).quantize(COLOURS).save(content, format="PNG", optimize=True)
    return base64.b64encode(content.getvalue()).decode("ascii")


# Keep the results of a reproduction in small, to be read without a run: numbers, origin, and figures as small SVG.
#
# The folder is itself one of a reproduction, in which each recipe has its recipe as it ran, the expected numbers beside
# ours, the table in short, the origin and the figures. Later runs replace the recipes that they have finished, and
# leave the others as they are.

# of the origin, what no reader needs and what names places of the machine
_NOT_KEPT = ("command", "python", "pyyaml", "pydantic")


def require_folder(path: Path) -> None:
    """Check that kept results can be in a folder.

    Raises:
        UsageError: it holds something else, such as the full results of a reproduction, or its status is damaged.
    """
    if not path.exists() or (path.is_dir() and not any(path.iterdir())):
        return
    if not is_kept(path):
        raise UsageError(
            f"{path} holds no kept results of a reproduction. Name a new folder with --keep, or one that was written so"
        )


def is_kept(path: Path) -> bool:
    """Return whether a folder holds kept results and no others."""
    try:
        notes = model.json_object(path / reproduce.STATUS).values()
    except (UsageError, MissingResource):
        return False
    return all(isinstance(note, dict) and note.get("status") == reproduce.KEPT for note in notes)


def store(results: Iterable[ItemResult], out: Path, folder: Path) -> list[str]:
    """Keep the finished recipes of some items in a folder, and return their names.

    Args:
        results: as collected from ``out``, the folder of the reproduction; kept ones among them are left out.
    Raises:
        UsageError: the folder holds other files, or other results of these recipes. MissingResource: it cannot be
            written.
    """
    require_folder(folder)
    # an item whose recipes are about other items shows them without their claims and expected numbers
    results = sorted(results, key=lambda result: result.item.has_claims)
    done = {each.name: each for result in results for each in result.recipes if each.status == "done" and not each.kept}
    notes, kept = reproduce.stored_status(out), reproduce.stored_status(folder)
    others = [name for name in done if name not in kept and (folder / name).exists()]
    if others:
        raise UsageError(f"{folder / others[0]} is no kept result, and would be replaced. Remove it, or move it away")
    for name, result in done.items():
        note = notes.get(name, {})
        _store(result, folder / name)
        kept[name] = {"status": reproduce.KEPT, "reason": "", "seconds": note.get("seconds")}
        _write_status(folder, kept)
    for item in results:
        if collect.can_be_drawn(item, needs_all=True):
            path = folder / collect.file_name(item)
            durable_writes.make_folder(path.parent)
            if write_small_svg(partial(collect.plot_item, item), path.parent):
                _json(collect.origin_file(path), collect.origins(item))
    _write_status(folder, kept)
    return list(done)


def _store(result: RecipeResult, folder: Path) -> None:
    """Write the results of one recipe in small, and only then put them in place of earlier ones."""
    new, earlier = (folder.with_name(f".{folder.name}.{word}") for word in ("new", "earlier"))
    _remove(new)
    _remove(earlier)
    durable_writes.make_folder(new)
    _write_small(result, new)
    if folder.is_dir():
        durable_writes.rename(folder, earlier.name)
    durable_writes.rename(new, folder.name)
    _remove(earlier)


def _remove(folder: Path) -> None:
    if folder.is_dir():
        with durable_writes.reported(folder):
            shutil.rmtree(folder)


def _write_small(result: RecipeResult, folder: Path) -> None:
    """Write the recipe, the table in short, the origin, the expected numbers and the figures."""
    recipe = yaml_document.read(result.folder / storage.RECIPE).data
    _write(folder / storage.RECIPE, yaml_document.as_yaml(reproduce.with_names_of_files(recipe)))
    rows = {storage.TABLE: result.table, storage.RUNS: result.runs}
    for name, table in rows.items():
        if table:
            _write(folder / name, storage.csv_text([_without_place(row) for row in _in_short(table)]))
    lengths = {name: len(table) for name, table in rows.items() if table}
    origin = {key: value for key, value in result.provenance.items() if key not in _NOT_KEPT}
    _json(folder / storage.PROVENANCE, {**origin, "rows": lengths})
    if expect := [row.as_dict() for row in result.expect if not row.not_measured]:
        entries = {"schema": expectations.SCHEMA, "recipe": result.name, "quick": False, "expect": expect}
        _json(folder / storage.EXPECT, entries)
    if result.together:
        _json(folder / storage.STATEMENT, {"together": result.together.as_dict(), "warnings": []})

    def draw(out: Path) -> list[Path]:
        return plot.plot(result.folder, formats=("svg",), out=out)

    write_small_svg(draw, folder)


def _in_short(table: list[Row]) -> list[Row]:
    """At most 60 rows of a table; all of a table of statements, of which pages count and name those that fail."""
    return table if "proposition" in table[0] else folder_page.thinned(table)


def _without_place(row: Row) -> Row:
    """A row of a table with the file of observations that it read, without the folder that holds it."""
    return {**row, "file": Path(str(row["file"])).name} if row.get("file") else row


def _write_status(folder: Path, notes: dict[str, Row]) -> None:
    durable_writes.make_folder(folder)
    _json(folder / reproduce.STATUS, dict(sorted(notes.items())))


def _json(path: Path, content: Row) -> None:
    _write(path, json.dumps(plain(content), indent=1, allow_nan=False) + "\n")


def _write(path: Path, text: str) -> None:
    durable_writes.replace(path, text)


# Kept results as Markdown, which hosts of repositories show: an overview, and a page with figures for each paper.

README = "README.md"


def write_text(papers: Sequence[Paper], results: Sequence[ItemResult], folder: Path) -> list[Path]:
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
            most_open=folder_page.MOST_OPEN,
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
    file = collect.file_name(result)
    is_there = (folder / file).is_file()
    outdated = collect.outdated_panels(result, folder / file) if is_there else []
    figure = {"together": file if is_there else "", "outdated": collect.note(outdated) if outdated else ""}
    recipes = [recipe_of_page(each, folder) for each in result.recipes]
    return {**page.item_facts(result), **figure, "recipes": recipes}


def recipe_of_page(result: RecipeResult, folder: Path) -> dict[str, object]:
    """Return what a page says of a recipe, with the names and paths of its figures."""
    pictures = [(path.stem, path.relative_to(folder).as_posix()) for path in sorted(result.folder.glob("*.svg"))]
    return {**page.recipe_facts(result), "pictures": pictures, "met": expectations.counts(result.expect)}
