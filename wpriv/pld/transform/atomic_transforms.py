"""Tilted laws of steps on finitely many losses, and their transforms E[e^{(c + it) L}] with bounds of their rounding."""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from wpriv.numerics.arrays import Array, Counts

Spectrum = NDArray[np.complex128]
UNIT = 2.0**-53
# frequencies up to which the transform is summed wave by wave
FEW = 12
# atoms that are summed at once: a sum of sums of so many gathers far fewer roundings
CHUNK = 256
# exponents up to which e^{tilt L} is taken as it is
LARGEST = 500.0


@dataclass(frozen=True)
class TiltedAtoms:
    """The tilted laws of K kinds of steps on losses ``y`` [m]: probabilities ``weight`` [K, m] and ``log_norm`` [K] = ln E[e^{tilt L}].

    ``noise`` [K] bounds the rounding in ``log_norm``, ``counts`` [K] says how often each step is run, ``infinity`` [K] is its P-mass at an
    infinite loss.
    """

    y: Array
    weight: Array
    log_norm: Array
    noise: Array
    counts: Counts
    mass_at_plus_infinity: Array

    @staticmethod
    def of(y: Array, mass: Array, tilt: float, counts: Counts, infinity: Array) -> TiltedAtoms:
        """From P-masses [K, m] at finite losses [m]."""
        mass = np.atleast_2d(mass)
        keep = (mass > 0).any(axis=0)
        y, mass = y[keep], mass[:, keep]
        exponent = tilt * y
        relative = UNIT * (y.size + 8)
        # ln E[e^{tilt L}] of a small loss is of second order: from E[e^{tilt L} - 1], or many steps would amplify its rounding
        if float(exponent.max(initial=0.0)) < LARGEST:
            grown = np.expm1(exponent)
            size = mass @ np.abs(grown)
            if float(size.max()) < 0.5:
                excess = np.array([_excess(row) for row in mass])
                weight = mass * (1.0 + grown)
                weight /= weight.sum(axis=1)[:, None]
                return TiltedAtoms(
                    y, weight, np.log1p(mass @ grown + excess), 4 * relative * size + 4 * UNIT * size, counts, infinity
                )
        with np.errstate(divide="ignore"):
            log_mass = np.log(mass) + exponent
        peak = log_mass.max(axis=1)
        weight = np.exp(log_mass - peak[:, None])
        total = weight.sum(axis=1)
        noise = relative + 4 * UNIT * (1 + np.abs(peak) + float(np.abs(exponent).max()))
        return TiltedAtoms(y, weight / total[:, None], peak + np.log(total), noise, counts, infinity)

    @cached_property
    def centre(self) -> float:
        """A loss in the middle of the tilted laws, which their transforms are taken about."""
        return float((self.weight @ self.y).mean())

    @cached_property
    def away(self) -> Array:
        return self.y - self.centre

    @cached_property
    def size(self) -> Array:
        """[K] the mean distance from the centre."""
        return np.asarray(self.weight @ np.abs(self.away))

    @cached_property
    def variances(self) -> Array:
        return np.asarray(np.maximum(self.weight @ self.away**2 - (self.weight @ self.away) ** 2, 0.0))

    def cumulants(self, shifts: Array, most: float = -math.inf) -> tuple[Array, Array]:
        """[len(shifts)] sums over all steps: of ln E[e^{(tilt + shift) L}], or inf; and of ln of the share that the losses <= most have."""
        large = self.y > most
        with np.errstate(over="ignore", divide="ignore", invalid="ignore"):
            grown = np.exp(shifts[:, None] * self.away)
            whole = grown @ self.weight.T
            total = (self.log_norm + shifts[:, None] * self.centre + np.log(whole)) @ self.counts
            jumps = (grown[:, large] @ self.weight[:, large].T) / whole
            never = np.log1p(-np.minimum(jumps, 1.0)) @ self.counts
        return np.where(np.isfinite(total), total, np.inf), np.where(np.isnan(never), -np.inf, never)

    def transform(self, first: int, last: int, spacing: float) -> tuple[Spectrum, Array]:
        """[J, K] E[e^{it (L - centre)}] - 1 at t = first .. last - 1 spacings, and a bound of its rounding."""
        moved = even_sums(self.away, self.weight, first * spacing, spacing, last - first)
        return moved, self.rounding(_even(first, last, spacing), self.size)

    def parted(
        self, first: int, last: int, spacing: float, most: float
    ) -> tuple[tuple[Spectrum, Array], tuple[Spectrum, Array]]:
        """As ``transform`` for the losses up to ``most``; and the part E[e^{it (L - centre)}; L > most] with its rounding."""
        large = self.y > most
        t = _even(first, last, spacing)
        bulk, few = np.where(large, 0.0, self.weight), self.weight[:, large]
        far = np.abs(self.away)
        jumps = few.sum(axis=1)
        moved = even_sums(self.away, bulk, first * spacing, spacing, last - first) - jumps
        apart = even_sums(self.away[large], few, first * spacing, spacing, last - first) + jumps
        return (moved, self.rounding(t, bulk @ far) + 4 * UNIT * jumps), (
            apart,
            self.rounding(t, few @ far[large]) + self.roundings * UNIT * jumps,
        )

    @property
    def roundings(self) -> float:
        """How many roundings a sum over the atoms may gather."""
        return 3 * (min(self.y.size, CHUNK) + self.y.size / CHUNK) + 24

    def rounding(self, t: Array, size: Array) -> Array:
        """[J, K] a bound of the rounding in sums of weight (e^{it away} - 1), of weights with the mean distance ``size``."""
        angle = t[:, None] * size
        return np.asarray(UNIT * (self.roundings * np.minimum(angle, 3.0) + 4 * angle))


