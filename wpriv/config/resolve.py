"""Resolve a document: paths of files, ``quick`` overrides, and panels of a comparison with all that they inherit."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from wpriv.config import resolve_train
from wpriv.config.document import Document, Key
from wpriv.config.schema import Panel

# of the keys of a group, those written last replace the others
_EXCLUSIVE = (("process", "cases"), ("eps", "eps_per_n", "delta"))
_NOT_INHERITED = ("kind", "source", "panels", "quick", "expect", "name", "claims", "time")


@dataclass(frozen=True)
class Resolved:
    """A document as written, and the parts to run.

    ``parts`` are the panels of a comparison, each with the keys around it merged in (a comparison without panels is
    one), or the one document of another kind. Their places are those of the file. Nothing has been validated here.
    """

    document: Document
    parts: tuple[Document, ...]
    quick: bool = False


def resolve(document: Document, *, quick: bool = False, folder: Path | None = None) -> Resolved:
    """Resolve a document, with or without its ``quick`` overrides, whatever it holds.

    Args:
        folder: of the recipe. Files of mechanisms and Python files are looked for there; their paths become absolute.
    """
    kind, panels = document.data.get("kind"), document.data.get("panels")
    if kind == "train":
        parts = [resolve_train.resolve(document, quick=quick, folder=folder)]
    elif kind == "compare":
        paths: list[Key] = [("panels", i) for i in range(len(panels))] if isinstance(panels, list) else []
        parts = [_merged(document, path, quick) for path in paths or [()]]
    else:
        parts = [document]
    if folder is not None:
        _locate_files(document.data, folder)
    return Resolved(document, tuple(parts), quick)


def panel(part: Document) -> Panel:
    """Return the model of a part of a comparison with a sound form; its name is empty where there are no panels."""
    named = Panel.model_validate({"name": "-", **part.data})
    return named if "name" in part.data else named.model_copy(update={"name": ""})


def _merged(document: Document, path: Key, quick: bool) -> Document:
    """The panel at a path with the keys around it; later layers win."""
    layers: list[Key] = [(), path] if path else [()]
    if quick:
        layers += [(*layer, "quick") for layer in layers]
    data: dict[str, Any] = {}
    origins: dict[str, Key] = {}
    for layer in layers:
        mapping = _mapping(document, layer)
        for key, value in mapping.items():
            if key in _NOT_INHERITED or value is None:
                continue
            for group in _EXCLUSIVE:
                for other in group if key in group else ():
                    if other not in mapping:
                        data.pop(other, None)
            data[key], origins[key] = value, (*layer, key)
    root = min(origins.values(), key=len)[:-1] if origins else ()
    inner = _mapping(document, path)
    name = {"name": inner.get("name")} if path else {}
    expect = {"expect": inner["expect"]} if inner.get("expect") else {}
    origins |= {key: (*path, key) for key in (*name, *expect)}
    merged = {**name, **data, **expect}
    return Document(document.name, document.lines, merged, document.keys, document.values, origins, root)


def file_beside(folder: Path, file: Any) -> Path | None:
    """Return the path of a file that lies in the folder of a recipe; None where there is no such file."""
    is_file = isinstance(file, str) and "\0" not in file and (folder / file).is_file()
    return folder / file if is_file else None


def _locate_files(data: Any, folder: Path) -> None:
    """Make the paths of files beside a recipe absolute, in every step inside some data."""
    if isinstance(data, dict) and isinstance(data.get("mech"), str):
        for key in ("file", "observed", "strategy"):
            if (file := file_beside(folder, data.get(key))) is not None:
                data[key] = str(file.resolve())
    elif isinstance(data, (dict, list)):
        for inner in data.values() if isinstance(data, dict) else data:
            _locate_files(inner, folder)


def _mapping(document: Document, path: Key) -> dict[str, Any]:
    """The mapping at a path; empty where there is none."""
    try:
        value = document.at(path)
    except (LookupError, TypeError):
        return {}
    return value if isinstance(value, dict) else {}
