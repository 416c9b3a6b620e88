"""Diagnostics of form: pydantic's errors in plain words, at the place they are about; and texts about unknown names."""

from __future__ import annotations

import json
import re
import types
from collections.abc import Iterable
from typing import Annotated, Any, Union, get_args, get_origin

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


def known_keys(model: type[BaseModel], location: Iterable[str | int]) -> list[str]:
    """Return the keys of the model that stands at a location inside another model, by walking the annotations."""
    annotation: Any = model
    for part in location:
        inner = _annotation_at(annotation, part)
        annotation = annotation if inner is None else inner
    innermost = _model_in(annotation)
    return list(innermost.model_fields) if innermost else []


def _alternatives(annotation: Any) -> list[Any]:
    """The types that an annotation allows, without ``Annotated`` and unions around them."""
    origin = get_origin(annotation)
    if origin is Annotated:
        return _alternatives(get_args(annotation)[0])
    if origin in (Union, types.UnionType):
        return [each for part in get_args(annotation) for each in _alternatives(part)]
    return [annotation]


def _model_in(annotation: Any) -> type[BaseModel] | None:
    classes = [each for each in _alternatives(annotation) if isinstance(each, type) and not get_args(each)]
    return next((each for each in classes if issubclass(each, BaseModel)), None)


def _annotation_at(annotation: Any, part: str | int) -> Any:
    """The annotation of a field of a model, an item of a list or a value of a mapping; None where there is none."""
    for each in _alternatives(annotation):
        if get_origin(each) in (list, dict):
            return get_args(each)[-1]
        model = _model_in(each)
        if model and part in model.model_fields:
            return model.model_fields[str(part)].annotation
    return None


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
