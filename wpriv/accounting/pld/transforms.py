"""Transforms of the losses of steps, and products of their powers, with bounds of rounding errors."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from wpriv.accounting.pld import constants
from wpriv.accounting.pld.discretize import Sides, choose_nodes, discretize
from wpriv.accounting.pld.lattice import total_excess
from wpriv.accounting.pld.saddle_point import ApproximatePmf, StepGroup
from wpriv.core.atomic_pair import AtomicPair
from wpriv.numerics.arrays import Array, Counts
from wpriv.numerics.log_space import log_one_plus

Spectrum = NDArray[np.complex128]


@dataclass(frozen=True)
class TiltedAtoms:
    """The tilted PMFs of K distinct steps on common losses.

    Attributes:
        y: [m] losses in nats.
        weight: [K, m] tilted probabilities.
        log_norm: [K] ln E[e^{tilt L}].
        noise: [K] bound of the rounding error of ``log_norm``.
        counts: [K] number of compositions of each step.
        mass_at_plus_infinity: [K] P-mass at an infinite loss.
    """

    y: Array
    weight: Array
    log_norm: Array
    noise: Array
    counts: Counts
    mass_at_plus_infinity: Array

    @staticmethod
    def of(y: Array, mass: Array, tilt: float, counts: Counts, infinity: Array | float) -> TiltedAtoms:
        """Tilt P-masses [K, m] at finite losses [m]; ``infinity`` ([K] or one) is the P-mass at an infinite loss."""
        mass, infinity = np.atleast_2d(mass), np.broadcast_to(infinity, counts.shape)
        constants.add("atom", mass.size)
        keep = (mass > 0).any(axis=0)
        y, mass = y[keep], mass[:, keep]
        exponent = tilt * y
        unit = constants.UNIT_ROUNDOFF
        relative = unit * (y.size + 8)
        # ln E[e^{tilt L}] of a small loss is of second order: from E[e^{tilt L} - 1], or many steps would amplify its
        # rounding
        if float(exponent.max(initial=0.0)) < constants.MAX_EXPONENT_ATOMS:
            growth = np.expm1(exponent)
            size = mass @ np.abs(growth)
            if float(size.max()) < 0.5:
                weight = mass * (1.0 + growth)
                weight /= weight.sum(axis=1)[:, None]
                log_norm = np.log1p(mass @ growth + total_excess(mass, infinity))
                noise = 4 * relative * size + 4 * unit * size
                return TiltedAtoms(y, weight, log_norm, noise, counts, infinity)
        with np.errstate(divide="ignore"):
            log_mass = np.log(mass) + exponent
        peak = log_mass.max(axis=1)
        weight = np.exp(log_mass - peak[:, None])
        total = weight.sum(axis=1)
        noise = relative + 4 * unit * (1 + np.abs(peak) + float(np.abs(exponent).max()))
        return TiltedAtoms(y, weight / total[:, None], peak + np.log(total), noise, counts, infinity)

    @cached_property
    def centre(self) -> float:
        """A loss in the middle of the tilted PMFs, about which their transforms are taken."""
        return float((self.weight @ self.y).mean())

    @cached_property
    def offset(self) -> Array:
        """[m] losses relative to the centre."""
        return self.y - self.centre

    @cached_property
    def mean_distance(self) -> Array:
        """[K] mean distance of the tilted loss from the centre."""
        return np.asarray(self.weight @ np.abs(self.offset))

    @cached_property
    def variances(self) -> Array:
        """[K] variances of the tilted losses."""
        return np.asarray(np.maximum(self.weight @ self.offset**2 - (self.weight @ self.offset) ** 2, 0.0))

    def cumulants(self, shifts: Array, bulk_end: float = -math.inf) -> tuple[Array, Array]:
        """Cumulant generating functions of the composed loss at tilts other than this one.

        Args:
            shifts: [n] differences to the tilt. bulk_end: largest loss of the bulk.
        Returns:
            [n] sums over all steps of ln E[e^{(tilt + shift) L}], or inf; and of ln of the bulk's share of these.
        """
        large = self.y > bulk_end
        constants.add("exponential", shifts.size * self.y.size)
        with np.errstate(over="ignore", divide="ignore", invalid="ignore"):
            growth = np.exp(shifts[:, None] * self.offset)
            moment = growth @ self.weight.T
            total = (self.log_norm + shifts[:, None] * self.centre + np.log(moment)) @ self.counts
            jumps = (growth[:, large] @ self.weight[:, large].T) / moment
            log_bulk = np.log1p(-np.minimum(jumps, 1.0)) @ self.counts
        return np.where(np.isfinite(total), total, np.inf), np.where(np.isnan(log_bulk), -np.inf, log_bulk)

    def transform(self, first: int, last: int, spacing: float) -> tuple[Spectrum, Array]:
        """[J, K] E[e^{it (L - centre)}] - 1 at t = first .. last - 1 spacings, and a bound of its rounding error."""
        values = even_sums(self.offset, self.weight, first * spacing, spacing, last - first)
        return values, self.rounding(_multiples(first, last, spacing), self.mean_distance)

    def split_transform(
        self, first: int, last: int, spacing: float, bulk_end: float
    ) -> tuple[tuple[Spectrum, Array], tuple[Spectrum, Array]]:
        """As ``transform`` for losses up to ``bulk_end``; and E[e^{it (L - centre)}; L > bulk_end] and its rounding."""
        large = self.y > bulk_end
        t = _multiples(first, last, spacing)
        bulk, few = self.weight[:, ~large], self.weight[:, large]
        distance = np.abs(self.offset)
        jump_mass = few.sum(axis=1)
        bulk_values = even_sums(self.offset[~large], bulk, first * spacing, spacing, last - first) - jump_mass
        jump_values = even_sums(self.offset[large], few, first * spacing, spacing, last - first) + jump_mass
        unit = constants.UNIT_ROUNDOFF
        bulk_error = self.rounding(t, bulk @ distance[~large]) + 4 * unit * jump_mass
        jump_error = self.rounding(t, few @ distance[large]) + self.roundings * unit * jump_mass
        return (bulk_values, bulk_error), (jump_values, jump_error)

    @property
    def roundings(self) -> float:
        """Bound on the number of roundings in a sum over the atoms."""
        chunk = constants.ATOMS_PER_SUM
        return 3 * (min(self.y.size, chunk) + self.y.size / chunk) + 24

    def rounding(self, t: Array, mean_distance: Array) -> Array:
        """[J, K] bound of the rounding of sums of weight (e^{it offset} - 1), for weights with this mean distance."""
        angle = t[:, None] * mean_distance
        return np.asarray(constants.UNIT_ROUNDOFF * (self.roundings * np.minimum(angle, 3.0) + 4 * angle))


def wave_minus_one(angle: Array) -> Spectrum:
    """e^{i angle} - 1, without cancellation where the angle is small."""
    constants.add("wave", angle.size)
    half = np.sin(angle / 2)
    return np.asarray(-2 * half * half + 1j * np.sin(angle))


def even_sums(offset: Array, weights: Array, start: float, spacing: float, count: int) -> Spectrum:
    """[count, K] the sums over atoms of weight (e^{it offset} - 1) at t = start, start + spacing, ...

    Each wave is a product of two out of about 2 sqrt(count): uv - 1 = (u-1)(v-1) + (u-1) + (v-1).

    Args:
        offset: [m] losses. weights: [K, m] weights.
    """
    constants.add("product", count * weights.size)
    if count <= constants.MAX_DIRECT_FREQUENCIES:
        waves = wave_minus_one((start + spacing * np.arange(count))[:, None] * offset)
        return np.asarray(sum(waves[:, chunk] @ weights[:, chunk].T for chunk in _chunks(offset.size)))
    inner = math.isqrt(count - 1) + 1
    outer = -(-count // inner)
    fine = wave_minus_one(spacing * np.arange(inner)[:, None] * offset)
    coarse = wave_minus_one((start + spacing * inner * np.arange(outer))[:, None] * offset)
    sums = np.zeros((outer, inner, weights.shape[0]), dtype=np.complex128)
    for chunk in _chunks(offset.size):
        left, right, weight = coarse[:, chunk], fine[:, chunk].T.copy(), weights[:, chunk]
        for k, row in enumerate(weight):
            sums[:, :, k] += (left * row) @ right
        sums += (left @ weight.T)[:, None] + right.T @ weight.T
    return sums.reshape(outer * inner, -1)[:count]


def _multiples(first: int, last: int, spacing: float) -> Array:
    return np.asarray(spacing * np.arange(first, last), dtype=np.float64)


def _chunks(size: int) -> list[slice]:
    chunk = constants.ATOMS_PER_SUM
    return [slice(start, start + chunk) for start in range(0, size, chunk)]


# Pessimistic and optimistic tilted PMFs of the steps of a group on scattered losses, which need not lie on a lattice.
#
# A pair of few atoms is used exactly. Any other pair is discretised on nodes that are dense where its tilted mass lies.


def scatter_atoms(
    group: StepGroup,
    pmf: ApproximatePmf,
    distance: float,
    tilts: tuple[float, float],
    masses: tuple[float, float],
    focus: tuple[float, float] | None,
) -> Sides[TiltedAtoms]:
    """Discretise a group's pairs.

    Args:
        distance: mean spacing of the nodes where the tilted mass lies, in nats.
        tilts: the tilt that decides where nodes are needed, and that of the PMFs.
        masses: P-mass above, and tilted mass below the nodes that may be neglected, as for ``choose_nodes``.
        focus: range of losses where single ones decide the answer, whatever their weight, if there is one.
    Returns:
        The pessimistic PMFs, and a function that makes the optimistic ones.
    Raises:
        Unsupported: too many nodes would be needed.
    """
    pair, (node_tilt, tilt) = group.pair, tilts
    if isinstance(pair, AtomicPair) and pair.losses.size <= constants.MAX_EXACT_ATOMS:
        return _exact_atoms(pair, tilt, group, masses[0])
    finest = constants.FINEST_NODE_SPACING
    step = finest * min(distance, constants.MAX_CHORD_SPACING)
    limit = constants.MAX_SCATTERED_NODES
    index = choose_nodes(group, pmf, step, node_tilt, *masses, extra=finest**-2, focus=focus, limit=limit)
    y = np.asarray(index * step, dtype=np.float64)
    if pair.atoms.size <= constants.MAX_NODE_ATOMS:
        y = _with_atoms(y, pair.atoms, step)
    return discretize(pair, y, lambda mass, beyond: TiltedAtoms.of(y, mass, tilt, group.counts, beyond))


def _exact_atoms(pair: AtomicPair, tilt: float, group: StepGroup, top_mass: float) -> Sides[TiltedAtoms]:
    """The atoms themselves; the largest, of at most ``top_mass`` together, move to infinity in the pessimistic PMF."""
    mass = np.exp(pair.log_p)
    above = np.append(np.cumsum(mass[::-1])[::-1], 0.0)
    last = max(int(np.searchsorted(-above, -top_mass)), 1)
    beyond = float(above[last]) + math.exp(pair.log_beyond)
    losses, mass = pair.losses[:last], mass[:last]
    infinity = pair.mass_at_plus_infinity
    upper = TiltedAtoms.of(losses, mass, tilt, group.counts, infinity + beyond)
    return upper, lambda: TiltedAtoms.of(losses, mass, tilt, group.counts, infinity)


def _with_atoms(y: Array, atoms: Array, step: float) -> Array:
    """The nodes with the atoms among them, in place of those next to an atom, also of the first and the last."""
    inside = atoms[(atoms > y[0]) & (atoms < y[-1])]
    if not inside.size:
        return y
    at = np.searchsorted(inside, y)
    beside = np.minimum(at, inside.size - 1), np.maximum(at - 1, 0)
    distance = np.minimum(*(np.abs(y - inside[place]) for place in beside))
    # an atom must not lie next to two nodes, where the rounding of tails would count it twice
    apart = distance > constants.ATOM_NODE_WIDTHS * constants.NODE_HALF_WIDTH * np.abs(y)
    kept = apart & (distance > constants.ATOM_NODE_DISTANCE * step)
    kept[[0, -1]] = apart[[0, -1]]
    return np.unique(np.concatenate([y[kept], inside]))


# Products of powers of the transforms of steps, if need be without a bulk, with bounds of their rounding errors.


@dataclass(frozen=True)
class Bulk:
    """The losses up to ``end``: a sum of such losses alone cannot come near eps and contributes nothing to delta."""

    end: float

    @staticmethod
    def of(parts: Sequence[TiltedAtoms], eps: float) -> Bulk | None:
        """The bulk for a question at eps; None if subtracting it gains nothing, as its tilted probability is small."""
        end = constants.BULK_EPS_SHARE * eps / step_count(parts)
        if not end > 0:
            return None
        jumps = [p.weight[:, p.y > end].sum(axis=1) for p in parts]
        log_none = sum(float(p.counts @ np.log1p(-np.minimum(some, 0.5))) for p, some in zip(parts, jumps, strict=True))
        rare = all(float(some.max()) < constants.MAX_JUMP_PROBABILITY for some in jumps)
        rare = rare and log_none > math.log(constants.MIN_NO_JUMP_PROBABILITY)
        return Bulk(end) if rare and any(float(some.max()) > 0 for some in jumps) else None


def step_count(parts: Sequence[TiltedAtoms]) -> int:
    """Number of steps, all compositions counted."""
    return sum(int(p.counts.sum()) for p in parts)


def product_of_powers(
    parts: Sequence[TiltedAtoms], first: int, last: int, spacing: float, bulk: Bulk | None
) -> tuple[Spectrum, Array]:
    """The product of powers of transforms at frequencies ``first`` to ``last``, and a bound of its rounding error.

    With a bulk, the product of the powers of its transforms b alone is subtracted: b^n (e^{n ln(1 + j/b)} - 1), j the
    transform of the remaining losses, or (b + j)^n - b^n where that is known more accurately.
    """
    power, total = PowerProduct.one(last - first), PowerProduct.one(last - first)
    jump_logs, jump_noise = np.zeros(last - first, dtype=np.complex128), np.zeros(last - first)
    unit = constants.UNIT_ROUNDOFF
    for p in parts:
        constants.add("frequency", (last - first) * p.counts.size)
        if bulk is None:
            power = power.times(*p.transform(first, last, spacing), p.counts)
            continue
        (bulk_values, bulk_error), (jumps, jump_error) = p.split_transform(first, last, spacing, bulk.end)
        power = power.times(bulk_values, bulk_error, p.counts)
        total = total.times(bulk_values + jumps, bulk_error + jump_error, p.counts)
        size = np.maximum(np.abs(1 + bulk_values), 1e-300)
        ratio = jumps / size * np.exp(-1j * np.angle(1 + bulk_values))
        logs, arguments = log_one_plus(ratio)
        jump_logs += (np.maximum(logs, -700.0) + 1j * arguments) @ p.counts
        ratio_error = (jump_error + np.abs(ratio) * bulk_error) / np.maximum(size - np.abs(jumps), 1e-300)
        ratio_error = ratio_error + 8 * unit * np.abs(ratio)
        jump_noise += np.minimum(ratio_error, 1e300) @ p.counts
    value, value_error = power.value()
    if bulk is None:
        return value, value_error
    growth = np.expm1(np.minimum(jump_logs.real, 700.0) + 1j * jump_logs.imag)
    growth_error = np.abs(value) * np.exp(np.minimum(power.noise + jump_logs.real, 700.0))
    growth_error = growth_error * np.expm1(np.minimum(jump_noise, 700.0))
    product = value * growth
    error = np.abs(growth) * value_error + growth_error + 8 * unit * np.abs(value * growth)
    total_value, total_error = total.value()
    difference = total_value - value
    difference_error = total_error + value_error + 2 * unit * (np.abs(total_value) + np.abs(value))
    better = difference_error < error
    return np.where(better, difference, product), np.where(better, difference_error, error)


@dataclass(frozen=True)
class PowerProduct:
    """Powers of transforms multiplied, at [J] frequencies: ln of modulus, argument, and ln of the rounding factor."""

    log: Array
    phase: Array
    noise: Array

    @staticmethod
    def one(count: int) -> PowerProduct:
        return PowerProduct(*np.zeros((3, count)))

    def times(self, values: Spectrum, errors: Array, counts: Counts) -> PowerProduct:
        """The product with the powers of 1 + ``values`` [J, K], known up to ``errors``."""
        logs, arguments = log_one_plus(values)
        with np.errstate(over="ignore"):
            noise = np.log1p(errors * np.exp(-np.maximum(logs, -700.0))) @ counts
        # the rounding of the values, of their logarithms and of the sum of these
        unit = constants.UNIT_ROUNDOFF
        noise = noise + 4 * unit * ((np.abs(np.maximum(logs, -700.0)) + np.abs(arguments)) @ counts)
        return PowerProduct(self.log + logs @ counts, self.phase + arguments @ counts, self.noise + noise)

    def value(self) -> tuple[Spectrum, Array]:
        """The product, and a bound of its error: (|v| + e)^n - |v|^n."""
        power = np.exp(np.maximum(self.log, -1e5) + 1j * self.phase)
        with np.errstate(over="ignore"):
            return power, np.abs(power) * np.expm1(np.minimum(self.noise, 700.0))
