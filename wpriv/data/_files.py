"""Finding and reading files: where a data set may lie, its checksums, and every fault of a file in words."""

from __future__ import annotations

import gzip
import hashlib
import io
import os
import zlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from wpriv.errors import MissingResource, UsageError

if TYPE_CHECKING:
    from wpriv.core.parameters import Parameters

MAX_BYTES = 2_000_000_000
ROOT = "WPRIV_DATA"
PUBLISHED, KNOWN, UNKNOWN = "published", "known", "unknown"
HOW_TO_NAME = f"name the folder by --data-root, by data.root in the recipe, or by ${ROOT}"
VERDICTS = {
    PUBLISHED: "the checksum its publishers give",
    KNOWN: "the content that wpriv was tested with; its publishers give no checksum",
    UNKNOWN: "no checksum to compare with, or none that agrees",
}


@dataclass(frozen=True)
class File:
    """A file that was read: the SHA-256 of its content (unpacked, where it is gzipped) and what its checksum says."""

    path: Path
    sha256: str
    verdict: str

    def describe(self) -> dict[str, str]:
        return {"path": str(self.path), "sha256": self.sha256, "verdict": self.verdict}


@dataclass(frozen=True)
class Place:
    """Where the files of a data set may lie.

    Args:
        folders: below the root, beside the root itself. system: where systems put it, as full paths.
        layouts: the sets of files any one of which makes it complete; ``name.gz`` does for ``name``.
        get: where to get it, in words. published: MD5 of contents as the publishers give them, by file name.
        known: SHA-256 of contents seen before, where they give none.
    """

    name: str
    get: str
    layouts: tuple[tuple[str, ...], ...]
    folders: tuple[str, ...] = ()
    system: tuple[str, ...] = ()
    published: Mapping[str, str] | None = None
    known: Mapping[str, str] | None = None

    def find(self, root: Path | None) -> list[Path]:
        """The files of the first complete layout, in its order.

        Raises:
            MissingResource: nowhere complete; the message says where it was looked for, what was there and how to get it.
        """
        folders = self.candidates(root)
        partial = ""
        for folder in folders:
            for layout in self.layouts:
                found = [_present(folder, name) for name in layout]
                if all(found):
                    return [path for path in found if path is not None]
                if any(found) and not partial:
                    lacking = ", ".join(name for name, path in zip(layout, found, strict=True) if path is None)
                    partial = f" {folder} is not complete: it lacks {lacking}."
        wanted = " or ".join(", ".join(layout) for layout in self.layouts)
        told = ", ".join(str(folder) for folder in folders) or looked(root)
        raise MissingResource(
            f"{self.name}: wanted {wanted}; looked in {told}.{partial} {self.get} "
            f"Put the files into a folder called {(self.folders or (self.name,))[0]} in a folder of data sets, and {HOW_TO_NAME}"
        )

    def candidates(self, root: Path | None) -> list[Path]:
        """The folders to look into; a root that was named is the only one."""
        base = _base(root)
        own = [] if base is None else [base / folder for folder in (*self.folders, ".")]
        return (
            own
            if root is not None
            else own + [Path(folder) for folder in self.system if exists(Path(folder), "folder")]
        )

    def verdict(self, path: Path, content: bytes, verify: bool) -> File:
        """The file with what its checksum says.

        Raises:
            MissingResource: it is not the published file, and ``verify`` asks for that one.
        """
        name = path.name.removesuffix(".gz")
        digest = hashlib.sha256(content).hexdigest()
        wanted = (self.published or {}).get(name)
        if wanted is None:
            return File(path, digest, KNOWN if (self.known or {}).get(name) == digest else UNKNOWN)
        found = hashlib.md5(content, usedforsecurity=False).hexdigest()
        if found == wanted:
            return File(path, digest, PUBLISHED)
        if verify:
            raise MissingResource(
                f"{path}: not the published file of {self.name}: wanted content with MD5 {wanted}, found {found} ({len(content)} bytes). "
                f"Fetch it again, or read it as it is with the parameter verify: false. {self.get}"
            )
        return File(path, digest, UNKNOWN)


def _base(root: Path | None) -> Path | None:
    """The folder of data sets that was named, by an argument or in the environment."""
    found = root if root is not None else os.environ.get(ROOT)
    return Path(found).expanduser() if found else None


def looked(root: Path | None) -> str:
    """Where data sets are looked for, in words."""
    if root is not None:
        return str(root)
    named = os.environ.get(ROOT)
    return (
        f"${ROOT} ({named}) and the system's folders"
        if named
        else f"the system's folders only (${ROOT} is not set, no --data-root given)"
    )


