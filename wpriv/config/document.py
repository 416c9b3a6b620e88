"""Documents: plain data with the place of every key and value, and diagnostics about them."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

from wpriv.errors import MissingResource, UsageError, WprivError

MAX_DIAGNOSTICS = 20

# the path of a value from the root: keys of mappings and indices of lists
Key = tuple[str | int, ...]
# line and column, from 1
Place = tuple[int, int]


@dataclass(frozen=True, order=True)
class Diagnostic:
    """A fault of a document: its place, and what was wanted, what was found and what to change.

    ``is_missing`` tells a file that does not exist from a fault of the document itself.
    """

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


def of_data(name: str, data: dict[str, Any]) -> Document:
    """Make a document of data that came from no file, as from flags; all of it stands at line 1, column 1."""
    values: dict[Key, Place] = {}

    def walk(path: Key, value: Any) -> None:
        values[path] = (1, 1)
        inner: Iterable[tuple[Any, Any]] = ()
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
    return kind("\n".join(lines))
