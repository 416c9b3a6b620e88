"""Documents that other programs write, as plain data: JSON and reprs of any depth, and objects by their attributes.

Plain data are numbers, text, booleans, None, lists, and mappings; an object is a mapping with its class under ``type``.
Nothing here calls itself for what lies inside, so that no document is too deep for it.
"""

from __future__ import annotations

import functools
import json
import math
import re
from collections.abc import Mapping, Sequence
from pathlib import Path

from wpriv.errors import MissingResource, UsageError
from wpriv.files import read_bytes, shown_path
from wpriv.files.durable_writes import unique_keys
from wpriv.numerics.numbers import finite_number, shown

MAX_BYTES, MAX_DEPTH = 50_000_000, 20_000
# how much of a file is looked at to tell what it is
HEAD_BYTES = 4096
_CONSTANTS: dict[str, float | bool | None] = {
    "true": True,
    "True": True,
    "false": False,
    "False": False,
    "null": None,
    "None": None,
}
_CONSTANTS |= {"nan": math.nan, "NaN": math.nan, "inf": math.inf, "Infinity": math.inf}
_TOKEN = re.compile(
    r"\s*(?:(?P<open>[\w.]*\(|\[|\{)|(?P<close>[)\]}])|(?P<comma>,)|(?P<key>\w+)\s*=(?!=)"
    r"|(?P<text>\"(?:[^\"\\]|\\.)*\"|'(?:[^'\\]|\\.)*')(?P<colon>\s*:)?"
    r"|(?P<number>-?(?:\d+\.?\d*|\.\d+)(?:[eE][+-]?\d+)?)|<(?P<other>[^<>]*)>|(?P<minus>-?)(?P<word>[A-Za-z]+))"
)
_REPR = re.compile(r"(?:[A-Za-z_][\w.]*\.)?([A-Za-z_]\w*)\(")
_ENDS = {"(": ")", "[": "]", "{": "}"}


def head(path: Path) -> str:
    """The first characters of a file; "" where there is no such file, or no text in it."""
    try:
        if not path.is_file():
            return ""
        with path.open("rb") as file:
            return file.read(HEAD_BYTES).decode("utf-8", "ignore").lstrip("\ufeff \t\r\n")
    except (OSError, ValueError):
        return ""


def text_of(path: Path) -> str:
    """The text of a file.

    Raises:
        MissingResource: it cannot be read. UsageError: it is too large, or no text.
    """
    try:
        if path.is_file() and (size := path.stat().st_size) > MAX_BYTES:
            raise UsageError(f"{path}: a file to check may have up to {MAX_BYTES:,} bytes; found {size:,}")
        content = read_bytes(path, MAX_BYTES)
        if len(content) > MAX_BYTES:
            raise UsageError(f"{path}: a file to check may have up to {MAX_BYTES:,} bytes; found more")
        return content.decode("utf-8-sig")
    except (OSError, ValueError) as error:
        if isinstance(error, OSError):
            raise MissingResource(f"{shown_path(path)} cannot be read ({error.strerror})") from None
        raise UsageError(f"{shown_path(path)} is no text ({str(error)[:80]})") from None


def document(path: Path) -> object:
    """The plain data of a JSON file, or of a file with the repr of an object.

    Raises:
        MissingResource: it cannot be read. UsageError: it is too large, or neither.
    """
    try:
        about = path.stat()
        value, fault = _read(path, about.st_mtime_ns, about.st_size)
    except (OSError, ValueError):  # standard input, or an error that says so
        value, fault = _read(path, 0, 0)
    if fault:
        raise UsageError(fault)
    return value


@functools.lru_cache(maxsize=4)
def _read(path: Path, modified: int, size: int) -> tuple[object, str]:
    """The value of a document, or why it has none: several readers look at a file before one reads it."""
    try:
        return parse(text_of(path), shown_path(path)), ""
    except UsageError as error:
        return None, str(error)


def is_json_object(path: object, *keys: str) -> bool:
    """Tell whether a file starts as a JSON object and its first object has all of the keys, without an error."""
    if not isinstance(path, Path) or not head(path).startswith("{"):
        return False
    try:
        data = document(path)
    except UsageError:
        return all(f'"{key}"' in head(path) for key in keys)
    return isinstance(data, dict) and all(key in data for key in keys)


