"""Tilted PMFs of steps on finitely many losses; their transforms E[e^{(c + it) L}] with bounds of rounding errors."""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from wpriv.numerics.arrays import Array, Counts
from wpriv.pld import constants, work
from wpriv.pld.lattice.lattice_pmf import total_excess
from wpriv.pld.transform import transform_constants

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
    def of(y: Array, mass: Array, tilt: float, counts: Counts, infinity: Array) -> TiltedAtoms:
        """Tilt P-masses [K, m] at finite losses [m]; ``infinity`` [K] is the P-mass at an infinite loss."""
        mass = np.atleast_2d(mass)
        work.add("atom", mass.size)
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
            shifts: [n] differences to the tilt.
            bulk_end: largest loss of the bulk.
        Returns:
            [n] sums over all steps of ln E[e^{(tilt + shift) L}], or inf; and of ln of the bulk's share of these.
        """
        large = self.y > bulk_end
        work.add("exponential", shifts.size * self.y.size)
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
        bulk, few = np.where(large, 0.0, self.weight), self.weight[:, large]
        distance = np.abs(self.offset)
        jump_mass = few.sum(axis=1)
        bulk_values = even_sums(self.offset, bulk, first * spacing, spacing, last - first) - jump_mass
        jump_values = even_sums(self.offset[large], few, first * spacing, spacing, last - first) + jump_mass
        unit = constants.UNIT_ROUNDOFF
        bulk_error = self.rounding(t, bulk @ distance) + 4 * unit * jump_mass
        jump_error = self.rounding(t, few @ distance[large]) + self.roundings * unit * jump_mass
        return (bulk_values, bulk_error), (jump_values, jump_error)

    @property
    def roundings(self) -> float:
        """Bound on the number of roundings in a sum over the atoms."""
        chunk = transform_constants.ATOMS_PER_SUM
        return 3 * (min(self.y.size, chunk) + self.y.size / chunk) + 24

    def rounding(self, t: Array, mean_distance: Array) -> Array:
        """[J, K] bound of the rounding of sums of weight (e^{it offset} - 1), for weights with this mean distance."""
        angle = t[:, None] * mean_distance
        return np.asarray(constants.UNIT_ROUNDOFF * (self.roundings * np.minimum(angle, 3.0) + 4 * angle))


def wave_minus_one(angle: Array) -> Spectrum:
    """e^{i angle} - 1, without cancellation where the angle is small."""
    work.add("wave", angle.size)
    half = np.sin(angle / 2)
    return np.asarray(-2 * half * half + 1j * np.sin(angle))


def even_sums(offset: Array, weights: Array, start: float, spacing: float, count: int) -> Spectrum:
    """[count, K] the sums over atoms of weight (e^{it offset} - 1) at t = start, start + spacing, ...

    Each wave is a product of two out of about 2 sqrt(count): uv - 1 = (u-1)(v-1) + (u-1) + (v-1).

    Args:
        offset: [m] losses.
        weights: [K, m] weights.
    """
    work.add("product", count * weights.size)
    if count <= transform_constants.MAX_DIRECT_FREQUENCIES:
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
    chunk = transform_constants.ATOMS_PER_SUM
    return [slice(start, start + chunk) for start in range(0, size, chunk)]