def exists(path: Path, kind: str) -> bool:
    """Whether there is a ``file`` or ``folder`` of that name; also for names that none can have."""
    try:
        return path.is_dir() if kind == "folder" else path.is_file()
    except (OSError, ValueError):
        return False


def _present(folder: Path, name: str) -> Path | None:
    return next((path for path in (folder / name, folder / f"{name}.gz") if exists(path, "file")), None)


def named(name: str, kind: str, given: str, root: Path | None) -> Path:
    """A file or folder that the user named: as it stands, or below the root or $WPRIV_DATA.

    Raises:
        UsageError: the name is empty. MissingResource: there is none.
    """
    if not isinstance(given, str) or not given.strip():
        raise UsageError(f"{name} needs the path of a {kind}; found {given!r}")
    base = _base(root)
    tried = [Path(given).expanduser()] + ([] if base is None else [base / given])
    for path in reversed(tried):
        if exists(path, kind):
            return path
    raise MissingResource(f"{name}: no such {kind}: looked for {' and '.join(repr(str(path)[:300]) for path in tried)}")


def content(path: Path, limit: int = MAX_BYTES) -> bytes:
    """The bytes of a file, unpacked where it is gzipped.

    Raises:
        MissingResource: it cannot be read, is no whole gzip file, or holds more than ``limit`` bytes.
    """
    try:
        with path.open("rb") as file:
            packed = file.read(2) == b"\x1f\x8b"
            file.seek(0)
            stream: Any = gzip.GzipFile(fileobj=file) if packed else file
            found: bytes = stream.read(limit + 1)
    except (EOFError, zlib.error, gzip.BadGzipFile) as error:
        raise MissingResource(f"{path}: a damaged or cut-off gzip file ({error}); fetch it again") from None
    except OSError as error:
        raise MissingResource(f"{path}: cannot be read ({error.strerror or error})") from None
    if len(found) > limit:
        raise MissingResource(
            f"{path}: holds more than {limit:,} bytes{' when unpacked' if packed else ''}; this is not the file it says"
        )
    return found


def packaged(path: Path, sha256: str) -> bytes:
    """Return the unpacked content of a data file that is installed with the package.

    Args:
        path: the file, beside the reader that uses it. sha256: of the unpacked content, in hexadecimal digits.
    Raises:
        MissingResource: the file is missing, damaged, or its content has another checksum.
    """
    raw = content(path)
    digest = hashlib.sha256(raw).hexdigest()
    if digest != sha256:
        raise MissingResource(
            f"{path}: wanted content with SHA-256 {sha256}; found {digest} ({len(raw)} bytes). Install wpriv again"
        )
    return raw


def unverified(params: Parameters, files: Sequence[File]) -> str:
    """The name of a data set as tables show it: with a mark where its files are not the published ones."""
    return params.name if all(file.verdict != UNKNOWN for file in files) else f"{params.name}-unverified"


def mat(path: Path, raw: bytes, names: Sequence[str] = ()) -> dict[str, Any]:
    """The arrays of numbers of a MATLAB file (before version 7.3), by name.

    Raises:
        MissingResource: no such file, arrays larger than the limit, or one of ``names`` is not in it.
    """
    from scipy.io import loadmat, whosmat
    from scipy.io.matlab import MatReadError

    if raw[:4] == b"\x89HDF" or b"MATLAB 7.3" in raw[:128]:
        raise MissingResource(f"{path}: a MATLAB 7.3 file; save it again with save(..., '-v7') or as .npz")
    try:
        sizes: dict[str, int] = {}
        for name, shape, _ in whosmat(io.BytesIO(raw)):
            count = 1
            for side in shape:
                count *= side
            sizes[name] = count
        lacking = [name for name in names if name not in sizes]
        if lacking:
            raise MissingResource(f"{path}: wanted the arrays {', '.join(names)}; found {', '.join(sizes) or 'none'}")
        if max((sizes[name] for name in (names or sizes)), default=0) > MAX_BYTES // 8:
            raise MissingResource(
                f"{path}: holds an array of more than {MAX_BYTES // 8:,} numbers; this is not the file it says"
            )
        found = loadmat(io.BytesIO(raw), variable_names=list(names) or None)
    except (
        MatReadError,
        ValueError,
        TypeError,
        KeyError,
        IndexError,
        NotImplementedError,
        EOFError,
        OSError,
        zlib.error,
    ) as error:
        raise MissingResource(f"{path}: not a whole MATLAB file ({str(error)[:120] or type(error).__name__})") from None
    return {name: found[name] for name in sizes if name in found and getattr(found[name], "dtype", None) is not None}
