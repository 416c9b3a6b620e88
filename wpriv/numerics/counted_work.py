"""Count work in nanoseconds of a usual processor, from the sizes of what is computed and not from a clock.

A limit on this count stands for a limit on time, and is reached at the same point on every machine and in every run:
the same question has the same answer. The count goes on within a thread; differences of it are of use.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar

from wpriv.errors import Unsupported

_work: ContextVar[float] = ContextVar("work", default=0.0)
_end: ContextVar[float] = ContextVar("end", default=math.inf)


def add(nanoseconds: float) -> None:
    """Count some work."""
    _work.set(_work.get() + nanoseconds)
    if _work.get() > _end.get():
        raise Unsupported("pld needs more work for this question than it may take. Raise `tol`, or use rdp")


@contextmanager
def stop_at(end: float) -> Iterator[None]:
    """Refuse work beyond a ``total`` of ``end`` within a block, which may lie within another."""
    token = _end.set(min(end, _end.get()))
    try:
        yield
    finally:
        _end.reset(token)


def total() -> float:
    """Return the work of this thread so far."""
    return _work.get()


def limit(nanoseconds: float) -> Callable[[], bool]:
    """Return a function that tells whether more than so much work was done since this call."""
    end = total() + nanoseconds
    return lambda: total() > end
