"""Count the work of the engine, in nanoseconds of a usual processor, from the sizes of what it computes.

Limits on this count stand for limits on time, and are reached at the same point on every machine and in every run: the
same question has the same answer. The count goes on within a thread; differences of it are of use.
"""

from __future__ import annotations

from contextvars import ContextVar

from wpriv.pld import constants

_work: ContextVar[float] = ContextVar("work", default=0.0)


def add(kind: str, number: float) -> None:
    """Count a number of equal operations; their kind is a key of ``constants.WORK``."""
    _work.set(_work.get() + constants.WORK[kind] * number)


def total() -> float:
    """Return the work of this thread so far."""
    return _work.get()
