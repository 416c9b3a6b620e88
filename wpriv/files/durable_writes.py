"""Files that are written whole or not at all: strict JSON values, atomic changes, locks."""

from __future__ import annotations

import contextlib
import errno
import math
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import IO, Any

from wpriv.errors import ADVICE, MissingResource, UsageError, of_file


def plain(value: object) -> Any:
    """Return a value as JSON can hold it; infinities and NaN become strings, unknown objects their text.

    >>> plain({"loss": math.nan, "delta": (0.5, math.inf)})
    {'loss': 'nan', 'delta': [0.5, 'inf']}
    """
    if isinstance(value, Mapping):
        return {str(key): plain(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [plain(item) for item in value]
    if isinstance(value, float):
        return float(value) if math.isfinite(value) else str(float(value))
    return value if value is None or isinstance(value, (bool, int, str)) else str(value)


def unique_keys(pairs: Sequence[tuple[str, Any]]) -> dict[str, Any]:
    """Return an object of a JSON file as a dict; an ``object_pairs_hook`` of ``json.loads``."""
    data = dict(pairs)
    if len(data) < len(pairs):
        keys = [key for key, _ in pairs]
        twice = next(key for key in keys if keys.count(key) > 1)
        raise ValueError(f"the key {twice[:60]!r} stands twice in one object")
    return data


# Atomic changes to files: after a crash they are either complete or not made. The record of spent privacy uses them.
#
# Each function forces its change to disk before it returns, except ``append``: the ledger calls ``sync`` once for many
# lines. A failure of the file system (a full or read-only disk, a missing permission) becomes an error of wpriv: see
# ``reported``.

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
        path: the file. content: text (UTF-8), bytes, or a function that writes to the open file.
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
    """Append a line to an open file, or nothing if the disk is full; MissingResource then."""
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
    """Force the names in a folder to disk; Windows opens no folders, and does so by itself."""
    if os.name == "nt":
        return
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


# Locks that admit one process at a time to a results folder or an output file.

LOCK = ".lock"
ATTEMPTS = 100  # each fails only if another process has just released the lock


@contextlib.contextmanager
def locked(path: Path, busy: str, *, wait: bool = False) -> Iterator[None]:
    """Hold a lock file while a block runs; the system releases it if the process is killed.

    Missing folders are created, and removed again if the block leaves them empty.

    Args:
        path: the lock file. busy: the message of the error if another process holds the lock.
        wait: wait until no other process holds the lock, for blocks that take seconds.
    Raises:
        UsageError: another process holds the lock. MissingResource: the file system has no locks, or is not writable.
    """
    missing = [folder for folder in (path.parent, *path.parent.parents) if not folder.exists()]
    try:
        descriptor = _acquire(path, busy, wait)
        try:
            yield
        finally:
            # deleted while it is held: a waiting process sees that its file is no longer at this path, and opens the
            # new one
            with contextlib.suppress(OSError):
                os.unlink(path)
            os.close(descriptor)
    finally:
        with contextlib.suppress(OSError):
            for folder in missing:
                folder.rmdir()


def _acquire(path: Path, busy: str, wait: bool) -> int:
    """Open and lock the file; return its descriptor."""
    try:
        import fcntl
    except ImportError:
        raise MissingResource(
            f"{path}: this system has no POSIX file locks, which keep two processes apart. Train, and privatise into a "
            "file, on Linux or macOS; WSL is Linux on Windows"
        ) from None
    kind = fcntl.LOCK_EX if wait else fcntl.LOCK_EX | fcntl.LOCK_NB
    for _ in range(ATTEMPTS):
        try:
            # another process may remove the folder, which it leaves empty, between these two lines
            make_folder(path.parent)
            descriptor = os.open(path, os.O_RDWR | os.O_CREAT, 0o666)
        except FileNotFoundError:
            continue
        except OSError as error:
            with reported(path):
                raise error from None
        try:
            fcntl.flock(descriptor, kind)
            with contextlib.suppress(FileNotFoundError):
                # the open file is still the one at the path
                if os.path.samestat(os.fstat(descriptor), os.stat(path)):
                    return descriptor
        except BlockingIOError:
            os.close(descriptor)
            raise UsageError(busy) from None
        except OSError as error:
            with contextlib.suppress(OSError):
                os.unlink(path)
            os.close(descriptor)
            if error.errno not in (errno.ENOLCK, errno.EOPNOTSUPP, errno.ENOSYS, errno.EINVAL):
                with reported(path):
                    raise error from None
            raise MissingResource(
                f"{path}: this file system does not support file locks, which keep two processes apart. "
                "Name a folder on another file system with `out`"
            ) from None
        os.close(descriptor)
    raise UsageError(busy)
