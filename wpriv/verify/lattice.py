"""The profile of a composition by exact convolution of integers on a lattice of losses.

The docstrings name the sections of docs/theory/verifier.md.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from fractions import Fraction

from flint import arb, arb_poly, fmpz, fmpz_poly

from wpriv.verify.pairs import ONE, ZERO, Masses, Pair, Unprovable

MAX_CELLS = 2**22
NEAR = arb(2) ** -80  # distance of a point from a loss, as a share of the distance of two points
# cells of the composition, and of all its single steps, at the levels of the lattice
LEVELS = ((4_000, 1_000), (30_000, 6_000), (200_000, 36_000), (600_000, 100_000))
# ln of delta over the mass that is cut off all steps, at the first level and at the others
MARGINS = (30, 16)


@dataclass(frozen=True)
class Outcomes:
    """P- and Q-masses between losses offset + (first + j) h and the next; ``bottom`` below all, ``top`` above."""

    h: arb
    offset: arb
    first: int
    masses: list[Masses]
    bottom: Masses
    top: Masses


def outcomes(pair: Pair, h: arb, small: float, start: arb) -> Outcomes:
    """Cut a pair into outcomes, from just above ``start``; masses of about ``small`` may lie below and above all."""
    key = (h, small, start.upper())
    cut: Outcomes = pair.cuts[key] if key in pair.cuts else _outcomes(pair, *key)
    pair.cuts[key] = cut
    return cut


def _outcomes(pair: Pair, h: arb, small: float, start: arb) -> Outcomes:
    offset = start + h * NEAR
    low, high = -pair.reversed().largest_loss(small), pair.largest_loss(small)
    first = math.floor((low - float(offset)) / float(h)) - 1
    count = math.ceil((high - low) / float(h)) + 3
    if count > MAX_CELLS / 8:
        raise Unprovable("the lattice is too fine for the losses of one step")
    edges = [offset + (first + j) * h for j in range(count + 1)]
    tails = [pair.tails(edge) for edge in edges] if pair.tails else [(ZERO, ZERO)] * (count + 1)
    bottom, top = (pair.whole[0] - tails[0][0], pair.whole[1] - tails[0][1]), tails[-1]
    masses = [(p - p1, q - q1) for (p, q), (p1, q1) in itertools.pairwise(tails)]
    for loss, p, q in pair.atoms:
        j = math.floor(float((loss - edges[0]) / h))
        j = next((i for i in (j, j - 1, j + 1) if 0 <= i < count and edges[i] <= loss <= edges[i + 1]), j)
        if loss <= edges[0]:
            bottom = bottom[0] + p, bottom[1] + q
        elif loss >= edges[-1]:
            top = top[0] + p, top[1] + q
        elif 0 <= j < count and edges[j] <= loss <= edges[j + 1]:
            masses[j] = masses[j][0] + p, masses[j][1] + q
        else:
            raise Unprovable("a loss meets a point of the lattice")
    return Outcomes(h, offset, first, masses, bottom, top)


def dominating(cut: Outcomes) -> tuple[list[arb], arb]:
    """P-masses on the points of the lattice and at infinity of a pair that dominates; section "Lattice"."""
    sums = [cut.bottom[0], *[ZERO] * len(cut.masses)]
    point, ratio, factor = (cut.offset + cut.first * cut.h).exp(), cut.h.exp(), 1 / (1 - (-cut.h).exp())
    for j, (p, q) in enumerate(cut.masses):
        up = (p - point * q) * factor
        sums[j], sums[j + 1] = sums[j] + p - up, up
        point *= ratio
    sums[-1] += point * cut.top[1]
    return sums, cut.top[0] - point * cut.top[1]


def dominated(cut: Outcomes) -> tuple[list[arb], float, arb]:
    """P-masses on points just below those of the lattice of a pair that is dominated; section "Lattice".

    Also returned are how much more Q-mass the new pair has, since some losses are rounded down, and the loss at which
    it has most of that.
    """
    rows, sums = [cut.bottom, *cut.masses, cut.top], [ZERO] * (len(cut.masses) + 1)
    point, ratio = (below(cut).offset + cut.first * cut.h).exp(), cut.h.exp()
    lack, most, place = 0.0, 0.0, ZERO
    above = 1  # outcomes between the current one and this one have been merged into those below
    for j in range(len(sums)):
        above, (p, q) = max(above, j + 1), rows[j]
        deficit = point * q - p
        while not deficit <= 0 and above < len(rows):
            p1, q1 = rows[above]
            excess = p1 - point * q1
            if excess > deficit:
                part, deficit = (deficit / excess).upper().min(ONE), ZERO
                p, q, rows[above] = p + part * p1, q + part * q1, (p1 - part * p1, q1 - part * q1)
            else:
                p, q, rows[above], deficit = p + p1, q + q1, (ZERO, ZERO), deficit - excess
                above += 1
        if deficit <= 0:
            sums[j] += p
        elif j > 0:
            rest = lowered(sums, j - 1, p, p - point / ratio * q, ratio)
            lack += float(rest * ratio / point)
            if rest * ratio > most * point:
                most, place = float(rest * ratio / point), (p / q).log()
        point *= ratio
    sums[-1] += rows[-1][0]
    return sums, lack, place


def below(cut: Outcomes) -> Outcomes:
    """The same outcomes with points just below ``start``, so that outcomes of this loss reach their point."""
    return replace(cut, offset=cut.offset - 2 * cut.h * NEAR)


def lowered(sums: list[arb], j: int, mass: arb, excess: arb, ratio: arb) -> arb:
    """Put an outcome on the point j below its loss, merged with masses below; return the excess that is left."""
    k, gap = j - 1, ratio
    while excess > 0 and k >= 0:
        deficit = sums[k] * (gap - 1)
        part = (excess / deficit).lower() if deficit > excess else ONE if deficit <= excess else ZERO
        mass, excess, sums[k] = mass + part * sums[k], excess - part * deficit, sums[k] - part * sums[k]
        if 0 < part < 1:
            break
        k, gap = k - 1, gap * ratio
    sums[j] += mass
    return excess.max(ZERO)


def dominated_from_above(cut: Outcomes) -> tuple[list[arb], float]:
    """The same from above to below, which leaves the largest atoms whole, and how much more Q-mass the new pair has."""
    ps, qs = [p for p, _ in cut.masses], [q for _, q in cut.masses]
    point, ratio = (cut.offset + (cut.first + len(ps) - 1) * cut.h).exp(), (-cut.h).exp()
    lower, lack = len(ps), 0.0  # outcomes between this one and the current one have been merged into those above
    for j in range(len(ps) - 1, -1, -1):
        lower, excess = min(lower, j), ps[j] - point * qs[j]
        while excess > 0 and lower > 0:
            p, q = ps[lower - 1], qs[lower - 1]
            deficit = point * q - p
            part = ONE if excess >= deficit else (excess / deficit).lower() if deficit > excess else ZERO
            ps[j], qs[j], ps[lower - 1], qs[lower - 1] = ps[j] + part * p, qs[j] + part * q, p - part * p, q - part * q
            if part != 1:
                excess = ZERO
                break
            ps[lower - 1], qs[lower - 1] = ZERO, ZERO
            excess, lower = excess - deficit, lower - 1
        lack += float(excess / point)
        point *= ratio
    return ps, lack


def best_dominated(pair: Pair, h: arb, small: float) -> tuple[Outcomes, list[arb]]:
    """The outcomes and masses of the dominated pair that rounds losses down least, of up to three lattices."""
    rows: list[tuple[float, Outcomes, list[arb]]] = []
    start, most = heaviest(pair), 3 if pair.atoms else 1
    if pair.atoms:
        cut = outcomes(pair, h, small, start - 2 * h * NEAR)
        sums, lack = dominated_from_above(cut)
        if lack < 1e-4 * float(h):
            return cut, sums
    while len(rows) < most and (not rows or rows[-1][0] > 1e-12):
        cut = outcomes(pair, h, small, start)
        sums, lack, place = dominated(cut)
        rows.append((lack, below(cut), sums))
        start = place if len(rows) == 1 else ZERO
    return min(rows, key=lambda row: row[0])[1:]


def heaviest(pair: Pair) -> arb:
    """The loss of the heaviest atom, or 0."""
    return max(pair.atoms, key=lambda row: float(row[1] + row[2]))[0] if pair.atoms else ZERO


@dataclass(frozen=True)
class Cells:
    """P- and Q-masses between losses offset + (first + j) h and the next; ``bottom`` below all, ``top`` above."""

    poly: fmpz_poly
    first: int
    offset: arb
    infinite: fmpz


class Lattice:
    """A bound on the profile of a composition by convolution of exact integers; section "Lattice"."""

    def __init__(self, steps: Sequence[tuple[Pair, int]], upper: bool, delta: float, level: int):
        """Bound the profile where it is about ``delta``."""
        log_small = math.log(delta / sum(n for _, n in steps)) - MARGINS[min(level, 1)]
        small = math.pow(2, math.floor(log_small / math.log(2)))  # the same one for deltas near each other
        h = spacing(steps, small, level)
        self.h, self.upper = h, upper
        log = math.log(sum(n for _, n in steps) / delta)
        self.bits, self.small = 100 + int(1.45 * log), fmpz(int(Fraction(delta) * 2 ** (60 + int(1.45 * log))))
        product: Cells | None = None
        for pair, n in steps:
            if upper:
                cut = outcomes(pair, h, small, heaviest(pair))
                masses, beyond = dominating(cut)
                infinite = pair.infinite + pair.cut + beyond
            else:
                (cut, masses), infinite = best_dominated(pair, h, small), pair.infinite + pair.cut
            poly = fmpz_poly([self.whole(mass) for mass in masses])
            power = self.power(Cells(poly, cut.first, cut.offset, self.whole(infinite)), n)
            product = power if product is None else self.times(product, power, 1)
        assert product is not None
        self.cells = product

    def whole(self, mass: arb) -> fmpz:
        """The mass in units of 2^-bits, rounded to the safe side."""
        scaled = mass * arb(2) ** self.bits
        number = (scaled.upper().ceil() if self.upper else scaled.lower().floor()).unique_fmpz()
        if number is None:
            raise Unprovable("a mass is not known precisely enough")
        return max(fmpz(0), number)

    def times(self, a: Cells, b: Cells, uses: int) -> Cells:
        """The convolution, rounded to the safe side; ``uses`` is how often it is a factor of the whole."""
        if a.poly.length() + b.poly.length() > MAX_CELLS:
            raise Unprovable("the lattice has too many cells")
        one, sign = fmpz(1) << self.bits, -1 if self.upper else 1
        infinite = a.infinite * (b.poly(1) + b.infinite) + a.poly(1) * b.infinite
        poly = sign * ((sign * (a.poly * b.poly)) // one)
        return self.trimmed(poly, a.first + b.first, a.offset + b.offset, sign * (sign * infinite // one), uses)

    def trimmed(self, poly: fmpz_poly, first: int, offset: arb, infinite: fmpz, uses: int) -> Cells:
        """Cut off tails, whose mass moves up in an upper bound, and down or away in a lower one."""
        small, left, right, low, high = self.small // uses, 0, poly.length(), fmpz(0), fmpz(0)
        while left < right - 1 and low + poly[left] <= small:
            low, left = low + poly[left], left + 1
        while right > left + 1 and high + poly[right - 1] <= small:
            high, right = high + poly[right - 1], right - 1
        poly = poly.truncate(right).right_shift(left)
        if self.upper:
            poly[0] += low
            return Cells(poly, first + left, offset, infinite + high)
        poly[right - left - 1] += high
        return Cells(poly, first + left, offset, infinite)

    def power(self, square: Cells, n: int) -> Cells:
        """The n-fold convolution, by repeated squaring."""
        result: Cells | None = None
        while True:
            if n & 1:
                result = square if result is None else self.times(result, square, 1)
            n >>= 1
            if not n and result is not None:
                return result
            square = self.times(square, square, n)

    def bound(self, x: arb, upper: bool) -> arb:
        """A bound on delta(x), from the side that was chosen."""
        assert upper == self.upper
        cells, h = self.cells, self.h
        start = cells.offset + cells.first * h
        skip = max(0, math.ceil(float((x - start) / h)) - 1)
        skip += 2 if start + (skip + 1) * h < x else 1 if start + skip * h < x else 0
        if not start + skip * h >= x or (skip and not start + (skip - 1) * h <= x):
            raise Unprovable("eps meets a point of the lattice")
        tail = cells.poly.right_shift(skip)
        falling = arb_poly(tail)((-h).exp()) * (x - start - skip * h).exp()
        return (arb(tail(1)) - falling + cells.infinite) / arb(2) ** self.bits


def spacing(steps: Sequence[tuple[Pair, int]], small: float, level: int) -> arb:
    """The h of a level, chosen in floats; two heavy atoms lie on points of the lattice."""
    width = variance = continuous = most = 0.0
    for pair, n in steps:
        one = max(pair.largest_loss(small) + pair.reversed().largest_loss(small), 1e-12)
        rough = outcomes(pair, arb(one / 300), small, heaviest(pair))
        rows = [(float(p), (j + 0.5) * one / 300) for j, (p, _) in enumerate(rough.masses)]
        mean = math.fsum(p * loss for p, loss in rows)
        variance += n * math.fsum(p * (loss - mean) ** 2 for p, loss in rows)
        width, most, continuous = width + n * one, max(most, one), continuous + (one if pair.tails else 0.0)
    cells, edges = LEVELS[level]
    h = arb(max(min(width, 20 * math.sqrt(variance) + 2 * most) / cells, continuous / edges))
    for pair, _ in steps:
        heavy = sorted(pair.atoms, key=lambda row: -float(row[1] + row[2]))
        if len(heavy) > 1:
            gap = abs(heavy[0][0] - heavy[1][0])
            return (gap / math.ceil(float(gap / h))).mid() if gap > h / 3 else h
    return h
