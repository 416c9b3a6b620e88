"""The pair of distributions of one step, in ball arithmetic: base pairs, and what sampling makes of them.

P and Q are the distributions of the output with and without the record; L = ln dP/dQ is the privacy loss. A base pair
is that of one release without sampling. The docstrings name the sections of docs/theory/verifier.md.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, field
from fractions import Fraction
from typing import Any

from flint import arb, arb_poly, fmpq

ZERO, ONE = arb(0), arb(1)
BITS = 300  # precision of the balls
MAX_ATOMS, MAX_BATCH = 5000, 10**5
EVERY = (arb.neg_inf(), arb.pos_inf())
Masses = tuple[arb, arb]  # under P and under Q
Form = tuple[str, arb, arb, tuple[int, ...]]


class Unprovable(Exception):
    """A method does not apply to a process, or would take too long."""


@dataclass(frozen=True, eq=False)
class Pair:
    """Atoms, masses at infinite losses, and a continuous part that is given by its tails.

    Args:
        atoms: (loss, P-mass, Q-mass). infinite: P-mass where Q has none. missing: Q-mass where P has none.
        cut: a ball that holds the P-mass, and the Q-mass, that is left out of the above.
        tails: P- and Q-mass of the continuous part with a loss above a number. whole: those of all of it.
        symmetric: -L under Q has the distribution of L under P.
        form: mechanism, mu, rate and parts (section "Sampling") of a continuous part that the inversion can use.
        ends: two numbers between which all finite losses lie. cuts: the outcomes on lattices that were computed before.
    """

    atoms: tuple[tuple[arb, arb, arb], ...] = ()
    infinite: arb = ZERO
    missing: arb = ZERO
    cut: arb = ZERO
    tails: Callable[[arb], Masses] | None = None
    whole: Masses = (ZERO, ZERO)
    symmetric: bool = True
    form: Form | None = None
    ends: tuple[arb, arb] = EVERY
    cuts: dict[Any, Any] = field(default_factory=dict)

    def reversed(self) -> Pair:
        """The pair (Q, P)."""
        if self.symmetric:
            return self

        def tails(loss: arb) -> Masses:
            assert self.tails is not None
            p, q = self.tails(-loss)
            return self.whole[1] - q, self.whole[0] - p

        atoms = tuple((-loss, q, p) for loss, p, q in self.atoms)
        form = self.form and (*self.form[:3], tuple(-sign for sign in self.form[3]))
        ends = -self.ends[1], -self.ends[0]
        return Pair(
            atoms, self.missing, self.infinite, self.cut, self.tails and tails, self.whole[::-1], False, form, ends
        )

    def largest_loss(self, small: float) -> float:
        """A number above which P has about ``small`` more mass than its losses allow, and Q no more than ``small``."""
        largest = max((float(loss) for loss, p, q in self.atoms if p > small or q > small), default=-math.inf)
        if self.tails is None:
            return largest
        low, high = -20.0, 20.0  # of log2
        while high - low > 0.01:
            middle = (low + high) / 2
            p, q = self.tails(arb(math.pow(2, middle)))
            low, high = (middle, high) if p - arb(math.pow(2, middle)).exp() * q > small else (low, middle)
        return max(largest, math.pow(2, high))


def base_pair(mech: str, number: dict[str, Fraction], records: int = 1, bits: int = BITS) -> Pair:
    """The pair of a mechanism for this many records, but outcomes below about 2^-``bits``; section "Base pairs"."""
    if mech == "randomized-response":
        eps, off = ball(number["eps0"]), ball(number["delta0"])
        heavy, light = (1 - off) / (1 + (-eps).exp()), (1 - off) / (1 + eps.exp())
        return Pair(((eps, heavy, light), (-eps, light, heavy)), off, off, ends=(-eps, eps))
    shift, noise = records * number["sensitivity"], number["scale" if "scale" in number else "sigma"]
    mu = ball(shift / noise)
    if mech == "gauss":
        return gauss(mu)
    if mech == "laplace":
        ends = ((mu, ONE / 2, (-mu).exp() / 2), (-mu, (-mu).exp() / 2, ONE / 2))
        inner = (1 - (-mu).exp()) / 2
        form = mech, mu, ONE, (1,)
        return Pair(ends, tails=laplace_tails(mu), whole=(inner, inner), form=form, ends=(-mu, mu))
    return discrete(mech, int(shift), ball(noise), bits)


def largest_loss(mech: str, number: dict[str, Fraction], records: int) -> Fraction | None:
    """The largest finite loss of a mechanism without sampling, exactly; None where there is none."""
    if mech == "randomized-response":
        return number["eps0"]
    return records * number["sensitivity"] / number["scale"] if "scale" in number else None


def discrete(mech: str, shift: int, noise: arb, bits: int = BITS) -> Pair:
    """Discrete Gaussian or Laplace noise on a count that moves by ``shift``; section "Base pairs"."""
    reach = shift + (0 if mech == "discrete-laplace" else int(float(noise) * math.sqrt(2 * math.log(2) * bits)) + 2)
    if reach > MAX_ATOMS:
        raise Unprovable(f"{mech} has more than {MAX_ATOMS} losses here")
    if mech == "discrete-laplace":
        odds = (-1 / noise).exp()
        rows = [(shift / noise, odds**shift / (1 + odds)), (-shift / noise, 1 / (1 + odds))]
        rows += [((2 * k - shift) / noise, (1 - odds) / (1 + odds) * odds**k) for k in range(1, shift)]
        return Pair(tuple((loss, q * loss.exp(), q) for loss, q in rows), ends=(-shift / noise, shift / noise))
    rate, gap = -1 / (2 * noise * noise), shift / (noise * noise)
    beyond = [2 * (rate * k * k).exp() / (1 - (rate * k).exp()) for k in (reach, reach - shift)]
    norm = sum(((rate * k * k).exp() for k in range(1 - reach, reach)), ZERO) + ZERO.union(beyond[0])
    kept = range(1 - reach + shift, reach)  # the outcomes within reach of both centres
    rows = [((k - arb(shift) / 2) * gap, (rate * k * k).exp() / norm) for k in kept]
    return Pair(tuple((loss, q * loss.exp(), q) for loss, q in rows), cut=ZERO.union(2 * beyond[1]))


def gauss(mu: arb) -> Pair:
    """N(mu, 1) against N(0, 1): the loss is mu x - mu^2/2."""

    def tails(loss: arb) -> Masses:
        x = loss / mu + mu / 2
        return normal_tail(x - mu), normal_tail(x)

    return Pair(tails=tails, whole=(ONE, ONE), form=("gauss", mu, ONE, (1,)))


def laplace_tails(mu: arb) -> Callable[[arb], Masses]:
    """The losses strictly between -mu and mu: mu (2x - 1) at x in (0, 1), where Q has the density mu/2 e^(-mu x)."""

    def tails(loss: arb) -> Masses:
        x = ((loss / mu + 1) / 2).max(ZERO).min(ONE)
        return (1 - (-mu * (1 - x)).exp()) / 2, ((-mu * x).exp() - (-mu).exp()) / 2

    return tails


def poisson(base: Pair, rate: arb) -> Pair:
    """P = (1 - q) B + q A against Q = B, where (A, B) is the base pair; section "Sampling"."""
    keep, (a0, b0) = 1 - rate, base.whole

    def tails(loss: arb) -> Masses:
        assert base.tails is not None
        t = (loss.exp() - keep) / rate
        if not t > 0 and not t < 0:
            raise Unprovable("a point of the lattice meets the least loss")
        a, b = base.tails(t.log()) if t > 0 else base.whole
        return keep * b + rate * a, b

    atoms = [((keep + rate * loss.exp()).log(), keep * b + rate * a, b) for loss, a, b in base.atoms]
    atoms += [(keep.log(), keep * base.missing, base.missing)] if base.missing > 0 else []
    form = base.form and (*base.form[:2], rate, (1,))
    whole = keep * b0 + rate * a0, b0
    low, high = ((keep + rate * end.exp()).log() for end in base.ends)
    ends = (keep.log() if base.missing > 0 else low), high
    return Pair(tuple(atoms), rate * base.infinite, ZERO, base.cut, base.tails and tails, whole, False, form, ends)


def fixed_size(base: Pair, rate: arb) -> Pair:
    """The Poisson pair at losses above 0, its mirror image below, and the rest of the mass at 0; section "Sampling"."""
    half = poisson(base, rate)
    above = [row for row in half.atoms if row[0] > 0]
    p0, q0 = half.tails(ZERO) if half.tails else (ZERO, ZERO)

    def tails(loss: arb) -> Masses:
        assert half.tails is not None
        if loss >= 0:
            return half.tails(loss)
        if not loss < 0:
            raise Unprovable("a point of the lattice meets the loss 0")
        q, p = half.tails(-loss)
        return p0 + q0 - p, p0 + q0 - q

    rest = 1 - half.infinite - half.cut - sum((p + q for _, p, q in above), p0 + q0)
    atoms = (*above, *((-loss, q, p) for loss, p, q in above), (ZERO, rest, rest))
    form, whole = half.form and (*half.form[:3], (1, -1)), (p0 + q0, p0 + q0)
    ends = -half.ends[1], half.ends[1]
    return Pair(atoms, half.infinite, half.infinite, half.cut, half.tails and tails, whole, True, form, ends)


def gauss_group(mu: arb, rate: arb, records: int) -> Pair:
    """The mixture of N(j mu, 1), j binomial with ``records`` trials, against N(0, 1); section "Further pairs"."""
    weights = [math.comb(records, j) * rate**j * (1 - rate) ** (records - j) for j in range(records + 1)]
    ratio = arb_poly([w * (-((j * mu) ** 2) / 2).exp() for j, w in enumerate(weights)])  # in t = e^(mu x)
    rising, slope = ratio - arb_poly([weights[0]]), ratio.derivative()
    near, start = arb(2) ** -150, [ONE]

    def tails(loss: arb) -> Masses:
        rest = loss.exp() - weights[0]
        if rest < 0:
            return ONE, ONE
        goal, t = rest.log(), start[0]
        for _ in range(100):  # Newton's method for logarithms, from the last t
            value = rising(t)
            step = (goal - value.log()) * value / (t * slope(t))
            t = (t * step.exp()).mid()
            if abs(step) < near / 4:
                break
        start[0], low, high = t, t * (1 - near), t * (1 + near)
        if not rising(low) < rest < rising(high):
            raise Unprovable("the place of a loss is not known precisely enough")
        x = low.union(high).log() / mu
        return sum((w * normal_tail(x - j * mu) for j, w in enumerate(weights)), ZERO), normal_tail(x)

    return Pair(tails=tails, whole=(ONE, ONE), symmetric=False, ends=(weights[0].log(), arb.pos_inf()))


def replaced_gauss(mu: arb, rate: arb) -> Pair:
    """(1-q) N(0, 1) + q N(mu, 1) against (1-q) N(0, 1) + q N(-mu, 1); section "Further pairs"."""
    keep, odds = 1 - rate, (1 - rate) / rate * (mu * mu / 2).exp()

    def tails(loss: arb) -> Masses:
        x = (loss / 2 + (odds * (loss / 2).sinh()).asinh()) / mu
        near = keep * normal_tail(x)
        return near + rate * normal_tail(x - mu), near + rate * normal_tail(x + mu)

    return Pair(tails=tails, whole=(ONE, ONE))


def largest_batch(one: Pair, two: Pair, rate: Fraction, batch: int, records: int, upper: bool) -> Pair:
    """The pair that reveals whether a batch may be cut (``upper``), or the Poisson pair at a lower rate."""
    q = ball(rate)
    if batch >= records:
        return poisson(one, q)
    if batch > MAX_BATCH:
        raise Unprovable(f"a largest batch is above {MAX_BATCH}")
    chance = binomial_tail(records - 1, rate, batch)
    if not upper:
        return poisson(one, q * (1 - chance) + arb(batch) / records * binomial_tail(records, rate, batch + 1))
    usual, other, rest = poisson(one, q), poisson(two, q), 1 - chance

    def mean(a: arb, b: arb) -> arb:
        return rest * a + chance * b

    def tails(loss: arb) -> Masses:
        assert usual.tails is not None
        assert other.tails is not None
        (p, q), (p1, q1) = usual.tails(loss), other.tails(loss)
        return mean(p, p1), mean(q, q1)

    atoms = [(loss, rest * p, rest * q) for loss, p, q in usual.atoms]
    atoms += [(loss, chance * p, chance * q) for loss, p, q in other.atoms]
    whole = mean(usual.whole[0], other.whole[0]), mean(usual.whole[1], other.whole[1])
    infinite, cut = mean(usual.infinite, other.infinite), mean(usual.cut, other.cut)
    ends = usual.ends[0].min(other.ends[0]), usual.ends[1].max(other.ends[1])
    return Pair(tuple(atoms), infinite, ZERO, cut, usual.tails and tails, whole, False, None, ends)


def binomial_tail(trials: int, rate: Fraction, least: int) -> arb:
    """P(K >= least) of a binomial variable."""
    if rate == 1 or least > trials:
        return ONE if least <= trials else ZERO
    odds = ball(rate / (1 - rate))
    mass, below = (1 - ball(rate)) ** trials, ZERO
    for k in range(least):
        below += mass
        mass *= odds * (trials - k) / (k + 1)
    return (1 - below).max(ZERO)


def normal_tail(x: arb) -> arb:
    return (x / arb(2).sqrt()).erfc() / 2


def ball(value: Fraction) -> arb:
    return arb(fmpq(value.numerator, value.denominator))
