"""What pydantic finds wrong with a recipe, in the words of this program and at the place that it is about."""

from __future__ import annotations

import json
from typing import Any

from pydantic import BaseModel, ValidationError

from wpriv.core import registry
from wpriv.core.document import Document, Fault, Key
from wpriv.core.schema import Axis, DataSet, Optimizer, Panel, Part, Privacy, Sweep


def model_faults(document: Document, model: type[BaseModel], at: Key = ()) -> list[Fault]:
    """The faults of a document, or of the part of it at a path, held against a model."""
    try:
        model.model_validate(document.at(at))
    except ValidationError as error:
        return [_told(document, model, fault, at) for fault in error.errors(include_url=False)]
    return []


def _told(document: Document, model: type[BaseModel], fault: Any, at: Key) -> Fault:
    path = at
    for part in fault["loc"]:
        if (*path, part) in document.values:
            path = (*path, part)
    kind, name = fault["type"], str(fault["loc"][-1])
    if kind == "extra_forbidden":
        return Fault(document.place(path, at_key=True), f"unknown key {name!r}{registry.did_you_mean(name, _keys_of(model, fault['loc']))}")
    if kind == "missing":
        return Fault(document.place(path), f"the key {name!r} is missing")
    if name == "[key]":
        return Fault(document.place(path, at_key=True), f"unknown key {str(fault['loc'][-2])!r}; it {fault['msg'][6:]}")
    if kind == "too_short":
        return Fault(document.place(path), f"a list of at least {fault['ctx']['min_length']} was wanted; found {shown(fault['input'])}")
    said = str(fault.get("ctx", {}).get("error") or fault["msg"][0].lower() + fault["msg"][1:])
    said = said.replace("input should be", "must be").replace("valid ", "").replace("a integer", "a whole number")
    said = "must be a mapping of keys to values" if kind in ("model_type", "dict_type") else said
    found = "" if kind == "value_error" else f"; found {shown(fault['input'])}"
    return Fault(document.place(path), f"{name}: {said}{found}" if isinstance(fault["loc"][-1], str) else f"{said}{found}")


def _keys_of(model: type[BaseModel], loc: tuple[Any, ...]) -> list[str]:
    """Keys known where an unknown one was found: those of the innermost model along the path."""
    inner: dict[Any, type[BaseModel]] = {"quick": Part, "panels": Panel, "sweep": Sweep}
    if "optimizer" in model.model_fields:
        inner = {"privacy": Privacy, "optimizer": Optimizer, "data": DataSet, "sweep": Axis}
    return list(next((inner[part] for part in reversed(loc[:-1]) if part in inner), model).model_fields)


def shown(value: Any) -> str:
    """A value as a fault shows it, cut to 60 characters."""
    return json.dumps(value, default=str)[:60]


def unknown(kind: str, word: str, known: list[str]) -> str:
    """What is said of a name that no plug-in has."""
    near = registry.did_you_mean(word, known)
    return f"no {kind} called {word[:60]!r}{near or '.'} Known: {', '.join(known) or 'none'}"
