"""Filters: from the limit and the rule alone, the accounts in which releases are added up, fixed before the first.

A filter decides before a release begins whether it may, whatever earlier outputs led to it. Its accounts are whole
numbers of 1e-15 of their size, and charges are rounded up, so that sums are exact in any order. The proofs are in
docs/theory/ledger.md, by the names T2 to T8.

- ``residue`` (T5): a Gaussian budget T and a part A of delta. A release costs what it takes of T while a floor of T
  remains, and of A what heavy tails and infinite losses need.
- ``rdp`` (T2): the Renyi divergence at one order, which the limit fixes. ``gauss`` (T3): the sum of mu^2 of plain
  Gaussian noise. ``basic`` (T8): the sums of eps and of delta. ``union`` (T4): ``rdp`` and ``residue`` with half of
  delta each, of which one has to hold.
"""

from __future__ import annotations

import math
from dataclasses import asdict, dataclass
from fractions import Fraction
from typing import Any

from wpriv.accounting import evaluate
from wpriv.accounting.mechanisms.gauss import Gauss
from wpriv.core import registry
from wpriv.core.process import Process, Step
from wpriv.errors import UnknownName, Unsupported, UsageError
from wpriv.numerics.conversions import exact, rdp_to_epsilon
from wpriv.numerics.numbers import decimal, number, short, text
from wpriv.numerics.root_finding import smallest_meeting

UNITS = 10**15
"""The size of every account in its own units."""
TOO_MUCH = UNITS + 1
"""The charge of a release that no account of its kind can hold."""
RULES = ("residue", "rdp", "gauss", "basic", "union")
# A, and what all of T may take of it by kappa, as shares of delta: by default, and where A is given
LEAK_SHARE, KAPPA_SHARE, GIVEN_KAPPA_SHARE = 0.02, 0.005, 0.02
# ends of eps, rho and mu of a limit, and of delta; and the largest eps and mu^2 for which profiles of Gaussian noise
# are known to rounding at every loss that matters
LIMITS, LEAST_DELTA, MAX_EPS = (1e-9, 1e9), 1e-100, 100.0
# relative width of delta of a declared plan
PLAN_TOL = 1e-4
# floors of the remainder of T, as whole numbers of units: T/2 to T/64, and none
FLOORS = (*(UNITS >> k for k in range(1, 7)), 0)
NO_FLOOR = (0,)
PLD_IS_FALSE = (
    "pld is no rule for releases that are chosen from earlier outputs: at (1, 0.01) an analyst who begins with a "
    "randomised response of eps 1 that is asked with probability .05, and goes on according to its answer, reaches "
    "1.81 delta in two releases, although the composed loss of every list that it admits keeps the limit "
    "(docs/theory/ledger.md). Use rule residue"
)


@dataclass(frozen=True)
class Limit:
    """What is promised of everything released in a scope: (eps, delta)-DP, rho-zCDP or mu-GDP; the others are None.

    Raises:
        UsageError: none or several of the three, eps or delta alone, or a value out of range.
    """

    eps: float | None = None
    delta: float | None = None
    rho: float | None = None
    mu: float | None = None

    def __post_init__(self) -> None:
        given = {name: value for name, value in vars(self).items() if value is not None}
        for name, value in given.items():
            object.__setattr__(self, name, number(value, f"`{name}`"))
        if given.keys() not in ({"eps", "delta"}, {"rho"}, {"mu"}):
            names = " and ".join(f"`{name}`" for name in given) or "nothing"
            raise UsageError(f"a limit is `eps` with `delta`, or `rho`, or `mu`; found {names}")
        for name, value in given.items():
            low, high = (LEAST_DELTA, 1.0) if name == "delta" else LIMITS
            if not (low <= number(value, name) < high or (name == "delta" and value == 0)):
                zero = "0, or " if name == "delta" else ""
                raise UsageError(
                    f"`{name}` of a limit is {zero}from {short(low)} to below {short(high)}; found {short(value)}"
                )

    def __str__(self) -> str:
        if self.eps is not None and self.delta is not None:
            return f"({short(self.eps)}, {short(self.delta)})-DP"
        return f"{short(self.rho)}-zCDP" if self.rho is not None else f"{short(self.mu or 0.0)}-GDP"

    def as_dict(self) -> dict[str, float]:
        return {name: value for name, value in vars(self).items() if value is not None}


