"""Setting of the C library's allocator for trainings on a CPU: freed memory is kept for the next step."""

from __future__ import annotations

import ctypes
import os
from pathlib import Path

TRIM, MMAP = -1, -3
"""Numbers of glibc's parameters M_TRIM_THRESHOLD and M_MMAP_THRESHOLD."""
LARGEST, LARGEST_OLD = 2**31 - 1, 2**25
"""Block sizes from which memory goes back to the system; some versions of glibc refuse more than 32 MiB."""
SETTLED, GROWTH = 10, 1.5
"""The step after which the memory of a training is known, and how often as much it may hold later."""
STATM = Path("/proc/self/statm")
VARIABLES = ("MALLOC_TRIM_THRESHOLD_", "MALLOC_MMAP_THRESHOLD_", "GLIBC_TUNABLES")


def keep_memory() -> bool:
    """Let this process keep the memory that tensors free, and return whether it does.

    By default glibc returns large blocks to the system. A training frees its activations at each step and gets them
    again at the next, and the system clears every page each time, which takes up to a third of a step. Nothing is
    changed with another C library, or where the environment has a setting of its own. ``HeldMemory`` limits what the
    process holds.
    """
    if any(name in os.environ for name in VARIABLES):
        return False
    try:
        mallopt = ctypes.CDLL(None).mallopt
    except (AttributeError, OSError, TypeError):
        return False
    kept = mallopt(MMAP, LARGEST) or mallopt(MMAP, LARGEST_OLD)
    return bool(kept and mallopt(TRIM, LARGEST))


class HeldMemory:
    """Give free memory back to the system where a training holds far more than in its first steps.

    Blocks of many sizes, as of batches of random size, leave gaps that no later block fits: without this a training
    of large gradients grows by tens of megabytes at every step.
    """

    def __init__(self) -> None:
        self.steps, self.limit = 0, 0.0

    def after_step(self) -> None:
        """Look at the memory of the process; to be called after every step."""
        self.steps += 1
        if self.steps < SETTLED:
            return
        if self.steps == SETTLED:
            self.limit = GROWTH * resident()
        elif resident() > self.limit:
            give_back()
            # what is still held is in use
            self.limit = max(self.limit, GROWTH * resident())


def resident() -> int:
    """Return how many bytes of memory the process holds; 0 where the system does not say."""
    try:
        pages = int(STATM.read_text().split()[1])
    except (OSError, IndexError, ValueError):
        return 0
    return pages * os.sysconf("SC_PAGE_SIZE")


def give_back() -> None:
    """Return the free memory of the C library to the system, if it is glibc."""
    try:
        ctypes.CDLL(None).malloc_trim(0)
    except (AttributeError, OSError, TypeError):
        return
