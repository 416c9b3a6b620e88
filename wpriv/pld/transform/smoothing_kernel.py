"""The kernel that a composed loss is smoothed with before its transform is inverted: a Kaiser-Bessel density of small support.

A law of atoms has a transform that never dies out, so its inversion could not be cut off. Adding an independent variable N with
E[e^-N] = 1 and values of at most w makes the transform small beyond the frequency BETA / w, raises delta (Jensen: the profile is convex in
e^eps), and raises it by no more than a multiple of the probability that the loss lies within w of eps, which the same transform tells.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

# the shape: beyond the frequency BETA / w what is left of the kernel's transform is below 2 BETA e^-BETA
BETA = 18.0
# of the density f of the kernel on [-1, 1]: its variance, and E[X_+] / f(0), to three digits, rounded up
VARIANCE, EXCESS = 0.0525, 0.0540
# at least the largest ratio of f to its convolution with itself
COVER = 1.40


@dataclass(frozen=True)
class SmoothingKernel:
    """N = w X + shift, X of the Kaiser-Bessel density f(x) = BETA I0(BETA sqrt(1 - x^2)) / (2 sinh BETA) on [-1, 1], E[e^-N] = 1."""

    width: float

    @property
    def shift(self) -> float:
        """ln E[e^{-w X}]."""
        return float(self.log_moment(np.ones(1))[0])

    @property
    def edge(self) -> float:
        """The frequency beyond which the transform is small."""
        return BETA / self.width

    def transform(self, s: NDArray[Any]) -> NDArray[np.complex128]:
        """E[e^{s w X}] at complex s."""
        root = np.sqrt(BETA**2 + (self.width * s) ** 2)
        # sinh(root) / root against sinh(BETA) / BETA, both scaled by e^-BETA
        grown, fallen = np.exp(root - BETA), np.exp(-root - BETA)
        with np.errstate(divide="ignore", invalid="ignore"):
            ratio = np.where(np.abs(root) > 1e-6, (grown - fallen) / (2 * root), math.exp(-BETA))
        return np.asarray(ratio * (2 * BETA / -math.expm1(-2 * BETA)), dtype=np.complex128)

    def log_moment(self, tilts: NDArray[np.float64]) -> NDArray[np.float64]:
        """ln E[e^{tilt w X}] at real tilts."""
        # the root less BETA, and all else, without cancellation for narrow kernels
        square = (self.width * tilts) ** 2
        more = square / (np.sqrt(BETA**2 + square) + BETA)
        ends = np.log1p(-np.exp(-2 * (BETA + more))) - math.log1p(-math.exp(-2 * BETA))
        return np.asarray(more + ends - 0.5 * np.log1p(square / BETA**2))

    def most_gap(self) -> float:
        """What the density of the loss plus the kernel twice, at eps - shift, is multiplied with to bound by how much delta was raised.

        With S = w X and u = Y - eps + shift, delta at eps is raised by E[(e^{-u-S} - 1)_+] where Y > eps, and elsewhere by
        E[(1 - e^{-u-S})_+]: by at most e^w (1 + w) h(|u|), h(u) = E[(S - u)_+]. The density k of S is log-concave, and so h / k is
        largest at zero; and k is at most COVER times the density of the sum of two such S.
        """
        return math.exp(3 * self.width) * COVER * EXCESS * self.width**2
