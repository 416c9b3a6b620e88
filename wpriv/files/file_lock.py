"""One process at a time in a results folder or at an output file."""

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
TRIES = 100  # each fails only where another process has just let the lock go


@contextlib.contextmanager
def locked(path: Path, busy: str) -> Iterator[None]:
    """Hold a lock file while a block runs; the system releases it where the process is killed.

    Folders that are missing are created, and removed again where the block leaves them empty.

    Args:
        path: the lock file. busy: the error where another process holds it.
    Raises:
        UsageError: another process holds the lock. MissingResource: the file system has no locks, or nothing can be written there.
    """
    missing = [folder for folder in (path.parent, *path.parent.parents) if not folder.exists()]
    try:
        descriptor = _acquire(path, busy)
        try:
            yield
        finally:
            # deleted while it is held: whoever waits for it sees that its file is no longer the one at this path, and opens the new one
            with contextlib.suppress(OSError):
                os.unlink(path)
            os.close(descriptor)
    finally:
        with contextlib.suppress(OSError):
            for folder in missing:
                folder.rmdir()


def _acquire(path: Path, busy: str) -> int:
    for _ in range(TRIES):
        try:
            # whoever leaves a folder empty removes it, maybe between these two lines
            durable_writes.make_folder(path.parent)
            descriptor = os.open(path, os.O_RDWR | os.O_CREAT, 0o666)
        except FileNotFoundError:
            continue
        except OSError as error:
            with durable_writes.reported(path):
                raise error from None
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
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
                f"{path}: this file system has no file locks, which keep two processes apart; name a folder on another one with --out"
            ) from None
        os.close(descriptor)
    raise UsageError(busy)


def _is_at(descriptor: int, path: Path) -> bool:
    """Whether an open file is still the one at a path."""
    try:
        return os.path.samestat(os.fstat(descriptor), os.stat(path))
    except FileNotFoundError:
        return False
