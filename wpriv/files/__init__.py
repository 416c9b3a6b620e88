"""Reading and writing files. The path ``-`` is standard input, which is read once and may be asked for again."""

import re
import sys
from functools import lru_cache
from pathlib import Path
from typing import TextIO

from wpriv.errors import MissingResource

STDIN = "-"
MAX_STDIN_BYTES = 50_000_000


def read_bytes(path: str | Path, limit: int) -> bytes:
    """The content of a file (OSError) or standard input, at most one byte more than ``limit``."""
    if str(path) == STDIN:
        return _of_stream(sys.stdin)[: limit + 1]
    with Path(path).open("rb") as file:  # a pipe or a device has no size
        return file.read(limit + 1)


@lru_cache(maxsize=1)
def _of_stream(stream: TextIO | None) -> bytes:
    if stream is None:
        raise MissingResource("- is standard input, and it is closed. Give the path of a file")
    return stream.buffer.read(MAX_STDIN_BYTES + 1)


def shown_path(path: str | Path) -> str:
    """Return a path as messages name it: ``<stdin>`` for standard input."""
    return "<stdin>" if str(path) == STDIN else str(path)


def without_password(url: str) -> str:
    """A URL without its password, which stands before the host, and may hold any character but @, or in a parameter.

    >>> without_password("postgresql://ann:a/b:c@host/clinic?sslmode=require&password=s")
    'postgresql://ann@host/clinic?sslmode=require'
    """
    place, _, query = re.sub(r"(://[^/@:]*):[^@]*@", r"\1@", url).partition("?")
    kept = [each for each in query.split("&") if not each.partition("=")[0].lower().endswith("password")]
    return "?".join(filter(None, (place, "&".join(kept))))
