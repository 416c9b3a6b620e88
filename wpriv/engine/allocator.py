"""Setting of the C library's allocator for trainings on a CPU: freed memory is kept for the next step."""

from __future__ import annotations

import ctypes
import os

TRIM, MMAP = -1, -3
"""Numbers of glibc's parameters M_TRIM_THRESHOLD and M_MMAP_THRESHOLD."""
LARGEST, LARGEST_OLD = 2**31 - 1, 2**25
"""Block sizes from which memory goes back to the system; some versions of glibc refuse more than 32 MiB."""
VARIABLES = ("MALLOC_TRIM_THRESHOLD_", "MALLOC_MMAP_THRESHOLD_", "GLIBC_TUNABLES")


def keep_memory() -> bool:
    """Let this process keep the memory that tensors free, and return whether it does.

    By default glibc returns large blocks to the system. A training frees its activations at each step and gets them
    again at the next, and the system clears every page each time, which takes up to a third of a step. What the
    process holds stays below its peak. Nothing is changed with another C library, or where the environment has a
    setting of its own.
    """
    if any(name in os.environ for name in VARIABLES):
        return False
    try:
        mallopt = ctypes.CDLL(None).mallopt
    except (AttributeError, OSError, TypeError):
        return False
    kept = mallopt(MMAP, LARGEST) or mallopt(MMAP, LARGEST_OLD)
    return bool(kept and mallopt(TRIM, LARGEST))