@dataclass(frozen=True)
class Filter:
    """One filter of a limit, and the sizes of its accounts.

    Args:
        kind: what a release is charged by: residue, rdp, gauss, basic or rho.
        accounts: the names of the accounts with their sizes, such as T and A.
        kappa: the charge to A for each unit of charge to T (residue). order: of the Renyi divergences (rdp).
    """

    kind: str
    accounts: tuple[tuple[str, float], ...]
    kappa: float = 0.0
    order: float = 0.0

    @property
    def floors(self) -> tuple[int, ...]:
        """The remainders of T at which charges are known, from the highest, in units."""
        return FLOORS if self.kind == "residue" and self.kappa > 0 else NO_FLOOR

    def units(self, charges: tuple[Fraction, ...]) -> tuple[int, ...]:
        """Charges in units of their accounts, rounded up; ``TOO_MUCH`` for what exceeds the account."""
        return tuple(_units(charge, decimal(size)) for charge, (_, size) in zip(charges, self.accounts, strict=True))

    def floor(self, tier: int) -> float:
        """The floor of a tier in powers of nats, as T is."""
        return self.accounts[0][1] * (self.floors[tier] / UNITS)


def _units(charge: Fraction, size: Fraction) -> int:
    if charge == 0:
        return 0
    return TOO_MUCH if charge > size else math.ceil(charge * UNITS / size)


def of_limit(
    limit: Limit, rule: str, kappa: float | None = None, leaks: float | None = None, plan: Process | None = None
) -> tuple[Filter, ...]:
    """The filters of a limit under a rule: one has to hold on every path, and each suffices.

    Args:
        kappa: of T5; .005 delta / T by default, .02 delta / T where ``leaks`` is given. leaks: A, the part of delta for
            infinite losses and heavy tails; .02 delta by default under residue and union, 0 elsewhere.
        plan: releases declared before the first one, for which T is lowered (T6); of other rules they are charged as
            any others.
    Raises:
        UsageError: an unknown rule, ``pld``, or values out of range. Unsupported: the rule has no filter for the limit.
    """
    if rule not in RULES:
        if rule in ("pld", "fdp", "f-dp"):
            raise UsageError(PLD_IS_FALSE)
        raise UnknownName("rule", rule, list(RULES))
    if limit.rho is not None:
        return (Filter("rho", (("rho", limit.rho),)),)
    if limit.mu is not None:
        if limit.mu**2 > MAX_EPS:
            raise Unsupported(f"a limit in mu is kept up to {MAX_EPS**0.5:g}; found {short(limit.mu)}")
        return (Filter("residue", (("T", float(decimal(limit.mu) ** 2)), ("A", 0.0))),)
    assert limit.eps is not None
    assert limit.delta is not None
    if rule == "basic":
        return (Filter("basic", (("eps", limit.eps), ("delta", limit.delta))),)
    if limit.delta == 0:
        raise Unsupported(f"rule {rule} needs a limit with delta above 0; found (eps, 0). Use rule basic")
    if rule != "rdp" and limit.eps > MAX_EPS:
        raise Unsupported(
            f"rule {rule} is kept up to eps = {MAX_EPS:g}; found {short(limit.eps)}. Use rule rdp or basic"
        )
    if rule == "union":
        half, part = Limit(limit.eps, limit.delta / 2), None if leaks is None else leaks / 2
        share = LEAK_SHARE * limit.delta / 2 if part is None else part
        return (_renyi(half, share), _residue(half, kappa, part, plan))
    if rule == "rdp":
        return (_renyi(limit, leaks or 0.0),)
    if rule == "gauss":
        return (Filter("gauss", (("T", gaussian_budget(limit.eps, limit.delta, plan)),)),)
    return (_residue(limit, kappa, leaks, plan),)


def caps(limit: Limit, of: Limit, kept: tuple[Filter, ...], plan: Process | None = None) -> tuple[tuple[int, ...], ...]:
    """What a lower limit leaves of the accounts of a limit's filters, in units, rounded down.

    It only ends spending earlier: the promise is that of the filters. A falls in proportion to delta.

    Args:
        limit: the lower one. of: the limit of the filters ``kept``, with its declared plan.
    Raises:
        UsageError: the limits are of different kinds, or ``limit`` is not the lower one. Unsupported: it is below what
            the declared plan takes.
    """
    lower, upper = limit.as_dict(), of.as_dict()
    if lower.keys() != upper.keys() or any(value > upper[name] for name, value in lower.items()):
        raise UsageError(f"a limit that was promised as {of} may be at most that; found {limit}")
    return tuple(_caps(limit, of, by, len(kept), plan) for by in kept)


def _caps(limit: Limit, of: Limit, by: Filter, several: int, plan: Process | None) -> tuple[int, ...]:
    sizes = dict(by.accounts)
    if limit.rho is not None:
        kept = {"rho": limit.rho}
    elif limit.mu is not None:
        kept = {"T": float(decimal(limit.mu) ** 2), "A": sizes["A"]}
    else:
        eps, delta, whole = limit.eps or 0.0, (limit.delta or 0.0) / several, (of.delta or 0.0) / several
        leaks = sizes["A"] * delta / whole if "A" in sizes else 0.0
        if delta == 0 and by.kind != "basic":
            raise UsageError(f"a limit that was promised as {of} needs a delta above 0; found {limit}")
        kept = {"A": leaks, "eps": eps, "delta": delta}
        if "T" in sizes:
            kept["T"] = gaussian_budget(eps, delta - leaks, plan)
        if "B" in sizes:
            # as much Gaussian noise as the lower limit admits at an order of its own
            lower = _renyi(Limit(eps, delta), leaks)
            kept["B"] = lower.accounts[0][1] / lower.order * by.order
    shares = [decimal(kept[name]) / decimal(size) if size else Fraction(1) for name, size in by.accounts]
    return tuple(min(math.floor(share * UNITS), UNITS) for share in shares)


