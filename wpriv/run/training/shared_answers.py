"""Guarantees of a training that are asked for several times: in its last epoch, its statement and its result."""

from __future__ import annotations

from functools import lru_cache

from wpriv.core.guarantee import Guarantee
from wpriv.core.process import Process
from wpriv.run.accounting import evaluate

MAX_ANSWERS = 64  # that are kept


def guarantee(process: Process, accountant: str, tol: float, delta: float | None) -> Guarantee:
    """Return the guarantee of a process at delta; equal questions are computed once.

    Raises:
        UsageError, Unsupported: as for ``evaluate.curve`` and ``evaluate.ask``.
    """
    return (_ask_once if _is_hashable(process) else _ask)(process, accountant, tol, delta)


def _is_hashable(process: Process) -> bool:
    """Return whether a process has a hash: one with arrays, as of observed distances, has none."""
    try:
        hash(process)
    except TypeError:
        return False
    return True


def _ask(process: Process, accountant: str, tol: float, delta: float | None) -> Guarantee:
    return evaluate.ask(evaluate.curve(process, accountant, tol), delta=delta)


_ask_once = lru_cache(maxsize=MAX_ANSWERS)(_ask)
