"""Edit values in the text of a YAML file by their places, with everything else left as it is written."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass

from wpriv.config.document import Place
from wpriv.errors import UsageError

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
    """Return the text with edits applied.

    Raises:
        UsageError: there is no scalar of one line at a place.
    """
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
