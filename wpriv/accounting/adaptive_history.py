"""Account for a history whose noise, rates or length may have been chosen from earlier outputs.

Composition theorems for privacy loss distributions, f-DP and moments let the queries depend on earlier outputs, but not
the parameters. Two ways of accounting allow both: sums of mu^2 where every step is an unsampled Gaussian mechanism, and
sums of Renyi divergences of orders fixed in advance (``rdp-filter``).
"""

from __future__ import annotations

import contextlib
import dataclasses
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from wpriv.accounting import evaluate
from wpriv.accounting.build_process import DescribedProcess
from wpriv.accounting.search import Unknown
from wpriv.accounting.target import Solution, Target, solve_for
from wpriv.core import registry
from wpriv.core.guarantee import Curve, Guarantee
from wpriv.core.loss_pair import gaussian_mu
from wpriv.core.process import Process, refuse_passes
from wpriv.core.sampled_step import check_together
from wpriv.errors import Unsupported, UsageError
from wpriv.numerics.bracket import Bracket
from wpriv.numerics.numbers import echo, short, text

FILTER, GAUSS = "rdp-filter", "gdp"
FIXED = (
    "holds where noise, sampling rates and the number of steps of all runs were fixed before the first release; "
    "queries may depend on earlier outputs"
)
FILTERED = (
    "holds where noise, sampling rates and the number of steps were chosen from earlier outputs, by a rule under which "
    "{what} would never have exceeded its present value, whatever the outputs"
)
LEAK = ", and likewise the probability {leak} of outcomes that only one of two neighbours can have,"
LOSS = (
    "without such a rule: with probability at least 1 - delta over the outputs, the privacy loss of all releases so "
    "far is at most this"
)
EXCEEDED = (
    "eps = {eps:g} holds if the noise, the rates and the lengths of all runs were fixed before the first one. If "
    "anything that the first run showed led to this fork, they were not, and eps = {found} holds, by {name}"
)


@dataclass(frozen=True)
class AdaptiveFigures:
    """The guarantees of a history for parameters fixed in advance and for adaptively chosen ones.

    Args:
        fixed: for parameters fixed in advance; None where pld has no answer.
        adaptive: for parameters chosen from earlier outputs; its lower end is that of ``fixed``.
        orders: orders of the Renyi divergences that were added up; None where none were needed.
        loss: a bound that the privacy loss exceeds with probability at most delta; None where delta is the unknown, or
            where the loss may be infinite.
        runs: number of runs in the history; all but the first may have parameters chosen from earlier outputs.
    """

    fixed: Guarantee | None
    adaptive: Guarantee
    orders: tuple[float, ...] | None
    loss: float | None
    runs: int = 1

    def as_dict(self) -> dict[str, object]:
        """The content of ``extra["parameters"]`` and of statements: each figure with its assumption."""
        name = GAUSS if self.orders is None else FILTER
        adaptive = _figure(self.adaptive, FILTERED.format(what=kept(name, self.adaptive.process)))
        adaptive["orders"] = None if self.orders is None else list(self.orders)
        loss = {"epsilon": self.loss, "delta": self.adaptive.delta.safe, "assumes": LOSS}
        return {
            "runs": self.runs,
            "fixed": None if self.fixed is None else _figure(self.fixed, FIXED),
            "adaptive": adaptive,
            "loss": None if self.loss is None else loss,
        }


def kept(accountant: str, process: Process) -> str:
    """What a rule has to keep at or below its present value, for a figure of FILTER or GAUSS to hold."""
    if accountant == GAUSS:
        return "the sum of (sensitivity / sigma)^2"
    leak = evaluate.infinity_mass(process)
    return "this number" + (LEAK.format(leak=text(leak, up=True)) if leak > 0 else "")


def _figure(row: Guarantee, assumes: str) -> dict[str, object]:
    ends = {"epsilon": row.epsilon.safe, "epsilon_lower": row.epsilon.lower}
    ends |= {"delta": row.delta.safe, "delta_lower": row.delta.lower}
    return {"accountant": row.accountant, "claim": row.claim, **ends, "assumes": assumes}


