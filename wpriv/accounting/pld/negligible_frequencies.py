"""What an inverted transform may leave out: the kernel, frequencies, and the wrap-around.

A PMF has a transform that does not decay. An added variable N with E[e^-N] = 1 and values of at most w makes it small
beyond the frequency KERNEL_SHAPE / w, and raises delta by a bounded amount (docs/theory/certified-pld.md, Theorem 10).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from wpriv.accounting.pld import constants
from wpriv.accounting.pld.transforms import Bulk, Spectrum, TiltedAtoms, even_sums, wave_minus_one
from wpriv.errors import Unsupported
from wpriv.numerics.arrays import Array, Counts


@dataclass(frozen=True)
class SmoothingKernel:
    """N = w X + shift with E[e^-N] = 1, w the ``width`` in nats.

    X has the Kaiser-Bessel density f(x) = B I0(B sqrt(1 - x^2)) / (2 sinh B) on [-1, 1], B = ``KERNEL_SHAPE``.
    """

    width: float

    @property
    def shift(self) -> float:
        """ln E[e^{-w X}]."""
        return float(self.log_moment(np.ones(1))[0])

    @property
    def edge(self) -> float:
        """The frequency beyond which the transform is small."""
        return constants.KERNEL_SHAPE / self.width

    def transform(self, s: NDArray[Any]) -> NDArray[np.complex128]:
        """E[e^{s w X}] at complex s."""
        shape = constants.KERNEL_SHAPE
        root = np.sqrt(shape**2 + (self.width * s) ** 2)
        # sinh(root) / root against sinh(shape) / shape, both scaled by e^-shape
        growth, decay = np.exp(root - shape), np.exp(-root - shape)
        with np.errstate(divide="ignore", invalid="ignore"):
            ratio = np.where(np.abs(root) > 1e-6, (growth - decay) / (2 * root), math.exp(-shape))
        return np.asarray(ratio * (2 * shape / -math.expm1(-2 * shape)), dtype=np.complex128)

    def log_moment(self, tilts: NDArray[np.float64]) -> NDArray[np.float64]:
        """ln E[e^{tilt w X}] at real tilts."""
        shape = constants.KERNEL_SHAPE
        # the root less the shape, and all else, without cancellation for narrow kernels
        square = (self.width * tilts) ** 2
        excess = square / (np.sqrt(shape**2 + square) + shape)
        ends = np.log1p(-np.exp(-2 * (shape + excess))) - math.log1p(-math.exp(-2 * shape))
        return np.asarray(excess + ends - 0.5 * np.log1p(square / shape**2))

    def gap_factor(self) -> float:
        """Factor on a density that bounds how much delta was raised: docs/theory/certified-pld.md, Theorem 10."""
        return math.exp(3 * self.width) * constants.KERNEL_COVER * constants.KERNEL_EXCESS * self.width**2


# Find the frequencies at which a product of many transforms is negligible, and bound what they contribute.
#
# |E[e^{itL}]|^2 = E[cos(t (L - L'))], L and L' independent and alike, has a second derivative of at most 2 Var(L):
# between two samples h apart it exceeds the larger one by at most Var(L) h^2 / 4. Where a step has rare large losses,
# its variance says little of the bulk: then |E[e^{itL}]| is at most the modulus of the bulk's part, bounded so, plus
# the weight of what is left out. That also holds of any part of the losses that contains the bulk, and so of both
# products whose difference is taken where outcomes without a large loss are subtracted (``transform_product``).

Indices = NDArray[np.int64]
TOO_MANY_FREQUENCIES = (
    "pld needs more frequencies of the composed loss than it may take at this tolerance. Raise `tol`, or use rdp"
)


@dataclass(frozen=True)
class SignificantFrequencies:
    """The multiples of a spacing below some limit that must be computed.

    Attributes:
        runs: intervals (first, last) of multiples.
        omitted_value: bound of the sum over all others of the product times ``kernel / (s (s + 1))``.
        omitted_density: bound of the sum over all others of the product times ``kernel^2``.
    """

    runs: list[tuple[int, int]]
    omitted_value: float = 0.0
    omitted_density: float = 0.0


@dataclass(frozen=True)
class _LeadingRows:
    """The rows of one group with the most variance, in full or without their rarest losses.

    Attributes:
        offset: [m] losses relative to the group's centre.
        weight: [R, m] their tilted probabilities, zero for losses left out.
        left_out: [R] tilted probability left out.
        square: [R] variance times the squared probability kept: bound of the second derivative of |transform|^2 over
            two.
        counts: [R] number of compositions.
    """

    offset: Array
    weight: Array
    left_out: Array
    square: Array
    counts: Counts

    @staticmethod
    def of(p: TiltedAtoms, rows: Indices, trim: float, bulk: Bulk | None) -> _LeadingRows:
        """Take some rows, leaving out tilted probability ``trim`` in the tails of each, and all losses above a bulk."""
        weight = p.weight[rows]
        up_to = np.cumsum(weight, axis=1)
        within = (up_to > trim / 2) & (up_to - weight < 1 - trim / 2)
        weight = np.where(within if bulk is None else within & (p.y <= bulk.end), weight, 0.0)
        used = weight.any(axis=0)
        weight, offset = weight[:, used], p.offset[used]
        total = weight.sum(axis=1)
        mean = weight @ offset / total
        square = weight @ offset**2 - total * mean**2
        square = np.maximum(square, constants.MASS_FLOOR) * total
        return _LeadingRows(offset, weight, np.maximum(1 - total, 0.0), square, p.counts[rows])

    def moduli(self, t: Array) -> Array:
        """[len(t), R] bounds of |E[e^{itL}; bulk]| at some frequencies."""
        parts = np.array_split(t, 1 + t.size * self.offset.size // (1 << 18))
        return self._moduli(np.concatenate([wave_minus_one(p[:, None] * self.offset) @ self.weight.T for p in parts]))

    def even_moduli(self, start: float, spacing: float, count: int) -> Array:
        """As ``moduli``, at ``count`` frequencies ``spacing`` apart."""
        return self._moduli(even_sums(self.offset, self.weight, start, spacing, count))

    def _moduli(self, values: Spectrum) -> Array:
        rounding = constants.UNIT_ROUNDOFF * (self.offset.size + 8) * 4
        return np.asarray(np.minimum(np.abs(values + self.weight.sum(axis=1)) + rounding, 1.0))

    def log_bound(self, moduli: Array, spacing: Array) -> Array:
        """ln of a bound of the product of |transform|^n between samples, from the moduli [..., R] at both ends."""
        energy = np.maximum(moduli[:-1], moduli[1:]) ** 2 + self.square * np.asarray(spacing)[..., None] ** 2 / 4
        return np.asarray(np.log(np.minimum(np.sqrt(energy) + self.left_out, 1.0)) @ self.counts)


def significant_frequencies(
    parts: Sequence[TiltedAtoms],
    tilt: float,
    deviation: float,
    spacing: float,
    count: int,
    kernel: SmoothingKernel,
    allowance: float,
    max_work: float,
    bulk: Bulk | None,
) -> SignificantFrequencies:
    """The frequencies among ``count`` multiples of a spacing that must be computed.

    Args:
        deviation: standard deviation of the composed tilted loss.
        allowance: what all others may contribute to the sum for delta.
        max_work: largest number of products of a computed frequency and an atom, or work that takes as long.
        bulk: losses whose product is subtracted from that of all losses, if there are any.
    Raises:
        Unsupported: there are too many of them, or it would take too long to tell.
    """
    atoms = sum(p.weight.size for p in parts)
    rows = [np.argsort(-(p.counts * p.variances))[: constants.MAX_LEADING_ROWS] for p in parts]
    bulks = [_LeadingRows.of(p, some, constants.BULK_TRIM, bulk) for p, some in zip(parts, rows, strict=True)]
    full = [_LeadingRows.of(p, some, 0.0, bulk) for p, some in zip(parts, rows, strict=True)]
    first, even = _sample_grid(bulks, deviation, count * spacing)
    whole = count * (constants.WORK["frequency"] + constants.WORK["product"] * atoms)
    if constants.WORK["sample"] * even > min(whole, constants.MAX_SAMPLING):
        return SignificantFrequencies(_affordable([(0, count)], atoms, max_work))
    t, log_bound = _first_samples(full, bulks, first, even, count * spacing)
    sample_cost = sum(some.offset.size for some in (*full, *bulks))
    divisions, spent = constants.SAMPLE_DIVISIONS, 0.0
    for _ in range(constants.SAMPLE_ROUNDS):
        divisible = np.diff(t) > 4 * divisions * spacing
        coarse = np.flatnonzero((log_bound > constants.NEGLIGIBLE_LOG_PRODUCT) & divisible)
        saved = float(np.diff(t)[coarse].sum()) / spacing * atoms
        cost = float(divisions * coarse.size * sample_cost)
        spent += cost
        if not coarse.size or saved < constants.ISOLATED_SAMPLE_COST * cost or spent > constants.MAX_DIVISION_WORK:
            break
        t, log_bound = _divide(t, log_bound, coarse, full, bulks)
    numbers = np.diff(t) / spacing + 1
    s = tilt + 1j * t[:-1]
    height = float(kernel.transform(np.array([tilt + 0j]))[0].real)
    products = 1 if bulk is None else 2
    density_terms = products * numbers * (spacing / math.pi) * height**2 * np.exp(log_bound)
    value_terms = density_terms / height / np.abs(s * (s + 1))
    order = np.argsort(value_terms)
    omitted = np.zeros(value_terms.size, dtype=bool)
    omitted[order[np.cumsum(value_terms[order]) <= allowance]] = True
    runs = _affordable(_runs(t, ~omitted, spacing), atoms, max_work)
    return SignificantFrequencies(runs, float(value_terms[omitted].sum()), float(density_terms[omitted].sum()))


def _affordable(runs: list[tuple[int, int]], atoms: int, max_work: float) -> list[tuple[int, int]]:
    """The runs; Unsupported where they have too many frequencies, or too many products with the atoms."""
    lengths = [last - first for first, last in runs]
    products = sum(length + constants.INTERVAL_WORK * math.sqrt(length) for length in lengths) * atoms
    if sum(lengths) > constants.MAX_FREQUENCIES or products > max_work:
        raise Unsupported(TOO_MANY_FREQUENCIES)
    return runs


def _sample_grid(bulks: Sequence[_LeadingRows], deviation: float, edge: float) -> tuple[Array, int]:
    """The first samples up to a frequency, which grow by a factor, and the number of evenly spaced ones after them."""
    most_compositions = max(int(some.counts.max()) for some in bulks)
    relative_step = next(step for least, step in constants.SAMPLE_SPACINGS if most_compositions >= least)
    step = relative_step / math.sqrt(max(float(some.square.max()) for some in bulks))
    growing = [min(constants.FIRST_SAMPLE / deviation, edge)]
    while growing[-1] < edge and growing[-1] * (constants.SAMPLE_GROWTH - 1) < step:
        growing.append(min(growing[-1] * constants.SAMPLE_GROWTH, edge))
    even = math.ceil((edge - growing[-1]) / step)
    return np.array(growing), even


def _first_samples(
    full: Sequence[_LeadingRows], bulks: Sequence[_LeadingRows], first: Array, even: int, edge: float
) -> tuple[Array, Array]:
    """The samples of ``_sample_grid``, and the bounds between them."""
    if even * sum(some.weight.size for some in bulks) > constants.MAX_SAMPLE_WORK:
        raise Unsupported(TOO_MANY_FREQUENCIES)
    constants.add("sample", even)
    even_spacing = (edge - first[-1]) / max(even, 1)
    t = np.append(first, first[-1] + even_spacing * np.arange(1, even + 1))
    log_bound = np.zeros(t.size - 1)
    for rows, bulk in zip(full, bulks, strict=True):
        moduli = bulk.moduli(first)
        if even:
            even_moduli = bulk.even_moduli(float(first[-1]) + even_spacing, even_spacing, even)
            moduli = np.concatenate([moduli, even_moduli])
        by_bulk = bulk.log_bound(moduli, np.diff(t))
        by_rows = rows.log_bound(rows.moduli(first), np.diff(first))
        by_bulk[: by_rows.size] = np.minimum(by_bulk[: by_rows.size], by_rows)
        log_bound += by_bulk
    return t, log_bound


def _divide(
    t: Array, log_bound: Array, coarse: Indices, full: Sequence[_LeadingRows], bulks: Sequence[_LeadingRows]
) -> tuple[Array, Array]:
    """The samples and bounds with the ``coarse`` intervals divided."""
    low, high, divisions = t[coarse], t[coarse + 1], constants.SAMPLE_DIVISIONS
    inner = low + (high - low) * np.arange(divisions + 1)[:, None] / divisions
    spacing = np.broadcast_to((high - low) / divisions, (divisions, low.size))
    finer = np.zeros(spacing.shape)
    for rows, bulk in zip(full, bulks, strict=True):
        by_rows, by_bulk = (
            some.log_bound(some.moduli(inner.ravel()).reshape(*inner.shape, -1), spacing) for some in (rows, bulk)
        )
        finer += np.minimum(by_rows, by_bulk)
    kept = np.ones(log_bound.size, dtype=bool)
    kept[coarse] = False
    starts = np.concatenate([t[:-1][kept], inner[:-1].ravel()])
    order = np.argsort(starts, kind="stable")
    return np.append(starts[order], t[-1]), np.concatenate([log_bound[kept], finer.ravel()])[order]


def _runs(t: Array, significant: Array, spacing: float) -> list[tuple[int, int]]:
    """The multiples of a spacing below the first sample and in significant intervals; short gaps are filled."""
    low = np.append(0.0, np.floor(t[:-1][significant] / spacing))
    high = np.ceil(np.append(t[0], t[1:][significant]) / spacing)
    gaps = np.flatnonzero(low[1:] > high[:-1] + constants.MAX_FILLED_GAP)
    firsts, lasts = low[np.append(0, gaps + 1)], high[np.append(gaps, high.size - 1)]
    return [(int(first), int(last)) for first, last in zip(firsts, lasts, strict=True)]


# Bounds of the wrap-around of an inverted transform, and the period that makes it small.


def wrap_around(
    parts: Sequence[TiltedAtoms],
    tilt: float,
    deviation: float,
    near: list[float],
    log_allowance: float,
    kernel: SmoothingKernel,
    bulk: Bulk | None,
) -> tuple[Array, float]:
    """Bound the wrap-around.

    With M at tilt b, delta at eps + a k is at most M(b) e^{-b (eps + a k)} for b >= 0.

    Args:
        near: values of eps at which it should be small. log_allowance: ln of what it may contribute to delta there.
    Returns:
        [2, 2n] tilts and logarithms of bounds, those above the tilt first; and the period, inf where none suffices.
    """
    shifts = constants.WRAP_TILTS / deviation
    below = np.minimum(shifts, tilt)
    other = np.concatenate([shifts, -below])
    tilts = tilt + other
    logs, log_bulk = np.zeros((2, other.size))
    for p in parts:
        part_logs, part_bulk = p.cumulants(other, math.inf if bulk is None else bulk.end)
        logs, log_bulk = logs + part_logs, log_bulk + part_bulk
    if bulk is not None:
        with np.errstate(divide="ignore"):
            logs = logs + np.log(-np.expm1(log_bulk))
    with np.errstate(divide="ignore", invalid="ignore"):
        logs = logs + kernel.log_moment(tilts) + tilts * kernel.shift + 1e-9
        logs = np.where(np.isfinite(logs), logs, np.inf)
        excess = [(logs - tilts * eps - log_allowance) / np.abs(other) for eps in near]
        periods = np.where(np.isfinite(logs), np.array(excess), np.inf)
    above_period = float(periods[:, : shifts.size].min(axis=1).max())
    below_period = float(periods[:, shifts.size :].min(axis=1).max())
    period = max(above_period, below_period, deviation)
    if not math.isfinite(period):  # the caller refuses
        return np.empty((2, 0)), period
    decay = np.maximum(np.abs(other) * period, constants.MASS_FLOOR)
    return np.array([tilts, logs - decay - np.log(-np.expm1(-decay))]), period
