"""Answers about a training that are asked for several times.

The guarantee of its end is asked for in its last epoch, its statement and its result; its noise is solved for again in
each cell of a sweep with the same privacy, and when a run is resumed.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache

from wpriv.core.guarantee import Guarantee
from wpriv.core.process import Process
from wpriv.run.accounting import evaluate
from wpriv.run.accounting.search import Unknown
from wpriv.run.accounting.target import Solution, Target, solve_for

MAX_ANSWERS = 64  # that are kept, of each kind
NOISE = Unknown("sigma", +1, 1e-12, 1e15)

_noises: dict[tuple[object, ...], Solution] = {}


def guarantee(process: Process, accountant: str, tol: float, delta: float | None) -> Guarantee:
    """Return the guarantee of a process at delta; equal questions are computed once.

    Raises:
        UsageError, Unsupported: as for ``evaluate.curve`` and ``evaluate.ask``.
    """
    return (_ask_once if _is_hashable(process) else _ask)(process, accountant, tol, delta)


def least_noise(at: Callable[[float], Process], accountant: str, eps: float, delta: float, tol: float) -> Solution:
    """Return the least noise multiplier at which ``at(multiplier)`` meets a target; equal questions are solved once.

    A kept answer is used only where ``at`` gives the very process of its guarantee.

    Raises:
        Unsupported: as for ``solve_for``.
    """
    samples = (at(1.0), at(2.0))
    if not all(map(_is_hashable, samples)):
        return solve_for(NOISE, at, accountant, Target(eps, delta), tol)
    key = (*samples, accountant, eps, delta, tol)
    kept = _noises.get(key)
    if kept is not None and kept.row.process == at(kept.value):
        return kept
    if len(_noises) >= MAX_ANSWERS:
        del _noises[next(iter(_noises))]
    _noises[key] = solve_for(NOISE, at, accountant, Target(eps, delta), tol)
    return _noises[key]


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
