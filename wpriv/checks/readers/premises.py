"""A YAML of premises (``kind: check``): the record itself, all of it declared."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

from wpriv.checks.premises import Found, Value, of_document
from wpriv.config import yaml_document
from wpriv.errors import UsageError
from wpriv.files import STDIN


def recognises(x: object) -> bool:
    """Tell whether x is the path of a YAML file, or standard input."""
    return isinstance(x, Path) and (x.suffix in (".yaml", ".yml") or str(x) == STDIN)


def read(x: object, further: Mapping[str, object]) -> Found:
    """Read the premises of a file; all faults are named with their lines and columns."""
    assert isinstance(x, Path)
    document = yaml_document.read(x)
    kind = document.data.get("kind")
    if kind != "check":
        raise UsageError(f"{document.name}: premises are a YAML of `kind: check`; found kind {str(kind)[:40]!r}")
    facts = of_document(document)
    return Found(document.name, tuple(replace(fact, value=_beside(fact.value, x.parent)) for fact in facts))


def _beside(value: Value, folder: Path) -> Value:
    """Steps whose files are named relative to the YAML; any other value as it is."""
    if not isinstance(value, tuple):
        return value
    steps = [each for each in value if isinstance(each, Mapping)]
    named = [{**step, "file": str(folder / str(step["file"]))} if "file" in step else step for step in steps]
    return tuple(named) if named else value
