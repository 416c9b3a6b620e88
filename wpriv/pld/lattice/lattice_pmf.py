"""Tilted PMFs of privacy losses on a lattice, and Chernoff bounds on how far their sum lies from its mean."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from wpriv.errors import Unsupported
from wpriv.numerics.arrays import Array, Counts
from wpriv.pld import constants


@dataclass(frozen=True)
class LatticePmf:
    """Tilted PMFs of one loss, or of K losses that share their nodes.

    Node i has the loss index[i] * step and the P-mass mass[..., i] e^{log_norm - tilt * loss}.

    Attributes:
        index: [m] increasing lattice indices.
        mass: [m] or [K, m] tilted masses.
        log_norm: ln E[e^{tilt loss}], of shape [K] for K losses.
    """

    index: NDArray[np.int64]
    mass: Array
    log_norm: Array | float

    @property
    def rows(self) -> Array:
        """[K, m] the masses, with K = 1 for a single PMF."""
        return np.atleast_2d(self.mass)

    def losses(self, step: float) -> Array:
        """[m] the loss of each node in nats."""
        return np.asarray(self.index * step, dtype=np.float64)

    def normalised(self) -> LatticePmf:
        """The same PMFs with masses that sum to one."""
        total = self.mass.sum(axis=-1)
        return replace(self, mass=self.mass / total[..., None], log_norm=self.log_norm + np.log(total))

    def moments(self, step: float) -> tuple[Array, Array]:
        """Means and variances [K] of the tilted losses; the masses must sum to one."""
        y, mass = self.losses(step), self.rows
        mean = mass @ y
        return mean, (mass * (y - mean[:, None]) ** 2).sum(axis=1)


@dataclass(frozen=True)
class ChernoffTable:
    """Centred cumulant generating functions of PMFs at a few parameters on either side of zero.

    Attributes:
        theta: [T] parameters.
        logs: [2, T, K] per PMF: ln E[e^{-theta (Y - mean)}] and ln E[e^{theta (Y - mean)}].
        sides: [2, K] per PMF: distance from the mean to the least and to the largest loss.
    """

    theta: Array
    logs: list[Array]
    sides: list[Array]

    @staticmethod
    def of(points: list[tuple[Array, Array]], moments: list[tuple[Array, Array]], theta: Array) -> ChernoffTable:
        """Tabulate PMFs.

        Args:
            points: per PMF the losses [m] and their probabilities [K, m], each row summing to one.
            moments: per PMF the means and variances [K].
        """
        logs, sides = [], []
        for (y, mass), (means, _) in zip(points, moments, strict=True):
            positive = (mass > 0).any(axis=0)
            x, rows = y[positive], mass[:, positive]
            centre = float(means.mean())
            with np.errstate(over="ignore", divide="ignore", invalid="ignore"):
                growth = np.exp(theta[:, None] * (x - centre))
                log = np.log(np.array([(1 / growth) @ rows.T, growth @ rows.T]))
            log[np.isnan(log)] = np.inf
            shift = theta[:, None] * (means - centre)
            logs.append(log + np.array([shift, -shift]))
            sides.append(np.array([means - x[0], x[-1] - means]))
        return ChernoffTable(theta, logs, sides)

    def reach(self, counts: list[Counts], depth: float) -> tuple[float, float]:
        """Distances below and above the mean within which a sum of losses lies up to probability e^-depth on each side.

        Args:
            counts: per PMF how many losses [K] of each row are summed.
        """
        cumulant, ends = np.zeros((2, self.theta.size)), np.zeros(2)
        for log, side, n in zip(self.logs, self.sides, counts, strict=True):
            present = slice(None) if n.all() else n > 0
            cumulant += log[:, :, present] @ n[present]
            ends += side[:, present] @ n[present]
        distances = ((cumulant + depth) / self.theta).min(axis=1)
        return min(float(distances[0]), float(ends[0])), min(float(distances[1]), float(ends[1]))


def chernoff_points(points: list[tuple[Array, Array]], variances: list[float], depth: float, number: int) -> Array:
    """Parameters at which to tabulate cumulants for the reach of sums of losses with the given variances.

    The best parameter is near the one of a normal distribution for a Gaussian-like sum, and near 1 / (largest loss)
    where rare large losses dominate.
    """
    normal = [math.sqrt(2 * depth / v) for v in variances]
    largest = max(max(abs(float(y[0])), abs(float(y[-1]))) for y, _ in points)
    least = min(0.04 * min(normal), 2 / largest)
    return np.asarray(least * (1.4 * max(normal) / least) ** (np.arange(number) / (number - 1)))


def indices(first: int, size: int) -> NDArray[np.int64]:
    """[size] consecutive lattice indices, if they are 64-bit integers."""
    if abs(first) + size > 2**62:
        raise Unsupported("pld finds losses too large to be put on a lattice. Increase the noise, or use rdp")
    return first + np.arange(size)


def reach(
    points: list[tuple[Array, Array]], moments: list[tuple[Array, Array]], counts: list[Counts], depth: float
) -> tuple[float, float]:
    """Distances below and above the mean within which a sum of losses lies up to probability e^-depth on each side
    (Chernoff).

    Args:
        points: per PMF the losses [m] and their probabilities [K, m], each row summing to one.
        moments: per PMF the means and variances [K].
        counts: per PMF how many losses [K] of each row are summed.
    """
    variance = sum(float(n @ v) for n, (_, v) in zip(counts, moments, strict=True))
    if variance <= 0:
        return 0.0, 0.0
    present = [p for p, n in zip(points, counts, strict=True) if n.any()]
    theta = chernoff_points(present, [variance], depth, constants.WINDOW_CHERNOFF_POINTS)
    return ChernoffTable.of(points, moments, theta).reach(counts, depth)
