"""Find, read and verify the files of data sets."""

from __future__ import annotations

import gzip
import hashlib
import os
import zlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from wpriv.errors import MissingResource, UsageError

if TYPE_CHECKING:
    from wpriv.core.parameters import Parameters

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


@dataclass(frozen=True)
class FileSet:
    """The files of a published data set: their names, checksums, and the folders in which they may lie.

    Args:
        name: of the data set. get: how to obtain the files, in words.
        layouts: alternative sets of file names, each of which is complete; ``name.gz`` is accepted for ``name``.
        folders: searched below the root, before the root itself. system: full paths at which systems install them.
        published: MD5 of contents as published, by file name.
        known: SHA-256 of tested contents whose publishers give no checksum, by file name.
    """

    name: str
    get: str
    layouts: tuple[tuple[str, ...], ...]
    folders: tuple[str, ...] = ()
    system: tuple[str, ...] = ()
    published: Mapping[str, str] | None = None
    known: Mapping[str, str] | None = None

    def find(self, root: Path | None) -> list[Path]:
        """Return the files of the first complete layout, in its order."""
        folders = self.folders_to_search(root)
        incomplete = ""
        for folder in folders:
            for layout in self.layouts:
                pairs = [(folder / name, folder / f"{name}.gz") for name in layout]
                paths = [next((path for path in pair if path_exists(path, "file")), None) for pair in pairs]
                present = [path for path in paths if path is not None]
                if len(present) == len(layout):
                    return present
                if present and not incomplete:
                    missing = ", ".join(name for name, path in zip(layout, paths, strict=True) if path is None)
                    incomplete = f" {folder} is incomplete: it lacks {missing}."
        wanted = " or ".join(", ".join(layout) for layout in self.layouts)
        searched = ", ".join(str(folder) for folder in folders) or searched_places(root)
        raise MissingResource(
            f"{self.name}: wanted {wanted}; looked in {searched}.{incomplete} {self.get} "
            f"Put the files into a folder called {(self.folders or (self.name,))[0]} in a folder of data sets, "
            f"and {ROOT_HINT}"
        )

    def folders_to_search(self, root: Path | None) -> list[Path]:
        """Return the folders that may hold the files; those of the system only if no root is given."""
        base = _data_root(root)
        folders = [] if base is None else [base / folder for folder in (*self.folders, ".")]
        if root is None:
            folders += [Path(folder) for folder in self.system if path_exists(Path(folder), "folder")]
        return folders

    def check(self, path: Path, content: bytes, verify: bool) -> File:
        """Compare the content of a file with the checksums."""
        name = path.name.removesuffix(".gz")
        sha256 = hashlib.sha256(content).hexdigest()
        expected = (self.published or {}).get(name)
        if expected is None:
            return File(path, sha256, KNOWN if (self.known or {}).get(name) == sha256 else UNKNOWN)
        md5 = hashlib.md5(content, usedforsecurity=False).hexdigest()
        if md5 == expected:
            return File(path, sha256, PUBLISHED)
        if verify:
            raise MissingResource(
                f"{path}: not the published file of {self.name}: wanted content with MD5 {expected}, found {md5} "
                f"({len(content)} bytes). Fetch it again, or read it as it is with the parameter verify: false. "
                f"{self.get}"
            )
        return File(path, sha256, UNKNOWN)


def _data_root(root: Path | None) -> Path | None:
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
    base = _data_root(root)
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


def read_packaged(path: Path, sha256: str) -> bytes:
    """Return the unpacked content of a data file that is installed with the package."""
    content = read_bytes(path)
    digest = hashlib.sha256(content).hexdigest()
    if digest != sha256:
        raise MissingResource(
            f"{path}: wanted content with SHA-256 {sha256}; found {digest} ({len(content)} bytes). Install wpriv again"
        )
    return content


def display_name(params: Parameters, files: Sequence[File]) -> str:
    """Return the name of a data set for tables, with a suffix if its files are not the published ones."""
    return params.name if all(file.verdict != UNKNOWN for file in files) else f"{params.name}-unverified"
