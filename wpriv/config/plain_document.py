"""Recipes in the words of other programs, put into the words here, with every key and value at its own place."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from wpriv.config.document import Document, Key
from wpriv.config.plain_words import plain_values, renamed
from wpriv.config.schema import PROCESS_TABLES
from wpriv.core import registry
from wpriv.errors import UsageError
from wpriv.hints import plain_key
from wpriv.spec import SCHEDULE

QUESTION = ("eps", "delta", "adjacency")
TRAINING = ("batch", "epochs")
# quantities of a sweep that are keys of a step or of the question
SWEPT = (*QUESTION, *SCHEDULE)


def plain_document(document: Document) -> Document:
    """The document with ``epsilon``, ``batch_size``, ``mech: gaussian`` and others as eps, batch and gauss.

    A key that stands beside its synonym is left for the schema to refuse.
    """
    names: dict[Key, str] = {}

    def walk(path: Key, value: object) -> object:
        if isinstance(value, list):
            return [walk((*path, index), item) for index, item in enumerate(value)]
        if not isinstance(value, dict):
            return value
        here: Mapping[str, str] = _names(path, value, document.data.get("kind"))
        names.update({(*path, key): name for key, name in here.items() if name != key})
        plain: dict[str, Any] = {here.get(key) or key: walk((*path, key), item) for key, item in value.items()}
        return _plain_axis(plain) if own_sweeps and "sweep" in path[-2:] else _plain_values(path, plain)

    # tables of other kinds have parameters of any name
    tables = [document.at(path) for path in document.values if path[-1:] == ("table",)]
    own_sweeps = document.data.get("kind") == "compare" and set(map(str, tables)) <= PROCESS_TABLES.keys()
    data: Any = walk((), document.data)

    def place(path: Key) -> Key:
        return tuple(names.get(path[: index + 1], part) for index, part in enumerate(path))

    keys, values = ({place(path): at for path, at in places.items()} for places in (document.keys, document.values))
    return replace(document, data=data, keys=keys, values=values)


def plain_path(path: str) -> str:
    """The dotted path of a key of a training in the words here: ``privacy.epsilon`` is privacy.eps."""
    *around, key = path.split(".")
    known = QUESTION if around == ["privacy"] else TRAINING if not around else ()
    if around == ["privacy"] and key == "noise_multiplier":
        key = "sigma"
    return ".".join([*around, plain_key(key) if plain_key(key) in known else key])


def is_step(path: Key) -> bool:
    """Tell whether the value at a path is a step of a process or of a case."""
    return path[-2:-1] == ("process",) or path[-3:-2] == ("cases",)


def _names(path: Key, value: Mapping[str, object], kind: object) -> dict[str, str]:
    """The keys of a mapping that are synonyms, with their names here."""
    if is_step(path):
        try:
            return renamed(value)
        except UsageError:
            return {}
    known: tuple[str, ...] = ()
    if path[-1:] == ("privacy",):
        known = QUESTION
    elif path in ((), ("quick",)) or path[-2:-1] == ("panels",) or path[:1] + path[-1:] == ("panels", "quick"):
        known = TRAINING if kind == "train" else QUESTION
    elif path[-2:-1] == ("published",):
        known = QUESTION
    names = {key: plain_key(key) for key in value if plain_key(key) in known and plain_key(key) not in value}
    if path[-1:] == ("privacy",) and "noise_multiplier" in value and "sigma" not in value:
        names["noise_multiplier"] = "sigma"  # which is a multiple of the sensitivity there
    return names


def _plain_axis(axis: dict[str, Any]) -> dict[str, Any]:
    name = plain_key(str(axis.get("over")))
    return {**axis, "over": name} if name in SWEPT else axis


def _plain_values(path: Key, value: dict[str, Any]) -> dict[str, Any]:
    """The values of a mapping in the words here, where they are names of something."""
    if is_step(path) or path[-1:] == ("privacy",):
        return plain_values(value)
    if isinstance(value.get("accountants"), list):
        texts = [registry.plain_accountant(text) if isinstance(text, str) else text for text in value["accountants"]]
        value = {**value, "accountants": texts}
    if isinstance(value.get("adjacency"), str):
        value = {**value, "adjacency": plain_values({"adjacency": value["adjacency"]})["adjacency"]}
    return value
