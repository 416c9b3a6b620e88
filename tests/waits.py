"""What no test waits for: that files are on the disk, and that git says the commit, which is asked once.

A process that ends, however it ends, loses nothing that it has written; only a machine that stops does. What is forced
to the disk, and in which order, ``tests/files/test_durable_writes.py`` holds. Commands in processes of their own wait.
"""

from __future__ import annotations

import functools
import os

from wpriv.results import storage


def leave_out() -> None:
    """Leave out both in this process and in those forked from it; also where it was done before."""
    os.fsync = lambda descriptor: None
    if not hasattr(storage.commit, "cache_info"):
        storage.commit = functools.cache(storage.commit)
