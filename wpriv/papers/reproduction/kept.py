"""Keep the results of a reproduction in reduced form, to be read without a run: one report, pages and pictures.

``report.json`` has of each recipe its data as it ran, the expected numbers beside ours, the tables in short and the
origin; a Markdown page for each paper, which hosts of repositories show, has the pictures. Later runs replace the
recipes that they have finished, and leave the others as they are.
"""

from __future__ import annotations

import io
import json
import tempfile
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from pathlib import Path

from wpriv.config import yaml_document
from wpriv.errors import UsageError, WprivError
from wpriv.files import durable_writes
from wpriv.files.durable_writes import plain
from wpriv.papers.reproduction import collect, page, reproduce
from wpriv.papers.reproduction.collect import ItemResult, RecipeResult
from wpriv.papers.reproduction.reproduce import Paper
from wpriv.results import expectations, model, plot, storage
from wpriv.results.model import Row
from wpriv.training.reports import folder_page, render

README = "README.md"
PIXELS_PER_INCH = 64  # of a picture: about the least at which its letters can be read
WIDTH = 920  # largest width of a picture in pixels
QUALITY = 58  # of WebP: lines, letters and light bands keep their colours
# of the origin, what no reader needs and what names places of the machine
_NOT_KEPT = ("command", "python", "pyyaml", "pydantic")


def small_pictures(draw: Callable[[Path], list[Path]]) -> dict[str, bytes]:
    """Return figures as small WebP files by name; none where there is nothing to draw.

    Args:
        draw: draws figures into a folder as PNG and returns the files, others among them.
    """
    with tempfile.TemporaryDirectory() as folder:
        try:
            drawn = [path for path in draw(Path(folder)) if path.suffix == ".png"]
            return {f"{path.stem}.webp": small(path.read_bytes()) for path in drawn}
        except WprivError:
            return {}


def small(picture: bytes) -> bytes:
    """Return a WebP file of 64 pixels to the inch up to a width of 920."""
    from PIL import Image

    drawn = Image.open(io.BytesIO(picture))
    share = min(PIXELS_PER_INCH / drawn.info.get("dpi", (PIXELS_PER_INCH,))[0], WIDTH / drawn.width, 1.0)
    image = drawn.convert("RGB")
    if share < 1:
        image = image.resize((round(share * drawn.width), round(share * drawn.height)), Image.Resampling.LANCZOS)
    file = io.BytesIO()
    image.save(file, format="WEBP", quality=QUALITY, method=6, use_sharp_yuv=True)
    return file.getvalue()


def require_folder(path: Path) -> None:
    """Check that kept results can be in a folder.

    Raises:
        UsageError: it holds something else, such as the full results of a reproduction, or its report is damaged.
    """
    is_new = not path.exists() or (path.is_dir() and not any(path.iterdir()))
    if not is_new and not reproduce.is_kept(path):
        raise UsageError(
            f"{path} holds no kept results of a reproduction. Name a new folder with --keep, or one that was written so"
        )


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
    notes, report = reproduce.stored_status(out), _report(folder)
    others = [file for name in done if name not in report["recipes"] for file in collect.pictures(folder / name)]
    if others:
        raise UsageError(f"{others[0]} is no kept result, and would be replaced. Remove it, or move it away")
    durable_writes.make_folder(folder)
    _write(folder, report)
    for name, result in done.items():
        _replace_pictures(result, folder / name)
        report["recipes"][name] = _entry(result, notes.get(name, {}).get("seconds"))
        _write(folder, report)
    for item in results:
        if collect.can_be_drawn(item, needs_all=True):
            file = collect.file_name(item)
            for picture in small_pictures(partial(collect.plot_item, item, formats=("png",))).values():
                durable_writes.make_folder((folder / file).parent)
                durable_writes.replace(folder / file, picture)
                report["figures"][file] = collect.origins(item)
    _write(folder, report)
    return list(done)


def _report(folder: Path) -> Row:
    """The report of a folder, or an empty one."""
    report = model.json_object(folder / reproduce.REPORT) if reproduce.is_kept(folder) else {}
    return {key: report.get(key, {}) for key in ("verdicts", "items", "recipes", "figures")}