def log_one_plus(moved: Spectrum) -> tuple[Array, Array]:
    """ln |1 + moved| and the argument of 1 + moved, without cancellation where it is near one."""
    square = np.maximum(2 * moved.real + np.abs(moved) ** 2, -1.0)
    with np.errstate(divide="ignore"):
        log = np.where(square > -0.5, 0.5 * np.log1p(square), np.log(np.abs(1 + moved)))
    return log, np.arctan2(moved.imag, 1 + moved.real)


def _excess(mass: Array) -> float:
    """The sum of the masses less one, zero where it differs by no more than rounding."""
    excess = math.fsum(mass.tolist()) - 1.0
    return 0.0 if abs(excess) < 1e-14 else excess


def wave_minus_one(angle: Array) -> Spectrum:
    """e^{i angle} - 1, without cancellation where the angle is small."""
    half = np.sin(angle / 2)
    return np.asarray(-2 * half * half + 1j * np.sin(angle))


def even_sums(away: Array, weights: Array, start: float, spacing: float, count: int) -> Spectrum:
    """[count, K] the sums over atoms of weight (e^{it away} - 1) at t = start, start + spacing, ...

    Each wave is a product of two of some 2 sqrt(count): uv - 1 = (u-1)(v-1) + (u-1) + (v-1).
    """
    if count <= FEW:
        waves = wave_minus_one((start + spacing * np.arange(count))[:, None] * away)
        return np.asarray(sum(waves[:, some] @ weights[:, some].T for some in _chunks(away.size)))
    inner = math.isqrt(count - 1) + 1
    outer = -(-count // inner)
    fine = wave_minus_one(spacing * np.arange(inner)[:, None] * away)
    coarse = wave_minus_one((start + spacing * inner * np.arange(outer))[:, None] * away)
    sums = np.zeros((outer, inner, weights.shape[0]), dtype=np.complex128)
    for some in _chunks(away.size):
        left, right, weight = coarse[:, some], fine[:, some].T.copy(), weights[:, some]
        for k, row in enumerate(weight):
            sums[:, :, k] += (left * row) @ right
        sums += (left @ weight.T)[:, None] + right.T @ weight.T
    return sums.reshape(outer * inner, -1)[:count]


def _even(first: int, last: int, spacing: float) -> Array:
    return np.asarray(spacing * np.arange(first, last), dtype=np.float64)


def _chunks(size: int) -> list[slice]:
    return [slice(start, start + CHUNK) for start in range(0, size, CHUNK)]
