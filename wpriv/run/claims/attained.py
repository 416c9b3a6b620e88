"""Refutations where the dominating pair only bounds all neighbours: a claim is refuted by two data sets alone.

See ``wpriv/run/accounting/two_data_sets.py``.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace

import numpy as np

from wpriv.core.process import Process, WeightedPairs, sandwich
from wpriv.errors import Unsupported
from wpriv.numerics.bracket import Bracket
from wpriv.numerics.safe_rounding import echo
from wpriv.run.accounting.two_data_sets import alike, is_bound_only, is_drawn
from wpriv.run.claims.decision import OPEN, REFUTED, Decision, Question

# names of the orders of the neighbours: one record differs from all others in the first world, or in the second one
ORDERS = {"remove": "P over Q", "add": "Q over P", "both": "both"}
# relative amount by which the sum of shares of eps exceeds it
SHARE_ROUNDING = 1e-9
BOUND_ONLY = "the pair that bounds this process exceeds the claim, but no two data sets are known that have this pair"


def exceeding_loss(process: Process, eps: float) -> str:
    """Say why some outcome, however rare, has a privacy loss above ``eps``; "" where none is known."""
    try:
        rare = max(_log_mass_above(pairs, eps) for pairs in process.directions())
    except Unsupported:
        rare = -math.inf
    if math.isfinite(rare):
        power = math.floor(rare / math.log(10))
        return f"outcomes whose privacy loss exceeds {echo(eps)} have a probability of at least 10^{power}"
    for step in process.steps:
        noise = step.mechanism.additive_noise()
        # also for the mixtures of samplings, in the order in which the record takes part in the first world
        if noise is not None and noise.family == "gauss" and not noise.truncated:
            return f"the privacy loss of {step.mechanism.name} has no upper bound"
    return ""


def _log_mass_above(pairs: WeightedPairs, eps: float) -> float:
    """ln of a probability that the privacy loss exceeds ``eps``; -inf where none is known.

    Each step exceeds a share of eps: its part of the sum of the largest losses, or an equal one of the infinite ones.
    """
    ends = sandwich(pairs, 1.0)
    pairs = pairs if ends is None else ends[0]
    tops = [(pair.support[1], n) for pair, n in pairs]
    total = math.fsum(top * n for top, n in tops)
    if not total > eps * (1 + SHARE_ROUNDING):
        return -math.inf
    unbounded = sum(n for top, n in tops if math.isinf(top))
    shares = [
        (eps / unbounded if math.isinf(top) else 0.0) if unbounded else max(top, 0.0) * (eps / total) for top, _ in tops
    ]
    return math.fsum(
        n * float(pair.tails(np.array([share * (1 + SHARE_ROUNDING)])).sf_p[0])
        for share, (pair, n) in zip(shares, pairs, strict=True)
    )


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
