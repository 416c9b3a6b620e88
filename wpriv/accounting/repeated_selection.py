"""Private tuning: the guarantee of the best of K runs, K random, beside that of one run and of all runs.

``wpriv/accounting/best_of_runs.py`` has the curves.
"""

from __future__ import annotations

import dataclasses
from typing import Any

from wpriv.accounting import best_of_runs, evaluate
from wpriv.accounting import membership_figures as attacks
from wpriv.core.guarantee import Curve, Guarantee
from wpriv.core.process import Process
from wpriv.core.repeats import FixedRuns, Repeats, parse
from wpriv.errors import Unsupported, UsageError
from wpriv.numerics.numbers import echo, text

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
    attack: bool = False,
) -> Guarantee:
    """The guarantee of the best of K runs at one eps or delta, with that of one run and of the release of all runs.

    ``extra["repeats"]`` has the distribution, and ``one_run`` and ``all_runs``: the answer for a single run, and for
    the mean number of runs (rounded) if every one were released; None where the accountant has none. With ``attack``,
    ``extra["attack"]`` has upper bounds on attacks.

    Raises:
        UsageError: the distribution is not written as one. Unsupported: a fixed number of runs, or no proven curve.
    """
    try:
        chosen = parse(repeats)
    except FixedRuns as error:
        raise _fixed(process, accountant, error, eps, delta, tol) from None
    run = best_of_runs.one_run(process, accountant, tol)
    row = evaluate.ask(best_of_runs.of_best(run, chosen), eps=eps, delta=delta)
    others = {
        name: _figure(process, accountant, n, eps, delta, tol)
        for name, n in (("one_run", 1), ("all_runs", max(1, round(chosen.mean))))
    }
    row = with_note(row, chosen, **others)
    if not attack:
        return row
    if best_of_runs.is_quick(process):
        run = best_of_runs.one_run(process, accountant, attacks.WIDEST_TOL)
    return row.with_extra(attack=attacks.attack_bounds(best_of_runs.curve_for_attacks(run, chosen), from_above=True))


def with_note(row: Guarantee, repeats: Repeats, **figures: float | None) -> Guarantee:
    """The guarantee with the distribution in ``extra["repeats"]``, and what it assumes in ``extra["reading"]``."""
    note = SELECTED.format(number=f"of a {repeats.kind} distribution", mean=repeats.mean)
    return row.with_extra(reading=[note], repeats={**repeats.describe(), **figures})


def curve_of(process: Process, accountant: str, tol: float, repeats: str | Repeats | None) -> Curve:
    """The curve of a process, or of the best of K runs of it."""
    if repeats is None:
        return evaluate.curve(process, accountant, tol)
    return best_of_runs.of_best(best_of_runs.one_run(process, accountant, tol), parse(repeats))


def facts(repeats: dict[str, Any], unknown: str) -> list[tuple[str, str]]:
    """What one run, and the release of all runs, would cost: labels with their text."""
    name = "delta" if unknown == "delta" else "eps"
    one, every = repeats["one_run"], repeats["all_runs"]
    count = max(1, round(repeats["mean"]))
    rows = [] if one is None else [("one run", f"{name} = {text(one, up=True)}")]
    return rows if every is None or count == 1 else [*rows, (f"all {count} runs", f"{name} = {text(every, up=True)}")]


def _figure(
    process: Process, accountant: str, runs: int, eps: float | None, delta: float | None, tol: float
) -> float | None:
    """The safe end for a number of runs that are all released; None where the accountant has no answer."""
    try:
        steps = tuple(dataclasses.replace(step, n=step.n * runs) for step in process.steps)
        curve = evaluate.curve(process.with_steps(steps), accountant, best_of_runs.profile_tol(process, tol))
        row = evaluate.ask(curve, eps=eps, delta=delta)
    except (Unsupported, UsageError):
        return None
    return float((row.delta if delta is None else row.epsilon).safe)


def _fixed(
    process: Process, accountant: str, error: FixedRuns, eps: float | None, delta: float | None, tol: float
) -> Unsupported:
    """The refusal of a fixed number of runs, with what composition gives for it."""
    value = None if error.runs is None else _figure(process, accountant, error.runs, eps, delta, tol)
    if value is None:
        return Unsupported(str(error))
    name, at = ("eps", f"delta = {echo(delta)}") if delta is not None else ("delta", f"eps = {echo(eps or 0.0)}")
    return Unsupported(
        f"{error}. All {error.runs} runs together have {name} = {text(value, up=True)} at {at} by {accountant}"
    )
