"""The composed loss by its transform: delta as a contour integral of a product of powers, with every error bounded.

docs/theory/certified-pld.md has the proofs, from Theorem 9 on. The transforms are finite sums wherever the atoms of the
steps lie: no lattice is needed, and a sum of many losses has a transform that decays within some tens of frequencies.
Bounded are the wrap-around of the trapezoidal rule (``wrap_around``), the smoothing that truncates the integral,
frequencies that are left out (``significant_frequencies``), and rounding, term by term. Outcomes without any large
loss, which cannot come near eps, are subtracted from the product, so that rounding of their large probability does not
hide that of rare large losses. The lower end subtracts all errors; the upper one adds those that may have made it too
small.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from wpriv.accounting.pld import constants
from wpriv.accounting.pld.discretize import split_by_node_count
from wpriv.accounting.pld.saddle_point import Cumulants, tilt_for_contour
from wpriv.accounting.pld.step_groups import Steps, TwoSidedComposition, approximate_single_loss_delta, compose_sides
from wpriv.accounting.pld.transforms import (
    Bulk,
    Spectrum,
    TiltedAtoms,
    even_sums,
    product_of_powers,
    scatter_atoms,
    step_count,
    wave_minus_one,
)
from wpriv.errors import Unsupported
from wpriv.numerics.arrays import Array, Counts

# What an inverted transform may leave out: the kernel, frequencies, and the wrap-around.
#
# A PMF has a transform that does not decay. An added variable N with E[e^-N] = 1 and values of at most w makes it small
# beyond the frequency KERNEL_SHAPE / w, and raises delta by a bounded amount (docs/theory/certified-pld.md,
# Theorem 10).


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


# The composed loss from the frequencies that are left.


@dataclass(frozen=True)
class TransformComposition:
    """A composed PLD given by weighted values of its transform, to be evaluated near ``centre``.

    delta is e^{log_scale - tilt x} times the sum of Re(value e^{-i t x}), x = eps - centre. The same sum with
    ``density`` times ``gap_factor`` bounds by how much smoothing raised delta.

    Attributes:
        tilt: of the contour. centre: mean of the tilted loss, about. log_scale: ln of the scale of delta there.
        t, value, density: [J] frequencies, and the weighted transforms for delta and for the density.
        slack, density_slack: bounds on the errors of the sums with ``value`` and ``density``.
        wraps: [2, 2n] tilts and logarithms that bound the wrap-around. mass_at_plus_infinity: composed P-mass there.
        cells: number of atoms of all steps, by which the cost of a refinement is judged.
        least_eps: below this eps no answer but the trivial one is given.
    """

    tilt: float
    centre: float
    log_scale: float
    t: Array
    value: Spectrum
    density: Spectrum
    slack: float
    density_slack: float
    gap_factor: float
    wraps: Array
    mass_at_plus_infinity: float
    cells: int
    least_eps: float

    def delta(self, eps: float, sign: int) -> float:
        """delta at eps from above (sign +1) or from below (sign -1)."""
        x = eps - self.centre
        scale = math.exp(min(self.log_scale - self.tilt * x, 700.0))
        if scale > 1e300 or eps < self.least_eps:
            return 1.0 if sign > 0 else self.mass_at_plus_infinity
        wave = np.exp(-1j * self.t * x)
        unit = constants.UNIT_ROUNDOFF
        # the rounding of the waves
        slack = self.slack + unit * (4 * abs(x) * self._steepness + 40 * self._sizes[0])
        # summed pairwise, so that the rounding of the sum stays within that
        value = float((self.value * wave).real.sum())
        if sign > 0:
            return min(max((value + slack) * scale, 5e-324) + self.mass_at_plus_infinity, 1.0)
        density_slack = self.density_slack + unit * (4 * abs(x) * float(self.t[-1]) + 40) * self._sizes[1]
        density = max(float((self.density * wave).real.sum()) + density_slack, 0.0)
        wrapped = np.exp(np.minimum(self.wraps[1] - self.wraps[0] * eps, 700.0)).reshape(2, -1).min(axis=1).sum()
        finite = (value - slack - self.gap_factor * density) * scale - float(wrapped)
        return min(max(finite, 0.0) + self.mass_at_plus_infinity, 1.0)

    @cached_property
    def _sizes(self) -> tuple[float, float]:
        return float(np.abs(self.value).sum()), float(np.abs(self.density).sum())

    @cached_property
    def _steepness(self) -> float:
        return float(np.abs(self.value) @ self.t)


def invert_transform(
    parts: Sequence[TiltedAtoms], tilt: float, eps: float, mean: float, delta: float, error: float, relative: float
) -> TransformComposition:
    """Compose tilted atoms, to be evaluated near eps.

    Args:
        parts: tilted PMFs of the steps. tilt: c > 0. mean: estimate of the tilted mean from which eps was guessed.
        delta: its value at eps, about. error: by how much in eps smoothing may move the answer, about.
        relative: relative accuracy of delta that is wanted.
    """
    deviation = math.sqrt(sum(float(p.counts @ p.variances) for p in parts))
    if not deviation > 0:
        raise Unsupported("the composed loss has a single value")
    log_norm = sum(float(p.counts @ p.log_norm) for p in parts)
    centre = sum(float(p.counts.sum()) * p.centre for p in parts)
    moved = centre + sum(float(p.counts @ (p.weight @ p.offset)) for p in parts) - mean
    bulk = Bulk.of(parts, eps)
    kernel = _kernel(deviation if bulk is None else max(deviation, constants.MAX_KERNEL_WIDTH * eps), tilt, error)
    shift = kernel.shift
    if bulk is not None:
        largest = bulk.end * step_count(parts) + kernel.width + shift
        bulk = None if largest > constants.BULK_KERNEL_EPS_SHARE * eps else bulk
    near = [eps - shift, eps - shift + moved]
    log_allowance = math.log(max(constants.FREQUENCY_ERROR_SHARE * relative * delta, constants.MASS_FLOOR))
    wraps, period = wrap_around(parts, tilt, deviation, near, log_allowance, kernel, bulk)
    if not math.isfinite(period):
        raise Unsupported(TOO_MANY_FREQUENCIES)
    spacing = 2 * math.pi / period
    count = math.ceil(kernel.edge / spacing)
    if count > constants.MAX_KERNEL_FREQUENCIES:
        raise Unsupported(TOO_MANY_FREQUENCIES)
    log_scale = log_norm - tilt * centre
    # what all omitted frequencies together may contribute to the sum, whose size is about this
    size = math.exp(min(math.log(delta) - log_scale + tilt * (min(near) - centre), 0.0))
    allowance = min(size, 0.1 / ((1 + deviation * tilt) * (1 + tilt)))
    allowance = constants.FREQUENCY_ERROR_SHARE * relative * allowance
    atoms = sum(p.weight.size for p in parts)
    chosen = SignificantFrequencies([(0, count)])
    if count * atoms > constants.CHEAP_TRANSFORM_WORK:
        work = constants.MAX_TRANSFORM_WORK
        chosen = significant_frequencies(parts, tilt, deviation, spacing, count, kernel, allowance, work, bulk)
    t, value, density, errors = _weighted_values(parts, chosen, tilt, spacing, kernel, bulk, allowance)
    beyond = beyond_edge(kernel, tilt, count, spacing)
    infinity = -math.expm1(sum(float(p.counts @ np.log1p(-p.mass_at_plus_infinity)) for p in parts))
    slack = errors[0] + chosen.omitted_value + beyond[0]
    density_slack = errors[1] + chosen.omitted_density + beyond[1]
    cells, gap = sum(p.y.size for p in parts), kernel.gap_factor()
    least_eps = -math.inf if bulk is None else bulk.end * step_count(parts) + shift + kernel.width + 1e-9
    sums = t, value, density, slack, density_slack
    return TransformComposition(tilt, centre + shift, log_scale, *sums, gap, wraps, infinity, cells, least_eps)


def _kernel(scale: float, tilt: float, error: float) -> SmoothingKernel:
    """The kernel whose smoothing moves eps by its share of the error; its width stays well below ``scale``."""
    width = math.sqrt(constants.SMOOTHING_SHARE * error / (1 + tilt) / constants.KERNEL_VARIANCE)
    return SmoothingKernel(min(width, constants.MAX_KERNEL_WIDTH, constants.MAX_KERNEL_DEVIATIONS * scale))


def _weighted_values(
    parts: Sequence[TiltedAtoms],
    chosen: SignificantFrequencies,
    tilt: float,
    spacing: float,
    kernel: SmoothingKernel,
    bulk: Bulk | None,
    allowance: float,
) -> tuple[Array, Spectrum, Spectrum, list[float]]:
    """Frequencies, weighted transforms for delta and for the density, and bounds on the errors of the two sums."""
    place = np.concatenate([np.arange(first, last) for first, last in chosen.runs])
    products = [product_of_powers(parts, first, last, spacing, bulk) for first, last in chosen.runs]
    value, off = (np.concatenate(each) for each in zip(*products, strict=True))
    t = place * spacing
    s = tilt + 1j * t
    smooth = kernel.transform(s)
    weight = np.where(place == 0, 0.5, 1.0) * (spacing / math.pi)
    payoff, squared = weight * smooth / (s * (s + 1)), weight * smooth**2
    # the rounding of the values, for both sums, of the norms and of the sums themselves
    norms = math.expm1(min(sum(float(p.counts @ p.noise) for p in parts), 700.0))
    sizes = [float(np.abs(w * value).sum()) for w in (payoff, squared)]
    errors = [
        float(np.abs(w) @ off) + total * (norms + constants.UNIT_ROUNDOFF * 40)
        for w, total in zip((payoff, squared), sizes, strict=True)
    ]
    # frequencies that contribute almost nothing are not summed at each evaluation
    heights = np.abs(payoff * value)
    order = np.argsort(heights)
    negligible = np.cumsum(heights[order]) <= allowance
    negligible[-1] = False
    kept, left_out = np.sort(order[~negligible]), order[negligible]
    errors[0] += float(heights[left_out].sum())
    errors[1] += float(np.abs(squared * value)[left_out].sum())
    return t[kept], payoff[kept] * value[kept], squared[kept] * value[kept], errors


def beyond_edge(kernel: SmoothingKernel, tilt: float, count: int, spacing: float) -> tuple[float, float]:
    """Bounds of the two sums from count * spacing >= KERNEL_SHAPE / width on; the product is at most 1."""
    # |transform| <= 2 B e^-B |sinh(root) / root|, B the shape, and that is at most cosh of the root's real part, which
    # is at most sqrt(tilt w B) at the edge and tends to tilt w
    shape, lift, edge = constants.KERNEL_SHAPE, tilt * kernel.width, count * spacing
    largest = 2.01 * shape * math.exp(min(math.sqrt(lift * shape) + lift - shape, 700.0))
    # a sum of falling terms is at most its first term and the integral
    return largest * (1 + 1 / count) / (math.pi * edge), largest**2 * (edge + spacing) / math.pi


# Compose the steps by the transform of the composed loss: the choice of the nodes, the contour and the kernel.


def compose_by_transform(
    steps: Steps, state: Cumulants, tilt: float, eps: float, error: float, delta: float
) -> TwoSidedComposition:
    """Compose pessimistically and optimistically, accurate near eps.

    Args:
        state: cumulants at the tilt. tilt: the saddle point's.
        error: shift of eps by discretisation that is allowed, about, in nats. delta: delta at eps, about.
    Raises:
        Unsupported: too many nodes or frequencies would be needed.
    """
    deviation = math.sqrt(state.variance)
    relative = error * (tilt + 1 / deviation)
    relative = min(max(relative, constants.MIN_RELATIVE_ERROR), constants.MAX_RELATIVE_ERROR)
    node_tilt = _node_tilt(steps, state, tilt)
    plain = steps.cumulants(0.0).variance
    focus = None
    # where rare large losses decide, it may be a single one, whose weight at the saddle point's tilt vanishes beside
    # larger ones
    rare = state.variance > constants.RARE_LOSS_VARIANCE_RATIO * plain
    if rare and approximate_single_loss_delta(steps, eps) > constants.MIN_SINGLE_LOSS_SHARE * delta:
        focus = (eps / constants.FOCUS_RATIO, eps * constants.FOCUS_RATIO)
    log_range = math.log(max(relative / (constants.TRANSFORM_ROUNDING * math.sqrt(steps.total)), 1.0))
    log_allowance = math.log(delta) + math.log(relative) - constants.WRAPAROUND_LOG_MARGIN
    tilt = tilt_for_contour(steps.pmfs, steps.counts, node_tilt, eps, math.log(delta), log_allowance, log_range)
    share = math.exp(min(math.log(delta) - steps.cumulants(node_tilt).cgf + node_tilt * eps, 0.0))
    state = steps.cumulants(tilt)
    # chords of this width raise ln E[e^{node_tilt L}] over the tilt by the allowed error, over all steps
    distance = max(math.sqrt(8 * error / steps.total / (node_tilt + 1)), steps.least_spacing())
    sides = []
    for group, pmf in zip(steps.groups, steps.pmfs, strict=True):
        for part, part_pmf in split_by_node_count(group, pmf, node_tilt):
            masses = steps.negligible_mass(delta, part.counts), steps.negligible_bottom(share)
            sides.append(scatter_atoms(part, part_pmf, distance, (node_tilt, tilt), masses, focus))

    def compose(atoms: Sequence[TiltedAtoms]) -> TransformComposition:
        return invert_transform(atoms, tilt, eps, state.mean, delta, error, relative)

    return compose_sides(sides, compose, steps.rounding_shift(state), deviation)


def _node_tilt(steps: Steps, state: Cumulants, tilt: float) -> float:
    """The tilt by which nodes are chosen: the saddle point's, or one that still weighs that of rare large losses."""
    node_tilt = constants.MIN_NODE_TILT / math.sqrt(state.variance)
    while node_tilt > tilt:
        growth = steps.cumulants(node_tilt).cgf - state.cgf - (node_tilt - tilt) * state.mean
        if growth <= constants.MAX_NODE_LOG_GROWTH:
            return node_tilt
        node_tilt /= 2
    return tilt
