"""What still fits behind a history: the steps, or the noise of further steps, that a target leaves room for.

Two ways of accounting answer. Steps fixed in advance, as a whole, give the most that fits. Where the further steps are
decided from earlier outputs, a filter (``rdp-filter``, or ``gdp`` for Gauss mechanisms without sampling) gives a number
that certainly fits; the same steps fixed in advance are one of the rules that it covers, so that no rule always allows
more.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from pathlib import Path
from typing import Any

from wpriv.core.guarantee import Guarantee
from wpriv.core.process import Process
from wpriv.core.sampling.sampled_step import check_together
from wpriv.errors import Unsupported, UsageError
from wpriv.numerics.safe_rounding import echo, text
from wpriv.run.accounting import adaptive_history, build_process, evaluate
from wpriv.run.accounting.adaptive_history import FILTER, GAUSS
from wpriv.run.accounting.search_parameter import SearchParameter
from wpriv.run.accounting.solve_parameter import Account, solve_for
from wpriv.run.accounting.solved_parameter import SolvedParameter

PLANNED = (
    "{name} is that of steps which were planned before the first release of the history, together with it. If anything "
    "that the history showed led to them, ask again with `adaptive=True`"
)


@dataclasses.dataclass(frozen=True)
class SpentHistory:
    """Releases that were made already, before the steps that are solved for.

    Args:
        process: their steps. notes: how the file was read.
        adjacency: as the user or a ledger names it; "" where it is the default of these steps.
    """

    process: Process
    notes: tuple[str, ...] = ()
    adjacency: str = ""

    def followed_by(self, at: Callable[[float], Process]) -> Callable[[float], Process]:
        """The history and the further steps, for each value of the parameter.

        Samplings that no default adjacency covers together are refused, as in a history that holds all these steps.
        """

        def both(value: float) -> Process:
            further = at(value)
            steps = (*self.process.steps, *further.steps)
            check_together({step.sampling.kind for step in steps}, self.adjacency)
            return dataclasses.replace(self.process, steps=steps, records=self.process.records or further.records)

        return both

    def filter(self, at: Callable[[float], Process], search: SearchParameter) -> tuple[str, Account]:
        """The accountant that covers parameters chosen from earlier outputs, and its curves."""
        some = at(min(max(1.0, search.low), search.high))
        # of all rates, the largest one alone has no sampling: it says nothing of the others
        plain = search.name != "rate" and adaptive_history.is_unsampled_gaussian(some)
        name = GAUSS if plain else FILTER
        return name, lambda process, tol: evaluate.curve(process, name, tol)


def read(path: str | Path, adjacency: str | None, group: Any, records: Any) -> SpentHistory:
    """The history in a file, as ``budget`` reads it.

    Raises:
        UsageError, MissingResource: as ``history.read_history``.
    """
    described = build_process.described_process(history=path, adjacency=adjacency, group=group, records=records)
    named = adjacency is not None or described.runs > 0
    return SpentHistory(described.process, described.notes, described.process.adjacency if named else "")


def require_room(spent: SpentHistory, name: str, account: Account, eps: float, delta: float, tol: float) -> Guarantee:
    """The guarantee of the history alone.

    Raises:
        Unsupported: it exceeds the target already.
    """
    curve = account(spent.process, tol)
    if eps == 0:
        row = evaluate.ask(curve, eps=0.0)
        if row.delta.safe > delta:
            raise Unsupported(
                f"the history alone has delta = {text(row.delta.safe, up=True, limit=delta)} at eps = 0 by {name}, "
                f"which exceeds the target delta = {echo(delta)}: nothing more fits. Raise `eps` or `delta`"
            )
        return row
    row = evaluate.ask(curve, delta=delta)
    if row.epsilon.safe > eps:
        raise Unsupported(
            f"the history alone has eps = {text(row.epsilon.safe, up=True, limit=eps)} at delta = {echo(delta)} by "
            f"{name}, which exceeds the target eps = {echo(eps)}: nothing more fits. Raise `eps` or `delta`"
        )
    return row


def solve_adaptively(
    spent: SpentHistory, search: SearchParameter, at: Callable[[float], Process], eps: float, delta: float, tol: float
) -> tuple[SolvedParameter, SolvedParameter | None, Guarantee, Guarantee]:
    """Solve by a filter, and by pld for the same steps fixed in advance.

    Returns:
        Both solutions, the second None where pld has no answer; the guarantee of the history alone; and that of the
        first solution, by the filter, with the figures of ``AdaptiveFigures.as_dict`` in ``extra["parameters"]``.
    Raises:
        UsageError: the target is eps = 0. Unsupported: the history exceeds it, or no value meets it.
    """
    if eps == 0:
        raise UsageError("`adaptive` solves for a target eps above 0; found `eps` 0")
    name, account = spent.filter(at, search)
    before = require_room(spent, name, account, eps, delta, tol)
    solution = solve_for(search, at, name, eps, delta, tol, account=account)
    try:
        fixed = solve_for(search, at, "pld", eps, delta, tol)
    except Unsupported:
        fixed = None
    figures = adaptive_history.account_for_history(solution.row.process, delta=delta, tol=tol)
    row = figures.adaptive.with_extra(parameters=figures.as_dict())
    return solution, fixed, before, row


def calibrated(solution: SolvedParameter, fixed: SolvedParameter | None) -> dict[str, Any]:
    """``extra["calibrated"]`` of a filter's solution: what misses the target does so for steps fixed in advance."""
    row = solution.as_dict()
    if solution.row.accountant == GAUSS:
        return row  # exact: nothing is lost by choosing adaptively
    number = int if solution.knob.whole else float
    misses = None if fixed is None or fixed.missed is None else number(fixed.missed)
    best = None if misses is None else misses - solution.knob.unit if solution.knob.whole else misses
    within = None if best is None else abs(best - solution.value) / solution.value
    most = {"most": best == solution.value} if "most" in row else {}
    return {**row, "misses": misses, "within": within, **most}


def room(
    search: SearchParameter,
    before: Guarantee,
    row: Guarantee | None = None,
    calibrated: dict[str, Any] | None = None,
) -> dict[str, Any]:
    """``extra["room"]``: what the history has spent, and where steps are chosen adaptively how much more fits.

    Args:
        before: the guarantee of the history alone. row, calibrated: the answer of a filter.
    """
    spent = {"parameter": search.name, "spent": before.epsilon.safe, "delta": before.delta.safe}
    if row is None or calibrated is None:
        return {**spent, "accountant": None, "fits": None, "at_most": None}
    most = calibrated["misses"]
    most = most - search.unit if most is not None and search.whole else most
    return {**spent, "accountant": row.accountant, "fits": calibrated["value"], "at_most": most}


def lines(room: dict[str, Any]) -> list[str]:
    """``extra["room"]`` in words: what the history has spent, and how much more fits."""
    name, least, most = room["parameter"], room["fits"], room["at_most"]
    words = [f"spent before: eps = {text(room['spent'], up=True)} at delta = {echo(room['delta'])}"]
    if room["accountant"] is None:
        return words
    if name != "n":
        bound = "" if most is None else f"; {name} = {most:.13g} misses the target even if it was fixed in advance"
        return [*words, f"room: {name} = {least:.13g} certainly fits, by {room['accountant']}{bound}"]
    bound = (
        "" if most is None else f"; at most {most:.13g} fit, since one more exceeds the target even if fixed in advance"
    )
    return [*words, f"room: at least {least:.13g} more steps fit, by {room['accountant']}{bound}"]
