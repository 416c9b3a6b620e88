"""The privacy loss of one step in ball arithmetic: base pairs, and what sampling makes of them.

P and Q are the outputs with and without the record, and L = ln dP/dQ is the privacy loss under P. A base pair (A, B) is
that of one release without sampling, T = dA/dB, U = ln T, and r = 1 - q + q T is the ratio after sampling at rate q.
The docstrings name the sections of docs/theory/verifier.md.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property
from typing import Any

from flint import arb, fmpq

Pair = tuple[arb, arb]
ZERO, ONE = arb(0), arb(1)
BITS = 200  # precision of the balls
MAX_ATOMS = 5000


class Unprovable(Exception):
    """A method does not apply to a job, or would take too long."""


@dataclass(frozen=True)
class Base:
    """A base pair: atoms (T, B-mass), A-mass where B has none, and on x a density under B with U = slope x + shift."""

    name: str
    mu: arb = ZERO  # sensitivity over noise, of gauss and laplace
    atoms: tuple[Pair, ...] = ()
    infinite: arb = ZERO
    cut: arb = ZERO  # a ball that holds the P-mass left out
    gap: arb = ZERO  # spacing of the losses of atoms

    @property
    def continuous(self) -> bool:
        return self.name in ("gauss", "laplace")

    @property
    def line(self) -> Pair:
        """Slope and shift of U as a function of x."""
        return (self.mu, -self.mu * self.mu / 2) if self.name == "gauss" else (2 * self.mu, -self.mu)

    def density(self, x: Any) -> Any:
        """Density of x under B: standard normal on the line, or half of an exponential on (0, 1)."""
        if self.name == "gauss":
            return (-x * x / 2).exp() / (2 * arb.pi()).sqrt()
        return self.mu / 2 * (-self.mu * x).exp()

    def above(self, u: arb | None) -> Pair:
        """The A-mass and the B-mass of the continuous part at U > u, or of all of it."""
        if not self.continuous:
            return ZERO, ZERO
        x = arb.neg_inf() if u is None else (u - self.line[1]) / self.line[0]
        if self.name == "gauss":
            return (ONE, ONE) if u is None else (normal_tail(x - self.mu), normal_tail(x))
        x = x.max(ZERO).min(ONE)
        return (1 - (-self.mu * (1 - x)).exp()) / 2, ((-self.mu * x).exp() - (-self.mu).exp()) / 2


def base_pair(mech: str, number: dict[str, Fraction]) -> Base:
    """The pair of a mechanism; section "Base pairs"."""
    if mech in ("gauss", "laplace"):
        mu = ball(number["sensitivity"] / number["sigma" if mech == "gauss" else "scale"])
        ends = ((mu.exp(), (-mu).exp() / 2), ((-mu).exp(), ONE / 2)) if mech == "laplace" else ()
        return Base(mech, mu, ends, gap=2 * mu if ends else ZERO)
    if mech == "randomized-response":
        odds, keep = ball(number["eps0"]).exp(), 1 - ball(number["delta0"])
        atoms = ((odds, keep / (1 + odds)), (1 / odds, keep * odds / (1 + odds)), (ZERO, 1 - keep))
        return Base(mech, ZERO, atoms[: 3 if number["delta0"] else 2], 1 - keep, gap=2 * ball(number["eps0"]))
    shift, noise = int(number["sensitivity"]), ball(number["sigma" if mech == "discrete-gauss" else "scale"])
    reach = shift + (0 if mech == "discrete-laplace" else int(float(noise) * math.sqrt(2 * math.log(2) * BITS)) + 2)
    if reach > MAX_ATOMS:
        raise Unprovable(f"{mech} has more than {MAX_ATOMS} losses here")
    if mech == "discrete-laplace":
        odds = (-1 / noise).exp()
        rows = [((shift / noise).exp(), odds**shift / (1 + odds)), ((-shift / noise).exp(), 1 / (1 + odds))]
        rows += [(((2 * k - shift) / noise).exp(), (1 - odds) / (1 + odds) * odds**k) for k in range(1, shift)]
        return Base(mech, ZERO, tuple(rows), gap=2 / noise)
    rate, gap = -1 / (2 * noise * noise), shift / (noise * noise)
    beyond = [2 * (rate * k * k).exp() / (1 - (rate * k).exp()) for k in (reach, reach - shift)]
    norm = sum(((rate * k * k).exp() for k in range(1 - reach, reach)), ZERO) + ZERO.union(beyond[0])
    kept = range(1 - reach + shift, reach)  # the outcomes within reach of both centres
    rows = [(((k - arb(shift) / 2) * gap).exp(), (rate * k * k).exp() / norm) for k in kept]
    return Base(mech, ZERO, tuple(rows), cut=ZERO.union(2 * beyond[1]), gap=gap)


@dataclass(frozen=True)
class Kind:
    """``n`` steps of one base pair and sampling; a part of sign +1 has P-mass B r, of sign -1 B, and loss sign ln r."""

    base: Base
    sampling: str
    q: arb
    n: int
    signs: tuple[int, ...]

    @property
    def plain_gauss(self) -> bool:
        return self.base.name == "gauss" and self.sampling == "none"

    @property
    def continuous_signs(self) -> tuple[int, ...]:
        return self.signs if self.base.continuous else ()

    @property
    def start(self) -> arb | None:
        """The parts of a fixed-size pair have outcomes with U > 0 only; section "Sampling"."""
        return ZERO if self.sampling == "fixed" else None

    def lost(self) -> arb:
        """The P-mass of an infinite loss, with what was cut off."""
        return (self.q * self.base.infinite if 1 in self.signs else ZERO) + self.base.cut

    def ratio(self, x: Any) -> Any:
        """The ratio r at x; 1 - q is exactly 0 without sampling."""
        slope, shift = self.base.line
        return 1 - self.q + self.q * (slope * x + shift).exp()

    @cached_property
    def atoms(self) -> list[Pair]:
        """The losses of atoms with their P-masses."""
        rows = []
        for sign in self.signs:
            for t, mass in self.base.atoms:
                if (self.sampling != "none" or t != 0) and (self.sampling != "fixed" or t > 1):
                    r = 1 - self.q + self.q * t
                    rows.append((sign * r.log(), mass * r if sign > 0 else mass))
        if self.sampling == "fixed":  # what is left of the mass has loss 0
            a, b = self.base.above(ZERO)
            rest = 1 - self.lost() - sum((mass for _, mass in rows), ZERO)
            rows.append((ZERO, rest - (2 - self.q) * b - self.q * a))
        return rows

    def above(self, loss: arb | None) -> Pair:
        """P- and Q-mass of the continuous part at losses above ``loss``, or of all of it."""
        total = (ZERO, ZERO)
        for sign in self.continuous_signs:
            a, b = whole = self.base.above(self.start)
            if loss is not None:
                t = (sign * loss).exp() if self.sampling == "none" else ((sign * loss).exp() - 1 + self.q) / self.q
                if not (t > 0 or t < 0):
                    raise Unprovable("a point of the lattice meets the least loss")
                u = None if t < 0 else t.log() if self.start is None else t.log().max(ZERO)  # the loss is met at U = u
                a, b = whole if u is None else self.base.above(u)
                a, b = (a, b) if sign > 0 else (whole[0] - a, whole[1] - b)
            p, q = ((1 - self.q) * b + self.q * a, b)[::sign]
            total = (total[0] + p, total[1] + q)
        return total


def normal_tail(x: arb) -> arb:
    return (x / arb(2).sqrt()).erfc() / 2


def ball(value: Fraction) -> arb:
    return arb(fmpq(value.numerator, value.denominator))


def around(radius: arb) -> arb:
    """The ball of all numbers from minus ``radius`` to ``radius``."""
    return (-radius.abs_upper()).union(radius.abs_upper())


def product(kinds: Iterable[Kind], values: Iterable[Any]) -> Any:
    return math.prod(value**kind.n for kind, value in zip(kinds, values, strict=True))
