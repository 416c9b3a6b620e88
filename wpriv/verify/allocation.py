"""The pair of a pass of random allocation, from above and from below, by exact sums on a geometric lattice.

The density ratio of a pass is the mean of t independent ratios X of one step. Section "Random allocation" of
docs/theory/verifier.md has the proof; floats choose the lattice and nothing else.
"""

from __future__ import annotations

import itertools
import math
from dataclasses import dataclass, replace
from operator import add, mul, sub

from flint import arb

from wpriv.verify.lattice import Outcomes, heaviest, outcomes
from wpriv.verify.pairs import ONE, Pair, Unprovable

WORK = 3 * 10**6  # products of masses in a sum of two ratios, about
EXACT = 110  # masses of a lower bound have at least so many bits
MAX_PASS, FAR = 10**7, 10**9


@dataclass(frozen=True)
class Points:
    """The points e^(offset + k h), and masses in units of 2^-bits, of which about ``small`` may be left out."""

    offset: arb
    h: arb
    bits: int
    small: int
    upper: bool

    def loss(self, k: int) -> arb:
        return self.offset + k * self.h

    def windows(self) -> list[tuple[int, int]]:
        """For s = 0, 1, ... the first and the last d <= 0 with s h <= ln(1 + e^(d h)) < (s + 1) h."""
        last = math.floor(math.log(2) / float(self.h)) + 2
        starts = [-FAR] + [integer((((s * self.h).exp() - 1).log() / self.h).ceil()) for s in range(1, last)]
        return [(low, min(high - 1, 0)) for low, high in itertools.pairwise(starts) if low <= 0]


@dataclass(frozen=True)
class Ratio:
    """Masses of a ratio in the cells from ``first`` on, its mean in each of them, and its mass at 0."""

    first: int
    masses: list[int]
    means: list[int]
    zero: int


def integer(value: arb) -> int:
    whole = value.unique_fmpz()
    if whole is None:
        raise Unprovable("a point of the lattice is not known precisely enough")
    return int(whole)


def allocation(base: Pair, steps: int, upper: bool, small: float) -> Pair:
    """A pair that dominates a pass of so many steps (``upper``), or is dominated by it, in both orders.

    Args:
        base: the pair of one step without sampling. small: mass that may be lost.
    """
    if steps > MAX_PASS:
        raise Unprovable(f"a pass of more than {MAX_PASS} steps")
    losses = base.largest_loss(small) + base.reversed().largest_loss(small)
    work = WORK / math.sqrt(steps)
    h = arb(losses / min(math.sqrt(work * losses / 0.7), work))
    heavy = sorted(base.atoms, key=lambda row: -float(row[1] + row[2]))
    if len(heavy) > 1:
        gap = abs(heavy[0][0] - heavy[1][0])
        h = (gap / max(1, math.ceil(float(gap / h)))).mid()
    cut = outcomes(base, h, small, heaviest(base))
    bits = EXACT + 4 + math.ceil(-math.log2(small)) + math.ceil(1.5 * base.largest_loss(small))
    points = Points(cut.offset, h, bits, int(small * 2.0**EXACT) << (bits - EXACT), upper)
    ratio, total, copies, sums = first_ratio(cut, points, base), None, 1, 1
    while True:
        if steps & copies:
            total, sums = (ratio, sums) if total is None else (sum_of(total, ratio, points), sums + 1)
        copies *= 2
        if copies > steps and total is not None:
            return pair_of(total, points, steps, sums, base)
        ratio, sums = sum_of(ratio, ratio, points), sums + 1
        work = WORK * math.sqrt(copies / steps)
        while len(ratio.masses) * min(len(ratio.masses), 0.7 / float(points.h)) < work / 4:
            points = replace(points, h=points.h / 2)
            ratio, total = refined(ratio, points), total and refined(total, points)


def first_ratio(cut: Outcomes, points: Points, base: Pair) -> Ratio:
    """The ratio of one step."""
    unit, masses, means = arb(2) ** points.bits, [], []
    for p, q in cut.masses:
        mass = max(0, integer((q * unit).lower().floor()))
        mean = max(0, integer((p / q * mass).lower().floor())) if mass else 0
        masses.append(mass << points.bits)
        means.append(mean << points.bits)
    zero = integer((base.missing * unit).lower().floor())
    return rounded(Ratio(cut.first, masses, means, zero << points.bits), points)


