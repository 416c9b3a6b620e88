"""Strict YAML: plain data together with the line and column of every key and value.

What YAML allows beyond plain data is refused (tags, anchors, several documents), and so is what it gets wrong silently: a
duplicate key, ``1e-5`` read as text, ``no`` read as false.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import yaml

from wpriv.errors import UsageError, of_file

MAX_BYTES = 1_000_000
MAX_DEPTH = 16
MAX_FAULTS = 20

Key = tuple[str | int, ...]
Place = tuple[int, int]

_LOADER: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
_INT = re.compile(r"[-+]?[0-9]+\Z")
_FLOAT = re.compile(r"[-+]?(\.[0-9]+|[0-9]+(\.[0-9]*)?)([eE][-+]?[0-9]+)?\Z")
_WORDS = {"": None, "~": None, "null": None, "true": True, "True": True, "false": False, "False": False}
_NOT_FINITE = {".inf", "-.inf", "+.inf", ".nan", "inf", "-inf", "+inf", "nan"}


@dataclass(frozen=True)
class Document:
    """One YAML file: its name as the user wrote it, its lines, its data, and where each key and value of it stands."""

    name: str
    lines: list[str]
    data: dict[str, Any]
    keys: dict[Key, Place] = field(default_factory=dict)
    values: dict[Key, Place] = field(default_factory=dict)

    def at(self, path: Key) -> Any:
        """The data at a path."""
        found: Any = self.data
        for part in path:
            found = found[part]
        return found

    def place(self, path: Key, *, at_key: bool = False) -> Place:
        """Line and column, from 1, of what stands at a path, or of the nearest thing that encloses it."""
        if at_key and path in self.keys:
            return self.keys[path]
        while path and path not in self.values:
            path = path[:-1]
        return self.values.get(path, (1, 1))


def of_data(name: str, data: dict[str, Any]) -> Document:
    """A document of data that came from no file, whose faults have no lines to point at."""
    values: dict[Key, Place] = {}

    def walk(path: Key, value: Any) -> None:
        values[path] = (1, 1)
        inner = (
            value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, (list, tuple)) else ()
        )
        for key, below in inner:
            walk((*path, key), below)

    walk((), data)
    return Document(name, [], data, {}, values)


@dataclass(frozen=True, order=True)
class Fault:
    """What is wrong at one place of a document."""

    place: Place
    text: str


def refuse(name: str, lines: list[str], faults: list[Fault]) -> UsageError:
    """The error that reports every fault, each as ``name:line:column: text`` above its source line, in the order of the file."""
    told = []
    for fault in sorted(set(faults))[:MAX_FAULTS]:
        line, column = fault.place
        # what came from flags has no lines to point at
        told.append(f"{name}:{line}:{column}: {fault.text}" if lines else f"{name}: {fault.text}")
        if 1 <= line <= len(lines):
            shown = "".join(c if c.isprintable() else "?" for c in lines[line - 1][:120])
            told.append(f"    {line} | {shown}")
    left = len(set(faults)) - MAX_FAULTS
    return UsageError("\n".join(told + ([f"... and {left} more"] if left > 0 else [])))


def read(path: Path, name: str | None = None) -> Document:
    """Reads a YAML file of at most 1 MB strictly.

    Raises:
        UsageError: it cannot be read, is too large, not UTF-8, or not strict YAML; every fault with its line and column.
    """
    name = name or str(path)
    try:
        if path.stat().st_size > MAX_BYTES:
            raise UsageError(
                f"{name}: a recipe may have up to {MAX_BYTES:,} bytes; found {path.stat().st_size:,}. Is this a recipe?"
            )
        raw = path.read_bytes()
    except PermissionError as error:
        raise of_file(error, name, "read", "allow reading it") from None
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or error
        advice = "Check the path; `wpriv recipe ls` lists the shipped ones"
        raise UsageError(f"the recipe {name} cannot be read: {reason}. {advice}") from None
    try:
        text = raw.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = raw[: error.start].count(b"\n") + 1
        raise UsageError(
            f"{name}:{line}: a recipe must be UTF-8 text; found the byte 0x{raw[error.start]:02x}. Save it as UTF-8"
        ) from None
    return parse(text, name)


def parse(text: str, name: str) -> Document:
    """Parses YAML text; see ``read``."""
    document = Document(name, text.splitlines() or [""], {})
    faults: list[Fault] = []
    try:
        events = iter(yaml.parse(text, Loader=_LOADER))
        data = _root(events, document, faults)
    except yaml.YAMLError as error:
        raise refuse(name, document.lines, [*faults, _broken(error, text)]) from None
    if not isinstance(data, dict):
        faults.append(Fault((1, 1), f"a recipe must be a mapping of keys to values; found {_kind_of(data)}"))
    if faults:
        raise refuse(name, document.lines, faults)
    document.data.update(data)
    return document


class _Stop(yaml.YAMLError):
    """Reading further makes no sense: too deep, an alias, a second document."""

    def __init__(self, event: Any, text: str):
        self.problem, self.problem_mark = text, event.start_mark


def _root(events: Iterator[Any], document: Document, faults: list[Fault]) -> Any:
    data, seen = None, False
    for event in events:
        if isinstance(event, yaml.DocumentStartEvent):
            if seen:
                raise _Stop(event, "a recipe is one YAML document; found a second one. Remove the '---'")
            seen = True
            data = _node(next(events), events, document, faults, ())
    return data


def _node(event: Any, events: Iterator[Any], document: Document, faults: list[Fault], path: Key) -> Any:
    place = event.start_mark.line + 1, event.start_mark.column + 1
    document.values[path] = place
    if isinstance(event, yaml.AliasEvent) or getattr(event, "anchor", None):
        raise _Stop(event, "anchors and aliases (& and *) are not allowed here; write the value out")
    if len(path) > MAX_DEPTH:
        raise _Stop(event, f"a recipe is nested up to {MAX_DEPTH} levels deep; found more")
    if getattr(event, "tag", None):
        faults.append(
            Fault(place, f"tags are not allowed here; remove {event.tag.replace('tag:yaml.org,2002:', '!!')!r}")
        )
    if isinstance(event, yaml.ScalarEvent):
        return _scalar(event, place, faults)
    if isinstance(event, yaml.SequenceStartEvent):
        items: list[Any] = []
        while not isinstance(event := next(events), yaml.SequenceEndEvent):
            items.append(_node(event, events, document, faults, (*path, len(items))))
        return items
    return _mapping(events, document, faults, path)


def _mapping(events: Iterator[Any], document: Document, faults: list[Fault], path: Key) -> dict[str, Any]:
    found: dict[str, Any] = {}
    while not isinstance(event := next(events), yaml.MappingEndEvent):
        place = event.start_mark.line + 1, event.start_mark.column + 1
        if not isinstance(event, yaml.ScalarEvent):
            raise _Stop(event, "a key must be a plain word; found a list or a mapping")
        if event.anchor or event.tag:
            raise _Stop(event, "anchors and tags are not allowed here; write the key alone")
        key = event.value
        inner = (*path, key)
        if key in found:
            faults.append(
                Fault(place, f"duplicate key {key[:60]!r}; it stands on line {document.keys[inner][0]} already")
            )
        document.keys[inner] = place
        found[key] = _node(next(events), events, document, faults, inner)
    return found


def _scalar(event: Any, place: Place, faults: list[Fault]) -> Any:
    text = event.value
    if not event.implicit[0]:
        return text
    if text in _WORDS:
        return _WORDS[text]
    if text in ("inf", ".inf"):
        return "inf"  # a word: what wants a number refuses it, and an eps may be it
    if text.lower() in _NOT_FINITE:
        faults.append(Fault(place, f"a number must be finite; found {text}"))
    elif _INT.match(text):
        if len(text) <= 40:
            return int(text)
        faults.append(Fault(place, f"a whole number may have up to 40 digits; found {len(text)}"))
    elif _FLOAT.match(text):
        value = float(text)
        if abs(value) < float("inf"):
            return value
        faults.append(Fault(place, f"the number {text[:40]} is beyond the largest one a computer holds (1.8e308)"))
    return text


def plain(text: str) -> bool:
    """Whether a text written without quotes is read as that text, not as a number, a truth value or a fault."""
    return not (text in _WORDS or text.lower() in _NOT_FINITE or _INT.match(text) or _FLOAT.match(text))


def _broken(error: yaml.YAMLError, text: str) -> Fault:
    mark = getattr(error, "problem_mark", None) or getattr(error, "context_mark", None)
    if mark is not None:
        said = getattr(error, "problem", None) or "not readable as YAML"
        return Fault(
            (mark.line + 1, mark.column + 1), said if isinstance(error, _Stop) else f"not readable as YAML: {said}"
        )
    position = getattr(error, "position", 0)
    before = text[:position]
    said = "a character that is not allowed in text"
    return Fault((before.count("\n") + 1, position - before.rfind("\n")), f"not readable as YAML: {said}")


def _kind_of(data: Any) -> str:
    return "nothing" if data is None else "a list" if isinstance(data, list) else f"the single value {str(data)[:40]!r}"


class _Plain(yaml.SafeDumper):
    """Writes every value out, also one that stands in several places: the loader refuses anchors."""

    def ignore_aliases(self, data: Any) -> bool:
        return True


# what our loader reads as a number is not always one to PyYAML: inf, 1e5
_Plain.add_representer(
    str, lambda dumper, text: dumper.represent_scalar("tag:yaml.org,2002:str", text, style=None if plain(text) else "'")
)


def as_yaml(data: dict[str, Any]) -> str:
    """A recipe's data as YAML, in its own order; reads back as the same data."""
    return str(yaml.dump(data, Dumper=_Plain, sort_keys=False, allow_unicode=True, width=140))
