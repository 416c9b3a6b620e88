"""Resolve a document: ``quick`` overrides applied, and panels of a comparison with all that they inherit."""

from __future__ import annotations

from dataclasses import dataclass
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

    ``parts`` are the panels of a comparison, each with the keys around it merged in (a comparison without panels is one), or
    the one document of another kind. Their places are those of the file. Nothing of a document has been validated here.
    """

    document: Document
    parts: tuple[Document, ...]
    quick: bool = False


def resolve(document: Document, *, quick: bool = False) -> Resolved:
    """Resolve a document, with or without its ``quick`` overrides, whatever it holds."""
    kind = document.data.get("kind")
    if kind == "train":
        return Resolved(document, (resolve_train.resolve(document, quick=quick),), quick)
    if kind != "compare":
        return Resolved(document, (document,), quick)
    panels = document.data.get("panels")
    paths: list[Key] = [("panels", i) for i in range(len(panels))] if isinstance(panels, list) else []
    return Resolved(document, tuple(_merged(document, path, quick) for path in paths or [()]), quick)


def panel(part: Document) -> Panel:
    """Return the model of one part of a comparison, whose form is sound; its name is empty where there are no panels."""
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
    own = _mapping(document, path)
    name = {"name": own.get("name")} if path else {}
    expect = {"expect": own["expect"]} if own.get("expect") else {}
    origins |= {key: (*path, key) for key in (*name, *expect)}
    merged = {**name, **data, **expect}
    return Document(document.name, document.lines, merged, document.keys, document.values, origins, root)


def _mapping(document: Document, path: Key) -> dict[str, Any]:
    """The mapping at a path; empty where there is none."""
    value: Any = document.data
    for part in path:
        value = value.get(part) if isinstance(value, dict) else value[part]
    return value if isinstance(value, dict) else {}
