"""Lower ends where the dominating pair only bounds all neighbours: those of two data sets alone.

The dominating pair of fixed-size sampling holds the worst of both orders of the neighbours at once. No two data sets
have that pair, so that its composition may exceed what every two data sets have (docs/theory/refuting-tests.md).
A sensitivity as published, of ``wgrad``, exceeds the least one.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from wpriv.core.adjacency import Adjacency
from wpriv.core.guarantee import Curve, OrderDelta
from wpriv.core.process import Process
from wpriv.core.sampling.kinds import Poisson
from wpriv.errors import Unsupported
from wpriv.numerics.bracket import Bracket

TWO_DATA_SETS = "lower end by two data sets whose other records are alike"


def is_bound_only(process: Process) -> bool:
    """Tell whether the pair of some step bounds its neighbours without being that of any two of them."""
    return is_drawn(process) or not process.has_attained_mechanisms()


def is_drawn(process: Process) -> bool:
    """Tell whether some step draws a batch of a fixed size."""
    return any(step.sampling.kind == "fixed" and step.sampling.rate < 1 for step in process.steps)


def alike(process: Process) -> Process | None:
    """A process whose pair two data sets have that differ in one record, while all of their others are alike.

    A batch that lacks the record has one distribution, and one that holds it another, as with Poisson sampling under
    add-remove. None where the mechanism or the other sampling of some step has no such pair.
    """
    steps = tuple(replace(step, mechanism=step.mechanism.attained()) for step in process.steps)
    if not is_drawn(process):
        return process.with_steps(steps)
    if any(step.sampling.kind not in ("none", "fixed") for step in steps):
        return None
    steps = tuple(
        replace(step, sampling=Poisson(step.sampling.rate)) if step.sampling.kind == "fixed" else step for step in steps
    )
    try:
        return Process(steps, Adjacency.ADD_REMOVE)
    except Unsupported:
        return None


def with_data_sets(curve: Curve, account: Callable[[Process], Curve]) -> Curve:
    """The curve of a process with batches of a fixed size, its lower ends those of two data sets.

    A single release keeps its delta and eps, which two data sets have at every eps >= 0, though not at all eps at once.
    A divergence is then an upper bound.

    Args:
        account: the curve of a process by the same accountant.
    """
    if not is_drawn(curve.process) or curve.claim not in ("exact", "certified"):
        return curve
    if curve.notion != "approximate-dp":
        return _from_above(curve)
    lower = _lower(curve.process, account)
    steps = curve.process.steps
    is_one = lower is not None and len(steps) == 1 and steps[0].n == 1
    orders = tuple(_joined_order(each, curve.orders[0]) for each in (_orders(lower) if curve.orders else ()))
    if is_one:
        return replace(curve, orders=orders)
    none = _nothing if lower is None else lower.delta_bracket
    epsilon = _nothing if lower is None else lower.epsilon_bracket
    return replace(
        curve,
        claim="certified",
        delta_bracket=_joined(none, curve.delta_bracket),
        epsilon_bracket=_joined(epsilon, curve.epsilon_bracket),
        orders=orders,
        tol=None,
    )


def _lower(process: Process, account: Callable[[Process], Curve]) -> Curve | None:
    other = alike(process)
    if other is None:
        return None
    try:
        curve = account(other)
    except Unsupported:
        return None
    return curve if curve.claim in ("exact", "certified") else None


def _orders(lower: Curve | None) -> tuple[OrderDelta, ...]:
    return (_nothing,) if lower is None else lower.orders or (lambda eps, width=0.0: lower.delta_bracket(eps),)


def _joined_order(low: OrderDelta, high: OrderDelta) -> OrderDelta:
    """The same of one order of the neighbours, at a relative width that suffices."""
    return lambda eps, width=0.0: _joined(lambda at: low(at, width), lambda at: high(at, width))(eps)


def _nothing(_: float, width: float = 0.0) -> Bracket:
    return Bracket(0.0, 0.0, 0.0)


def _joined(low: Callable[[float], Bracket], high: Callable[[float], Bracket]) -> Callable[[float], Bracket]:
    """The upper end of one bracket with the lower end of another."""

    def bracket(at: float) -> Bracket:
        above = high(at)
        try:
            below = low(at).lower or 0.0
        except Unsupported:
            below = 0.0
        by = "; ".join(word for word in (above.by, TWO_DATA_SETS if below else "") if word)
        return Bracket.between(min(below, above.safe), above.safe, by, above.refusal)

    return bracket


def _from_above(curve: Curve) -> Curve:
    def above(ask: Callable[[float], Bracket]) -> Callable[[float], Bracket]:
        return lambda at: Bracket.above(ask(at).safe)

    return replace(
        curve,
        claim="upper-bound",
        delta_bracket=above(curve.delta_bracket),
        epsilon_bracket=above(curve.epsilon_bracket),
    )
