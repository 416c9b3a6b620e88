"""The kernel that smooths a composed loss before its transform is inverted: a Kaiser-Bessel density of small support.

A PMF has a transform that does not decay, so its inversion could not be truncated. Adding an independent variable N
with E[e^-N] = 1 and values of at most w makes the transform small beyond the frequency KERNEL_SHAPE / w, raises delta
(Jensen: the profile is convex in e^eps), and raises it by no more than a multiple of the probability that the loss lies
within w of eps, which the same transform gives.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from wpriv.pld import constants


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
        """Factor on the density of loss plus twice the kernel, at eps - shift, that bounds how much delta was raised.

        With S = w X and u = Y - eps + shift, delta at eps is raised by E[(e^{-u-S} - 1)_+] where Y > eps, and elsewhere
        by E[(1 - e^{-u-S})_+]: by at most e^w (1 + w) h(|u|), h(u) = E[(S - u)_+]. The density k of S is log-concave,
        and so h / k is largest at zero; and k is at most KERNEL_COVER times the density of the sum of two such S.
        """
        return math.exp(3 * self.width) * constants.KERNEL_COVER * constants.KERNEL_EXCESS * self.width**2
