"""Load recipes: read, resolve and validate a file, and turn it into the arguments of a verb."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

from wpriv.config import yaml_document
from wpriv.config.recipe import Recipe, check
from wpriv.config.resolve import file_beside
from wpriv.errors import UsageError
from wpriv.run.accounting import build_process
from wpriv.run.recipe_files import find, short_name


def recipe(name: str | Path, *, quick: bool = False, kind: str | None = None) -> Recipe:
    """Load a recipe by its path or its shipped name. Input files that it names are located but not read.

    Raises:
        UsageError: the recipe is faulty (every fault with its place), or of another kind than ``kind``.
        MissingResource: the file may not be read.
    """
    path = find(str(name))
    document = yaml_document.read(path)
    loaded = replace(check(document, quick=quick, folder=path.parent), name=short_name(path))
    if kind is not None and loaded.kind != kind:
        raise UsageError(
            f"{path} is a recipe of kind {loaded.kind!r}, not {kind!r}. Run it with `wpriv {loaded.kind} {name}`"
        )
    return loaded


def budget(name: str | Path) -> tuple[build_process.DescribedProcess, list[str], dict[str, Any]]:
    """Return the process of a recipe of kind budget, its accountants, and the question: eps or delta, tol, repeats."""
    data = recipe(name, kind="budget").data
    job = build_process.described_steps(data["process"], data.get("adjacency"), data.get("group"))
    question: dict[str, Any] = {**_question(data)}
    if data.get("repeats") is not None:
        question["repeats"] = data["repeats"]
    return job, data.get("accountants") or ["pld"], question


def calibrate(name: str | Path) -> dict[str, Any]:
    """Return the arguments of the verb ``calibrate`` that a recipe of that kind amounts to."""
    data = recipe(name, kind="calibrate").data
    (step,), (accountant,) = data["process"], data.get("accountants") or ["pld"]
    given = {key: value for key, value in step.items() if value is not None}
    relation = {"adjacency": data.get("adjacency"), "group": data.get("group")}
    named = {**relation, "accountant": accountant, "repeats": data.get("repeats")}
    return {**given, **named, **_question(data)}


def privatize(name: str | Path) -> dict[str, Any]:
    """Return the arguments of the verb ``privatize`` that a recipe of that kind amounts to.

    Paths of files are relative to the recipe.

    Raises:
        UsageError: as ``recipe``; or the records are not named.
    """
    data = dict(recipe(name, kind="privatize").data)
    records, folder = dict(data.pop("data")), find(str(name)).parent
    source = records.pop("name", None) or records.pop("file", None)
    if source is None:
        raise UsageError(f"{name}: data needs the name of a data set, or a file; found neither")
    given = {**data, **records, "data": source}
    arguments = {key: value for key, value in given.items() if key not in ("kind", "source") and value is not None}
    files = [key for key in ("data", "file", "public", "thresholds") if key in arguments]
    return arguments | {key: str(file_beside(folder, arguments[key]) or arguments[key]) for key in files}


def _question(data: dict[str, Any]) -> dict[str, float]:
    return {key: data[key] for key in ("eps", "delta", "tol") if data.get(key) is not None}
