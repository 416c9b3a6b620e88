"""The composed loss by its transform: delta as a contour integral of a product of powers, with every error bounded.

docs/theory/certified-pld.md has the proofs, from Theorem 9 on. The transforms are finite sums wherever the atoms of the
steps lie: no lattice is needed, and a sum of many losses has a transform that decays within some tens of frequencies.
Bounded are the wrap-around of the trapezoidal rule (``wrap_around``), the smoothing that truncates the integral,
frequencies that are left out (``negligible_frequencies``), and rounding, term by term. Outcomes without any large loss,
which cannot come near eps, are subtracted from the product, so that rounding of their large probability does not hide
that of rare large losses. The lower end subtracts all errors; the upper one adds those that may have made it too small.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from wpriv.accounting.pld import constants
from wpriv.accounting.pld.negligible_frequencies import (
    TOO_MANY_FREQUENCIES,
    SignificantFrequencies,
    SmoothingKernel,
    significant_frequencies,
    wrap_around,
)
from wpriv.accounting.pld.saddle_point import Cumulants, tilt_for_contour
from wpriv.accounting.pld.step_groups import Steps, TwoSidedComposition, approximate_single_loss_delta, compose_sides
from wpriv.accounting.pld.step_nodes import split_by_node_count
from wpriv.accounting.pld.transforms import Bulk, Spectrum, TiltedAtoms, product_of_powers, scatter_atoms, step_count
from wpriv.errors import Unsupported
from wpriv.numerics.arrays import Array


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
