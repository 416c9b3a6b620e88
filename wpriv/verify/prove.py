"""Prove or refute what is claimed of the privacy profile of a process, with exact integers and ball arithmetic.

This folder imports the standard library and python-flint only, and shares no code with the accountants. What is proven
is in docs/theory/verifier.md. Only pairs.py, transform_inversion.py, lattice.py, certificate.py and this file have to
be right: choices.py picks tilts, steps and grids in floats, every choice of which gives a valid bound, and no float
enters a bound.

The profile of a composition is delta(x) = E_P (1 - e^(x - L))_+, for both orders of the neighbours.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from fractions import Fraction
from functools import reduce

from flint import arb, ctx

from wpriv.errors import Unsupported
from wpriv.verify.certificate import Claim, Step
from wpriv.verify.lattice import Lattice
from wpriv.verify.pairs import BITS, ZERO, Base, Kind, Unprovable, ball, base_pair
from wpriv.verify.transform_inversion import Inversion


def closed_form(kinds: tuple[Kind, ...], x: arb) -> arb:
    """The profile of one step, or of Gaussian noise without sampling; section "Closed forms"."""
    if all(kind.plain_gauss for kind in kinds):
        mu = sum((kind.n * kind.base.mu**2 for kind in kinds), ZERO).sqrt()
        kinds = (replace(kinds[0], base=Base("gauss", mu), n=1),)
    if len(kinds) > 1 or kinds[0].n > 1:
        raise Unprovable("there is no closed form")
    p, q = kinds[0].above(x)
    inner = sum(((mass * (1 - (x - loss).exp())).max(ZERO) for loss, mass in kinds[0].atoms), ZERO)
    return p - x.exp() * q + inner + kinds[0].lost()


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
        return float((self.delta - self.bound) / self.delta) * (1 if self.upper else -1)


class Job:
    """The steps of a process, whose profile is the larger one of the two orders of the neighbours.

    Raises:
        Unsupported: a step has too many losses for the verifier.
    """

    def __init__(self, steps: Iterable[Step]):
        ctx.prec = BITS
        counts: dict[Step, int] = {}
        for step in steps:
            one = replace(step, n=1)
            counts[one] = counts.get(one, 0) + step.n
        two_orders = any(step.sampling == "poisson" for step in counts)
        try:
            self.orders = [self.kinds(counts, order) for order in ((1, -1) if two_orders else (1,))]
        except Unprovable as error:
            raise Unsupported(f"the verifier has no proof for this process: {error}") from None
        self.inversions: dict[tuple[int, float], Inversion] = {}
        self.lattices: dict[tuple[int, bool, int], Lattice] = {}

    @staticmethod
    def kinds(counts: dict[Step, int], order: int) -> tuple[Kind, ...]:
        signs = {"none": (1,), "poisson": (order,), "fixed": (1, -1)}
        return tuple(
            Kind(base_pair(step.mech, dict(step.parameters)), step.sampling, ball(step.rate), n, signs[step.sampling])
            for step, n in counts.items()
        )

    def inversion(self, i: int, x: arb, smoothing: float, upper: bool) -> arb:
        ctx.prec = BITS + (300 if smoothing else 0)
        if (i, smoothing) not in self.inversions:
            self.inversions[i, smoothing] = Inversion(self.orders[i], x, smoothing)
        return self.inversions[i, smoothing].bound(x, upper)

    def lattice(self, i: int, upper: bool, delta: float, cells: int) -> Lattice:
        if (i, upper, cells) not in self.lattices:
            self.lattices[i, upper, cells] = Lattice(self.orders[i], upper, delta, cells)
        return self.lattices[i, upper, cells]

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

    def prove(self, eps: Fraction, delta: Fraction, upper: bool, thorough: bool = True) -> tuple[str, arb, str]:
        """Prove or refute delta(eps) <= delta (``upper``), or delta(eps) >= delta: verdict, bound and method.

        ``thorough`` adds the finest lattice, and attempts to refute.
        """
        ctx.prec = BITS
        x, near = ball(eps), float(delta)
        methods: list[tuple[str, Callable[[int, bool], arb]]] = [
            ("closed form", lambda i, side: closed_form(self.orders[i], x)),
            ("inversion", lambda i, side: self.inversion(i, x, 0.0, side)),
            ("lattice", lambda i, side: self.lattice(i, side, near, 2 * 10**4).bound(x)),
            ("smoothed inversion", lambda i, side: self.inversion(i, x, 3e-3, side)),
            ("lattice", lambda i, side: self.lattice(i, side, near, 2 * 10**5).bound(x)),
            ("lattice", lambda i, side: self.lattice(i, side, near, 10**6).bound(x)),
        ]
        largest: dict[bool, list[arb]] = {True: [arb.pos_inf()] * len(self.orders), False: [ZERO] * len(self.orders)}
        for name, method in methods if thorough else methods[:-1]:
            for side in (upper, not upper) if thorough else (upper,):
                for i, known in enumerate(largest[side]):
                    if upper and side and known <= ball(delta):
                        continue
                    value = self.attempt(method, i, side)
                    largest[side][i] = known if value is None else known.min(value) if side else known.max(value)
                    above, below = largest_of(largest[True]), largest_of(largest[False])
                    verdict = self.verdict(above, below, ball(delta), upper)
                    if verdict != "not proved":
                        return verdict, above if side else below, name
        above, below = largest_of(largest[True]), largest_of(largest[False])
        return "not proved", above if upper else below, "every method"

    def attempt(self, method: Callable[[int, bool], arb], i: int, side: bool) -> arb | None:
        """A bound on the profile of one order by one method, or None."""
        ctx.prec = BITS
        try:
            value = method(i, side)
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
    ctx.prec = BITS
    return Job(claim.steps).proofs(claim, thorough)
