"""Find, read and verify the files of data sets."""

from __future__ import annotations

import gzip
import hashlib
import os
import zlib
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from wpriv.errors import MissingResource, UsageError

MAX_BYTES = 2_000_000_000  # of one file, unpacked
ROOT_VARIABLE = "WPRIV_DATA"
PUBLISHED, KNOWN, UNKNOWN = "published", "known", "unknown"
ROOT_HINT = f"name the folder by `data_root`, by data.root in the recipe, or by ${ROOT_VARIABLE}"
VERDICTS = {
    PUBLISHED: "the checksum its publishers give",
    KNOWN: "the content that wpriv was tested with; its publishers give no checksum",
    UNKNOWN: "no checksum to compare with, or none that agrees",
}


@dataclass(frozen=True)
class File:
    """A file that was read: the SHA-256 of its content (unpacked if gzipped) and the verdict on its checksum."""

    path: Path
    sha256: str
    verdict: str = UNKNOWN

    @classmethod
    def unverified(cls, path: Path, content: bytes) -> File:
        """A file for which no checksum is known."""
        return cls(path, hashlib.sha256(content).hexdigest())

    def describe(self) -> dict[str, str]:
        """Return plain data for provenance."""
        return {"path": str(self.path), "sha256": self.sha256, "verdict": self.verdict}


def data_root(root: Path | None) -> Path | None:
    """Return the folder of data sets given as an argument or in the environment."""
    folder = root if root is not None else os.environ.get(ROOT_VARIABLE)
    return Path(folder).expanduser() if folder else None


def searched_places(root: Path | None) -> str:
    """Describe in words where data sets are searched for."""
    if root is not None:
        return str(root)
    folder = os.environ.get(ROOT_VARIABLE)
    if folder:
        return f"${ROOT_VARIABLE} ({folder}) and the system's folders"
    return f"the system's folders only (${ROOT_VARIABLE} is not set, no `data_root` given)"


def path_exists(path: Path, kind: str) -> bool:
    """Tell whether a ``file`` or ``folder`` of that name exists; False also for names that no file can have."""
    try:
        return path.is_dir() if kind == "folder" else path.is_file()
    except (OSError, ValueError):
        return False


def resolve_path(name: str, kind: str, given: str, root: Path | None) -> Path:
    """Return the path of a file or folder that the user named: below the root or $WPRIV_DATA, or else as it stands."""
    if not isinstance(given, str) or not given.strip():
        raise UsageError(f"{name} needs the path of a {kind}; found {given!r}")
    base = data_root(root)
    candidates = [Path(given).expanduser()] + ([] if base is None else [base / given])
    for path in reversed(candidates):
        if path_exists(path, kind):
            return path
    places = " and ".join(repr(str(path)[:300]) for path in candidates)
    raise MissingResource(f"{name}: no such {kind}: looked for {places}")


def read_bytes(path: Path, limit: int = MAX_BYTES) -> bytes:
    """Return the content of a file, unpacked if it is gzipped."""
    try:
        with path.open("rb") as file:
            gzipped = file.read(2) == b"\x1f\x8b"
            file.seek(0)
            stream: Any = gzip.GzipFile(fileobj=file) if gzipped else file
            content: bytes = stream.read(limit + 1)
    except (EOFError, zlib.error, gzip.BadGzipFile) as error:
        raise MissingResource(f"{path}: a damaged or truncated gzip file ({error}); fetch it again") from None
    except OSError as error:
        raise MissingResource(f"{path}: cannot be read ({error.strerror or error})") from None
    if len(content) > limit:
        size = f"{limit:,} bytes{' when unpacked' if gzipped else ''}"
        raise MissingResource(
            f"{path}: holds more than {size}, the limit for this file; check that it is the right one"
        )
    return content
