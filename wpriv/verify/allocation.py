"""The pair of a pass of random allocation, on cells of its ratio; section "Random allocation".

The ratio is S = (X_1 + ... + X_t)/t with independent copies X of the ratio of one release under Q; the sum is built by
doubling. For upper bounds it lies on the points e^(kh), for lower bounds in the cells between them.
"""

from __future__ import annotations

import itertools
import math
from dataclasses import dataclass, replace
from operator import add, mul, sub

from flint import arb

from wpriv.verify.lattice import Cells, cut_into_cells
from wpriv.verify.pairs import ZERO, Pair, Unprovable

MAX_WORK = 10**7


@dataclass(frozen=True, eq=False)
class Ratio:
    """Masses and means (E of S there) of the cells from ``first`` on, the mass at 0 and the mean that was lost."""

    h: arb
    first: int
    masses: list[arb]
    means: list[arb]
    zero: arb = ZERO
    lost: arb = ZERO

    def point(self, k: int) -> arb:
        return ((self.first + k) * self.h).exp()


def allocated(base: Pair, steps: int) -> Pair:
    """The pair of a pass of ``steps`` steps, each of which has the pair ``base``."""

    def cells(h: arb, room: float, upper: bool) -> Cells:
        ratio = of_sum(base, steps, h, room, upper)
        rows, none = [(p / steps, q) for q, p in zip(ratio.masses, ratio.means, strict=True)], (ZERO, ZERO)
        if upper:
            ends = (ZERO, ratio.zero), (ratio.lost / steps, ZERO)
            points = list(range(ratio.first, ratio.first + len(rows) + 1))
            return Cells(ratio.h, -arb(steps).log(), points, rows, *ends, (), none)
        atoms = [((p / q).log(), p, q) for p, q in rows if p > 0 and q > 0]
        offset = max(atoms, key=lambda row: float(row[1] + row[2]))[0].mid() - ratio.h / 2
        places = [math.floor(float((loss - offset) / ratio.h)) for loss, _, _ in atoms]
        points = list(range(min(places) - 2, max(places) + 4))
        cells = Cells(ratio.h, offset, points, [none] * (len(points) - 1), none, none, (), none)
        for loss, p, q in atoms:
            j = cells.place(loss, ZERO) - points[0]
            cells.masses[j] = (cells.masses[j][0] + p, cells.masses[j][1] + q)
        return cells

    return Pair(tails=base.tails, reach=base.reach, symmetric=False, cells=cells)


