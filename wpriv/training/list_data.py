"""The verb ``data``: where data sets are, whether their files are the published ones, and how to get missing ones."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from wpriv.core import registry
from wpriv.core.parameters import type_words
from wpriv.errors import MissingResource
from wpriv.numerics import numbers
from wpriv.results.model import Json, Row
from wpriv.training import data
from wpriv.training.data import Data


def listing(root: Path | None = None) -> list[Row]:
    """Read every data set that is there, and return one mapping per reader, in order of name.

    Returns:
        ``name`` of the reader.
        ``status``: ``found``, ``missing`` or ``damaged`` (with ``reason``), or ``own``: it needs a file of the user's.
        ``checksums``: the worst verdict of its files (published, known, unknown), or ``package`` where it has none.
    Raises:
        MissingResource: ``root`` is no folder.
    """
    _check_root(root)
    rows = []
    for name in registry.names("data"):
        reader = registry.load("data", name)
        row: Json = {"name": name, "about": reader.ABOUT, "get": reader.GET}
        needs = any(field.default is dataclasses.MISSING for field in dataclasses.fields(reader.Params))
        if getattr(reader, "OWN", False) or needs:
            rows.append({**row, "status": "own"})
            continue
        try:
            rows.append({**_summary(data.read(name, root=root)), **row})
        except MissingResource as error:
            rows.append({**row, "status": "damaged" if _has_files(reader, root) else "missing", "reason": str(error)})
    return rows


def _has_files(reader: Any, root: Path | None) -> bool:
    """Tell whether all files of a data set that could not be read exist."""
    try:
        return hasattr(reader, "find") and bool(reader.find(root))
    except MissingResource:
        return False


def details(name: str, root: Path | None = None, given: Mapping[str, Any] | None = None) -> Json:
    """Read one data set and describe it.

    Args:
        given: parameters of the reader; text is converted to the type of the parameter.

    Raises:
        UsageError: no such reader or parameter. MissingResource: the files are missing or damaged.
    """
    _check_root(root)
    return _summary(data.read(name, root=root, **typed(name, given or {})))


def typed(name: str, given: Mapping[str, Any]) -> Json:
    """Convert text from flags to the types of a reader's parameters."""
    fields = {f.name: f for f in dataclasses.fields(registry.load("data", name).Params)}
    return {
        key: numbers.typed(value, type_words(fields[key]), key) if key in fields else value
        for key, value in given.items()
    }


def _check_root(root: Path | None) -> None:
    if root is not None and not data.path_exists(root, "folder"):
        raise MissingResource(f"--data-root {str(root)[:300]!r}: no such folder; give the one that holds the data sets")


def _summary(data_set: Data) -> Json:
    description: Json = data_set.describe()
    verdicts = {file["verdict"] for file in description["files"]}
    worst = next((v for v in ("unknown", "known", "published") if v in verdicts), "package")
    folders = list(dict.fromkeys(str(Path(file["path"]).parent) for file in description["files"]))
    return {**description, "status": "found", "where": folders, "checksums": worst}
