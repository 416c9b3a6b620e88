"""A forecast: how often the same releases fit under each rule, and if all of them were fixed in advance."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from fractions import Fraction

from wpriv.accounting import evaluate
from wpriv.core.process import Process
from wpriv.errors import Unsupported, UsageError
from wpriv.ledger import charges, filters
from wpriv.ledger.charges import Units
from wpriv.ledger.filters import RULES, TOO_MUCH, UNITS, Filter, Limit

FIXED = "fixed in advance"
MOST = 2**40


@dataclass(frozen=True)
class Row:
    """How many rounds of a forecast a rule admits; None with the reason where it has no charge for them."""

    rule: str
    rounds: int | None
    reason: str = ""

    def as_dict(self) -> dict[str, object]:
        return asdict(self)


def forecast(process: Process, limits: Sequence[Limit]) -> list[Row]:
    """How many rounds of a process every rule admits within all limits; the last row is for a plan fixed in advance.

    Under residue, a round is charged by the floor that holds what remains after it.

    Raises:
        UsageError: there is no limit, or steps have observed pair distances. Unsupported: a release hides nothing.
    """
    if not limits:
        raise UsageError("a forecast needs a limit: `eps` with `delta`, or `rho`, or `mu`")
    units, rows = charges.units_of(process), []
    for rule in RULES:
        try:
            rows.append(Row(rule, min(_under(units, filters.of_limit(limit, rule)) for limit in limits)))
        except (Unsupported, UsageError) as error:
            rows.append(Row(rule, None, str(error)))
    if all(limit.delta for limit in limits):
        try:
            rows.append(Row(FIXED, min(_fixed(process, limit) for limit in limits)))
        except Unsupported as error:
            rows.append(Row(FIXED, None, str(error)))
    return rows


def best(rows: Sequence[Row]) -> Row | None:
    """The rule that admits most, the first of several; None where none admits a single round."""
    known = [row for row in rows if row.rule != FIXED and row.rounds]
    return max(known, key=lambda row: row.rounds or 0, default=None)


def _under(units: Units, alternatives: tuple[Filter, ...]) -> int:
    """The rounds until every filter is exceeded: that of the last one."""
    rounds, reason = [], None
    for by in alternatives:
        try:
            rounds.append(_rounds(units, by))
        except Unsupported as error:
            reason = error
    if reason is not None and not rounds:
        raise reason
    return max(rounds)


def _rounds(units: Units, by: Filter) -> int:
    """The rounds of one filter, from the highest floor down."""
    booked, rounds = [0] * len(by.accounts), 0
    for tier, floor in enumerate(by.floors):
        total = [Fraction(0)] * len(booked)
        for unit, count in units:
            charge = charges.of_unit(unit, by, tier, count)
            total = [sum_ + part for sum_, part in zip(total, charge, strict=True)]
        amounts = by.units(tuple(total))
        room = [UNITS - floor - booked[0], *(UNITS - amount for amount in booked[1:])]
        fits = [max(left, 0) // amount for left, amount in zip(room, amounts, strict=True) if amount]
        more = 0 if TOO_MUCH in amounts else min(fits, default=MOST)
        rounds += more
        booked = [before + more * amount for before, amount in zip(booked, amounts, strict=True)]
        if rounds >= MOST:
            return MOST
    return rounds


def _fixed(process: Process, limit: Limit) -> int:
    """The most rounds that pld certifies where all of them are fixed in advance."""
    assert limit.eps is not None
    assert limit.delta is not None
    eps, delta = limit.eps, limit.delta

    def fits(rounds: int) -> bool:
        several = process.with_steps(tuple(replace(step, n=step.n * rounds) for step in process.steps))
        return evaluate.curve(several, "pld", 1e-3).delta_bracket(eps).safe <= delta

    low, high = 0, 1
    # the bracket of a single round may be wide: go on for some rounds before it counts as too much
    while high <= 16 or fits(high):
        low, high = (high if fits(high) else low), 2 * high
        if high * max(step.n for step in process.steps) > MOST:
            return MOST
    while high - low > max(1, low // 10_000):
        middle = (low + high) // 2
        low, high = (middle, high) if fits(middle) else (low, middle)
    return low
