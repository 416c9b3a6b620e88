"""The verb ``data``: which data sets lie where, whether they are what they should be, and how to get the others."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from pathlib import Path
from types import ModuleType
from typing import Any

from wpriv import data
from wpriv.core import registry
from wpriv.core.parameters import type_words
from wpriv.errors import MissingResource
from wpriv.numerics import parse_numbers


def listing(root: Path | None = None) -> list[dict[str, Any]]:
    """One mapping for every reader, in order of name; what is there was read from end to end.

    ``name`` is that of the reader. ``status`` is ``found``, ``missing`` or ``damaged`` (with ``reason``), or ``own`` where the
    reader wants a file of the user's. ``checksums`` is the worst verdict of its files: published, known or unknown, and ``package``
    where it has none.
    """
    _check_root(root)
    rows = []
    for name in registry.names("data"):
        reader = registry.load("data", name)
        row: dict[str, Any] = {"name": name, "about": reader.ABOUT, "get": reader.GET}
        if any(f.default is dataclasses.MISSING for f in dataclasses.fields(reader.Params)):
            rows.append({**row, "status": "own"})
            continue
        try:
            rows.append({**_found(data.read(name, root=root)), **row})
        except MissingResource as error:
            rows.append({**row, "status": "damaged" if _there(reader, root) else "missing", "reason": str(error)})
    return rows


def _there(reader: ModuleType, root: Path | None) -> bool:
    """Whether all files of a data set that could not be read are there."""
    try:
        return hasattr(reader, "PLACE") and bool(reader.PLACE.find(root))
    except MissingResource:
        return False


def details(name: str, root: Path | None = None, given: Mapping[str, Any] | None = None) -> dict[str, Any]:
    """Everything about one data set, read with the given parameters (text is put into the type of the parameter).

    Raises:
        UsageError: no such reader or parameter. MissingResource: the files are missing or damaged.
    """
    _check_root(root)
    return _found(data.read(name, root=root, **typed(name, given or {})))


def typed(name: str, given: Mapping[str, Any]) -> dict[str, Any]:
    """The parameters of a reader, with text from flags in the type of each.

    Raises:
        UsageError: no such reader, or a number that is none.
    """
    fields = {f.name: f for f in dataclasses.fields(registry.load("data", name).Params)}
    return {
        key: parse_numbers.typed(value, type_words(fields[key]), key) if key in fields else value
        for key, value in given.items()
    }


def _check_root(root: Path | None) -> None:
    """A root that was named must be a folder.

    Raises:
        MissingResource: it is none.
    """
    if root is not None and not data.exists(root, "folder"):
        raise MissingResource(f"--data-root {str(root)[:300]!r}: no such folder; give the one that holds the data sets")


def _found(read: Any) -> dict[str, Any]:
    found: dict[str, Any] = read.describe()
    verdicts = {file["verdict"] for file in found["files"]}
    worst = next((v for v in ("unknown", "known", "published") if v in verdicts), "package")
    folders = list(dict.fromkeys(str(Path(file["path"]).parent) for file in found["files"]))
    return {**found, "status": "found", "where": folders, "checksums": worst}