def of_sum(base: Pair, steps: int, h: arb, room: float, upper: bool) -> Ratio:
    """The sum of the ratios; cells start larger, and become half as large with every fourfold number of terms."""
    levels = steps.bit_length() - 1
    square, result = one_release(base, h * 2 ** (levels // 2), room, upper), None
    for level in range(levels + 1):
        if steps >> level & 1:
            result = square if result is None else total(*aligned(result, square, upper), room, upper)
        if level < levels:
            square = total(square, square, room, upper)
            square = halved(square, upper) if level % 2 else square
    assert result is not None
    return result


def one_release(base: Pair, h: arb, room: float, upper: bool) -> Ratio:
    cells = cut_into_cells(base, h, room, upper, ZERO)
    if any(not mass == 0 for mass in cells.infinite):
        raise Unprovable("random allocation of a pair with infinite losses")
    masses, means = [q for _, q in cells.masses], [p for p, _ in cells.masses]
    for loss, p, q in cells.atoms:
        j = cells.place(loss, ZERO) - cells.points[0]
        masses[j], means[j] = masses[j] + q, means[j] + p
    masses, means = [cells.bottom[1], *masses, cells.top[1]], [cells.bottom[0], *means, cells.top[0]]
    ratio = Ratio(h, cells.points[0] - 1, masses, means)
    if not upper:
        masses[1], means[1] = masses[0] + masses[1], means[0] + means[1]
        masses[-2], means[-2] = masses[-2] + masses[-1], means[-2] + means[-1]
        return Ratio(h, cells.points[0], masses[1:-1], means[1:-1])
    ratio = Ratio(h, cells.points[0], masses[1:-1], means[1:-1])
    return without_ends(spread(ratio), (masses[0], means[0]), (masses[-1], means[-1]))


def spread(ratio: Ratio) -> Ratio:
    """Divide the mass of each cell between its two ends so that its mean stays the same."""
    growth, points = ratio.h.exp(), [ratio.point(0)]
    for _ in ratio.masses:
        points.append(points[-1] * growth)
    up = [
        (mean - v * mass) / (v * (growth - 1)) for mass, mean, v in zip(ratio.masses, ratio.means, points, strict=False)
    ]
    masses = list(map(add, [*map(sub, ratio.masses, up), ZERO], [ZERO, *up]))
    return replace(ratio, masses=masses, means=list(map(mul, masses, points)))


def without_ends(ratio: Ratio, bottom: tuple[arb, arb], top: tuple[arb, arb]) -> Ratio:
    """Add (mass, mean) from below, divided between 0 and the first point, and from above, moved down to the last."""
    up, last = bottom[1] / ratio.point(0), ratio.point(len(ratio.masses) - 1)
    masses, means = list(ratio.masses), list(ratio.means)
    masses[0], means[0] = masses[0] + up, means[0] + bottom[1]
    masses[-1], means[-1] = masses[-1] + top[0], means[-1] + top[0] * last
    lost = ratio.lost + top[1] - top[0] * last
    return replace(ratio, masses=masses, means=means, zero=ratio.zero + bottom[0] - up, lost=lost)


def aligned(a: Ratio, b: Ratio, upper: bool) -> tuple[Ratio, Ratio]:
    """The same cells for both."""
    while float(a.h) > 1.5 * float(b.h):
        a = halved(a, upper)
    while float(b.h) > 1.5 * float(a.h):
        b = halved(b, upper)
    first = min(a.first, b.first)
    last = max(r.first + len(r.masses) for r in (a, b))

    def padded(r: Ratio) -> Ratio:
        before, after = [ZERO] * (r.first - first), [ZERO] * (last - r.first - len(r.masses))
        return replace(r, first=first, masses=[*before, *r.masses, *after], means=[*before, *r.means, *after])

    return padded(a), padded(b)


def halved(ratio: Ratio, upper: bool) -> Ratio:
    """The same on cells of half the size."""
    h, first = ratio.h / 2, 2 * ratio.first
    masses, means = ([ZERO] * (2 * len(ratio.masses)) for _ in range(2))
    for k, (mass, mean) in enumerate(zip(ratio.masses, ratio.means, strict=True)):
        j = 2 * k
        if not upper and mass > 0 and mean > 0:
            j = max(0, min(math.floor(float((mean / mass).log() / h)) - first, len(masses) - 1))
        masses[j], means[j] = masses[j] + mass, means[j] + mean
    return replace(ratio, h=h, first=first, masses=masses, means=means)


def windows(h: arb, size: int) -> list[tuple[int, int]]:
    """For every shift K the least and the largest d <= 0 with e^(Kh) <= 1 + e^(dh) < e^((K+1)h)."""
    starts, step = [1 - size], float(h)
    for shift in range(1, math.ceil(math.log(2) / step) + 1):
        edge = (shift * h).exp() - 1
        d = math.ceil(float(edge.log() / h))
        while not (d * h).exp() >= edge:
            d += 1
        if not ((d - 1) * h).exp() <= edge:
            raise Unprovable("a sum meets a point of the lattice")
        starts.append(d)
    pairs = [(max(low, 1 - size), min(high - 1, 0)) for low, high in itertools.pairwise([*starts, 1])]
    return [(low, high) for low, high in pairs]


def total(a: Ratio, b: Ratio, room: float, upper: bool) -> Ratio:
    """The sum of two independent ratios: cells i and i + d, d <= 0, go to the cell i + K(d), and so do b's and a's."""
    size, shifts = len(a.masses), windows(a.h, len(a.masses))
    if size * len(shifts) > MAX_WORK:
        raise Unprovable("too many cells for random allocation")
    masses, means = ([ZERO] * (size + len(shifts)) for _ in range(2))
    orders = [(a, b, 2)] if a is b else [(a, b, 1), (b, a, 1)]
    for x, y, times in orders:
        sums = [list(itertools.accumulate(values, initial=ZERO)) for values in (y.masses, y.means)]
        for shift, (low, high) in enumerate(shifts):
            high = min(high, -1)
            start = max(0, -high)
            if low > high or start >= size:
                continue
            windowed = []
            for prefix in sums:
                upper_ends = prefix[start + high + 1 : size + high + 1]
                lower_ends = [
                    *[ZERO] * min(max(0, -low - start), size - start),
                    *prefix[max(0, start + low) : size + low],
                ]
                windowed.append(list(map(sub, upper_ends, lower_ends)))
            mass = list(map(mul, x.masses[start:], windowed[0]))
            mean = list(map(add, map(mul, x.means[start:], windowed[0]), map(mul, x.masses[start:], windowed[1])))
            if times == 2:
                mass, mean = [2 * v for v in mass], [2 * v for v in mean]
            place = slice(start + shift, size + shift)
            masses[place], means[place] = map(add, masses[place], mass), map(add, means[place], mean)
    shift = len(shifts) - 1
    for i, (m0, e0, m1, e1) in enumerate(zip(a.masses, a.means, b.masses, b.means, strict=True)):
        masses[i + shift] += m0 * m1
        means[i + shift] += e0 * m1 + m0 * e1
    result = Ratio(a.h, a.first, masses, means, a.zero * b.zero)
    if not upper:
        return trimmed(result, room, upper)
    result = spread(result)
    for x, y in ((a, b), (b, a)):  # 0 and a point
        for i, (m0, e0) in enumerate(zip(x.masses, x.means, strict=True)):
            result.masses[i] += y.zero * m0
            result.means[i] += y.zero * e0
    return trimmed(replace(result, lost=a.lost + b.lost), room, upper)


def trimmed(ratio: Ratio, room: float, upper: bool) -> Ratio:
    """Leave out both ends, of a mass and of a mean of about e^-room."""
    small, left, right = arb(math.exp(-room)), 0, len(ratio.masses)
    low, high = [ZERO, ZERO], [ZERO, ZERO]
    while left < right - 1 and low[0] + ratio.masses[left] < small:
        low, left = [low[0] + ratio.masses[left], low[1] + ratio.means[left]], left + 1
    while right > left + 1 and high[1] + ratio.means[right - 1] < small:
        high, right = [high[0] + ratio.masses[right - 1], high[1] + ratio.means[right - 1]], right - 1
    masses, means = ratio.masses[left:right], ratio.means[left:right]
    result = replace(ratio, first=ratio.first + left, masses=masses, means=means)
    if upper:
        return without_ends(result, (low[0], low[1]), (high[0], high[1]))
    masses[0], means[0] = masses[0] + low[0], means[0] + low[1]
    masses[-1], means[-1] = masses[-1] + high[0], means[-1] + high[1]
    return result
