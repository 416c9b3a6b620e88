"""Read and write strict YAML: plain data with the line and column of every key and value.

Anything beyond plain data is refused (tags, anchors, several documents), and so is what YAML silently gets wrong:
a duplicate key, ``1e-5`` read as text, ``no`` read as false.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from wpriv.config.document import Diagnostic, Document, Key, Place, refusal
from wpriv.errors import UsageError, of_file
from wpriv.files import read_bytes, shown_path

MAX_BYTES = 1_000_000
MAX_DEPTH = 16

_LOADER: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
_INT = re.compile(r"[-+]?[0-9]+\Z")
_FLOAT = re.compile(r"[-+]?(\.[0-9]+|[0-9]+(\.[0-9]*)?)([eE][-+]?[0-9]+)?\Z")
_WORDS = {"": None, "~": None, "null": None, "true": True, "True": True, "false": False, "False": False}
_NOT_FINITE = {".inf", "-.inf", "+.inf", ".nan", "inf", "-inf", "+inf", "nan"}


def read(path: Path, name: str | None = None) -> Document:
    """Read a YAML file of at most 1 MB, or standard input for ``-``.

    Raises:
        UsageError: the file cannot be read, is too large, not UTF-8, or not strict YAML; the message lists every
            fault with its line and column.
        MissingResource: the user may not read the file.
    """
    name = name or shown_path(path)
    try:
        raw = read_bytes(path, MAX_BYTES)
    except PermissionError as error:
        raise of_file(error, name, "read", "allow reading it") from None
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or error
        advice = "Check the path; `wpriv recipe ls` lists the shipped ones"
        raise UsageError(f"the recipe {name} cannot be read: {reason}. {advice}") from None
    if len(raw) > MAX_BYTES:
        raise UsageError(f"{name}: a recipe may have up to {MAX_BYTES:,} bytes; found more. Is this a recipe?")
    try:
        text = raw.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = raw[: error.start].count(b"\n") + 1
        found = f"found the byte 0x{raw[error.start]:02x}. Save it as UTF-8"
        raise UsageError(f"{name}:{line}: a recipe must be UTF-8 text; {found}") from None
    return parse(text, name)


def parse(text: str, name: str) -> Document:
    """Parse YAML text; see ``read``."""
    document = Document(name, text.splitlines() or [""], {})
    diagnostics: list[Diagnostic] = []
    try:
        data = _root(iter(yaml.parse(text, Loader=_LOADER)), document, diagnostics)
    except yaml.YAMLError as error:
        raise refusal(document, [*diagnostics, _syntax_error(error, text)]) from None
    if not isinstance(data, dict):
        message = f"a recipe must be a mapping of keys to values; found {_kind_of(data)}"
        diagnostics.append(Diagnostic((1, 1), message))
    if diagnostics:
        raise refusal(document, diagnostics)
    document.data.update(data)
    return document


class _StopError(yaml.YAMLError):
    """A fault behind which nothing can be read: an alias, a second document, nesting that is too deep."""

    def __init__(self, event: Any, text: str):
        self.problem, self.problem_mark = text, event.start_mark


def _root(events: Iterator[object], document: Document, diagnostics: list[Diagnostic]) -> Any:
    data, documents = None, 0
    for event in events:
        if isinstance(event, yaml.DocumentStartEvent):
            documents += 1
            if documents > 1:
                raise _StopError(event, "a recipe is one YAML document; found a second one. Remove the '---'")
            data = _node(next(events), events, document, diagnostics, ())
    return data


def _node(event: Any, events: Iterator[Any], document: Document, diagnostics: list[Diagnostic], path: Key) -> object:
    place = _place(event)
    document.values[path] = place
    if isinstance(event, yaml.AliasEvent) or getattr(event, "anchor", None):
        raise _StopError(event, "anchors and aliases (& and *) are not allowed here; write the value out")
    if len(path) > MAX_DEPTH:
        raise _StopError(event, f"a recipe may be nested up to {MAX_DEPTH} levels deep; found more")
    if getattr(event, "tag", None):
        tag = event.tag.replace("tag:yaml.org,2002:", "!!")
        diagnostics.append(Diagnostic(place, f"tags are not allowed here; remove {tag!r}"))
    if isinstance(event, yaml.ScalarEvent):
        return _scalar(event, place, diagnostics)
    if isinstance(event, yaml.SequenceStartEvent):
        items: list[object] = []
        while not isinstance(event := next(events), yaml.SequenceEndEvent):
            items.append(_node(event, events, document, diagnostics, (*path, len(items))))
        return items
    return _mapping(events, document, diagnostics, path)


def _mapping(
    events: Iterator[object], document: Document, diagnostics: list[Diagnostic], path: Key
) -> dict[str, object]:
    mapping: dict[str, object] = {}
    while not isinstance(event := next(events), yaml.MappingEndEvent):
        place = _place(event)
        if not isinstance(event, yaml.ScalarEvent):
            raise _StopError(event, "a key must be a plain word; found a list or a mapping")
        if event.anchor or event.tag:
            raise _StopError(event, "anchors and tags are not allowed here; write the key alone")
        key = event.value
        inner = (*path, key)
        if key in mapping:
            message = f"duplicate key {key[:60]!r}; it already stands on line {document.keys[inner][0]}"
            diagnostics.append(Diagnostic(place, message))
        document.keys[inner] = place
        mapping[key] = _node(next(events), events, document, diagnostics, inner)
    return mapping


def _place(event: Any) -> Place:
    return event.start_mark.line + 1, event.start_mark.column + 1


def _scalar(event: Any, place: Place, diagnostics: list[Diagnostic]) -> Any:
    text = event.value
    if not event.implicit[0]:
        return text
    if text in _WORDS:
        return _WORDS[text]
    if text in ("inf", ".inf"):
        return "inf"  # a word: an eps may be infinite, and every other number refuses text
    if text.lower() in _NOT_FINITE:
        diagnostics.append(Diagnostic(place, f"a number must be finite; found {text}"))
    elif _INT.match(text):
        if len(text) <= 40:
            return int(text)
        diagnostics.append(Diagnostic(place, f"a whole number may have up to 40 digits; found {len(text)}"))
    elif _FLOAT.match(text):
        value = float(text)
        if abs(value) < float("inf"):
            return value
        message = f"the number {text[:40]} is beyond the largest one that a computer holds (1.8e308)"
        diagnostics.append(Diagnostic(place, message))
    return text


def _syntax_error(error: yaml.YAMLError, text: str) -> Diagnostic:
    mark = getattr(error, "problem_mark", None) or getattr(error, "context_mark", None)
    if mark is not None:
        problem = getattr(error, "problem", None) or "a syntax error"
        message = problem if isinstance(error, _StopError) else f"not readable as YAML: {problem}"
        return Diagnostic((mark.line + 1, mark.column + 1), message)
    position = getattr(error, "position", 0)
    before = text[:position]
    place = before.count("\n") + 1, position - before.rfind("\n")
    return Diagnostic(place, "not readable as YAML: a character that is not allowed in text")


def _kind_of(data: object) -> str:
    return "nothing" if data is None else "a list" if isinstance(data, list) else f"the single value {str(data)[:40]!r}"


class _PlainDumper(yaml.SafeDumper):
    """Writes a value that stands in several places out in each of them, since the reader refuses anchors."""

    def ignore_aliases(self, data: object) -> bool:
        return True


def _represent_text(dumper: Any, text: str) -> Any:
    # inf and 1e5 are numbers to the reader above but not to PyYAML, so that as text they need quotes
    other = text in _WORDS or text.lower() in _NOT_FINITE or _INT.match(text) or _FLOAT.match(text)
    lines = "|" if "\n" in text and isinstance(dumper, _BlockDumper) else None
    return dumper.represent_scalar("tag:yaml.org,2002:str", text, style=lines or ("'" if other else None))


_PlainDumper.add_representer(str, _represent_text)


class _BlockDumper(_PlainDumper):
    """Writes text of several lines as a block, line by line."""


def as_yaml(data: dict[str, object], *, blocks: bool = False) -> str:
    """Format data as YAML in their own order; of a recipe, ``read`` gives the same data back."""
    dumper = _BlockDumper if blocks else _PlainDumper
    return str(yaml.dump(data, Dumper=dumper, sort_keys=False, allow_unicode=True, width=140))


# Edit values in the text of a YAML file by their places, with everything else left as it is written.

# a scalar on one line: quoted, or plain up to what ends it in a list or mapping in brackets, or before a comment
_SCALAR = re.compile(r""""(?:[^"\\\n]|\\.)*"|'(?:[^'\n]|'')*'|[^\s,\[\]{}"'#][^,\[\]{}\n#]*""")


@dataclass(frozen=True)
class Edit:
    """A change of the text at one scalar.

    Args:
        place: line and column of the scalar, from 1. text: what takes its place; None leaves the scalar.
        after: what is inserted behind it.
    """

    place: Place
    text: str | None = None
    after: str = ""


def edited(text: str, edits: Iterable[Edit]) -> str:
    """Return the text with edits applied."""
    lines = text.splitlines(keepends=True)
    for edit in sorted(edits, key=lambda each: each.place, reverse=True):
        line, column = edit.place
        content = lines[line - 1]
        match = _SCALAR.match(content, column - 1)
        if match is None:
            raise UsageError(f"line {line}, column {column}: a value of one line was wanted; found {content.strip()!r}")
        written = match.group().rstrip()
        end = match.start() + len(written)
        new = written if edit.text is None else edit.text
        lines[line - 1] = f"{content[: match.start()]}{new}{edit.after}{content[end:]}"
    return "".join(lines)


def scalar_at(text: str, place: Place) -> str:
    """Return the scalar at a place as it is written, such as ``1e-5`` or ``"a word"``; empty if there is none."""
    line, column = place
    match = _SCALAR.match(text.splitlines()[line - 1], column - 1)
    return match.group().rstrip() if match else ""
