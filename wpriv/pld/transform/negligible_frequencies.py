"""Frequencies at which a product of many transforms is next to nothing, and by how much: they need not be known.

|E[e^{itL}]|^2 = E[cos(t (L - L'))], L and L' alike, has a second derivative of at most 2 Var(L): between two samples it exceeds the larger
one by at most Var(L) h^2 / 4. Where a step has rare large losses, its variance says little of the bulk: then |E[e^{itL}]| is at most the
modulus of the bulk's part, bounded so, plus the weight of what is left out.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from wpriv.errors import Unsupported
from wpriv.numerics.arrays import Array, Counts
from wpriv.pld.transform.atomic_transforms import UNIT, Spectrum, TiltedAtoms, even_sums, wave_minus_one
from wpriv.pld.transform.smoothing_kernel import SmoothingKernel

Places = NDArray[np.int64]
# rows of one group that a product is judged by, at most
MOST_ROWS = 16
# the weight of the losses that are left out of a bulk
TRIM = 0.03
# samples are at first this far apart, in units of 1 / spread of a step's bulk, for steps of at least so many; where few matter, ever closer
APART = ((2000, 1.2), (300, 0.6), (0, 0.35))
# the factor between the first frequencies sampled; into how many parts the space between two is divided where they show nothing, how often
GROWTH, PARTS, ROUNDS = 1.3, 4, 4
# ln of a product below which nothing is gained by closer samples
LOW = -40.0
# products of a frequency and an atom that the samples may cost, and what one taken by itself costs beside one on an even grid
MAX_SAMPLES, SINGLE = 250_000_000, 20
TOO_MANY = "pld needs more frequencies of the composed loss than it may take at this tolerance. Raise --tol, or use rdp"
# frequencies that a law may be known at
MAX_FREQUENCIES = 2_000_000


@dataclass(frozen=True)
class SignificantFrequencies:
    """Runs (first, last) of the multiples of a spacing that must be known; bounds of two sums over all others below some limit.

    The terms of the first sum are the product times ``kernel / (s (s + 1))``, those of the second the product times ``kernel^2``.
    """

    runs: list[tuple[int, int]]
    first: float = 0.0
    second: float = 0.0


@dataclass(frozen=True)
class _LeadingRows:
    """Rows of one group: their losses, the weights of all or of the bulk, what each leaves out, its second moment, and the counts."""

    away: Array
    weight: Array
    left_out: Array
    square: Array
    counts: Counts

    @staticmethod
    def of(p: TiltedAtoms, rows: Places, trim: float) -> _LeadingRows:
        weight = p.weight[rows]
        up_to = np.cumsum(weight, axis=1)
        weight = np.where((up_to > trim / 2) & (up_to - weight < 1 - trim / 2), weight, 0.0)
        used = weight.any(axis=0)
        weight, away = weight[:, used], p.away[used]
        total = weight.sum(axis=1)
        mean = weight @ away / total
        square = weight @ away**2 - total * mean**2
        return _LeadingRows(
            away, weight, np.maximum(1 - total, 0.0), np.maximum(square, 1e-300) * total, p.counts[rows]
        )

    def moduli(self, t: Array) -> Array:
        """[len(t), R] bounds of |E[e^{itL}; bulk]| at some frequencies."""
        parts = np.array_split(t, 1 + t.size * self.away.size // (1 << 18))
        return self._whole(
            np.concatenate([wave_minus_one(some[:, None] * self.away) @ self.weight.T for some in parts])
        )

    def evenly(self, start: float, spacing: float, count: int) -> Array:
        """As ``moduli``, at ``count`` frequencies ``spacing`` apart."""
        return self._whole(even_sums(self.away, self.weight, start, spacing, count))

    def _whole(self, moved: Spectrum) -> Array:
        return np.asarray(np.minimum(np.abs(moved + self.weight.sum(axis=1)) + UNIT * (self.away.size + 8) * 4, 1.0))

    def bound(self, ends: Array, spacing: Array) -> Array:
        """ln of a bound of the product of |transform|^n between frequencies, from the larger moduli [..., R] at their ends."""
        energy = ends**2 + self.square * np.asarray(spacing)[..., None] ** 2 / 4
        return np.asarray(np.log(np.minimum(np.sqrt(energy) + self.left_out, 1.0)) @ self.counts)


def significant_frequencies(
    parts: Sequence[TiltedAtoms],
    tilt: float,
    spread: float,
    spacing: float,
    count: int,
    kernel: SmoothingKernel,
    room: float,
    most: int,
) -> SignificantFrequencies:
    """The frequencies among ``count`` multiples of a spacing that must be known.

    Args:
        room: what all others may add to the first sum. most: products of a frequency and an atom that those may cost.
    Raises:
        Unsupported: there are too many of them, or it would take too long to tell.
    """
    atoms = sum(p.weight.size for p in parts)
    edge = count * spacing
    rows = [np.argsort(-(p.counts * p.variances))[:MOST_ROWS] for p in parts]
    bulks = [_LeadingRows.of(p, some, TRIM) for p, some in zip(parts, rows, strict=True)]
    wholes = [_LeadingRows.of(p, some, 0.0) for p, some in zip(parts, rows, strict=True)]
    apart = next(apart for least, apart in APART if max(int(some.counts.max()) for some in bulks) >= least)
    step = apart / math.sqrt(max(float(some.square.max()) for some in bulks))
    slow = [min(4 / spread, edge)]
    while slow[-1] < edge and slow[-1] * (GROWTH - 1) < step:
        slow.append(min(slow[-1] * GROWTH, edge))
    even = math.ceil((edge - slow[-1]) / step)
    if even * sum(some.weight.size for some in bulks) > MAX_SAMPLES:
        raise Unsupported(TOO_MANY)
    first, wide = np.array(slow), (edge - slow[-1]) / max(even, 1)
    t = np.append(first, slow[-1] + wide * np.arange(1, even + 1))
    bound = np.zeros(t.size - 1)
    for whole, bulk in zip(wholes, bulks, strict=True):
        values = bulk.moduli(first)
        if even:
            values = np.concatenate([values, bulk.evenly(slow[-1] + wide, wide, even)])
        by_bulk = bulk.bound(np.maximum(values[:-1], values[1:]), np.diff(t))
        values = whole.moduli(first)
        by_whole = whole.bound(np.maximum(values[:-1], values[1:]), np.diff(first))
        by_bulk[: by_whole.size] = np.minimum(by_bulk[: by_whole.size], by_whole)
        bound += by_bulk
    each = sum(some.away.size for some in (*wholes, *bulks))
    for _ in range(ROUNDS):
        coarse = np.flatnonzero((bound > LOW) & (np.diff(t) > 4 * PARTS * spacing))
        saved = float(np.diff(t)[coarse].sum()) / spacing * atoms
        if not coarse.size or saved < SINGLE * PARTS * coarse.size * each:
            break
        t, bound = _finer(t, bound, coarse, wholes, bulks)
    numbers = np.diff(t) / spacing + 1
    s = tilt + 1j * t[:-1]
    height = float(kernel.transform(np.array([tilt + 0j]))[0].real)
    second = numbers * (spacing / math.pi) * height**2 * np.exp(bound)
    terms = second / height / np.abs(s * (s + 1))
    order = np.argsort(terms)
    quiet = np.zeros(terms.size, dtype=bool)
    quiet[order[np.cumsum(terms[order]) <= room]] = True
    runs = _runs(t, ~quiet, spacing)
    number = sum(last - start for start, last in runs)
    if number > MAX_FREQUENCIES or number * atoms > most:
        raise Unsupported(TOO_MANY)
    return SignificantFrequencies(runs, float(terms[quiet].sum()), float(second[quiet].sum()))


def _finer(
    t: Array, bound: Array, coarse: Places, wholes: Sequence[_LeadingRows], bulks: Sequence[_LeadingRows]
) -> tuple[Array, Array]:
    """The samples and bounds with some of the intervals divided."""
    low, high = t[coarse], t[coarse + 1]
    inner = low + (high - low) * np.arange(PARTS + 1)[:, None] / PARTS
    apart = np.broadcast_to((high - low) / PARTS, (PARTS, low.size))
    finer = np.zeros(apart.shape)
    for pair in zip(wholes, bulks, strict=True):
        ends = [some.moduli(inner.ravel()).reshape(*inner.shape, -1) for some in pair]
        finer += np.minimum(*(some.bound(np.maximum(v[:-1], v[1:]), apart) for some, v in zip(pair, ends, strict=True)))
    kept = np.ones(bound.size, dtype=bool)
    kept[coarse] = False
    starts = np.concatenate([t[:-1][kept], inner[:-1].ravel()])
    order = np.argsort(starts, kind="stable")
    return np.append(starts[order], t[-1]), np.concatenate([bound[kept], finer.ravel()])[order]


def _runs(t: Array, wanted: Array, spacing: float) -> list[tuple[int, int]]:
    """The multiples of a spacing below the first of some frequencies, and in the wanted intervals between them."""
    runs = [(0, math.ceil(t[0] / spacing))]
    for i in np.flatnonzero(wanted):
        low, high = math.floor(t[i] / spacing), math.ceil(t[i + 1] / spacing)
        if low <= runs[-1][1]:
            runs[-1] = (runs[-1][0], max(high, runs[-1][1]))
        else:
            runs.append((low, high))
    return runs
