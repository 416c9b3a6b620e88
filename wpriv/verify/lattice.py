"""The profile of a composition by exact convolution of integers on a lattice of losses.

The docstrings name the sections of docs/theory/verifier.md.
"""

from __future__ import annotations

import itertools
import math
from dataclasses import dataclass
from fractions import Fraction

from flint import arb, arb_poly, fmpz_poly

from wpriv.verify import choices
from wpriv.verify.pairs import ZERO, Kind, Pair, Unprovable

MAX_CELLS = 2**22


@dataclass(frozen=True)
class Cells:
    """P-masses times 2^bits at the losses offset + (first + j) h, and that at infinity."""

    poly: fmpz_poly
    first: int
    offset: arb
    infinite: int


class Lattice:
    """A bound on the profile of a composition by convolution of exact integers; section "Lattice"."""

    def __init__(self, kinds: tuple[Kind, ...], upper: bool, delta: float, cells: int):
        """Bound the profile where it is about ``delta``, on about so many ``cells``."""
        self.upper = upper
        log = math.log(sum(kind.n for kind in kinds) / delta)
        self.bits, self.small = 100 + int(1.45 * log), int(Fraction(delta) * 2 ** (60 + int(1.45 * log)))
        ends = [choices.interval(kind, 25 + log) for kind in kinds]
        gaps = [kind.base.gap for kind in kinds if kind.sampling == "none" and kind.base.gap > 0]
        self.h = arb(choices.spacing(kinds, ends, cells))
        if gaps:  # a fraction of the spacing of the atoms
            alone = len(gaps) == len(kinds) == 1 and not kinds[0].base.continuous
            self.h = gaps[0] / (1 if alone else max(1, math.ceil(float(gaps[0] / self.h))))
        powers = [self.power(self.one_step(kind, *pair), kind.n) for kind, pair in zip(kinds, ends, strict=True)]
        self.cells = powers[0]
        for factor in powers[1:]:
            self.cells = self.times(self.cells, factor, 1)

    def one_step(self, kind: Kind, low: float, high: float) -> Cells:
        h, tiny = self.h, self.h / arb(2) ** 90
        shift = (max(kind.atoms, key=lambda row: float(row[1]))[0] if kind.atoms else ZERO).mid() + tiny / 3
        first = math.floor((low - float(shift)) / float(h)) - 1
        count = math.ceil((high - low) / float(h)) + 4
        if count > MAX_CELLS / 8:
            raise Unprovable("the lattice is too fine for the losses of one step")
        edges = [shift + (first + j) * h - (0 if self.upper else h / 2) for j in range(count)]
        above = [kind.above(edge) for edge in edges]
        pieces = [(p - p1, q - q1) for (p, q), (p1, q1) in itertools.pairwise(above)]
        if not self.upper:
            return self.merged([((p / q).log(), p) for p, q in (*pieces, above[-1]) if p > 0 and q > 0], kind)
        factor, infinite = h.exp(), above[-1][0] + kind.lost()
        sums = [kind.above(None)[0] - above[0][0], *[ZERO] * (count - 1)]
        for loss, mass in kind.atoms:
            j = math.floor(float((loss - edges[0]) / h))
            j = max(0, min(j if loss >= edges[max(0, min(j, count - 1))] else j - 1, count - 2))
            if loss <= edges[0]:
                sums[0] += mass
            elif edges[j] <= loss <= edges[j + 1]:
                pieces[j] = (pieces[j][0] + mass, pieces[j][1] + mass * (-loss).exp())
            else:
                infinite += mass
        for j, (p, q) in enumerate(pieces):  # to the ends of the cell, keeping P- and Q-mass
            up = (p - edges[j].exp() * q) * factor / (factor - 1)
            sums[j], sums[j + 1] = sums[j] + p - up, sums[j + 1] + up
        return Cells(fmpz_poly([self.whole(mass) for mass in sums]), first, shift, self.whole(infinite))

    def merged(self, rows: list[Pair], kind: Kind) -> Cells:
        """Outcomes that were merged, with their losses rounded down to a lattice."""
        rows = [(loss, mass) for loss, mass in rows + kind.atoms if self.whole(mass) > 0 and loss.is_finite()]
        best = choices.best_offset([(float(loss), float(mass)) for loss, mass in rows], float(self.h))
        offset = (rows[best][0] - self.h / arb(2) ** 80).mid()
        cells: dict[int, int] = {}
        for loss, mass in rows:
            place = (loss - offset) / self.h
            j = math.floor(float(place))
            j -= 0 if place >= j else 1
            if place >= j:
                cells[j] = cells.get(j, 0) + self.whole(mass)
        first = min(cells)
        poly = fmpz_poly([cells.get(j, 0) for j in range(first, max(cells) + 1)])
        return Cells(poly, first, offset, self.whole(kind.lost()))

    def whole(self, mass: arb) -> int:
        """The mass in units of 2^-bits, rounded to the safe side."""
        scaled = mass * arb(2) ** self.bits
        return max(0, int(str((scaled.upper().ceil() if self.upper else scaled.lower().floor()).unique_fmpz())))

    def times(self, a: Cells, b: Cells, uses: int) -> Cells:
        """The convolution, rounded to the safe side; ``uses`` is how often it is a factor of the whole."""
        if a.poly.length() + b.poly.length() > MAX_CELLS:
            raise Unprovable("the lattice has too many cells")
        one, sign = 1 << self.bits, -1 if self.upper else 1
        infinite = a.infinite * (b.poly(1) + b.infinite) + a.poly(1) * b.infinite
        poly = sign * ((sign * (a.poly * b.poly)) // one)
        return self.trimmed(poly, a.first + b.first, a.offset + b.offset, int(sign * (sign * infinite // one)), uses)

    def trimmed(self, poly: fmpz_poly, first: int, offset: arb, infinite: int, uses: int) -> Cells:
        """Cut off tails, whose mass moves up in an upper bound, and down or away in a lower one."""
        small, left, right, low, high = self.small // uses, 0, poly.length(), 0, 0
        while left < right - 1 and low + poly[left] <= small:
            low, left = low + int(poly[left]), left + 1
        while right > left + 1 and high + poly[right - 1] <= small:
            high, right = high + int(poly[right - 1]), right - 1
        poly = poly.truncate(right).right_shift(left)
        if self.upper:
            poly[0] += low
            return Cells(poly, first + left, offset, infinite + high)
        poly[right - left - 1] += high
        return Cells(poly, first + left, offset, infinite)

    def power(self, square: Cells, n: int) -> Cells:
        """The n-fold convolution, by repeated squaring."""
        factors = []
        while n:
            if n & 1:
                factors.append(square)
            n >>= 1
            if n:
                square = self.times(square, square, n)
        result = factors[0]
        for factor in factors[1:]:
            result = self.times(result, factor, 1)
        return result

    def bound(self, x: arb) -> arb:
        """The bound on delta(x), from the side that was chosen."""
        cells, h = self.cells, self.h
        start = cells.offset + cells.first * h
        skip = max(0, math.floor(float((x - start) / h)))
        skip += 1 if start + skip * h < x else 0
        if not start + skip * h >= x or (skip and not start + (skip - 1) * h <= x):
            raise Unprovable("eps meets a point of the lattice")
        tail = cells.poly.right_shift(skip)
        falling = arb_poly(tail)((-h).exp()) * (x - start - skip * h).exp()
        return (arb(tail(1)) - falling + cells.infinite) / arb(2) ** self.bits
