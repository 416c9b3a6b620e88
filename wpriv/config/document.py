"""Documents: plain data with the place of every key and value, and diagnostics about them."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any, get_args

from pydantic import BaseModel, ValidationError

from wpriv.errors import MissingResource, UsageError, WprivError
from wpriv.hints import ALIASES, did_you_mean, fold, instead, plain_key

MAX_DIAGNOSTICS = 20

# the path of a value from the root: keys of mappings and indices of lists
Key = tuple[str | int, ...]
# line and column, from 1
Place = tuple[int, int]


@dataclass(frozen=True, order=True)
class Diagnostic:
    """A fault of a document with its place: wanted, found, to change; ``is_missing``: of a file, not the document."""

    place: Place
    text: str
    is_missing: bool = False


@dataclass(frozen=True)
class Document:
    """The data of a recipe, and where in a file each of its keys and values was written.

    Args:
        name: the file as the user named it. lines: of the file; none where the data came from no file.
        data: the recipe. keys, values: the places of keys and of values by path.
        origins: where each key of ``data`` was written, for data that were merged from several parts of a file.
        root: the path of the part of a file that a missing key of ``data`` belongs to.
    """

    name: str
    lines: list[str]
    data: dict[str, Any]
    keys: dict[Key, Place] = field(default_factory=dict)
    values: dict[Key, Place] = field(default_factory=dict)
    origins: dict[str, Key] = field(default_factory=dict)
    root: Key = ()

    def at(self, path: Key) -> Any:
        """Return the data at a path."""
        value: Any = self.data
        for part in path:
            value = value[part]
        return value

    def place(self, path: Key, *, at_key: bool = False) -> Place:
        """Return the place of the value (or key) at a path, or of the innermost value around it."""
        top = str(path[0]) if path else ""
        path = (*self.origins[top], *path[1:]) if top in self.origins else (*self.root, *path)
        if at_key and path in self.keys:
            return self.keys[path]
        while path and path not in self.values:
            path = path[:-1]
        return self.values.get(path, (1, 1))

    def diagnostic(self, path: Key, text: str, *, at_key: bool = False) -> Diagnostic:
        """Build a diagnostic about what stands at a path."""
        return Diagnostic(self.place(path, at_key=at_key), text)


def of_data(name: str, data: dict[str, object]) -> Document:
    """Make a document of data that came from no file, as from flags; all of it stands at line 1, column 1."""
    values: dict[Key, Place] = {}

    def walk(path: Key, value: object) -> None:
        values[path] = (1, 1)
        inner: Iterable[tuple[Any, object]] = ()
        if isinstance(value, dict):
            inner = value.items()
        elif isinstance(value, (list, tuple)):
            inner = enumerate(value)
        for key, item in inner:
            walk((*path, key), item)

    walk((), data)
    return Document(name, [], data, {}, values)


def refusal(document: Document, diagnostics: Iterable[Diagnostic]) -> WprivError:
    """Make the error that lists diagnostics, in the order of the file, as ``name:line:column: text`` above the line.

    Returns:
        MissingResource where nothing is wrong but that files do not exist, else UsageError.
    """
    distinct = sorted(set(diagnostics))
    lines = []
    for diagnostic in distinct[:MAX_DIAGNOSTICS]:
        line, column = diagnostic.place
        place = f"{document.name}:{line}:{column}" if document.lines else document.name
        lines.append(f"{place}: {diagnostic.text}")
        if 1 <= line <= len(document.lines):
            source = "".join(c if c.isprintable() else "?" for c in document.lines[line - 1][:120])
            lines.append(f"    {line} | {source}")
    if len(distinct) > MAX_DIAGNOSTICS:
        lines.append(f"... and {len(distinct) - MAX_DIAGNOSTICS} more")
    kind = MissingResource if all(each.is_missing for each in distinct) else UsageError
    error = kind("\n".join(lines))
    if distinct and document.lines:
        error.place = (document.name, *distinct[0].place)
    return error


# Diagnostics of form: pydantic's errors in plain words, at the place they are about; and texts about unknown names.

_REWORDED = (("input should be", "must be"), ("valid ", ""), ("a integer", "a whole number"))


def form_diagnostics(document: Document, model: type[BaseModel], path: Key = ()) -> list[Diagnostic]:
    """Validate a document, or the part of it at a path, against a pydantic model."""
    try:
        model.model_validate(document.at(path))
    except ValidationError as error:
        return [_form_diagnostic(document, model, details, path) for details in error.errors(include_url=False)]
    return []


# in the place of a suggestion, for keywords of ``wpriv.train`` that no recipe has
PERSONS = (
    ". Persons are given in Python, wpriv.train(..., person=ids, max_per_person=3); in a recipe privacy.group "
    "protects so many records of a person together"
)
PYTHON = {"person": PERSONS, "max_per_person": PERSONS}


def _form_diagnostic(document: Document, model: type[BaseModel], details: Any, path: Key) -> Diagnostic:
    location, kind, name = details["loc"], details["type"], str(details["loc"][-1])
    for part in location:  # pydantic's locations also name types, which are no part of the document
        if (*path, part) in document.values:
            path = (*path, part)
    if kind == "extra_forbidden":
        near = PYTHON.get(name) or ("" if location[:-1] else _deeper(model, name))
        message = f"unknown key {name!r}{near or did_you_mean(name, known_keys(model, location[:-1]))}"
        return document.diagnostic(path, message, at_key=True)
    if kind == "missing":
        return document.diagnostic(path, f"the key {name!r} is missing")
    if name == "[key]":
        return document.diagnostic(path, f"unknown key {str(location[-2])!r}; it {details['msg'][6:]}", at_key=True)
    if kind == "too_short":
        count = details["ctx"]["min_length"]
        text = f"a list needs at least {count} item{'s' * (count > 1)}; found {abbreviate(details['input'])}"
        return document.diagnostic(path, text)
    message = str(details.get("ctx", {}).get("error") or details["msg"][0].lower() + details["msg"][1:])
    for old, new in _REWORDED:
        message = message.replace(old, new)
    if kind in ("model_type", "dict_type"):
        message = "must be a mapping of keys to values"
    if isinstance(location[-1], str):
        message = f"{name}: {message}"
    if kind != "value_error":
        message += f"; found {abbreviate(details['input'])}"
    if kind == "literal_error" and isinstance(details["input"], str):
        message += did_you_mean(details["input"], re.findall(r"'([^']+)'", details["ctx"]["expected"]))
    return document.diagnostic(path, message)


def _deeper(model: type[BaseModel], name: str) -> str:
    """The suggestion of a key of privacy or of the optimizer of a training for one that stands outside of them."""
    for part in ("privacy", "optimizer"):
        keys = known_keys(model, (part,)) if part in model.model_fields else []
        meant = {plain_key(name), fold(name), *ALIASES.get(fold(name), ((), ""))[0]}
        if not meant.isdisjoint(keys):
            return did_you_mean(name, keys, f"{part}.")
    return ""


def rule_diagnostics(document: Document, value: object, path: Key = ()) -> Iterator[Diagnostic]:
    """Yield what the rules of models, inside of a value with a sound form, find in a document."""
    if isinstance(value, BaseModel):
        for key, message in getattr(value, "rules", tuple)():
            yield document.diagnostic((*path, *key), message, at_key=True)
        value = {key: each for key, each in value}
    inner = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for part, each in inner:
        yield from rule_diagnostics(document, each, (*path, part))


def known_keys(model: type[BaseModel], location: Iterable[str | int]) -> list[str]:
    """Return the keys of the model that stands at a location inside another model."""
    models = [model]
    for part in location:
        inner = [each.model_fields[part].annotation for each in models if part in each.model_fields]
        # indices, names of cases and the types in pydantic's locations have no keys of their own
        models = [found for annotation in inner for found in models_in(annotation)] or models
    return list(models[0].model_fields)


def models_in(annotation: object) -> Iterator[type[BaseModel]]:
    """The models in a type, such as Optimizer in ``Optimizer | None``."""
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        yield annotation
    for part in get_args(annotation):
        yield from models_in(part)


def unknown_name(kind: str, word: str, known: list[str]) -> str:
    """Say that there is no such name, with the nearest one."""
    return f"no {kind} called {word[:60]!r}{instead(word, known, kind)}"


def unknown_parameter(owner: str, word: str, known: Iterable[str], others: Iterable[str] = ()) -> str:
    """Say that a plug-in has no such parameter, with the nearest key (``others`` included) or all of its parameters."""
    known = list(known)
    near = PYTHON.get(word) or did_you_mean(word, [*known, *others])
    return f"unknown key {word[:60]!r}{near or f'. {owner} takes ' + (', '.join(known) or 'no parameters')}"


def as_keys(message: str) -> str:
    """Replace arguments in backticks by keys of a recipe: `tol` by tol, `sampling='poisson'` by sampling: poisson."""
    return re.sub(r"`(\w+)`|`(\w+)='?([^`']*)'?`", lambda found: found[1] or f"{found[2]}: {found[3]}", message)


def abbreviate(value: object) -> str:
    """Format a value as JSON of at most 60 characters, for a message."""
    return json.dumps(value, default=str)[:60]