def _renyi(limit: Limit, leaks: float) -> Filter:
    eps, delta = _rest(limit, leaks)
    order = float(registry.load("accountants", "rdp-filter").limit_order(eps, delta))
    return Filter("rdp", (("B", renyi_budget(eps, delta, order)), ("A", leaks)), order=order)


def _residue(limit: Limit, kappa: float | None, given: float | None, plan: Process | None) -> Filter:
    delta = limit.delta or 0.0
    leaks, share = (LEAK_SHARE * delta, KAPPA_SHARE) if given is None else (given, GIVEN_KAPPA_SHARE)
    eps, rest = _rest(limit, leaks)
    budget = gaussian_budget(eps, rest, plan)
    slope = (share * delta / budget if leaks > 0 else 0.0) if kappa is None else kappa
    if slope < 0 or (slope > 0 and leaks == 0):
        raise UsageError(f"`kappa` is paid from `leaks`: at least 0, and 0 where `leaks` is 0; found {short(slope)}")
    return Filter("residue", (("T", budget), ("A", leaks)), kappa=slope)


def _rest(limit: Limit, leaks: float) -> tuple[float, float]:
    assert limit.eps is not None
    assert limit.delta is not None
    if not 0 <= leaks < limit.delta:
        raise UsageError(f"`leaks` is a part of delta, from 0 to below {short(limit.delta)}; found {short(leaks)}")
    return limit.eps, limit.delta - leaks


def renyi_budget(eps: float, delta: float, order: float) -> float:
    """B of T2: the largest divergence at an order that keeps (eps, delta), rounded down."""
    import numpy as np

    # eps at delta is (lam B - ln delta + constant) / lam, which is 0 at B = 0 for -B
    lam = order - 1
    budget = eps - float(rdp_to_epsilon(np.array([lam]), np.zeros(1), math.log(delta))[0])
    if not budget > 0:
        raise Unsupported(f"rule rdp admits nothing at eps = {short(eps)} and delta = {short(delta)}")
    return budget - 1e-12 * (eps + budget)


def gaussian_budget(eps: float, delta: float, plan: Process | None = None) -> float:
    """T: the largest mu^2 of Gaussian noise that keeps (eps, delta) after a declared plan (T6), rounded down.

    Raises:
        Unsupported: the plan alone exceeds (eps, delta), or may.
    """
    whole: float = exact(eps, delta) ** -2 * (1 - 1e-12)
    if plan is None:
        return whole

    def ends(t: float, tol: float) -> tuple[float, float]:
        """Both ends of delta of the plan beside Gaussian noise of mu^2 = t."""
        steps = (*plan.steps, Step(Gauss(sigma=t**-0.5))) if t > 0 else plan.steps
        bracket = evaluate.curve(plan.with_steps(steps), "pld", tol).delta_bracket(eps)
        return bracket.lower or 0.0, bracket.safe

    for tol in (PLAN_TOL, PLAN_TOL / 100):  # a wide bracket is no refusal
        least, most = ends(0.0, tol)
        if not least <= delta < most:
            break
    if most > delta:
        state = "exceeds the limit" if least > delta else "is not shown to keep the limit: open"
        raise Unsupported(
            f"the declared plan {state}: at eps = {short(eps)} its delta is up to {text(most, up=True)}, and "
            f"{short(delta)} is left for it. Declare fewer steps, or more noise"
        )

    def lost(guess: float, tol: float, width: float) -> float:
        """The least part of ``whole`` that the plan takes, from above."""

        def excess(part: float) -> float:
            return math.log(max(ends(whole - part, tol)[1], 1e-300) / delta)

        return smallest_meeting(excess, guess, high=whole, rtol=width)

    about = lost(whole / 2, 1e-2, 1e-2)
    # where little is left, it is the difference of two like numbers
    tol = max(PLAN_TOL * min(20 * (1 - about / whole), 1.0), 1e-6)
    return whole - lost(about, tol, 1e-6)


def describe(filters: tuple[Filter, ...]) -> list[dict[str, Any]]:
    """Filters as plain data, which a ledger stores and from which its digest is made."""
    return list(map(asdict, filters))


def of_description(rows: list[dict[str, Any]]) -> tuple[Filter, ...]:
    """The filters that ``describe`` describes as ``rows``."""
    return tuple(Filter(**{**row, "accounts": tuple(map(tuple, row["accounts"]))}) for row in rows)