def _write(folder: Path, report: Row) -> None:
    """Write the report, its recipes and figures in the order of their names."""
    parts = {key: dict(sorted(report[key].items())) for key in ("recipes", "figures")}
    content = plain({"schema": reproduce.KEPT, **report, **parts})
    durable_writes.replace(folder / reproduce.REPORT, json.dumps(content, indent=1, allow_nan=False) + "\n")


def _replace_pictures(result: RecipeResult, path: Path) -> None:
    """Draw the pictures of a recipe, and only then put them in place of earlier ones."""
    new = small_pictures(lambda out: plot.plot(result.folder, formats=("png",), out=out))
    durable_writes.make_folder(path.parent)
    for name, picture in new.items():
        durable_writes.replace(path.with_name(f"{path.name}.{name}"), picture)
    for file in collect.pictures(path):
        if file.name.removeprefix(f"{path.name}.") not in new:
            durable_writes.remove(file)


def _entry(result: RecipeResult, seconds: object) -> Row:
    """What the report holds of a recipe, see ``KeptRecipe``."""
    tables = {storage.TABLE: result.table, storage.RUNS: result.runs}
    return {
        "seconds": seconds,
        "recipe": reproduce.with_names_of_files(dict(yaml_document.read(result.folder / storage.RECIPE).data)),
        "provenance": {key: value for key, value in result.provenance.items() if key not in _NOT_KEPT},
        "rows": {name: len(table) for name, table in tables.items() if table},
        "expect": [_without_none(row.as_dict()) for row in result.expect if not row.not_measured],
        "together": result.together.as_dict() if result.together else None,
        "table": _lines(result.table),
        "runs": _lines(result.runs),
    }


def _without_none(row: Row) -> Row:
    optional = ("commit", "noise_version", "deviation", "claim", "side", "procedure", "contradicted", "setting")
    return {key: value for key, value in row.items() if value or key not in optional}


def _lines(table: list[Row]) -> list[str]:
    """The lines of a table in short as CSV."""
    return storage.csv_text([_without_place(row) for row in _in_short(table)]).splitlines() if table else []


def _in_short(table: list[Row]) -> list[Row]:
    """At most 60 rows of a table; all of a table of statements, of which pages count and name those that fail."""
    return table if "proposition" in table[0] else folder_page.thinned(table)


def _without_place(row: Row) -> Row:
    """A row of a table with the file of observations that it read, without the folder that holds it."""
    return {**row, "file": Path(str(row["file"])).name} if row.get("file") else row


def write(papers: Sequence[Paper], results: Sequence[ItemResult], folder: Path) -> list[Path]:
    """Write the items into ``report.json``, a page for each paper and ``README.md``; return the files.

    Args:
        results: of all items, as collected from the folder.
    """
    report = _report(folder)
    report["verdicts"] = dict(Counter(result.verdict for result in results))
    report["items"] = [{**result.facts(), "recipes": [each.name for each in result.recipes]} for result in results]
    _write(folder, report)
    files, entries = [folder / reproduce.REPORT], []
    for paper in papers:
        of_paper = [result for result in results if result.item.paper == paper.name]
        entries.append({**page.entry(paper, of_paper), "published": _published(of_paper)})
        files.append(folder / f"{paper.name}.md")
        text = render.filled(
            "paper.md.j2",
            paper=paper,
            summary=page.summary_of(of_paper),
            headlines=paper.headlines,
            items=[_item(result, folder) for result in of_paper],
            most_open=folder_page.MOST_OPEN,
        )
        durable_writes.replace(files[-1], text.rstrip() + "\n")
    files.append(folder / README)
    durable_writes.replace(files[-1], render.filled("overview.md.j2", **page.LEGEND, papers=entries))
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
    outdated = collect.outdated_panels(result)
    figure = {
        "together": "" if result.figure is None else collect.file_name(result),
        "outdated": collect.note(outdated) if outdated else "",
    }
    recipes = [recipe_of_page(each, folder) for each in result.recipes]
    return {**page.item_facts(result), **figure, "recipes": recipes}


def recipe_of_page(result: RecipeResult, folder: Path) -> dict[str, object]:
    """Return what a page says of a recipe, with the names and paths of its figures."""
    pictures = [
        (path.stem.rpartition(".")[2], path.relative_to(folder).as_posix()) for path in collect.pictures(result.folder)
    ]
    return {**page.recipe_facts(result), "pictures": pictures, "met": expectations.counts(result.expect)}
