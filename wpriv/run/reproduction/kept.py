"""Keep the results of a reproduction in small, to be read without a run: numbers, origin, and figures as small SVG.

The folder is itself one of a reproduction, in which each recipe has its recipe as it ran, the expected numbers beside
ours, the table in short, the origin and the figures. Later runs replace the recipes that they have finished, and leave
the others as they are.
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterable
from functools import partial
from pathlib import Path

from wpriv.config import yaml_document
from wpriv.errors import MissingResource, UsageError
from wpriv.files import durable_writes
from wpriv.files.json_values import plain
from wpriv.run.reproduction import reproduce, small_svg, stored, together
from wpriv.run.reproduction.collect import ItemResult, RecipeResult
from wpriv.run.results import expectations, file_names, model, plot, web_page, write
from wpriv.run.results.model import Row

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
        if together.can_be_drawn(item, needs_all=True):
            path = folder / together.file_name(item)
            durable_writes.make_folder(path.parent)
            if small_svg.write(partial(together.plot, item), path.parent):
                _json(together.origin_file(path), together.origins(item))
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
    recipe = yaml_document.read(result.folder / file_names.RECIPE).data
    _write(folder / file_names.RECIPE, yaml_document.as_yaml(stored.with_names_of_files(recipe)))
    rows = {file_names.TABLE: result.table, file_names.RUNS: result.runs}
    for name, table in rows.items():
        if table:
            _write(folder / name, write.csv_text([_without_place(row) for row in _in_short(table)]))
    lengths = {name: len(table) for name, table in rows.items() if table}
    origin = {key: value for key, value in result.provenance.items() if key not in _NOT_KEPT}
    _json(folder / file_names.PROVENANCE, {**origin, "rows": lengths})
    if expect := [row.as_dict() for row in result.expect if not row.not_measured]:
        entries = {"schema": expectations.SCHEMA, "recipe": result.name, "quick": False, "expect": expect}
        _json(folder / file_names.EXPECT, entries)
    if result.together:
        _json(folder / file_names.STATEMENT, {"together": result.together.as_dict(), "warnings": []})

    def draw(out: Path) -> list[Path]:
        return plot.plot(result.folder, formats=("svg",), out=out)

    small_svg.write(draw, folder)


def _in_short(table: list[Row]) -> list[Row]:
    """At most 60 rows of a table; all of a table of statements, of which pages count and name those that fail."""
    return table if "proposition" in table[0] else web_page.thinned(table)


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
