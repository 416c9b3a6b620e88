"""The profile of a composition by exact convolution of integers on a lattice of losses.

The docstrings name the sections of docs/theory/verifier.md.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from dataclasses import dataclass

from flint import arb, arb_poly, fmpz, fmpz_poly

from wpriv.verify.pairs import ONE, ZERO, Masses, Pair, Unprovable

MAX_CELLS = 2**22


@dataclass(frozen=True)
class Cells:
    """The pair of one step, cut into the outcomes with losses between neighbouring points offset + k h of a lattice.

    Args:
        points: the whole numbers k, increasing. masses: P- and Q-mass of the continuous part between each two.
        bottom, top: those below and above all points. atoms: (loss, P-mass, Q-mass).
        infinite: P-mass where Q has none, and Q-mass where P has none.
    """

    h: arb
    offset: arb
    points: list[int]
    masses: list[Masses]
    bottom: Masses
    top: Masses
    atoms: Sequence[tuple[arb, arb, arb]]
    infinite: Masses

    def reversed(self) -> Cells:
        """The cells where P and Q change places."""
        points, masses = [-k for k in reversed(self.points)], [(q, p) for p, q in reversed(self.masses)]
        atoms = [(-loss, q, p) for loss, p, q in self.atoms]
        return Cells(
            self.h, -self.offset, points, masses, self.top[::-1], self.bottom[::-1], atoms, self.infinite[::-1]
        )

    def place(self, loss: arb, shift: arb) -> int:
        """The k for which offset + k h and offset + (k + 1) h, moved by ``shift``, enclose a loss."""
        j = math.floor(float((loss - self.offset - shift) / self.h))
        for k in (j, j - 1, j + 1):
            if self.offset + k * self.h + shift <= loss <= self.offset + (k + 1) * self.h + shift:
                return k
        raise Unprovable("a loss meets a point of the lattice")


COARSE, FINE_ROOM = 16, 13  # far tails, of a mass of about e^13 times the smallest, are cut into larger cells


def cut_into_cells(pair: Pair, h: arb, room: float, upper: bool, offset: arb | None = None) -> Cells:
    """The cells of a pair; without an offset the heaviest atom lies just below a point of the lattice."""
    if pair.cells:
        result: Cells = pair.cells(h, room, upper)
        return result
    pair, uniform = (pair if upper or pair.lower is None else pair.lower), offset is not None
    if offset is None:
        offset = (max(pair.atoms, key=lambda row: float(row[1] + row[2]))[0] if pair.atoms else ZERO).mid()
        offset += h / arb(2) ** 90
    infinite, none = (pair.infinite + pair.cut, pair.missing + pair.cut), (ZERO, ZERO)
    if pair.tails is None:
        return Cells(h, offset, [0], [], none, none, pair.atoms, infinite)
    near, far = (
        [math.floor((end - float(offset)) / float(h)) for end in pair.reach(r)] for r in (room - FINE_ROOM, room)
    )
    points = list(range(near[0] - 1, near[1] + 3))
    if uniform:
        points = list(range(far[0] - 1, far[1] + 3))
    while points[0] > far[0] and not uniform:
        points.insert(0, points[0] - COARSE)
    while points[-1] < far[1] + 1:
        points.append(points[-1] + COARSE)
    tails, whole = [pair.tails(offset + k * h) for k in points], pair.tails(None)
    masses = [(p - p1, q - q1) for (p, q), (p1, q1) in itertools.pairwise(tails)]
    bottom = (whole[0] - tails[0][0], whole[1] - tails[0][1])
    return Cells(h, offset, points, masses, bottom, tails[-1], pair.atoms, infinite)


def dominating(cells: Cells) -> tuple[arb, dict[int, arb], arb]:
    """Offset and P-masses of a dominating pair on the points k of the lattice, and its P-mass at infinity.

    Section "Lattice": P- and Q-mass of an outcome are divided between the two ends of its cell, so that both are kept.
    """
    points, sums = cells.points, {cells.points[0]: cells.bottom[0]}
    factors = {gap: 1 - (-gap * cells.h).exp() for gap in {1, *(b - a for a, b in itertools.pairwise(points))}}

    def divide(a: int, gap: int, p: arb, q: arb, growth: arb) -> None:
        up = (p - growth * q) / factors[gap]
        sums[a], sums[a + gap] = sums.get(a, ZERO) + p - up, sums.get(a + gap, ZERO) + up

    growth, ratio = (cells.offset + points[0] * cells.h).exp(), {gap: (gap * cells.h).exp() for gap in factors}
    for (a, b), (p, q) in zip(itertools.pairwise(points), cells.masses, strict=True):
        divide(a, b - a, p, q, growth)
        growth *= ratio[b - a]
    for loss, p, q in cells.atoms:
        k = cells.place(loss, ZERO)
        divide(k, 1, p, q, (cells.offset + k * cells.h).exp())
    return cells.offset, sums, cells.infinite[0] + cells.top[0]


def dominated(cells: Cells) -> tuple[arb, dict[int, arb], arb]:
    """The same of a dominated pair.

    Section "Lattice": outcomes are merged, each with as large a part of that below it as takes its loss down to the
    point of the lattice; where all of that is not enough, the loss is rounded down. So are those of atoms.
    """
    points, tiny = cells.points[:-1], cells.h / arb(2) ** 80
    ps, qs = [p for p, _ in cells.masses], [q for _, q in cells.masses]
    ratio = {gap: (-gap * cells.h).exp() for gap in {b - a for a, b in itertools.pairwise(points)}}
    growth = (cells.offset + cells.h * (points[-1] if points else 0) - tiny).exp()
    for j in range(len(points) - 1, 0, -1):
        excess, deficit = ps[j] - growth * qs[j], growth * qs[j - 1] - ps[j - 1]
        if excess > 0 and deficit > 0:
            part = (excess / deficit).lower().min(ONE)
            ps[j], qs[j] = ps[j] + part * ps[j - 1], qs[j] + part * qs[j - 1]
            ps[j - 1], qs[j - 1] = (1 - part) * ps[j - 1], (1 - part) * qs[j - 1]
        growth *= ratio[points[j] - points[j - 1]]
    sums = dict(zip(points, ps, strict=True))
    for loss, p, _ in cells.atoms:
        k = cells.place(loss, -tiny)
        sums[k] = sums.get(k, ZERO) + p
    return cells.offset - tiny, sums, cells.infinite[0]


@dataclass(frozen=True)
class Tilted:
    """P-masses times e^(c loss) at the losses offset + (first + j) h, as whole numbers.

    ``lost`` is a bound on what was left out of an upper bound.
    """

    poly: fmpz_poly
    first: int
    offset: arb
    lost: fmpz


class Lattice:
    """A bound on the profile of a composition; section "Lattice"."""

    def __init__(self, steps: Sequence[tuple[Cells, int]], c: float, upper: bool):
        self.upper, self.c, self.h = upper, arb(c), steps[0][0].h
        total = sum(n for _, n in steps)
        self.bits = 120 + total.bit_length()
        self.small = fmpz(1) << (self.bits - 80)
        self.finite, self.scale = ONE, arb(2) ** -self.bits
        product: Tilted | None = None
        for cells, n in steps:
            offset, masses, infinite = (dominating if upper else dominated)(cells)
            self.finite *= (1 - infinite) ** n
            one, unit = self.tilted(offset, masses)
            power, self.scale = self.power(one, n), self.scale * unit**n
            product = power if product is None else self.times(product, power, 1)
        assert product is not None
        self.product = product

    def tilted(self, offset: arb, masses: dict[int, arb]) -> tuple[Tilted, arb]:
        """The tilted masses, with their unit (times 2^-bits)."""
        weighted = {k: mass * (self.c * (offset + k * self.h)).exp() for k, mass in masses.items()}
        unit, first = sum(weighted.values(), ZERO).mid(), min(weighted)
        if max(weighted) - first > MAX_CELLS:
            raise Unprovable("the lattice has too many cells")
        factor, numbers = arb(2) ** self.bits / unit, [fmpz(0)] * (max(weighted) - first + 1)
        for k, mass in weighted.items():
            numbers[k - first] = self.whole(mass * factor)
        return self.trimmed(fmpz_poly(numbers), first, offset, fmpz(0), 1), unit

    def whole(self, value: arb) -> fmpz:
        """A whole number on the safe side."""
        number = value.upper().ceil() if self.upper else value.lower().floor()
        whole = number.unique_fmpz()
        if whole is None:
            raise Unprovable("a mass is not known precisely enough")
        return whole if whole > 0 else fmpz(0)

    def times(self, a: Tilted, b: Tilted, uses: int) -> Tilted:
        """The convolution, rounded to the safe side; ``uses`` is how often it is a factor of the whole."""
        if a.poly.length() + b.poly.length() > MAX_CELLS:
            raise Unprovable("the lattice has too many cells")
        one, sign = fmpz(1) << self.bits, -1 if self.upper else 1
        lost = a.lost * (b.poly(1) + b.lost) + a.poly(1) * b.lost
        poly = sign * ((sign * (a.poly * b.poly)) // one)
        return self.trimmed(poly, a.first + b.first, a.offset + b.offset, -(-lost // one), uses)

    def trimmed(self, poly: fmpz_poly, first: int, offset: arb, lost: fmpz, uses: int) -> Tilted:
        """Leave out both tails."""
        small, left, right, low, high = self.small // uses, 0, poly.length(), fmpz(0), fmpz(0)
        while left < right - 1 and low + poly[left] <= small:
            low, left = low + poly[left], left + 1
        while right > left + 1 and high + poly[right - 1] <= small:
            high, right = high + poly[right - 1], right - 1
        return Tilted(poly.truncate(right).right_shift(left), first + left, offset, lost + low + high)

    def power(self, square: Tilted, n: int) -> Tilted:
        """The n-fold convolution, by repeated squaring."""
        result: Tilted | None = None
        while True:
            if n & 1:
                result = square if result is None else self.times(result, square, 1)
            n >>= 1
            if not n and result is not None:
                return result
            square = self.times(square, square, n)

    def bound(self, x: arb) -> arb:
        """The bound on delta(x), from the side that was chosen."""
        tilted, h, c = self.product, self.h, self.c
        start = tilted.offset + tilted.first * h
        skip = max(0, math.ceil(float((x - start) / h)))
        while skip and start + (skip - 1) * h > x:
            skip -= 1
        while not start + skip * h >= x:
            skip += 1
            if skip > tilted.poly.length() + 4:
                break
        tail, beyond = tilted.poly.right_shift(skip), start + skip * h
        at, rest = (-c * h).exp(), (-c * beyond).exp()
        sums = arb_poly(tail)(at) - (x - beyond).exp() * arb_poly(tail)(at * (-h).exp())
        total = sums * rest + (tilted.lost * (-c * x).exp() if self.upper else 0)
        return total * self.scale + 1 - self.finite


def tilt(steps: Sequence[tuple[Cells, int]], x: float, least: float) -> tuple[float, float]:
    """A tilt near the saddle point of the profile at x, and the standard deviation of the tilted loss (floats)."""
    rows, tails = [], []  # without those that hardly matter, which may be far from exponential, and with them
    for cells, n in steps:
        points = [(float((p / q).log()), float(p)) for p, q in cells.masses if p > 0 and q > 0]
        points = sorted(points + [(float(loss), float(p)) for loss, p, _ in cells.atoms])
        tail = [(loss, math.log(p)) for loss, p in points if p > 1e-300]
        kept = [row for row in tail if row[1] > math.log(least / n)]
        rows.append((n, kept or tail))
        tails.append(tail)

    def moments(c: float) -> tuple[float, float]:
        mean = variance = 0.0
        for n, points in rows:
            peak = max(c * loss + log for loss, log in points)
            weights = [math.exp(c * loss + log - peak) for loss, log in points]
            total = math.fsum(weights)
            first = math.fsum(w * loss for w, (loss, _) in zip(weights, points, strict=True)) / total
            second = math.fsum(w * (loss - first) ** 2 for w, (loss, _) in zip(weights, points, strict=True)) / total
            mean, variance = mean + n * first, variance + n * second
        return mean, variance

    low, high = 1e-3, 1e6
    for _ in range(40):
        c = math.sqrt(low * high)
        low, high = (c, high) if moments(c)[0] - x < 1 / c + 1 / (c + 1) else (low, c)
    deviation = math.sqrt(moments(low)[1])
    while any(max(low * loss + log for loss, log in tail) > 20 + max(0.0, low * x) for tail in tails):
        low *= 0.8
    return low, deviation