def type_of(path: Path) -> str:
    """The class of the object that a path is the repr of, or that a file has as a repr or as JSON; "" for none."""
    for text in (str(path) if str(path).endswith(")") else "", head(path)):
        if named := _REPR.match(text):
            return named[1]
    if not is_json_object(path, "type"):
        return ""
    try:
        data = document(path)
    except UsageError:
        named = re.search(r'"type"\s*:\s*"(\w+)"', head(path))
        return named[1] if named else ""
    return str(data["type"]) if isinstance(data, dict) else ""


def object_of(path: Path, name: str) -> object:
    """The plain data of the object of a path, as of ``type_of``; UsageError as for ``document`` and ``parse``."""
    is_repr = str(path).endswith(")") and _REPR.match(str(path))
    return parse(str(path), name) if is_repr else document(path)


def parse(text: str, name: str) -> object:
    """The plain data of JSON text, or of the repr of an object with arguments by name; ``name`` is for messages.

    Raises:
        UsageError: it is neither, or nested in more than ``MAX_DEPTH`` levels.
    """
    try:
        if text.lstrip()[:1] in ("{", "["):
            return json.loads(text, object_pairs_hook=unique_keys)
    except RecursionError:
        pass  # Python's own reader calls itself for what lies inside
    except ValueError as error:
        raise UsageError(f"{name}: no JSON ({(str(error).splitlines() or [''])[0][:120]})") from None
    try:
        return _nested(text)
    except ValueError as error:
        raise UsageError(f"{name}: neither JSON nor the repr of an object ({str(error)[:120]})") from None


class _Open:
    """A list or an object whose end has not come yet, with the key that waits for its value."""

    def __init__(self, mark: str) -> None:
        self.end = _ENDS[mark[-1]]
        self.type = mark[:-1]
        self.items: list[object] = []
        self.fields: dict[str, object] = {"type": self.type} if self.type else {}
        self.key: str | None = None

    def add(self, value: object) -> None:
        if self.key is None:
            self.items.append(value)
        elif self.key in self.fields:
            raise ValueError(f"the key {self.key[:60]!r} stands twice in one object")
        else:
            self.fields[self.key] = value
        self.key = None

    def closed(self) -> object:
        """The value; of a call with one argument without a name, such as ``np.float64(0.5)``, that argument."""
        if self.end == "]" or (self.end == ")" and not self.type):
            return self.items
        if self.items and (len(self.items) > 1 or len(self.fields) > 1 or not self.type):
            raise ValueError(f"an argument of {self.type or 'an object'} has no name")
        return self.items[0] if self.items else self.fields


def _nested(text: str) -> object:
    """The value of JSON or of a repr, by one pass over its tokens; ValueError for anything else."""
    outer = _Open("[")
    stack, position, complete = [outer], 0, False
    end = len(text.rstrip())
    while position < end:
        match = _TOKEN.match(text, position)
        if match is None:
            raise ValueError(f"unexpected {text[position : position + 20]!r} at character {position + 1}")
        position = match.end()
        kind, top = match.lastgroup, stack[-1]
        if kind == "comma":
            if not complete or len(stack) == 1:
                raise ValueError(f"a comma too many at character {position}")
            complete = False
        elif kind == "close":
            if match["close"] != top.end or len(stack) == 1 or top.key is not None:
                raise ValueError(f"unexpected {match['close']!r} at character {position}")
            stack.pop()
            stack[-1].add(top.closed())
            complete = True
        elif complete or (kind in ("key", "colon") and top.key is not None):
            raise ValueError(f"a comma is missing before character {position}")
        elif kind in ("key", "colon"):
            if (kind == "key") != (top.end == ")") or (kind == "colon" and top.end != "}"):
                raise ValueError(f"a key is not expected at character {position}")
            top.key = match["key"] or _text(match["text"])
        elif kind == "open":
            if len(stack) > MAX_DEPTH:
                raise ValueError(f"nested in more than {MAX_DEPTH:,} levels")
            stack.append(_Open(match["open"]))
        else:
            top.add(_leaf(match))
            complete = True
    if len(stack) > 1 or len(outer.items) != 1:
        raise ValueError("it ends too early" if len(stack) > 1 or not outer.items else "several values")
    return outer.items[0]


