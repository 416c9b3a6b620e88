"""An entry for the Differential Privacy Deployments Registry of OpenDP, filled in from a privacy statement."""

from __future__ import annotations

import importlib.util
import json
import math
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from wpriv.config import yaml_document
from wpriv.errors import Unsupported, UsageError
from wpriv.run.results import render, words
from wpriv.run.results.model import Releases, Reports, Statement

SCHEMA = Path(__file__).resolve().parents[1] / "registry.schema.json"
COMMIT = "057e5d81"
OPEN = "TO DO: "
HEADER = (
    "An entry for the Differential Privacy Deployments Registry, tier 3, from a statement of wpriv {wpriv}.\n"
    "Its form is that of github.com/opendp/deployments-registry-data at commit {commit}; compare it with the newest.\n"
    "Values with TO DO are for people: {count} of them are left.\n"
)
NO_VALIDATOR = (
    "the entry was not validated against its schema, since jsonschema is not installed: pip install jsonschema"
)


def entry(statement: Statement, changes: Mapping[str, object] | None = None) -> dict[str, Any]:
    """Return the entry as plain data; what only people know begins with ``TO DO``.

    Args:
        statement: of a finished training. changes: values by dotted path, such as ``deployment.basic.intended_use``.
    Raises:
        Unsupported: the training had no privacy, or no finite guarantee. UsageError: a path does not exist.
    """
    source, row = words.guaranteed(statement, "an entry of the registry")
    if not math.isfinite(row.epsilon):
        raise Unsupported("an entry of the registry needs a finite eps; this training has none at its delta")
    filled = render.filled(
        "registry.json.j2",
        statement=statement,
        source=source,
        row=row,
        slug=re.sub(r"[^a-z0-9]+", "-", statement.recipe.lower()).strip("-") or "model",
        setting=words.model_of(source),
        runs=words.earlier_runs(statement),
        mechanisms=_mechanisms(statement, source),
        information=_information(statement),
    )
    data: dict[str, Any] = json.loads(filled)
    for path, value in (changes or {}).items():
        _set(data, path, value)
    return data


def _mechanisms(statement: Statement, source: Releases | Reports) -> list[str]:
    """The noise, the sampling, the program, and what was not assessed of them."""
    where = "before the training, on every record" if isinstance(source, Reports) else "in every step of the training"
    seed = "from the operating system, not recorded" if source.seed is None else "FIXED"
    sampling = words.sampling(source)
    return [
        f"noise is added {where}: {words.noise(source)}",
        *([f"sampling: {sampling}"] if sampling else []),
        f"versions: {words.versions(statement.versions)}; seed of the noise: {seed}",
        *source.not_assessed,
        f"{OPEN}access controls and security measures for the records",
    ]


def _information(statement: Statement) -> list[str]:
    """The digest of the weights and the warnings.

    Warnings on figures for comparison are left out, since these may be computed from records without noise.
    """
    figures = [] if statement.releases is None else statement.releases.for_comparison
    others = {line for row in figures for line in row.warnings}
    warnings = [line for line in statement.warnings if line not in others]
    if statement.model is None or not statement.model.file:
        return warnings
    return [*warnings, f"SHA-256 of the weights (see wpriv's file reference): {statement.model.weights_sha256}"]


def open_paths(data: Any, path: str = "") -> Iterator[str]:
    """Yield the dotted paths of the values that are still for people to fill in; places in lists are numbers."""
    if isinstance(data, str) and OPEN in data:
        yield path
    parts = data.items() if isinstance(data, dict) else enumerate(data) if isinstance(data, list) else ()
    for key, value in parts:
        yield from open_paths(value, f"{path}.{key}" if path else str(key))


def faults(data: dict[str, Any]) -> list[str] | None:
    """Return what the schema finds wrong with an entry, apart from open values; None without jsonschema."""
    if importlib.util.find_spec("jsonschema") is None:
        return None
    from jsonschema import Draft7Validator

    unfilled = set(open_paths(data))
    validator = Draft7Validator(schema(), format_checker=Draft7Validator.FORMAT_CHECKER)
    errors = ((".".join(map(str, error.absolute_path)), error.message) for error in validator.iter_errors(data))
    return [f"{path or 'the entry'}: {message}" for path, message in errors if path not in unfilled]


def schema() -> dict[str, Any]:
    """Return the JSON Schema of an entry."""
    return dict(json.loads(SCHEMA.read_text(encoding="utf-8")))


def to_yaml(data: dict[str, Any], version: str) -> str:
    """Format an entry as YAML, with a comment on its origin and on what is left to fill in."""
    text = HEADER.format(wpriv=version, commit=COMMIT, count=len(list(open_paths(data))))
    return "".join(f"# {line}\n" for line in text.splitlines()) + yaml_document.as_yaml(data, blocks=True)


def _set(data: Any, path: str, value: Any) -> None:
    """Replace the value at a dotted path.

    Raises:
        UsageError: there is no such path.
    """
    *parents, last = path.split(".")
    place = data
    for name in parents:
        place = _child(place, name, path)
    _child(place, last, path)
    place[int(last) if isinstance(place, list) else last] = str(value) if hasattr(value, "isoformat") else value


def _child(place: Any, name: str, path: str) -> Any:
    keys = place if isinstance(place, dict) else range(len(place)) if isinstance(place, list) else ()
    known = [str(key) for key in keys]
    if name not in known:
        raise UsageError(f"the entry has no {path!r}: {name!r} is none of {', '.join(known) or 'its keys'}")
    return place[int(name) if isinstance(place, list) else name]
