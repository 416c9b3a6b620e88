"""The kernel against quadrature of its density, and its bound of what it adds to delta against random PMFs."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.integrate import quad
from scipy.special import i0e

from wpriv.accounting.pld import constants
from wpriv.accounting.pld.inversion import SmoothingKernel


def density(x):
    """The Kaiser-Bessel density on [-1, 1], from its definition."""
    root = np.sqrt(np.maximum(1 - np.asarray(x) ** 2, 0.0))
    return np.where(
        np.abs(x) <= 1,
        constants.KERNEL_SHAPE
        * i0e(constants.KERNEL_SHAPE * root)
        * np.exp(constants.KERNEL_SHAPE * (root - 1))
        / -math.expm1(-2 * constants.KERNEL_SHAPE),
        0.0,
    )


@pytest.mark.parametrize("s", [1.0, -1.0, 3 + 5j, 0.5 + 100j, 2 + 2000j, 40 + 4000j])
def test_the_transform_is_the_integral_of_the_density(s):
    """Oracle: quadrature."""
    width = 0.01
    real, imaginary = (
        quad(lambda x, part=part: float(density(x)) * part(np.exp(s * width * x)), -1, 1, limit=400)[0]
        for part in (np.real, np.imag)
    )
    found = SmoothingKernel(width).transform(np.array([s], dtype=complex))[0]
    assert abs(found - (real + 1j * imaginary)) < 1e-9


def test_the_constants_bound_those_of_the_density():
    x = np.linspace(-1, 1, 20001)
    h, f = x[1] - x[0], density(x)
    assert constants.KERNEL_VARIANCE * 0.999 < np.sum(f * x * x) * h <= constants.KERNEL_VARIANCE
    excess = np.sum(np.maximum(x, 0) * f) * h / density(0.0)
    assert excess * density(0.0) >= 0.092  # used in the proof of Theorem 10, docs/theory/certified-pld.md
    assert constants.KERNEL_EXCESS * 0.999 < excess <= constants.KERNEL_EXCESS
    twice = np.interp(x, np.linspace(-2, 2, 2 * x.size - 1), np.convolve(f, f) * h)
    assert constants.KERNEL_COVER * 0.999 < np.max(f / twice) <= constants.KERNEL_COVER


@settings(max_examples=60, deadline=None)
@given(seed=st.integers(0, 10**6), width=st.floats(1e-4, 0.02), log_gap=st.floats(-8, 0))
def test_smoothing_raises_delta_by_no_more_than_the_bound(seed, width, log_gap):
    """Oracle: delta of the smoothed PMF, and the density of the loss plus twice the kernel, by quadrature."""
    rng = np.random.default_rng(seed)
    y, p = rng.normal(0, 10.0**log_gap, 12), rng.dirichlet(np.ones(12))
    eps = float(rng.choice(y) + rng.normal(0, width))
    kernel, x = SmoothingKernel(width), np.linspace(-1, 1, 4001)
    weight = density(x)
    weight /= weight.sum()
    noise = width * x + kernel.shift
    assert abs(weight @ np.exp(-noise) - 1) < 1e-9
    plain = float(p @ np.maximum(-np.expm1(eps - y), 0.0))
    smooth = float(p @ (np.maximum(-np.expm1(eps - y[:, None] - noise), 0.0) @ weight))
    twice, step = np.convolve(weight, weight), width * (x[1] - x[0])
    grid = 2 * width * np.linspace(-1, 1, twice.size)
    crowd = float(p @ np.interp(eps - kernel.shift - y, grid, twice / step, left=0.0, right=0.0))
    assert -1e-12 < smooth - plain <= kernel.gap_factor() * crowd + 1e-9 * width
