"""Locks that admit one process at a time to a results folder or an output file."""

from __future__ import annotations

import contextlib
import errno
import fcntl
import os
from collections.abc import Iterator
from pathlib import Path

from wpriv.errors import MissingResource, UsageError
from wpriv.files import durable_writes

LOCK = ".lock"
ATTEMPTS = 100  # each fails only if another process has just released the lock


@contextlib.contextmanager
def locked(path: Path, busy: str, *, wait: bool = False) -> Iterator[None]:
    """Hold a lock file while a block runs; the system releases it if the process is killed.

    Missing folders are created, and removed again if the block leaves them empty.

    Args:
        path: the lock file.
        busy: the message of the error if another process holds the lock.
        wait: wait until no other process holds the lock, for blocks that take seconds.
    Raises:
        UsageError: another process holds the lock.
        MissingResource: the file system has no locks, or is not writable.
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
    kind = fcntl.LOCK_EX if wait else fcntl.LOCK_EX | fcntl.LOCK_NB
    for _ in range(ATTEMPTS):
        try:
            # another process may remove the folder, which it leaves empty, between these two lines
            durable_writes.make_folder(path.parent)
            descriptor = os.open(path, os.O_RDWR | os.O_CREAT, 0o666)
        except FileNotFoundError:
            continue
        except OSError as error:
            with durable_writes.reported(path):
                raise error from None
        try:
            fcntl.flock(descriptor, kind)
            if _is_at(descriptor, path):
                return descriptor
        except BlockingIOError:
            os.close(descriptor)
            raise UsageError(busy) from None
        except OSError as error:
            with contextlib.suppress(OSError):
                os.unlink(path)
            os.close(descriptor)
            if error.errno not in (errno.ENOLCK, errno.EOPNOTSUPP, errno.ENOSYS, errno.EINVAL):
                with durable_writes.reported(path):
                    raise error from None
            raise MissingResource(
                f"{path}: this file system does not support file locks, which keep two processes apart. "
                "Name a folder on another file system with `out`"
            ) from None
        os.close(descriptor)
    raise UsageError(busy)


def _is_at(descriptor: int, path: Path) -> bool:
    """Return whether an open file is still the one at a path."""
    try:
        return os.path.samestat(os.fstat(descriptor), os.stat(path))
    except FileNotFoundError:
        return False
