"""The pair of distributions of one step, in ball arithmetic: base pairs, and what sampling makes of them.

P and Q are the distributions of the output with and without the record; L = ln dP/dQ is the privacy loss. A base pair
is that of one release without sampling. The docstrings name the sections of docs/theory/verifier.md.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

from flint import arb, fmpq

ZERO, ONE = arb(0), arb(1)
BITS = 200  # least precision of the balls
MAX_ATOMS = 5000
Masses = tuple[arb, arb]  # under P and under Q
Tails = Callable[[arb | None], Masses]


class Unprovable(Exception):
    """A method does not apply to a process, or would take too long."""


@dataclass(frozen=True, eq=False)
class Pair:
    """Atoms, masses at infinite losses, and a continuous part that is given by its tails.

    Args:
        atoms: (loss, P-mass, Q-mass). infinite: P-mass where Q has none. missing: Q-mass where P has none.
        cut: a ball that holds the P-mass, and the Q-mass, that is left out of the above.
        tails: P- and Q-mass of the continuous part with a loss above a number, or in all (None).
        reach: maps ``room`` to floats between which all losses lie, but for P- and Q-masses of about e^-room.
        spacing: 0, or the spacing of a lattice on which all losses lie.
        symmetric: -L under Q has the distribution of L under P.
        form: mechanism, mu, rate and sampling of a continuous part that the inversion can use.
    """

    atoms: tuple[tuple[arb, arb, arb], ...] = ()
    infinite: arb = ZERO
    missing: arb = ZERO
    cut: arb = ZERO
    tails: Tails | None = None
    reach: Callable[[float], tuple[float, float]] = lambda room: (0.0, 0.0)
    spacing: arb = ZERO
    symmetric: bool = True
    form: tuple[str, arb, arb, str] | None = None
    lower: Pair | None = None  # the pair for lower bounds, where that is another one
    cells: Callable[[arb, float, bool], Any] | None = None  # cells that are computed in another way


def base_pair(mech: str, number: dict[str, Fraction]) -> Pair:
    """The pair of a mechanism; section "Base pairs"."""
    if mech == "gauss":
        return gauss(ball(number["sensitivity"] / number["sigma"]))
    if mech == "laplace":
        mu = ball(number["sensitivity"] / number["scale"])
        ends = ((mu, ONE / 2, (-mu).exp() / 2), (-mu, (-mu).exp() / 2, ONE / 2))
        form = (mech, mu, ONE, "none")
        return Pair(ends, tails=laplace_tails(mu), reach=lambda room: (-float(mu), float(mu)), form=form)
    if mech == "randomized-response":
        eps, off = ball(number["eps0"]), ball(number["delta0"])
        heavy, light = (1 - off) / (1 + (-eps).exp()), (1 - off) / (1 + eps.exp())
        return Pair(((eps, heavy, light), (-eps, light, heavy)), off, off, spacing=2 * eps)
    shift, noise = int(number["sensitivity"]), ball(number["sigma" if mech == "discrete-gauss" else "scale"])
    reach = shift + (0 if mech == "discrete-laplace" else int(float(noise) * math.sqrt(2 * math.log(2) * BITS)) + 2)
    if reach > MAX_ATOMS:
        raise Unprovable(f"{mech} has more than {MAX_ATOMS} losses here")
    if mech == "discrete-laplace":
        odds = (-1 / noise).exp()
        rows = [(shift / noise, odds**shift / (1 + odds)), (-shift / noise, 1 / (1 + odds))]
        rows += [((2 * k - shift) / noise, (1 - odds) / (1 + odds) * odds**k) for k in range(1, shift)]
        return Pair(tuple((loss, q * loss.exp(), q) for loss, q in rows), spacing=2 / noise)
    rate, gap = -1 / (2 * noise * noise), shift / (noise * noise)
    beyond = [2 * (rate * k * k).exp() / (1 - (rate * k).exp()) for k in (reach, reach - shift)]
    norm = sum(((rate * k * k).exp() for k in range(1 - reach, reach)), ZERO) + ZERO.union(beyond[0])
    kept = range(1 - reach + shift, reach)  # the outcomes within reach of both centres
    rows = [((k - arb(shift) / 2) * gap, (rate * k * k).exp() / norm) for k in kept]
    cut = ZERO.union(2 * beyond[1])
    return Pair(tuple((loss, q * loss.exp(), q) for loss, q in rows), cut=cut, spacing=gap)


def gauss(mu: arb) -> Pair:
    """N(mu, 1) against N(0, 1): the loss is mu x - mu^2/2."""

    def tails(loss: arb | None) -> Masses:
        if loss is None:
            return ONE, ONE
        x = loss / mu + mu / 2
        return normal_tail(x - mu), normal_tail(x)

    def reach(room: float) -> tuple[float, float]:
        far = math.sqrt(2 * room) * float(mu) + float(mu) ** 2 / 2
        return -far, far

    return Pair(tails=tails, reach=reach, form=("gauss", mu, ONE, "none"))


def laplace_tails(mu: arb) -> Tails:
    """The losses strictly between -mu and mu: mu (2x - 1) at x in (0, 1), where Q has the density mu/2 e^(-mu x)."""

    def tails(loss: arb | None) -> Masses:
        x = ZERO if loss is None else ((loss / mu + 1) / 2).max(ZERO).min(ONE)
        return (1 - (-mu * (1 - x)).exp()) / 2, ((-mu * x).exp() - (-mu).exp()) / 2

    return tails


def poisson(base: Pair, rate: arb) -> Pair:
    """P = (1 - q) B + q A against Q = B, where (A, B) is the base pair; section "Sampling"."""
    keep = 1 - rate

    def tails(loss: arb | None) -> Masses:
        assert base.tails is not None
        t = -ONE if loss is None else (loss.exp() - keep) / rate
        if not t > 0 and not t < 0:
            raise Unprovable("a point of the lattice meets the least loss")
        a, b = base.tails(t.log() if t > 0 else None)
        return keep * b + rate * a, b

    def reach(room: float) -> tuple[float, float]:
        low, high = base.reach(room)
        return math.log1p(float(rate) * math.expm1(low)), mixed_log(float(rate), high)

    atoms = [((keep + rate * loss.exp()).log(), keep * b + rate * a, b) for loss, a, b in base.atoms]
    atoms += [(keep.log(), keep * base.missing, base.missing)] if base.missing > 0 else []
    form = (*base.form[:2], rate, "poisson") if base.form else None
    return Pair(tuple(atoms), rate * base.infinite, ZERO, base.cut, base.tails and tails, reach, ZERO, False, form)


def fixed_size(base: Pair, rate: arb) -> Pair:
    """The Poisson pair at losses above 0, its mirror image below, and the rest of the mass at 0; section "Sampling"."""
    half = poisson(base, rate)
    above = [row for row in half.atoms if row[0] > 0]
    whole = half.tails(ZERO) if half.tails else (ZERO, ZERO)

    def tails(loss: arb | None) -> Masses:
        assert half.tails is not None
        if loss is None:
            return whole[0] + whole[1], whole[0] + whole[1]
        if loss > 0:
            return half.tails(loss)
        q, p = half.tails(-loss)
        return whole[0] + whole[1] - p, whole[0] + whole[1] - q

    def reach(room: float) -> tuple[float, float]:
        high = half.reach(room)[1]
        return -high, high

    rest = 1 - half.infinite - half.cut - sum((p + q for _, p, q in above), whole[0] + whole[1])
    atoms = (*above, *((-loss, q, p) for loss, p, q in above), (ZERO, rest, rest))
    form = (*half.form[:3], "fixed") if half.form else None
    return Pair(atoms, half.infinite, half.infinite, half.cut, half.tails and tails, reach, ZERO, True, form)


def mixed_log(rate: float, loss: float) -> float:
    """ln(1 - q + q e^loss)."""
    return loss + math.log(rate) if loss > 600 else math.log1p(rate * math.expm1(loss))


def normal_tail(x: arb) -> arb:
    return (x / arb(2).sqrt()).erfc() / 2


def ball(value: Fraction) -> arb:
    return arb(fmpq(value.numerator, value.denominator))


def exactly(value: arb) -> Fraction:
    """The midpoint of a ball, exactly."""
    mantissa, exponent = value.mid().man_exp()
    return Fraction(int(mantissa)) * Fraction(2) ** int(exponent)
