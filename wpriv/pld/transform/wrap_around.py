"""Bounds of the wrap-around of an inverted transform, and the period that makes it small."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from wpriv.numerics.arrays import Array
from wpriv.pld import constants
from wpriv.pld.transform import transform_constants
from wpriv.pld.transform.atomic_transforms import TiltedAtoms
from wpriv.pld.transform.smoothing_kernel import SmoothingKernel
from wpriv.pld.transform.transform_product import Bulk


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
        near: values of eps at which it should be small.
        log_allowance: ln of what it may contribute to delta there.
    Returns:
        [2, 2n] tilts and logarithms of bounds, those above the tilt first; and the period, inf where none suffices.
    """
    shifts = transform_constants.WRAP_TILTS / deviation
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
        periods = np.array(
            [np.where(np.isfinite(logs), (logs - tilts * eps - log_allowance) / np.abs(other), np.inf) for eps in near]
        )
    above_period = float(periods[:, : shifts.size].min(axis=1).max())
    below_period = float(periods[:, shifts.size :].min(axis=1).max())
    period = max(above_period, below_period, deviation)
    if not math.isfinite(period):  # the caller refuses
        return np.empty((2, 0)), period
    decay = np.maximum(np.abs(other) * period, constants.MASS_FLOOR)
    return np.array([tilts, logs - decay - np.log(-np.expm1(-decay))]), period
