"""Diagnostics of form: pydantic's errors in plain words, at the place they are about; and texts about unknown names."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator
from typing import Any

from pydantic import BaseModel, ValidationError

from wpriv.config.document import Diagnostic, Document, Key
from wpriv.hints import did_you_mean

_REWORDED = (("input should be", "must be"), ("valid ", ""), ("a integer", "a whole number"))


def form_diagnostics(document: Document, model: type[BaseModel], path: Key = ()) -> list[Diagnostic]:
    """Validate a document, or the part of it at a path, against a pydantic model."""
    try:
        model.model_validate(document.at(path))
    except ValidationError as error:
        return [_form_diagnostic(document, model, details, path) for details in error.errors(include_url=False)]
    return []


def _form_diagnostic(document: Document, model: type[BaseModel], details: Any, path: Key) -> Diagnostic:
    location, kind, name = details["loc"], details["type"], str(details["loc"][-1])
    for part in location:  # pydantic's locations also name types, which are no part of the document
        if (*path, part) in document.values:
            path = (*path, part)
    if kind == "extra_forbidden":
        message = f"unknown key {name!r}{did_you_mean(name, known_keys(model, location[:-1]))}"
        return document.diagnostic(path, message, at_key=True)
    if kind == "missing":
        return document.diagnostic(path, f"the key {name!r} is missing")
    if name == "[key]":
        return document.diagnostic(path, f"unknown key {str(location[-2])!r}; it {details['msg'][6:]}", at_key=True)
    if kind == "too_short":
        count = details["ctx"]["min_length"]
        return document.diagnostic(
            path, f"a list needs at least {count} item{'s' * (count > 1)}; found {abbreviate(details['input'])}"
        )
    message = str(details.get("ctx", {}).get("error") or details["msg"][0].lower() + details["msg"][1:])
    for old, new in _REWORDED:
        message = message.replace(old, new)
    if kind in ("model_type", "dict_type"):
        message = "must be a mapping of keys to values"
    if isinstance(location[-1], str):
        message = f"{name}: {message}"
    if kind != "value_error":
        message += f"; found {abbreviate(details['input'])}"
    return document.diagnostic(path, message)


def rule_diagnostics(document: Document, value: Any, path: Key = ()) -> Iterator[Diagnostic]:
    """Yield what the rules of models, inside of a value with a sound form, find in a document."""
    if isinstance(value, BaseModel):
        for key, message in getattr(value, "rules", tuple)():
            yield document.diagnostic((*path, *key), message, at_key=True)
        value = dict(value)
    inner = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for part, each in inner:
        yield from rule_diagnostics(document, each, (*path, part))


def known_keys(model: type[BaseModel], location: Iterable[str | int]) -> list[str]:
    """Return the keys of the model that stands at a location inside another model, by its JSON Schema."""
    schema = model.model_json_schema()

    def alternatives(node: Any) -> list[Any]:
        node = schema["$defs"][node["$ref"].rpartition("/")[2]] if "$ref" in node else node
        return [each for inner in node["anyOf"] for each in alternatives(inner)] if "anyOf" in node else [node]

    nodes = [schema]
    for part in location:
        inner = [
            node.get("properties", {}).get(part)
            or node.get("items" if isinstance(part, int) else "additionalProperties")
            for node in nodes
        ]
        # pydantic's locations also name types, which have no keys of their own
        nodes = [each for node in inner if isinstance(node, dict) for each in alternatives(node)] or nodes
    return next((list(node["properties"]) for node in nodes if "properties" in node), [])


def unknown_name(kind: str, word: str, known: list[str]) -> str:
    """Say that there is no such name, with the nearest one and all that there are."""
    return f"no {kind} called {word[:60]!r}{did_you_mean(word, known) or '.'} Known: {', '.join(known) or 'none'}"


def unknown_parameter(owner: str, word: str, known: Iterable[str], others: Iterable[str] = ()) -> str:
    """Say that a plug-in has no such parameter, with the nearest key (``others`` included) or all of its parameters."""
    known = list(known)
    near = did_you_mean(word, [*known, *others])
    return f"unknown key {word[:60]!r}{near or f'. {owner} takes ' + (', '.join(known) or 'no parameters')}"


def as_keys(message: str) -> str:
    """Replace arguments in backticks by keys of a recipe: `tol` by tol, `sampling='poisson'` by sampling: poisson."""
    return re.sub(r"`(\w+)`|`(\w+)='?([^`']*)'?`", lambda found: found[1] or f"{found[2]}: {found[3]}", message)


def abbreviate(value: Any) -> str:
    """Format a value as JSON of at most 60 characters, for a message."""
    return json.dumps(value, default=str)[:60]
