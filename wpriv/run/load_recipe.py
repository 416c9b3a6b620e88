"""Load recipes: read, resolve and validate a file, and turn it into the arguments of a verb."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any

from wpriv.config import yaml_document
from wpriv.config.document import Document
from wpriv.config.observation_generator import HELP, is_generator
from wpriv.config.recipe import Recipe, check
from wpriv.core import registry
from wpriv.errors import MissingResource, UsageError
from wpriv.run.accounting import build_process
from wpriv.run.recipe_files import find


def recipe(name: str | Path, *, quick: bool = False, kind: str | None = None) -> Recipe:
    """Load a recipe by its path or its shipped name. Input files that it names are located but not read.

    Raises:
        UsageError: the recipe is faulty, with every fault's file, line and column; or it is of another kind than ``kind``.
        MissingResource: the file may not be read.
    """
    path = find(str(name))
    document = yaml_document.read(path)
    _locate_files(document, path.parent)
    loaded = check(document, quick=quick)
    _require_observations(document)
    if kind is not None and loaded.kind != kind:
        raise UsageError(
            f"{path} is a recipe of kind {loaded.kind!r}, not {kind!r}. Run it with `wpriv {loaded.kind} {name}`"
        )
    return loaded


def budget(name: str | Path) -> tuple[build_process.Job, list[str], dict[str, float]]:
    """Return the process of a recipe of kind budget, its accountants, and the question (eps or delta, and tol if given)."""
    data = recipe(name, kind="budget").data
    job = build_process.job_of_steps(data["process"], data.get("adjacency"))
    return job, data.get("accountants") or ["pld"], _question(data)


def calibrate(name: str | Path) -> dict[str, Any]:
    """Return the arguments of the verb ``calibrate`` that a recipe of that kind amounts to."""
    data = recipe(name, kind="calibrate").data
    (step,), (accountant,) = data["process"], data.get("accountants") or ["pld"]
    given = {key: value for key, value in step.items() if value is not None}
    return {**given, "adjacency": data.get("adjacency"), "accountant": accountant, **_question(data)}


def privatize(name: str | Path) -> dict[str, Any]:
    """Return the arguments of the verb ``privatize`` that a recipe of that kind amounts to; its files are relative to it.

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
    return arguments | {key: str(_beside(folder, arguments[key]) or arguments[key]) for key in files}


def _question(data: dict[str, Any]) -> dict[str, float]:
    return {key: data[key] for key in ("eps", "delta", "tol") if data.get(key) is not None}


def _beside(folder: Path, file: Any) -> Path | None:
    """The path of a file that lies in the folder of a recipe; None where there is no such file."""
    is_file = isinstance(file, str) and "\0" not in file and (folder / file).is_file()
    return folder / file if is_file else None


def _locate_files(document: Document, folder: Path) -> None:
    """Make the paths of files that mechanisms read absolute, since recipes name them relative to themselves."""
    known = registry.names("mechanisms")
    for path in document.values:
        step = document.at(path)
        if not (isinstance(step, dict) and isinstance(step.get("mech"), str) and step["mech"] in known):
            continue
        keys = [f.name for f in dataclasses.fields(registry.mechanism(step["mech"])) if f.name == "file"]
        if str(step.get("observed")).endswith((".npz", ".csv")):
            keys.append("observed")
        for key in keys:
            if (file := _beside(folder, step.get(key))) is not None:
                step[key] = str(file.resolve())


def _require_observations(document: Document) -> None:
    """Refuse files of observations that do not exist; the run reads the others.

    Raises:
        MissingResource: a file is missing.
    """
    for path in document.values:
        text = document.at(path) if path[-1:] == ("observed",) else None
        if isinstance(text, str) and not is_generator(text) and not Path(text).exists():
            line, column = document.place(path)
            raise MissingResource(
                f"{document.name}:{line}:{column}: observed: no such file: {text[:300]}; wanted {HELP}"
            )
