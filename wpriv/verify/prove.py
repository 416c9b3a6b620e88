"""Prove or refute what is claimed of the privacy profile of a process, with exact integers and ball arithmetic.

This folder imports the standard library and python-flint only, and shares no code with the accountants. What is proven
is in docs/theory/verifier.md. Floats choose grids and lines, every choice of which gives a valid bound; no float enters
a bound.

The profile of a composition is delta(x) = E_P (1 - e^(x - L))_+, for both orders of the neighbours.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from decimal import ROUND_CEILING, ROUND_FLOOR, Context, Decimal
from fractions import Fraction
from functools import reduce

from flint import arb, ctx

from wpriv.errors import Unsupported
from wpriv.verify import pairs
from wpriv.verify.allocation import allocation
from wpriv.verify.certificate import Claim, Step
from wpriv.verify.lattice import LEVELS, Lattice
from wpriv.verify.pairs import BITS, ONE, ZERO, Pair, Unprovable, ball
from wpriv.verify.transform_inversion import Inversion, Kind

Steps = list[tuple[Pair, int]]
Method = Callable[[int, bool], arb]
INVERSION_BITS = 200


def step_pair(step: Step, claim: Claim, upper: bool) -> Pair:
    """A pair that dominates a step, or the one that bounds it from below; sections "Sampling" and "Further pairs"."""
    number, rate, group = dict(step.parameters), ball(step.rate), claim.group
    base = pairs.base_pair(step.mech, number, group, claim.bits)
    if step.sampling == "none":
        return base
    if step.sampling == "fixed":
        # from below by two data sets whose other records are alike
        return pairs.fixed_size(base, rate) if upper else pairs.poisson(base, rate)
    if step.sampling == "allocation":
        return allocation(base, step.rate.denominator, upper, claim.negligible)
    if step.max_batch:
        two = pairs.base_pair(step.mech, number, 2, claim.bits)
        return pairs.largest_batch(base, two, step.rate, step.max_batch, claim.records, upper)
    if claim.adjacency == "replace-one":
        return pairs.replaced_gauss(ball(number["sensitivity"] / (2 * number["sigma"])), rate)
    if group > 1:
        return pairs.gauss_group(ball(number["sensitivity"] / number["sigma"]), rate, group)
    return pairs.poisson(base, rate)


def composed(claim: Claim, upper: bool) -> Steps:
    """The pairs of a process, each with how often it is composed; Gaussian noise without sampling is one release."""
    counts: dict[Step, int] = {}
    for step in claim.steps:
        one = replace(step, n=1)
        counts[one] = counts.get(one, 0) + step.n
    steps, square = [], ZERO
    for step, n in counts.items():
        if (step.mech, step.sampling) == ("gauss", "none"):
            number = dict(step.parameters)
            square += n * ball(claim.group * number["sensitivity"] / number["sigma"]) ** 2
        else:
            steps.append((step_pair(step, claim, upper), n))
    return [(pairs.gauss(square.sqrt()), 1), *steps] if square > 0 else steps


def closed_form(steps: Steps, x: arb) -> arb:
    """The profile of one step: P(L > x) - e^x Q(L > x); section "Closed forms"."""
    (pair, n), *others = steps
    if others or n > 1:
        raise Unprovable("there is no closed form")
    p, q = pair.tails(x) if pair.tails else (ZERO, ZERO)
    inner = sum((mass * (1 - (x - loss).exp()).max(ZERO) for loss, mass, _ in pair.atoms), ZERO)
    return p - x.exp() * q + inner + pair.infinite + pair.cut


def beyond_losses(steps: Steps, x: arb, certain: bool) -> arb:
    """The profile where no finite loss exceeds x (``certain``: exactly known); section "Largest losses"."""
    if not certain and not sum((n * pair.ends[1] for pair, n in steps), ZERO) <= x:
        raise Unprovable("a finite loss may exceed this eps")
    finite = reduce(lambda mass, step: mass * (1 - step[0].infinite - step[0].cut) ** step[1], steps, ONE)
    return (1 - finite).max(ZERO)


def largest_losses(claim: Claim) -> Fraction | None:
    """The sum of the largest finite losses of all steps, where these are rational numbers."""
    total = Fraction(0)
    for step in claim.steps:
        top = pairs.largest_loss(step.mech, dict(step.parameters), claim.group) if step.sampling == "none" else None
        if top is None:
            return None
        total += step.n * top
    return total


def orders(claim: Claim) -> list[dict[bool, Steps]]:
    """The steps of both orders of the neighbours, or of one where they are alike: those from above and from below."""
    above = below = composed(claim, True)
    if any(step.sampling in ("allocation", "fixed") or step.max_batch for step in claim.steps):
        below = composed(claim, False)
    rows = [{True: above, False: below}]
    if not all(pair.symmetric for pair, _ in (*above, *below)):
        is_one = all(pair.symmetric for pair, _ in above)
        turned = above if is_one else [(pair.reversed(), n) for pair, n in above]
        other = turned if below is above else [(pair.reversed(), n) for pair, n in below]
        rows.append({True: turned, False: other})
    return rows


@dataclass(frozen=True)
class Proof:
    """The verdict on the claim delta(eps) <= delta (``upper``) or delta(eps) >= delta, with the bound that was proven.

    Args:
        name: the key of the end that is claimed. verdict: proved, refuted or not proved.
        bound: on delta(eps), from the side that decided; None where there was nothing to prove.
    """

    name: str
    upper: bool
    eps: Fraction
    delta: Fraction
    verdict: str
    bound: Fraction | None
    method: str

    @property
    def margin(self) -> float | None:
        """How far the bound is from the claim, as a share of delta; negative on the wrong side."""
        if self.bound is None or self.delta == 0:
            return None
        share = (self.delta - self.bound) / self.delta * (1 if self.upper else -1)
        return float(share) if share > -(10**300) else -math.inf

    def rounded(self) -> tuple[str, str | None]:
        """Return the side on which the bound on delta holds, and the bound with 12 digits, rounded to that side."""
        above = self.upper == (self.verdict != "refuted")
        side = "at most" if above else "at least"
        if self.bound is None:
            return side, None
        context = Context(prec=12, rounding=ROUND_CEILING if above else ROUND_FLOOR)
        return side, f"{context.divide(Decimal(self.bound.numerator), Decimal(self.bound.denominator)):g}"


class Job:
    """The steps of a process and the larger profile of both orders; Unsupported if a step has too many losses."""

    def __init__(self, claim: Claim):
        ctx.prec = BITS
        try:
            self.orders = orders(claim)
        except Unprovable as error:
            raise Unsupported(f"the verifier has no proof for this process: {error}") from None
        self.largest = largest_losses(claim)
        self.results: dict[tuple[object, ...], Lattice | Inversion | None] = {}

    def computed(self, key: tuple[object, ...], compute: Callable[[], Lattice | Inversion]) -> Lattice | Inversion:
        """Return the value that is stored under this key; if there is none, compute and store it."""
        if key not in self.results:
            self.results[key] = None
            self.results[key] = compute()
        result = self.results[key]
        if result is None:
            raise Unprovable("this failed before")
        return result

    def inversion(self, order: int, upper: bool, x: arb, delta: float) -> arb:
        ctx.prec = INVERSION_BITS
        steps = self.orders[order][upper]
        small = math.exp(-25) * delta / sum(n for _, n in steps)
        kinds = [Kind.of(*step, small) for step in steps]
        return self.computed((id(steps),), lambda: Inversion(kinds, x, delta)).bound(x, upper)

    def lattice(self, order: int, upper: bool, x: arb, delta: float, level: int) -> arb:
        steps = self.orders[order][upper]
        return self.computed((id(steps), upper, level), lambda: Lattice(steps, upper, delta, level)).bound(x, upper)

    def proofs(self, claim: Claim, thorough: bool = True) -> list[Proof]:
        """Prove or refute both ends of a claim about this process, the upper one first."""
        rows = []
        for upper, side in ((True, "upper"), (False, "lower")):
            name = f"epsilon_{side}" if claim.asked == "eps" else f"delta_{side}"
            eps, delta = claim.ends[f"epsilon_{side}"], claim.ends[f"delta_{side}"]
            assert delta is not None
            empty = (eps is None or delta >= 1) if upper else (delta == 0 or (claim.asked == "eps" and eps == 0))
            if eps is None or empty:
                rows.append(Proof(name, upper, eps or Fraction(0), delta, "proved", None, "nothing to prove"))
                continue
            verdict, bound, method = self.prove(eps, delta, upper, thorough)
            exact = None if bound is None or not bound.is_finite() else exactly(bound)
            rows.append(Proof(name, upper, eps, delta, verdict, exact, method))
        return rows

    def methods(self, eps: Fraction, delta: float, thorough: bool) -> list[tuple[str, Method]]:
        """The methods in the order in which they are tried: a bound for an order of the neighbours and a side."""
        x, certain = ball(eps), self.largest is not None and self.largest <= eps

        def lattice(level: int) -> Method:
            return lambda order, side: self.lattice(order, side, x, delta, level)

        levels = [("lattice", lattice(level)) for level in range(len(LEVELS) - (0 if thorough else 1))]
        return [
            ("largest losses", lambda order, side: beyond_losses(self.orders[order][side], x, certain)),
            ("closed form", lambda order, side: closed_form(self.orders[order][side], x)),
            levels[0],
            ("inversion", lambda order, side: self.inversion(order, side, x, delta)),
            *levels[1:],
        ]

    def prove(self, eps: Fraction, delta: Fraction, upper: bool, thorough: bool = True) -> tuple[str, arb, str]:
        """Prove or refute delta(eps) <= delta (``upper``), or delta(eps) >= delta: verdict, bound and method.

        ``thorough`` adds the finest lattice, and attempts to refute.
        """
        ctx.prec = BITS
        goal, count = ball(delta), len(self.orders)
        largest = {True: [arb.pos_inf()] * count, False: [ZERO] * count}
        for name, method in self.methods(eps, float(delta), thorough):
            for side in (upper, not upper) if thorough else (upper,):
                most = largest_of(largest[False])
                for order, known in enumerate(largest[side]):
                    # of the other order there is nothing left to prove, or it is far from being the larger one
                    if (upper and known <= goal) if side else 1000 * known < most:
                        continue
                    value = self.attempt(method, order, side)
                    largest[side][order] = known if value is None else known.min(value) if side else known.max(value)
                    above, below = largest_of(largest[True]), largest_of(largest[False])
                    verdict = self.verdict(above, below, goal, upper)
                    if verdict != "not proved":
                        return verdict, above if side else below, name
        above, below = largest_of(largest[True]), largest_of(largest[False])
        return "not proved", above if upper else below, "every method"

    def attempt(self, method: Callable[[int, bool], arb], order: int, side: bool) -> arb | None:
        """A bound on the profile of one order by one method, or None."""
        ctx.prec = BITS
        try:
            value = method(order, side)
        except (Unprovable, OverflowError, ValueError, ZeroDivisionError):
            return None
        value = value.upper() if side else value.lower()
        return None if value.is_nan() else value

    @staticmethod
    def verdict(above: arb, below: arb, delta: arb, upper: bool) -> str:
        proved, refuted = (above <= delta, below > delta) if upper else (below > delta, above < delta)
        return "proved" if proved else "refuted" if refuted else "not proved"


def largest_of(values: list[arb]) -> arb:
    """The largest of several balls, compared exactly."""
    return reduce(arb.max, values)


def exactly(value: arb) -> Fraction:
    """The midpoint of a ball, exactly."""
    mantissa, exponent = value.mid().man_exp()
    return Fraction(int(mantissa)) * Fraction(2) ** int(exponent)


def verify(claim: Claim, thorough: bool = True) -> list[Proof]:
    """Prove or refute the ends of a claim; section "Claims"."""
    return Job(claim).proofs(claim, thorough)
