"""Logarithms of differences that keep their digits where the direct formula cancels or overflows."""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import ArrayLike

from wpriv.numerics.arrays import Array


def safe_log(x: float) -> float:
    """Return ln x for x > 0, and -inf for x <= 0."""
    return math.log(x) if x > 0 else -math.inf


def log1mexp(x: ArrayLike) -> Array:
    """Compute ln(1 - e^x) for x <= 0, without cancellation at either end (Maechler 2012)."""
    y = np.asarray(x, dtype=float)
    with np.errstate(divide="ignore", invalid="ignore"):
        return np.asarray(np.where(y > -0.6931471805599453, np.log(-np.expm1(y)), np.log1p(-np.exp(y))))


def log_exp_excess(x: Array) -> Array:
    """Compute ln(e^x - 1 - x) for real x of any size, right to rounding also near 0, where it is ln(x^2/2)."""
    inner, series = np.clip(x, -0.5, 0.5), np.ones_like(x)
    for k in range(18, 2, -1):
        series = 1 + inner / k * series
    with np.errstate(divide="ignore", over="ignore"):
        near = 2 * np.log(np.abs(inner)) - math.log(2) + np.log(series)
        outer = np.where(np.abs(x) < 0.5, 1.0, np.minimum(x, 30.0))
        far = np.where(x > 30, x + np.log1p(-(1 + np.abs(x)) * np.exp(-np.abs(x))), np.log(np.expm1(outer) - outer))
    return np.where(np.abs(x) < 0.5, near, far)
