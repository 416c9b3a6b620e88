"""Count work in nanoseconds of a usual processor, from the sizes of what is computed and not from a clock.

A limit on this count stands for a limit on time, and is reached at the same point on every machine and in every run:
the same question has the same answer. The count goes on within a thread; differences of it are of use.
"""

from __future__ import annotations

from collections.abc import Callable
from contextvars import ContextVar

_work: ContextVar[float] = ContextVar("work", default=0.0)


def add(nanoseconds: float) -> None:
    """Count some work."""
    _work.set(_work.get() + nanoseconds)


def total() -> float:
    """Return the work of this thread so far."""
    return _work.get()


def limit(nanoseconds: float) -> Callable[[], bool]:
    """Return a function that tells whether more than so much work was done since this call."""
    end = total() + nanoseconds
    return lambda: total() > end
