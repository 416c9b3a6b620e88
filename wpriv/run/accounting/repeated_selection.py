"""Private tuning: the guarantee of the best of K runs, K random, beside that of one run and of all runs.

``wpriv/run/accounting/best_of_runs.py`` has the curves.
"""

from __future__ import annotations

import dataclasses
from typing import Any

from wpriv.core.guarantee import Curve, Guarantee
from wpriv.core.process import Process
from wpriv.core.repeats import FixedRuns, Repeats, parse
from wpriv.errors import Unsupported, UsageError
from wpriv.numerics.safe_rounding import echo, text
from wpriv.run.accounting import evaluate
from wpriv.run.accounting.best_of_runs import of_best, profile_tol

SELECTED = (
    "the best of K runs is released, by a score that the run itself reveals or that uses no private records; K "
    "{number} with mean {mean:g}, drawn afresh and independently of the records and of all results; K itself, the "
    "other runs and their scores are never shown"
)


def answer(
    process: Process,
    accountant: str,
    repeats: str | Repeats,
    *,
    eps: float | None = None,
    delta: float | None = None,
    tol: float,
) -> Guarantee:
    """The guarantee of the best of K runs at one eps or delta, with that of one run and of the release of all runs.

    ``extra["repeats"]`` has the distribution, and ``one_run`` and ``all_runs``: the answer for a single run, and for
    the mean number of runs (rounded) if every one were released; None where the accountant has none.

    Raises:
        UsageError: the distribution is not written as one. Unsupported: a fixed number of runs, or no proven curve.
    """
    try:
        chosen = parse(repeats)
    except FixedRuns as error:
        raise _fixed(process, accountant, error, eps, delta, tol) from None
    row = evaluate.ask(curve_of(process, accountant, tol, chosen), eps=eps, delta=delta)
    unknown = "delta" if delta is None else "epsilon"
    others = {
        name: _figure(process, accountant, n, eps, delta, tol, unknown)
        for name, n in (("one_run", 1), ("all_runs", max(1, round(chosen.mean))))
    }
    return with_note(row, chosen, **others)


def with_note(row: Guarantee, repeats: Repeats, **figures: float | None) -> Guarantee:
    """The guarantee with the distribution in ``extra["repeats"]``, and what it assumes in ``extra["reading"]``."""
    note = SELECTED.format(number=f"of a {repeats.kind} distribution", mean=repeats.mean)
    return row.with_extra(reading=[note], repeats={**repeats.describe(), **figures})


def curve_of(process: Process, accountant: str, tol: float, repeats: str | Repeats | None) -> Curve:
    """The curve of a process, or of the best of K runs of it."""
    return of_best(evaluate.curve(process, accountant, tol if repeats is None else profile_tol(process, tol)), repeats)


def lines(repeats: dict[str, Any], unknown: str) -> list[str]:
    """What one run, and the release of all runs, would cost, in words."""
    name = "delta" if unknown == "delta" else "eps"
    one, every = repeats["one_run"], repeats["all_runs"]
    words = [] if one is None else [f"one run alone: {name} = {text(one, up=True)}"]
    count = max(1, round(repeats["mean"]))
    return words + (
        [] if every is None or count == 1 else [f"{count} runs, all of them released: {name} = {text(every, up=True)}"]
    )


def _figure(
    process: Process, accountant: str, runs: int, eps: float | None, delta: float | None, tol: float, unknown: str
) -> float | None:
    """The safe end for a number of runs that are all released; None where the accountant has no answer."""
    try:
        steps = tuple(dataclasses.replace(step, n=step.n * runs) for step in process.steps)
        row = evaluate.ask(
            evaluate.curve(process.with_steps(steps), accountant, profile_tol(process, tol)), eps=eps, delta=delta
        )
    except (Unsupported, UsageError):
        return None
    return float(getattr(row, unknown).safe)


def _fixed(
    process: Process,
    accountant: str,
    error: FixedRuns,
    eps: float | None,
    delta: float | None,
    tol: float,
) -> Unsupported:
    """The refusal of a fixed number of runs, with what composition gives for it."""
    unknown = "delta" if delta is None else "epsilon"
    value = None if error.runs is None else _figure(process, accountant, error.runs, eps, delta, tol, unknown)
    if value is None:
        return Unsupported(str(error))
    name, at = ("eps", f"delta = {echo(delta)}") if delta is not None else ("delta", f"eps = {echo(eps or 0.0)}")
    return Unsupported(
        f"{error}. All {error.runs} runs together have {name} = {text(value, up=True)} at {at} by {accountant}"
    )
