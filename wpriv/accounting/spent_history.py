"""What still fits behind a history: the steps, or the noise of further steps, that a target leaves room for.

Two ways of accounting answer. Steps fixed in advance, as a whole, give the most that fits. Where the further steps are
decided from earlier outputs, a filter (``rdp-filter``, or ``gdp`` for Gaussian noise without sampling) gives a number
that certainly fits; the same steps fixed in advance are one of the rules that it covers, so that no rule always allows
more.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any

from wpriv.accounting import adaptive_history, evaluate
from wpriv.accounting.adaptive_history import FILTER, GAUSS
from wpriv.accounting.build_process import DescribedProcess
from wpriv.accounting.search import Unknown
from wpriv.accounting.target import Solution, Target, solve_for
from wpriv.core.guarantee import Curve, Guarantee
from wpriv.core.process import Process
from wpriv.core.sampled_step import check_together
from wpriv.errors import Unsupported, UsageError
from wpriv.numerics.numbers import echo, short, text

PLANNED = (
    "{name} is that of steps which were planned before the first release of the history, together with it. If anything "
    "that the history showed led to them, ask again with `adaptive=True`"
)


def followed_by(
    spent: DescribedProcess, adjacency: str | None, at: Callable[[float], Process]
) -> Callable[[float], Process]:
    """The history and the further steps, for each value of the parameter.

    Samplings that no default adjacency covers together are refused, as in a history that holds all these steps.

    Args:
        spent: releases that were made already. adjacency: as the user names it, if at all.
    """
    named = spent.process.adjacency if adjacency is not None or spent.runs > 0 else ""

    def both(value: float) -> Process:
        further = at(value)
        steps = (*spent.process.steps, *further.steps)
        check_together({step.sampling.kind for step in steps}, named)
        return dataclasses.replace(spent.process, steps=steps, records=spent.process.records or further.records)

    return both


def require_room(target: Target, accountant: str, curve: Curve) -> Guarantee:
    """The guarantee of the history alone, from its curve by an accountant.

    Raises:
        Unsupported: it exceeds the target already.
    """
    if target.eps == 0:
        row, name, limit, where = evaluate.ask(curve, eps=0.0), "delta", target.delta, "eps = 0"
    else:
        row, name, limit = evaluate.ask(curve, delta=target.delta), "eps", target.eps
        where = f"delta = {echo(target.delta)}"
    safe = (row.delta if name == "delta" else row.epsilon).safe
    if safe > limit:
        raise Unsupported(
            f"the history alone has {name} = {text(safe, up=True, limit=limit)} at {where} by {accountant}, which "
            f"exceeds the target {name} = {echo(limit)}: nothing more fits. Raise `eps` or `delta`"
        )
    return row


def solve_adaptively(
    spent: Process, unknown: Unknown, at: Callable[[float], Process], target: Target, tol: float
) -> tuple[Solution, Guarantee, dict[str, object], dict[str, object]]:
    """Solve by a filter, and by pld for the same steps fixed in advance.

    Returns:
        The solution by the filter; its guarantee, with the figures of ``AdaptiveFigures.as_dict`` in
        ``extra["parameters"]``; and ``extra["calibrated"]`` and ``extra["room"]``, by which a value misses the target
        if it does so for steps fixed in advance.
    Raises:
        UsageError: the target is eps = 0. Unsupported: the history exceeds it, or no value meets it.
    """
    if target.eps == 0:
        raise UsageError("`adaptive` solves for a target eps above 0; found `eps` 0")
    # of all rates, the largest one alone has no sampling: it says nothing of the others
    plain = unknown.name != "rate" and adaptive_history.is_unsampled_gaussian(at(unknown.clamp(1.0)))
    name = GAUSS if plain else FILTER

    def account(process: Process, tol: float) -> Curve:
        return evaluate.curve(process, name, tol)

    before = require_room(target, name, account(spent, tol))
    solution = solve_for(unknown, at, name, target, tol, account=account)
    try:
        missed = solve_for(unknown, at, "pld", target, tol).missed
    except Unsupported:
        missed = None
    figures = adaptive_history.account_for_history(solution.row.process, delta=target.delta, tol=tol)
    row = figures.adaptive.with_extra(parameters=figures.as_dict())
    # a figure by gdp is exact: nothing is lost by choosing adaptively
    best = solution if solution.row.accountant == GAUSS else dataclasses.replace(solution, missed=missed)
    calibrated = best.as_dict()
    fits = {"accountant": row.accountant, "fits": calibrated["value"], "at_most": best.at_most}
    return solution, row, calibrated, room(unknown, before) | fits


def room(unknown: Unknown, before: Guarantee) -> dict[str, object]:
    """``extra["room"]``: what the history has spent, by its guarantee alone; ``solve_adaptively`` adds what fits."""
    spent = {"parameter": unknown.name, "spent": before.epsilon.safe, "delta": before.delta.safe}
    return {**spent, "accountant": None, "fits": None, "at_most": None}


def facts(room: dict[str, Any]) -> list[tuple[str, str]]:
    """``extra["room"]`` as labels with their text: what the history has spent, and how much more fits."""
    name, least, most = room["parameter"], room["fits"], room["at_most"]
    rows = [("spent before", f"eps = {text(room['spent'], up=True)} at delta = {short(room['delta'])}")]
    if room["accountant"] is None:
        return rows
    if name != "n":
        bound = "" if most is None else f"; {name} = {most:.13g} misses the target even if it was fixed in advance"
        return [*rows, ("room", f"{name} = {least:.13g} certainly fits, by {room['accountant']}{bound}")]
    beyond = "fit, since one more exceeds the target even if fixed in advance"
    bound = "" if most is None else f"; at most {most:.13g} {beyond}"
    return [*rows, ("room", f"at least {least:.13g} more steps fit, by {room['accountant']}{bound}")]
