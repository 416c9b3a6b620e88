"""Releases as recipes and flags declare them: plain data become the keywords of the verb ``release``."""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, cast

from wpriv.errors import UnknownName, UsageError
from wpriv.files import STDIN, without_password
from wpriv.releases.outputs import BinCounts, Count, Mean, Output, Quantile, Sum
from wpriv.releases.tables import Query, is_url

SQLITE = "sqlite:///"
Row = Mapping[str, object]
TYPES = ("integer", "number", "date", "text")
COLUMNS: Mapping[str, Callable[..., Output]] = {"sum": Sum, "mean": Mean, "quantile": Quantile}


def output(row: Row, types: Mapping[str, str]) -> Output:
    """Make an output of an entry of ``outputs``, such as {mean: days, bounds: [0, 60]}.

    Args:
        types: what columns are declared to hold.
    Raises:
        UsageError: an entry is missing or out of range, or the column holds text.
    """
    common = {name: row[name] for name in ("weight", "overall", "se") if row.get(name) is not None}
    if "count" in row:
        return Count(**common, of=str(row["count"]))  # type: ignore[arg-type]
    kind = next(name for name in (*COLUMNS, "histogram") if name in row)
    column = str(row[kind])
    declared = types.get(column)
    if declared not in (None, *TYPES):
        raise UnknownName("type", str(declared), TYPES, place="`types`")
    if declared == "text":
        raise UsageError(f"{column} is text; give `types` {column}=number")
    dates = declared == "date"
    if kind == "histogram":
        about = {name: row[name] for name in ("of", "outside") if row.get(name) is not None}
        edges = cast(Sequence[object], row["edges"])
        return BinCounts(**common, **about, column=column, edges=edges, dates=dates)  # type: ignore[arg-type]
    lo, hi = cast(Sequence[object], row.get("bounds") or (None, None))
    whole = None if declared is None or dates else declared == "integer"
    shares = {"at": row["at"]} if row.get("at") is not None else {}
    return COLUMNS[kind](column, lo, hi, row.get("grid"), **common, **shares, dates=dates, whole=whole)


def given(keywords: Row) -> dict[str, Any]:
    """The keywords that say something."""
    return {name: value for name, value in keywords.items() if value is not None and value is not False}


def _keywords(data: Row, outputs: Sequence[Output]) -> dict[str, Any]:
    """The keywords of ``release`` for the keys of a recipe, but for its data."""
    by, limits, about = (cast(Row, data.get(name) or {}) for name in ("by", "limits", "data"))
    names = ("person", "eps", "delta", "se", "noise", "key_delta", "records", "distinct", "nonnegative", "seed")
    rows: dict[str, object] = {name: data.get(name) for name in names} | {"outputs": outputs, "by": by.get("column")}
    rows |= {name: by.get(name) for name in ("keys", "other", "normalise")}
    rows |= {name: limits.get(name) for name in ("max_groups", "max_rows")}
    rows["typed"] = tuple(cast(Row, about.get("types") or {})) or None
    return given(rows | {name: about.get(name) for name in ("null", "table", "where", "query", "public")})


def of_recipe(name: str) -> tuple[list[str] | None, dict[str, Any]]:
    """Read a recipe of kind release: the files of its table, None where it names none, and keywords of ``release``.

    Raises:
        UsageError: it is faulty, with every fault and its place; or its table was one of Python.
    """
    # which load pydantic; a release by flags does without
    from wpriv.accounting import load_recipe
    from wpriv.config import yaml_document
    from wpriv.config.document import as_keys, refusal
    from wpriv.config.recipe_files import find
    from wpriv.config.resolve import file_beside

    data = load_recipe.read(name, kind="release").data
    path = find(name)
    about = cast(Row, data.get("data") or {})
    if about.get("name") is not None:
        raise UsageError(f"{name} is about a table that was given in Python; call wpriv.release with that table")
    outputs, faults = [], []
    document = None if str(path) == STDIN else yaml_document.read(path)
    for place, row in enumerate(data["outputs"]):
        try:
            outputs.append(output(row, cast(Mapping[str, str], about.get("types") or {})))
        except UsageError as error:
            if document is None:
                raise
            faults.append(document.diagnostic(("outputs", place), as_keys(str(error))))
    if document is not None and faults:
        raise refusal(document, faults)
    url = about.get("url")
    if isinstance(url, str):
        file = url.removeprefix(SQLITE)
        beside_it = file_beside(path.parent, file) if url.startswith(SQLITE) else None
        return [url if beside_it is None else f"{SQLITE}{beside_it}"], _keywords(data, outputs)
    if about.get("file") is None:
        return None, _keywords(data, outputs)
    files = [about["file"]] if isinstance(about["file"], str) else cast(Sequence[str], about["file"])
    return [str(file_beside(path.parent, file) or path.parent / file) for file in files], _keywords(data, outputs)


def described_data(data: object, query: Query) -> dict[str, object]:
    """The key ``data`` of a recipe: absolute paths of files, a URL without its password, or a table of Python."""
    listed = [data] if isinstance(data, (str, Path)) else data
    if isinstance(listed, (list, tuple)) and len(listed) == 1 and is_url(listed[0]):
        url = without_password(listed[0])
        if url.startswith(SQLITE):
            url = SQLITE + os.path.abspath(url.removeprefix(SQLITE))
        return {"url": url} | {name: value for name, value in dataclasses.asdict(query).items() if value}
    if isinstance(listed, (list, tuple)) and listed and all(isinstance(path, (str, Path)) for path in listed):
        paths = [os.path.abspath(path) for path in listed]
        return {"file": paths[0] if len(paths) == 1 else paths}
    return {"name": "the table"}


def beside(recipe: Row, folder: Path) -> dict[str, object]:
    """A recipe whose files are named from a folder in which it is kept."""
    data = dict(cast(Row, recipe["data"]))
    if "file" in data:
        files = [data["file"]] if isinstance(data["file"], str) else cast(Sequence[str], data["file"])
        named = [Path(os.path.relpath(file, folder.absolute())).as_posix() for file in files]
        data["file"] = named[0] if len(named) == 1 else named
    return {**recipe, "data": data}