def lines(parameters: Mapping[str, Any] | None) -> list[str]:
    """The figures of ``AdaptiveFigures.as_dict`` in words, each with its assumption."""
    words = []
    titles = {"fixed": "fixed in advance", "adaptive": "chosen from earlier outputs", "loss": "chosen without a limit"}
    for name, title in titles.items():
        figure = None if parameters is None else parameters[name]
        if figure is not None:
            by = f", {figure['claim']} by {figure['accountant']}" if "claim" in figure else ""
            shown = f"eps = {text(figure['epsilon'], up=True)} at delta = {text(figure['delta'], up=True)}{by}"
            words.append(f"parameters {title}: {shown}; {figure['assumes']}")
    return words


def is_unsampled_gaussian(process: Process) -> bool:
    """Tell whether all steps are unsampled Gaussian: mu^2 adds up (docs/theory/classical-bounds.md, its end)."""
    return all(gaussian_mu(pair) is not None for run in process.renyi_directions() for pair, _ in run)


def account_for_history(
    process: Process,
    *,
    eps: float | None = None,
    delta: float | None = None,
    tol: float,
    fixed: Guarantee | None = None,
    runs: int = 1,
) -> AdaptiveFigures:
    """Compute both guarantees of a history, at one eps or one delta.

    The orders of the Renyi divergences follow from eps and delta alone, and the figure is the same for any order of the
    steps. The lower end is that of pld, since steps fixed in advance are a special case.
    """
    if delta == 0:
        raise Unsupported("parameters that depend on earlier outputs are accounted for at a delta above 0 only")
    if fixed is None:
        with contextlib.suppress(Unsupported):
            fixed = evaluate.ask(evaluate.curve(process, "pld", tol), eps=eps, delta=delta)
    filters = registry.load("accountants", FILTER)
    plain = is_unsampled_gaussian(process)
    if not plain:
        refuse_passes(process, FILTER)
    row = evaluate.ask(evaluate.curve(process, GAUSS if plain else FILTER, tol), eps=eps, delta=delta)
    leak = evaluate.infinity_mass(process)
    loss = None if delta is None or leak > 0 else filters.loss_bound(process, delta)
    orders = None if plain else filters.orders(row.epsilon.safe, row.delta.safe - leak)
    if plain or fixed is None:
        return AdaptiveFigures(fixed, row, orders, loss, runs)
    name = "epsilon" if delta is not None else "delta"
    upper, lower = getattr(row, name).safe, getattr(fixed, name).lower or 0.0
    if lower > upper * (1 + 1e-8):
        raise ArithmeticError(f"{FILTER} bounds {name} by {upper!r}, which pld certifies to be at least {lower!r}")
    bracket = Bracket(upper, min(lower, upper), upper)
    source = f"{row.source}; lower end by pld, for the same steps fixed in advance"
    row = dataclasses.replace(row, source=source, **{name: bracket})  # type: ignore[arg-type]
    return AdaptiveFigures(fixed, row, orders, loss, runs)


# What still fits behind a history: the steps, or the noise of further steps, that a target leaves room for.
#
# Steps fixed in advance, as a whole, give the most that fits. Where the further steps are decided from earlier outputs,
# a filter gives a number that certainly fits; the same steps fixed in advance are one of the rules that it covers, so
# that no rule always allows more.

PLANNED = (
    "{name} is that of steps which were planned before the first release of the history, together with it. If anything "
    "that the history showed led to them, ask again with `adaptive=True`"
)


def followed_by(
    spent: DescribedProcess, adjacency: str | None, at: Callable[[float], Process]
) -> Callable[[float], Process]:
    """The history and the further steps at each value; samplings that no default adjacency covers are refused."""
    named = spent.process.adjacency if adjacency is not None or spent.runs > 0 else ""

    def both(value: float) -> Process:
        further = at(value)
        steps = (*spent.process.steps, *further.steps)
        check_together({step.sampling.kind for step in steps}, named)
        return dataclasses.replace(spent.process, steps=steps, records=spent.process.records or further.records)

    return both


def require_room(target: Target, accountant: str, curve: Curve) -> Guarantee:
    """The guarantee of the history alone, from its curve by an accountant."""
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
    plain = unknown.name != "rate" and is_unsampled_gaussian(at(unknown.clamp(1.0)))
    name = GAUSS if plain else FILTER

    def account(process: Process, tol: float) -> Curve:
        return evaluate.curve(process, name, tol)

    before = require_room(target, name, account(spent, tol))
    solution = solve_for(unknown, at, name, target, tol, account=account)
    try:
        missed = solve_for(unknown, at, "pld", target, tol).missed
    except Unsupported:
        missed = None
    figures = account_for_history(solution.row.process, delta=target.delta, tol=tol)
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
