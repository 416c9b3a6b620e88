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
    observed = any(step.observed is not None for step in process.steps)  # arrays, which are not hashable
    return (_ask if observed else _ask_once)(process, accountant, tol, delta)


def _ask(process: Process, accountant: str, tol: float, delta: float | None) -> Guarantee:
    return evaluate.ask(evaluate.curve(process, accountant, tol), delta=delta)


_ask_once = lru_cache(maxsize=MAX_ANSWERS)(_ask)
