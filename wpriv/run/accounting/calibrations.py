"""The three kinds of calibration: of steps alone, of the best of K runs, and of steps behind a history."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from wpriv.core.guarantee import Curve, Guarantee
from wpriv.core.process import Process
from wpriv.core.repeats import Repeats, parse
from wpriv.errors import UsageError
from wpriv.run.accounting import evaluate, repeated_selection, spent_history
from wpriv.run.accounting.search_parameter import SearchParameter
from wpriv.run.accounting.solve_parameter import solve_for
from wpriv.run.accounting.solved_parameter import SolvedParameter
from wpriv.run.accounting.spent_history import SpentHistory

# the solution, its guarantee, and what is said beside it, under the keys of ``Guarantee.extra``
Answer = tuple[SolvedParameter, Guarantee, dict[str, Any]]


@dataclass(frozen=True)
class Search:
    """What is solved for, and the eps and delta that the process ``at`` a value of it must keep.

    Args:
        tol: the relative width of the bracket of the accountant.
        fpr: where it is given, the target is a true-positive rate of at most ``delta`` at this false-positive rate.
        measure: "mu" where the target is mu of at most ``delta`` instead, for rates of at least ``fpr``.
    """

    search: SearchParameter
    at: Callable[[float], Process]
    accountant: str
    eps: float
    delta: float
    tol: float
    fpr: float | None = None
    measure: str = "tpr"

    def solve(self, account: Callable[[Process, float], Curve] | None = None) -> SolvedParameter:
        """Solve by the accountant, or by other curves."""
        question = self.accountant, self.eps, self.delta, self.tol
        return solve_for(self.search, self.at, *question, account=account, fpr=self.fpr, measure=self.measure)


def check(
    history: str | Path | None,
    adaptive: bool,
    repeats: str | Repeats | None,
    accountant: str,
    classical: bool,
    target: tuple[str, ...],
) -> None:
    """Refuse combinations of ``history``, ``adaptive``, ``repeats`` and others that have no meaning.

    Args:
        target: the names of the arguments that give the target.

    Raises:
        UsageError: there is such a combination.
    """
    if target != ("eps", "delta") and (history is not None or repeats is not None):
        other = "history" if history is not None else "repeats"
        raise UsageError(f"`{target[0]}` is a target of a step alone; leave out `{other}`, or give `eps` and `delta`")
    if repeats is not None and history is not None:
        raise UsageError(
            "`repeats` solves for a step of one run, and `history` for steps behind others; give one of them, or ask "
            "budget with both"
        )
    if adaptive and history is None:
        raise UsageError(
            "`adaptive` solves for steps that are decided from what a `history` showed; give the history, or leave out "
            "`adaptive` for steps that are fixed in advance"
        )
    if adaptive and accountant != "pld":
        raise UsageError(
            f"`adaptive` chooses the accountant itself (rdp-filter or gdp); found {accountant!r}. Leave out one of the "
            f"two"
        )
    if classical and (history is not None or repeats is not None):
        given = "history" if history is not None else "repeats"
        raise UsageError(f"`compare_classical` is about a single step alone; leave it out, or leave out `{given}`")


def solve(target: Search, spent: SpentHistory | None, adaptive: bool, repeats: str | Repeats | None) -> Answer:
    """Solve for the parameter of a target.

    Raises:
        Unsupported: no value meets it, or the history exceeds it already.
    """
    if repeats is not None:
        return _best_run(target, parse(repeats))
    if spent is None:
        solution = target.solve()
        return solution, solution.row, {"calibrated": solution.as_dict()}
    return _adaptively(target, spent) if adaptive else _planned(target, spent)


def _best_run(target: Search, repeats: Repeats) -> Answer:
    def account(process: Process, tol: float) -> Curve:
        return repeated_selection.curve_of(process, target.accountant, tol, repeats)

    solution = target.solve(account)
    row = repeated_selection.with_note(solution.row, repeats)
    return solution, row, {"calibrated": solution.as_dict(), "reading": row.extra["reading"]}


def _planned(target: Search, spent: SpentHistory) -> Answer:
    """Further steps that were planned together with the history."""

    def account(process: Process, tol: float) -> Curve:
        return evaluate.curve(process, target.accountant, tol, of_pair=True)

    before = spent_history.require_room(spent, target.accountant, account, target.eps, target.delta, target.tol)
    solution = target.solve()
    row = evaluate.with_warnings(solution.row, [spent_history.PLANNED.format(name=target.search.name)])
    return solution, row, {"calibrated": solution.as_dict(), "room": spent_history.room(target.search, before)}


def _adaptively(target: Search, spent: SpentHistory) -> Answer:
    """Further steps that are decided from what the history showed."""
    search = target.search
    solution, fixed, before, row = spent_history.solve_adaptively(
        spent, search, target.at, target.eps, target.delta, target.tol
    )
    calibrated = spent_history.calibrated(solution, fixed)
    return solution, row, {"calibrated": calibrated, "room": spent_history.room(search, before, row, calibrated)}
