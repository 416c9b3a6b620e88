"""Prove or refute what is claimed of the privacy profile of a process, with exact integers and ball arithmetic.

This folder imports the standard library and python-flint only, and shares no code with the accountants. What is proven
is in docs/theory/verifier.md. Floats choose tilts, grids and lines, every choice of which gives a valid bound; no float
enters a bound.

The profile of a composition is delta(x) = E_P (1 - e^(x - L))_+, for both orders of the neighbours.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from fractions import Fraction
from functools import reduce

from flint import arb, ctx

from wpriv.errors import Unsupported
from wpriv.verify.certificate import Claim, Step
from wpriv.verify.lattice import FINE_ROOM, Cells, Lattice, cut_into_cells, tilt
from wpriv.verify.pairs import (
    BITS,
    ZERO,
    Pair,
    Unprovable,
    ball,
    base_pair,
    exactly,
    fixed_size,
    gauss,
    poisson,
)
from wpriv.verify.transform_inversion import Inversion, Kind

# cells of the composition and of all its single steps, at every level of the lattice
LEVELS = ((4_000, 1_000), (20_000, 5_000), (100_000, 20_000), (400_000, 60_000), (10**6, 200_000))
MANY = 100  # steps from which the inversion is tried before finer lattices


def step_pair(step: Step, claim: Claim) -> tuple[Pair, int]:
    """The pair of a step, or of a pass, with how often it is composed; section "Sampling"."""
    number, rate = dict(step.parameters), ball(step.rate)
    if step.max_batch:
        from wpriv.verify.more_pairs import truncated_poisson

        return truncated_poisson(step.mech, number, step.rate, step.max_batch, claim.records), step.n
    if claim.group > 1:
        from wpriv.verify.more_pairs import gauss_group, of_records

        if step.sampling == "poisson":
            return gauss_group(ball(number["sensitivity"] / number["sigma"]), rate, claim.group), step.n
        return base_pair(step.mech, of_records(step.mech, number, claim.group)), step.n
    base = base_pair(step.mech, number)
    if step.sampling == "none":
        return base, step.n
    if step.sampling == "allocation":
        from wpriv.verify.allocation import allocated

        return allocated(base, int(1 / step.rate)), int(step.n * step.rate)
    if step.sampling == "fixed":
        return fixed_size(base, rate), step.n
    if claim.adjacency == "replace-one":
        from wpriv.verify.more_pairs import replaced_gauss

        return replaced_gauss(ball(number["sensitivity"] / (2 * number["sigma"])), rate), step.n
    return poisson(base, rate), step.n


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


class Job:
    """The steps of a process, whose profile is the larger one of the two orders of the neighbours.

    Raises:
        Unsupported: a step has too many losses for the verifier.
    """

    def __init__(self, claim: Claim):
        ctx.prec = 2 * BITS
        counts: dict[Step, int] = {}
        for step in claim.steps:
            one = replace(step, n=1) if step.sampling != "allocation" else replace(step, n=int(1 / step.rate))
            counts[one] = counts.get(one, 0) + step.n // one.n
        try:
            pairs = [(step_pair(step, claim)[0], n) for step, n in counts.items()]
        except Unprovable as error:
            raise Unsupported(f"the verifier has no proof for this process: {error}") from None
        noise = [(pair, n) for pair, n in pairs if pair.form and pair.form[0] == "gauss" and pair.form[3] == "none"]
        if len(noise) > 1 or any(n > 1 for _, n in noise):  # Gaussian noise without sampling composes to one release
            one_release = gauss(sum((n * pair.form[1] ** 2 for pair, n in noise if pair.form), ZERO).sqrt())
            pairs = [(one_release, 1), *(row for row in pairs if row not in noise)]
        self.pairs = pairs
        self.orders = (1,) if all(pair.symmetric for pair, _ in pairs) else (1, -1)
        self.cells: dict[tuple[int, float, bool], Cells] = {}
        self.spacings: dict[tuple[int, int], tuple[float, arb]] = {}
        self.lattices: dict[tuple[int, bool, int], Lattice] = {}
        self.inversions: dict[int, Inversion] = {}
        self.tilts: dict[int, tuple[float, float]] = {}
        self.room = 0.0

    def closed_form(self, order: int, x: arb) -> arb:
        """The profile of one step: P(L > x) - e^x Q(L > x); section "Closed forms"."""
        (pair, n), *others = self.pairs
        if others or n > 1 or pair.cells or pair.lower:
            raise Unprovable("there is no closed form")
        p, q = (ZERO, ZERO)
        if pair.tails and order > 0:
            p, q = pair.tails(x)
        elif pair.tails:
            (p, q), whole = pair.tails(-x), pair.tails(None)
            p, q = whole[1] - q, whole[0] - p
        rows = [(order * loss, *((a, b) if order > 0 else (b, a))) for loss, a, b in pair.atoms]
        inner = sum((mass * (1 - (x - loss).exp()).max(ZERO) for loss, mass, _ in rows), ZERO)
        return p - x.exp() * q + inner + (pair.infinite if order > 0 else pair.missing) + pair.cut

    def inversion(self, order: int, x: arb, upper: bool) -> arb:
        if order not in self.inversions:
            kinds = [Kind.of(pair, n, order) for pair, n in self.pairs]
            self.inversions[order] = Inversion(kinds, x)
        return self.inversions[order].bound(x, upper)

    def lattice(self, order: int, upper: bool, x: arb, level: int) -> arb:
        ctx.prec = BITS + int(1.45 * self.room)
        if (order, upper, level) not in self.lattices:
            c, h = self.spacing(order, level, float(x))
            steps = [(self.of_pair(i, h, order, upper), n) for i, (_, n) in enumerate(self.pairs)]
            self.lattices[order, upper, level] = Lattice(steps, c, upper)
        return self.lattices[order, upper, level].bound(x)

    def of_pair(self, i: int, h: arb, order: int, upper: bool) -> Cells:
        pair = self.pairs[i][0]
        key = (i, float(h), upper or not (pair.cells or pair.lower))
        if key not in self.cells:
            self.cells[key] = cut_into_cells(pair, h, self.room, upper)
        return self.cells[key] if order > 0 else self.cells[key].reversed()

    def spacing(self, order: int, level: int, x: float) -> tuple[float, arb]:
        """A tilt and the spacing of the lattice, in floats."""
        if (order, level) in self.spacings:
            return self.spacings[order, level]
        atoms = [[float(loss) for loss, _, _ in pair.atoms] for pair, _ in self.pairs]
        inner = [[*row, *(pair.reach(self.room - FINE_ROOM) if pair.tails else ())]
                 for row, (pair, _) in zip(atoms, self.pairs, strict=True)]  # fmt: skip
        widths = [max(max(row) - min(row), 1e-12) for row in inner]
        if order not in self.tilts:
            points = max(40, 2000 // len(self.pairs))
            rough = [(cut_into_cells(replace(pair, cells=None), arb(width / points), self.room, True), n)
                     for (pair, n), width in zip(self.pairs, widths, strict=True)]  # fmt: skip
            steps = [(cells if order > 0 else cells.reversed(), n) for cells, n in rough]
            self.tilts[order] = tilt(steps, x, math.exp(13 - self.room) * sum(n for _, n in steps))
        c, deviation = self.tilts[order]
        span = min(sum(n * w for w, (_, n) in zip(widths, self.pairs, strict=True)), 20 * deviation + 2 * max(widths))
        cells, edges = LEVELS[level]
        continuous = sum(w for w, (pair, _) in zip(widths, self.pairs, strict=True) if pair.tails)
        h = arb(max(span / cells, continuous / edges))
        pairs = [pair for pair, _ in self.pairs if len(pair.atoms) > 1]
        if len(self.pairs) == 1 and self.pairs[0][0].spacing > 0:
            h = self.pairs[0][0].spacing
        elif pairs:  # two atoms on points of the lattice
            heavy = sorted(pairs[0].atoms, key=lambda row: -float(row[1] + row[2]))
            gap = abs(heavy[0][0] - heavy[1][0])
            h = gap / max(1, math.ceil(float(gap / h)))
        self.spacings[order, level] = (c, h)
        return c, h

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

    def methods(self, x: arb, thorough: bool) -> list[tuple[str, Callable[[int, bool], arb]]]:
        """The methods in the order in which they are tried: a bound for an order of the neighbours and a side."""

        def lattice(level: int) -> Callable[[int, bool], arb]:
            return lambda order, side: self.lattice(order, side, x, level)

        rows: list[tuple[str, Callable[[int, bool], arb]]]
        rows = [("lattice", lattice(level)) for level in range(len(LEVELS) if thorough else len(LEVELS) - 1)]
        late = 1 if len(self.pairs) <= 10 else 2
        place = late if sum(n for _, n in self.pairs) > MANY else 4
        rows.insert(place, ("inversion", lambda order, side: self.inversion(order, x, side)))
        return [("closed form", lambda order, side: self.closed_form(order, x)), *rows]

    def prove(self, eps: Fraction, delta: Fraction, upper: bool, thorough: bool = True) -> tuple[str, arb, str]:
        """Prove or refute delta(eps) <= delta (``upper``), or delta(eps) >= delta: verdict, bound and method.

        ``thorough`` adds the finest lattice, and attempts to refute.
        """
        ctx.prec = BITS
        x, goal = ball(eps), ball(delta)
        if not self.room:
            self.room = 22 + math.log(sum(n for _, n in self.pairs)) - math.log(delta)
        largest = {True: [arb.pos_inf() for _ in self.orders], False: [ZERO for _ in self.orders]}
        for name, method in self.methods(x, thorough):
            for side in (upper, not upper) if thorough else (upper,):
                for i, known in enumerate(largest[side]):
                    if upper and side and known <= goal:
                        continue
                    value = self.attempt(method, self.orders[i], side)
                    largest[side][i] = known if value is None else known.min(value) if side else known.max(value)
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


def verify(claim: Claim, thorough: bool = True) -> list[Proof]:
    """Prove or refute the ends of a claim; section "Claims"."""
    return Job(claim).proofs(claim, thorough)