def _text(token: str) -> str:
    if token.startswith("'"):
        return token[1:-1]
    return str(json.loads(token))


def _leaf(match: re.Match[str]) -> object:
    if match["text"] is not None:
        return _text(match["text"])
    if match["number"] is not None:
        number = match["number"]
        return int(number) if re.fullmatch(r"-?\d+", number) else float(number)
    if match["other"] is not None:  # an enum's member as <Relation.REPLACE_ONE: 2>, or an object without a value
        return match["other"].partition(":")[0].rpartition(".")[2]
    if match["word"] not in _CONSTANTS:
        raise ValueError(f"unknown word {match['word'][:40]!r}")
    value = _CONSTANTS[match["word"]]
    return -value if match["minus"] and isinstance(value, float) else value


def plain_data(x: object, attributes: Mapping[str, Sequence[str]]) -> object:
    """The plain data of a live object: of classes that the table has, these attributes; others are kept as they are.

    Only attributes are read: no method is called. Members of enumerations are their names.
    """
    outer: list[object] = [None]
    stack: list[tuple[list[object] | dict[str, object], int | str, object]] = [(outer, 0, x)]
    while stack:
        holder, key, value = stack.pop()
        names = attributes.get(type(value).__name__)
        if names is not None:
            node: dict[str, object] = {"type": type(value).__name__}
            stack += [(node, name, getattr(value, name)) for name in names if hasattr(value, name)]
            value = node
        elif isinstance(value, (list, tuple)):
            items: list[object] = [None] * len(value)
            stack += [(items, index, item) for index, item in enumerate(value)]
            value = items
        elif hasattr(type(value), "__members__"):  # an enumeration
            value = getattr(value, "name", value)
        else:
            value = _python(value)
        if isinstance(holder, dict):
            holder[str(key)] = value
        elif isinstance(key, int):
            holder[key] = value
    return outer[0]


def class_path(x: object) -> str:
    """The module and the class of an object: ``flwr.serverapp.strategy.FedAvg``."""
    return f"{type(x).__module__}.{type(x).__name__}"


def mapping(value: object, name: str) -> Mapping[str, object]:
    """A mapping; UsageError for anything else."""
    if not isinstance(value, Mapping):
        raise UsageError(f"{name} must be an object with keys; found {shown_type(value)}")
    return value


def items(value: object, name: str) -> Sequence[object]:
    """A list; UsageError for anything else."""
    if not isinstance(value, (list, tuple)):
        raise UsageError(f"{name} must be a list; found {shown_type(value)}")
    return value


def real(data: Mapping[str, object], key: str, owner: str) -> float:
    """A finite number at least 0 of a mapping; UsageError for a missing one and for anything else."""
    if key not in data:
        raise UsageError(f"{owner} lacks {key}")
    value = finite_number(_python(data[key]), f"{key} of {owner}")
    if value < 0:
        raise UsageError(f"{key} of {owner} must be at least 0; found {shown(value)}")
    return float(value)


def count(data: Mapping[str, object], key: str, owner: str) -> int:
    """A whole number at least 0 of a mapping; UsageError for a missing one and for anything else."""
    if key not in data:
        raise UsageError(f"{owner} lacks {key}")
    value = _python(data[key])
    number = finite_number(value, f"{key} of {owner}")
    if number < 0 or number != math.floor(number):
        raise UsageError(f"{key} of {owner} must be a whole number, at least 0; found {shown(value)}")
    return int(number)


def _python(value: object) -> object:
    """A number of another library as one of Python."""
    item = getattr(value, "item", None)
    return item() if callable(item) and not isinstance(value, (bool, int, float, str)) else value


def shown_type(value: object) -> str:
    """A value for an error message; of one that holds others, its type alone."""
    return f"a {type(value).__name__}" if isinstance(value, (dict, list, tuple)) else shown(value)
