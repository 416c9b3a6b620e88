"""Tilted laws of a loss on a lattice, one or many that share their nodes, and how far a sum of such losses can lie from its mean."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from wpriv.core.pair import Array, Counts

_EIGHTHS = np.arange(9) / 8


@dataclass(frozen=True)
class Law:
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

    def normalised(self) -> Law:
        total = self.mass.sum(axis=-1)
        return replace(self, mass=self.mass / total[..., None], log_norm=self.log_norm + np.log(total))

    def moments(self, step: float) -> tuple[Array, Array]:
        """Means and variances [K] of the tilted losses; the masses must sum to one."""
        y, mass = self.losses(step), self.rows
        mean = mass @ y
        return mean, (mass * (y - mean[:, None]) ** 2).sum(axis=1)


def reach(points: list[tuple[Array, Array]], moments: list[tuple[Array, Array]], counts: list[Counts], depth: float) -> tuple[float, float]:
    """How far below and above its mean the sum of losses can lie, outside probability e^-depth on each side (Chernoff).

    Args:
        points: per law the losses [m] and their probabilities [K, m] (each row summing to one).
        moments: per law means and variances [K]. counts: per law how many losses [K] of each row are summed.
    """
    variance = sum(float(np.dot(n, v)) for n, (_, v) in zip(counts, moments, strict=True))
    if variance <= 0:
        return 0.0, 0.0
    # the best theta is near ``normal`` for a Gaussian-like law, and near 1 / (largest loss) where rare large losses rule
    normal = math.sqrt(2 * depth / variance)
    largest = max(max(abs(float(y[0])), abs(float(y[-1]))) for (y, _), n in zip(points, counts, strict=True) if n.any())
    least = min(0.04 * normal, 2 / largest)
    theta = least * (1.4 * normal / least) ** _EIGHTHS
    cumulant = np.zeros((2, theta.size))
    below = above = 0.0
    for (y, mass), (means, _), n in zip(points, moments, counts, strict=True):
        run = n > 0
        if not run.any():
            continue
        alive = (mass[run] > 0).any(axis=0)
        x, rows, times, mean = y[alive], mass[run][:, alive], n[run], means[run]
        centre = float(mean.mean())
        with np.errstate(over="ignore", divide="ignore", invalid="ignore"):
            grown = np.exp(theta[:, None] * (x - centre))
            logs = np.log(np.array([(1 / grown) @ rows.T, grown @ rows.T]))
        logs[np.isnan(logs)] = np.inf
        moved = theta[:, None] * (mean - centre)
        cumulant += (logs + np.array([moved, -moved])) @ times
        below, above = below + float(times @ (mean - x[0])), above + float(times @ (x[-1] - mean))
    left, right = ((cumulant + depth) / theta).min(axis=1)
    return min(float(left), below), min(float(right), above)
