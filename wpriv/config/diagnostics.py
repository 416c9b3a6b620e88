"""Faults of a recipe in the words of this program, at the line and column they are about: of form (pydantic's) and of names."""

from __future__ import annotations

import dataclasses
import json
from typing import Any

from pydantic import BaseModel, ValidationError

from wpriv.config.field_types import LocalNoise
from wpriv.config.schema import PROCESS_TABLES, Panel, Part, Step, Sweep
from wpriv.config.train_schema import Axis, DataSet, Optimizer, Privacy
from wpriv.config.yaml_document import Document, Fault, Key
from wpriv.core import registry
from wpriv.core.adjacency import STANDARD_ADJACENCIES
from wpriv.core.parameters import type_words
from wpriv.errors import UsageError
from wpriv.hints import did_you_mean

_FOLDERS = {"figure": "figures", "table": "tables"}


def model_faults(document: Document, model: type[BaseModel], at: Key = ()) -> list[Fault]:
    """pydantic's faults with a document, or with the part of it at a path, at the place they are about."""
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
        return Fault(
            document.place(path, at_key=True),
            f"unknown key {name!r}{did_you_mean(name, _keys_of(model, fault['loc']))}",
        )
    if kind == "missing":
        return Fault(document.place(path), f"the key {name!r} is missing")
    if name == "[key]":
        return Fault(document.place(path, at_key=True), f"unknown key {str(fault['loc'][-2])!r}; it {fault['msg'][6:]}")
    if kind == "too_short":
        return Fault(
            document.place(path),
            f"a list of at least {fault['ctx']['min_length']} was wanted; found {abbreviate(fault['input'])}",
        )
    said = str(fault.get("ctx", {}).get("error") or fault["msg"][0].lower() + fault["msg"][1:])
    said = said.replace("input should be", "must be").replace("valid ", "").replace("a integer", "a whole number")
    said = "must be a mapping of keys to values" if kind in ("model_type", "dict_type") else said
    found = "" if kind == "value_error" else f"; found {abbreviate(fault['input'])}"
    return Fault(
        document.place(path), f"{name}: {said}{found}" if isinstance(fault["loc"][-1], str) else f"{said}{found}"
    )


def _keys_of(model: type[BaseModel], loc: tuple[Any, ...]) -> list[str]:
    """Keys known where an unknown one was found: those of the innermost model along the path."""
    inner: dict[Any, type[BaseModel]] = {"quick": Part, "panels": Panel, "sweep": Sweep}
    if "optimizer" in model.model_fields:
        inner = {"privacy": Privacy, "optimizer": Optimizer, "data": DataSet, "sweep": Axis, "privatize": LocalNoise}
    return list(next((inner[part] for part in reversed(loc[:-1]) if part in inner), model).model_fields)


def name_faults(document: Document) -> list[Fault]:
    """Mechanisms, their parameters, accountants and figures that do not exist, wherever they are named."""
    faults: list[Fault] = []
    neighbours: list[str] = sorted(
        {*STANDARD_ADJACENCIES, *(a for mech in _mechanisms(document) for a in registry.mechanism(mech).adjacencies)}
    )
    for path in document.values:
        value = document.at(path)
        if path[-1:] == ("adjacency",) and isinstance(value, str) and value not in neighbours:
            faults.append(Fault(document.place(path), unknown("adjacency", value, neighbours)))
        before = ("", "", "", *path)[-3:]
        if isinstance(value, dict) and (before[1] == "process" or before[0] == "cases"):
            faults += _step_faults(document, value, path)
        folder = "accountants" if before[1] == "accountants" else _FOLDERS.get(str(before[2]), "")
        own = {"accountants": ("all",), "tables": tuple(PROCESS_TABLES)}.get(folder, ())
        if not folder or not isinstance(value, str) or value in own:
            continue
        name, colon, _ = value.partition(":") if folder == "accountants" else (value, "", "")
        if name not in registry.names(folder):
            faults.append(Fault(document.place(path), unknown(folder[:-1], name, [*own, *registry.names(folder)])))
        elif colon:
            try:
                registry.accountant(value)
            except UsageError as error:
                faults.append(Fault(document.place(path), str(error)))
    return faults


def _mechanisms(document: Document) -> set[str]:
    """The mechanisms named anywhere in a document, of those there are."""
    named = {
        document.at(path) for path in document.values if path[-1:] == ("mech",) and isinstance(document.at(path), str)
    }
    return named & set(registry.names("mechanisms"))


def _step_faults(document: Document, step: dict[str, Any], path: Key) -> list[Fault]:
    mech, names = step.get("mech"), registry.names("mechanisms")
    if not isinstance(mech, str):
        return []  # the model tells
    if mech not in names:
        return [Fault(document.place((*path, "mech")), unknown("mechanism", mech, names))]
    own, faults = fields(mech), []
    for key, value in step.items():
        if key in Step.model_fields:
            continue
        if key not in own:
            near = did_you_mean(key, [*own, *Step.model_fields])
            said = f"unknown key {key[:60]!r}{near or f'. {mech} takes ' + (', '.join(own) or 'no parameters')}"
            faults.append(Fault(document.place((*path, key), at_key=True), said))
        elif type_words(own[key]) & {"float", "int"} and type(value) not in (int, float):
            faults.append(Fault(document.place((*path, key)), f"{key} must be a number; found {abbreviate(value)}"))
    return faults


def unknown(kind: str, word: str, known: list[str]) -> str:
    """That there is no such name, with the nearest one and all there are."""
    near = did_you_mean(word, known)
    return f"no {kind} called {word[:60]!r}{near or '.'} Known: {', '.join(known) or 'none'}"


def fields(mech: Any) -> dict[str, Any]:
    """The parameters of a mechanism by name; none where there is no such mechanism."""
    if mech not in registry.names("mechanisms"):
        return {}
    return {f.name: f for f in dataclasses.fields(registry.mechanism(mech))}


def abbreviate(value: Any) -> str:
    """A value as it may stand in a message: JSON, cut short."""
    return json.dumps(value, default=str)[:60]
