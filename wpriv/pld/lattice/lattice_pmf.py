"""Tilted laws of a loss on a lattice, one or many that share their nodes, and how far a sum of such losses can lie from its mean."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from wpriv.numerics.arrays import Array, Counts


@dataclass(frozen=True)
class LatticePmf:
    """Tilted laws on a lattice: node ``index[i]`` has loss index[i] * step and P-mass mass[..., i] e^{log_norm - tilt * loss}.

    ``mass`` is [m], or [K, m] for K kinds of steps that share their nodes, ``log_norm`` then [K].
    """

    index: NDArray[np.int64]
    mass: Array
    log_norm: Array | float

    @property
    def rows(self) -> Array:
        """[K, m] the masses, also where there is one law only."""
        return np.atleast_2d(self.mass)

    def losses(self, step: float) -> Array:
        """The loss of each node, in nats."""
        return np.asarray(self.index * step, dtype=np.float64)

    def normalised(self) -> LatticePmf:
        total = self.mass.sum(axis=-1)
        return replace(self, mass=self.mass / total[..., None], log_norm=self.log_norm + np.log(total))

    def moments(self, step: float) -> tuple[Array, Array]:
        """Means and variances [K] of the tilted losses; the masses must sum to one."""
        y, mass = self.losses(step), self.rows
        mean = mass @ y
        return mean, (mass * (y - mean[:, None]) ** 2).sum(axis=1)


@dataclass(frozen=True)
class ChernoffTable:
    """What bounds how far sums of losses can lie from their means: cumulants of laws at a few points on either side of zero.

    ``logs`` [2, T, K] per law: ln E[e^{-theta (Y - mean)}] and ln E[e^{theta (Y - mean)}]; ``sides`` [2, K]: how far Y itself reaches.
    """

    theta: Array
    logs: list[Array]
    sides: list[Array]

    @staticmethod
    def of(points: list[tuple[Array, Array]], moments: list[tuple[Array, Array]], theta: Array) -> ChernoffTable:
        """``points``: per law the losses [m] and their probabilities [K, m], each row summing to one; ``moments``: means and variances."""
        logs, sides = [], []
        for (y, mass), (means, _) in zip(points, moments, strict=True):
            alive = (mass > 0).any(axis=0)
            x, rows = y[alive], mass[:, alive]
            centre = float(means.mean())
            with np.errstate(over="ignore", divide="ignore", invalid="ignore"):
                grown = np.exp(theta[:, None] * (x - centre))
                log = np.log(np.array([(1 / grown) @ rows.T, grown @ rows.T]))
            log[np.isnan(log)] = np.inf
            moved = theta[:, None] * (means - centre)
            logs.append(log + np.array([moved, -moved]))
            sides.append(np.array([means - x[0], x[-1] - means]))
        return ChernoffTable(theta, logs, sides)

    def reach(self, counts: list[Counts], depth: float) -> tuple[float, float]:
        """How far below and above its mean the sum of ``counts`` [K] losses per law can lie, outside probability e^-depth on each side."""
        cumulant, ends = np.zeros((2, self.theta.size)), np.zeros(2)
        for log, side, n in zip(self.logs, self.sides, counts, strict=True):
            run = slice(None) if n.all() else n > 0
            cumulant += log[:, :, run] @ n[run]
            ends += side[:, run] @ n[run]
        found = ((cumulant + depth) / self.theta).min(axis=1)
        return min(float(found[0]), float(ends[0])), min(float(found[1]), float(ends[1]))


def chernoff_points(points: list[tuple[Array, Array]], variances: list[float], depth: float, number: int) -> Array:
    """Where to know cumulants for the reach of sums of losses with these variances: the best theta is near the ``normal`` one for a
    Gaussian-like law, and near 1 / (largest loss) where rare large losses rule."""
    normal = [math.sqrt(2 * depth / v) for v in variances]
    largest = max(max(abs(float(y[0])), abs(float(y[-1]))) for y, _ in points)
    least = min(0.04 * min(normal), 2 / largest)
    return np.asarray(least * (1.4 * max(normal) / least) ** (np.arange(number) / (number - 1)))


def reach(
    points: list[tuple[Array, Array]], moments: list[tuple[Array, Array]], counts: list[Counts], depth: float
) -> tuple[float, float]:
    """How far below and above its mean the sum of losses can lie, outside probability e^-depth on each side (Chernoff).

    Args:
        points: per law the losses [m] and their probabilities [K, m] (each row summing to one).
        moments: per law means and variances [K]. counts: per law how many losses [K] of each row are summed.
    """
    variance = sum(float(n @ v) for n, (_, v) in zip(counts, moments, strict=True))
    if variance <= 0:
        return 0.0, 0.0
    running = [p for p, n in zip(points, counts, strict=True) if n.any()]
    return ChernoffTable.of(points, moments, chernoff_points(running, [variance], depth, 9)).reach(counts, depth)
