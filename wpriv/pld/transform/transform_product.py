"""Products of powers of the transforms of steps, if need be without a bulk, with bounds of their rounding errors."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from wpriv.numerics.arrays import Array, Counts
from wpriv.numerics.log_space import log_one_plus
from wpriv.pld import constants, work
from wpriv.pld.transform import transform_constants
from wpriv.pld.transform.atomic_transforms import Spectrum, TiltedAtoms


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
        rare = all(float(some.max()) < transform_constants.MAX_JUMP_PROBABILITY for some in jumps)
        rare = rare and log_none > math.log(transform_constants.MIN_NO_JUMP_PROBABILITY)
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
    power, total = _Power.one(last - first), _Power.one(last - first)
    jump_logs, jump_noise = np.zeros(last - first, dtype=np.complex128), np.zeros(last - first)
    unit = constants.UNIT_ROUNDOFF
    for p in parts:
        work.add("frequency", (last - first) * p.counts.size)
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
class _Power:
    """Powers of transforms multiplied, at [J] frequencies: ln of modulus, argument, and ln of the rounding factor."""

    log: Array
    phase: Array
    noise: Array

    @staticmethod
    def one(count: int) -> _Power:
        return _Power(*np.zeros((3, count)))

    def times(self, values: Spectrum, errors: Array, counts: Counts) -> _Power:
        """The product with the powers of 1 + ``values`` [J, K], known up to ``errors``."""
        logs, arguments = log_one_plus(values)
        with np.errstate(over="ignore"):
            noise = np.log1p(errors * np.exp(-np.maximum(logs, -700.0))) @ counts
        # the rounding of the values, of their logarithms and of the sum of these
        unit = constants.UNIT_ROUNDOFF
        noise = noise + 4 * unit * ((np.abs(np.maximum(logs, -700.0)) + np.abs(arguments)) @ counts)
        return _Power(self.log + logs @ counts, self.phase + arguments @ counts, self.noise + noise)

    def value(self) -> tuple[Spectrum, Array]:
        """The product, and a bound of its error: (|v| + e)^n - |v|^n."""
        power = np.exp(np.maximum(self.log, -1e5) + 1j * self.phase)
        with np.errstate(over="ignore"):
            return power, np.abs(power) * np.expm1(np.minimum(self.noise, 700.0))
