"""Atomic changes to files: after a crash they are either complete or not made. The record of spent privacy uses them.

Each function forces its change to disk before it returns, except ``append``: the ledger calls ``sync`` once for many
lines. A failure of the file system (a full or read-only disk, a missing permission) becomes an error of wpriv: see
``reported``.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import IO

from wpriv.errors import ADVICE, UsageError, of_file

PART = ".part"  # suffix of a file that is being written; one that a crash leaves behind may be deleted


@contextlib.contextmanager
def reported(path: Path, advice: str = ADVICE) -> Iterator[None]:
    """Turn an error of the file system into one of wpriv that names the file and says what to change.

    Raises:
        UsageError: the path itself is wrong (a file where a folder is wanted, a name that is too long).
        MissingResource: the disk is full or read-only, or writing is not permitted.
    """
    try:
        yield
    except OSError as error:
        raise of_file(error, path, advice=advice) from None


def replace(
    path: Path, content: str | bytes | Callable[[IO[bytes]], object], mode: int = 0o666, advice: str = ADVICE
) -> None:
    """Write a file atomically: after a crash it has the old content or the new.

    Args:
        path: the file.
        content: text (UTF-8), bytes, or a function that writes to the open file.
        mode: permissions of a new file, before the umask.
        advice: what to change where it cannot be written, in the imperative and without a full stop.
    Raises:
        MissingResource: the file cannot be written.
    """
    part = path.with_name(f"{path.name}.{os.getpid()}{PART}")
    with reported(path, advice):
        try:
            with os.fdopen(os.open(part, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, mode), "wb") as file:
                if callable(content):
                    content(file)
                else:
                    file.write(content.encode() if isinstance(content, str) else content)
                file.flush()
                os.fsync(file.fileno())
            os.replace(part, path)
        finally:
            # still there where something failed, whatever it was
            with contextlib.suppress(OSError):
                os.unlink(part)
        _sync_folder(path.parent)


def append(descriptor: int, line: bytes, path: Path) -> None:
    """Append a complete line to an open file, or nothing if the disk is full.

    Args:
        descriptor: of the open file.
        line: with its line end.
        path: of the file, for messages.
    Raises:
        MissingResource: the line could not be written; the file has its previous length.
    """
    size = os.fstat(descriptor).st_size
    with reported(path):
        try:
            written = 0
            while written < len(line):
                written += os.write(descriptor, line[written:])
        except OSError:
            os.ftruncate(descriptor, size)
            raise


def sync(descriptor: int, path: Path) -> None:
    """Force the content of an open file to disk."""
    with reported(path):
        os.fsync(descriptor)


def truncate(path: Path, size: int) -> None:
    """Cut a file to its first ``size`` bytes."""
    with reported(path):
        os.truncate(path, size)


def move(path: Path, folder: Path) -> None:
    """Move a file into another folder of the same file system, under its own name."""
    with reported(path):
        os.rename(path, folder / path.name)
        _sync_folder(folder)
        _sync_folder(path.parent)


def rename(path: Path, name: str) -> None:
    """Give a file or a folder another name in its folder, in place of a file that has it."""
    with reported(path):
        os.replace(path, path.with_name(name))
        _sync_folder(path.parent)


def remove(path: Path) -> None:
    """Delete a file, if it exists."""
    with reported(path):
        with contextlib.suppress(FileNotFoundError):
            os.unlink(path)
        _sync_folder(path.parent)


def make_folder(path: Path, advice: str = ADVICE) -> None:
    """Create a folder and its missing parents, but none directly in the root of the file system.

    A new folder directly under ``/`` is nearly always a mistyped path.

    Args:
        advice: as for ``replace``.
    Raises:
        UsageError: a folder directly under ``/`` is missing, or the path is wrong.
        MissingResource: the folder cannot be created.
    """
    if "\0" in str(path):
        raise UsageError(f"{str(path)!r} is not a path: it contains a null byte")
    with reported(path, advice):
        absolute = path.absolute()
        missing = [folder for folder in (absolute, *absolute.parents) if not folder.exists()]
        if missing and missing[-1].parent == Path(absolute.anchor):
            raise UsageError(
                f"the folder {missing[-1]} does not exist, and wpriv creates no folder in the root of the file system. "
                "Create it, or name another one"
            )
        os.makedirs(path, exist_ok=True)


def _sync_folder(path: Path) -> None:
    """Force the names in a folder to disk."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
