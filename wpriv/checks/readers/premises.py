"""A YAML of premises (``kind: check``): the record itself, all of it declared."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from wpriv.checks.premises import Found, of_document
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
    return Found(document.name, of_document(document))