def sum_of(a: Ratio, b: Ratio, points: Points) -> Ratio:
    """The sum of two independent ratios: a value of the one and one of the other share a cell by their distance."""
    windows = points.windows()
    first, last = min(a.first, b.first), max(a.first + len(a.masses), b.first + len(b.masses)) + len(windows)
    masses, means = [0] * (last - first), [0] * (last - first)

    def put(place: int, new_masses: list[int], new_means: list[int]) -> None:
        stop = place + len(new_masses)
        masses[place:stop] = map(add, masses[place:stop], new_masses)
        means[place:stop] = map(add, means[place:stop], new_means)

    pairs = [(a, b, -FAR, 0), (b, a, -FAR, -1)]  # y is in the cell of x, or below it
    if a is b:
        twice = replace(a, masses=[2 * q for q in a.masses], means=[2 * p for p in a.means])
        pairs = [(twice, a, -FAR, -1), (a, a, 0, 0)]
    for x, y, least, most in pairs:
        sums, mean_sums = ([0, *itertools.accumulate(row)] for row in (y.masses, y.means))
        shift, count = x.first - y.first, len(y.masses)
        for k, (low, high) in enumerate(windows):
            low, high = max(low, least), min(high, most)
            start, stop = max(0, -high - shift), min(len(x.masses), count - low - shift)
            if high < low or start >= stop:
                continue
            qs, ps = x.masses[start:stop], x.means[start:stop]
            near, near_means = (
                list(
                    map(
                        sub,
                        section(row, start + shift + high + 1, stop - start),
                        section(row, start + shift + low, stop - start),
                    )
                )
                for row in (sums, mean_sums)
            )
            put(
                x.first + start + k - first,
                list(map(mul, qs, near)),
                list(map(add, map(mul, qs, near_means), map(mul, ps, near))),
            )
    for x, y in ((a, b), (b, a)):
        put(x.first - first, [y.zero * q for q in x.masses], [y.zero * p for p in x.means])
    return rounded(Ratio(first, masses, means, a.zero * b.zero), points)


def section(row: list[int], start: int, count: int) -> list[int]:
    """Entries of a list, whose first and last entries go on forever."""
    before, after = min(count, max(0, -start)), min(count, max(0, start + count - len(row)))
    return [row[0]] * before + row[max(0, start) : max(0, start + count)] + [row[-1]] * after


def rounded(ratio: Ratio, points: Points) -> Ratio:
    """Round masses in units of 2^-(2 bits) to the safe side; the masses of an upper bound then lie on points."""
    bits, masses, means = points.bits, [], []
    if not points.upper:
        for mass, mean in zip(ratio.masses, ratio.means, strict=True):
            kept = min(mass, mean) >> (bits + EXACT) > 0
            masses.append(mass >> bits if kept else 0)
            means.append(mean >> bits if kept else 0)
        return trimmed(Ratio(ratio.first, masses, means, ratio.zero >> bits), points)
    value, factor, unit = points.loss(ratio.first).exp(), points.h.exp(), arb(2) ** bits
    carried = 0
    for mass, mean in zip([*ratio.masses, 0], [*ratio.means, 0], strict=True):
        scaled = value * unit
        point, gap = integer(scaled.upper().ceil()), integer((scaled * (factor - 1)).upper().ceil())
        up = max(0, (mean << bits) - point * mass) // gap >> bits
        masses.append((mass >> bits) - up + carried)
        means.append(masses[-1] * integer(scaled.lower().floor()) >> bits)
        carried, value = up, value * factor
    within = trimmed(Ratio(ratio.first, masses, means, 0), points)
    return replace(within, zero=(1 << bits) - sum(within.masses))


def trimmed(ratio: Ratio, points: Points) -> Ratio:
    """Cut off cells of small mass and mean at both ends; in an upper bound their mass is then at 0."""
    start, stop, low, high = 0, len(ratio.masses), 0, 0
    while start < stop - 1 and low + ratio.masses[start] + ratio.means[start] <= points.small:
        low, start = low + ratio.masses[start] + ratio.means[start], start + 1
    while stop > start + 1 and high + ratio.masses[stop - 1] + ratio.means[stop - 1] <= points.small:
        high, stop = high + ratio.masses[stop - 1] + ratio.means[stop - 1], stop - 1
    return Ratio(ratio.first + start, ratio.masses[start:stop], ratio.means[start:stop], ratio.zero)


def refined(ratio: Ratio, points: Points) -> Ratio:
    """The same ratio in cells of half the length."""
    count, first = 2 * len(ratio.masses), 2 * ratio.first
    masses, means = [0] * count, [0] * count
    for k, (mass, mean) in enumerate(zip(ratio.masses, ratio.means, strict=True)):
        middle = math.exp(float(points.loss(first + 2 * k + 1)))
        place = 2 * k + (0 if points.upper or mean < middle * mass else 1)
        masses[place], means[place] = mass, mean
    return Ratio(first, masses, means, ratio.zero)


def pair_of(total: Ratio, points: Points, steps: int, sums: int, base: Pair) -> Pair:
    """The pair of a pass, whose ratio is the mean of so many ratios of a step."""
    unit, atoms = arb(2) ** points.bits, []
    near = ONE + arb(0, 2.0 ** (3 - EXACT) * (sums + 2))
    for k, (mass, mean) in enumerate(zip(total.masses, total.means, strict=True)):
        if mass > 0 and (mean > 0 or points.upper):
            value = points.loss(total.first + k).exp() / steps if points.upper else arb(mean) * near / arb(mass) / steps
            loss = points.loss(total.first + k) - arb(steps).log() if points.upper else value.log()
            atoms.append((loss, value * mass / unit, arb(mass) / unit))
    infinite = 1 - sum((p for _, p, _ in atoms), arb(0)) if points.upper else base.infinite
    return Pair(tuple(atoms), infinite, total.zero / unit, symmetric=False)
