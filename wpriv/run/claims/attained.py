"""Refutations where the dominating pair only bounds all neighbours: a claim is refuted by two data sets alone.

See ``wpriv/run/accounting/two_data_sets.py``.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from wpriv.numerics.bracket import Bracket
from wpriv.run.accounting.two_data_sets import alike, is_bound_only, is_drawn
from wpriv.run.claims.decision import OPEN, REFUTED, Decision, Question

# names of the orders of the neighbours: one record differs from all others in the first world, or in the second one
ORDERS = {"remove": "P over Q", "add": "Q over P", "both": "both"}
BOUND_ONLY = "the pair that bounds this process exceeds the claim, but no two data sets are known that have this pair"


def confirmed(
    question: Question, decision: Decision, decide: Callable[[Question], Decision], upper: Callable[[float], Bracket]
) -> Decision:
    """Confirm a refutation by the data sets of ``alike``, or leave the claim open.

    Args:
        decision: the verdict on the dominating pair. decide: decides a question about a process.
        upper: a bracket of delta of the dominating pair, of which the upper end is used.
    """
    if decision.verdict != REFUTED or not is_bound_only(question.process):
        return decision
    process = alike(question.process)
    if process is None:
        return question.decision(OPEN, BOUND_ONLY, at_eps=decision.at_eps, allowed=decision.allowed)
    other = decide(replace(question, process=process))
    drawn = is_drawn(question.process)
    reason = f"{'where all other records are alike' if drawn else 'with the sensitivity tight'}, {other.reason}"
    verdict = REFUTED if other.verdict == REFUTED else OPEN
    if verdict == OPEN:
        reason = f"{BOUND_ONLY}; {reason}"
    delta = None if other.delta is None or other.at_eps is None else _between(other.delta, upper(other.at_eps))
    epsilon = None
    if other.epsilon is not None and decision.epsilon is not None:
        epsilon = _between(other.epsilon, decision.epsilon)
    order = ORDERS.get(other.order, "") if drawn else other.order
    return replace(
        other,
        verdict=verdict,
        reason=reason,
        process=question.process,
        delta=delta,
        epsilon=epsilon,
        order=order,
        caveats=question.caveats(),
    )


def _between(low: Bracket, high: Bracket) -> Bracket:
    return Bracket.between(min(low.lower or 0.0, high.safe), high.safe, high.by, high.refusal)
