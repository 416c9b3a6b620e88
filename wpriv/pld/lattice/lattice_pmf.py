"""Tilted PMFs of privacy losses on a lattice, and Chernoff bounds on how far their sum lies from its mean."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

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


def tilt_pmf(index: NDArray[np.int64], mass: Array, y: Array, tilt: float, infinity: Array | float = 0.0) -> LatticePmf:
    """Tilt P-masses [K, m] on losses y [m]; nodes without mass are dropped.

    Args:
        infinity: [K] or one number, the P-mass at +infinity, which the masses lack.
    """
    mass = np.atleast_2d(mass)
    # a row without any mass keeps a trace of it, so that its logarithm exists
    mass[~(mass > 0).any(axis=1), 0] = constants.MASS_FLOOR
    keep = (mass > 0).any(axis=0)
    index, mass, y = index[keep], mass[:, keep], y[keep]
    exponent = tilt * y
    if float(exponent.max()) < constants.MAX_EXPONENT_ATOMS:
        growth = np.expm1(exponent)
        if float(exponent.max()) < 1.0 or float((mass @ np.abs(growth)).max()) < 0.5:
            # ln E[e^{tilt Y}] of a small or rare loss is from E[e^{tilt Y} - 1], or n steps would amplify its rounding
            log_norm = np.log1p(mass @ growth + total_excess(mass, infinity))
            weight = mass * np.exp(exponent)
            return LatticePmf(index, weight / weight.sum(axis=1)[:, None], log_norm)
    top = float(exponent.max())
    weight = mass * np.exp(exponent - top)
    # what underflows here is negligible beside a total this large
    if float(weight.sum(axis=1).min()) > 1e-150:
        return LatticePmf(index, weight, np.full(mass.shape[0], top)).normalised()
    with np.errstate(divide="ignore"):
        log_mass = np.log(mass) + exponent
    peak = log_mass.max(axis=1)
    return LatticePmf(index, np.exp(log_mass - peak[:, None]), peak).normalised()


def total_excess(mass: Array, infinity: Array | float) -> Array:
    """[K] sums of masses [K, m] less one: -infinity of each row, but where the sum differs by more than rounding."""
    beyond = np.broadcast_to(infinity, mass.shape[:1])
    excess = np.array([math.fsum([*row, part, -1.0]) for row, part in zip(mass.tolist(), beyond.tolist(), strict=True)])
    return np.asarray(np.where(np.abs(excess) < constants.NORMALISATION_ROUNDING, 0.0, excess) - beyond)


def reach(
    points: list[tuple[Array, Array]], moments: list[tuple[Array, Array]], counts: list[Counts], depth: float
) -> tuple[float, float]:
    """Distances below and above the mean within which a sum of losses lies up to probability e^-depth on each side.

    They are Chernoff's, for the best of a few parameters: near that of a normal distribution for a Gaussian-like sum,
    and near 1 / (largest loss) where rare large losses dominate.

    Args:
        points: per PMF the losses [m] and their probabilities [K, m], each row summing to one.
        moments: per PMF the means and variances [K].
        counts: per PMF how many losses [K] of each row are summed.
    """
    variance = sum(float(n @ v) for n, (_, v) in zip(counts, moments, strict=True))
    largest = max(max(abs(float(y[0])), abs(float(y[-1]))) for y, _ in points)
    if variance <= 0 or largest <= 0:
        return 0.0, 0.0
    normal, number = math.sqrt(2 * depth / variance), constants.WINDOW_CHERNOFF_POINTS
    least = min(0.04 * normal, 2 / largest)
    theta = least * (1.4 * normal / least) ** (np.arange(number) / (number - 1))
    # centred cumulants of the sum at -theta and at theta, and the distances to its least and to its largest value
    cumulant, ends = np.zeros((2, number)), np.zeros(2)
    for (y, mass), (means, _), n in zip(points, moments, counts, strict=True):
        positive = (mass > 0).any(axis=0)
        x, rows, centre = y[positive], mass[:, positive], float(means.mean())
        with np.errstate(over="ignore", divide="ignore", invalid="ignore"):
            growth = np.exp(theta[:, None] * (x - centre))
            log = np.log(np.array([(1 / growth) @ rows.T, growth @ rows.T]))
        log[np.isnan(log)] = np.inf
        shift = theta[:, None] * (means - centre)
        cumulant += (log + np.array([shift, -shift])) @ n
        ends += np.array([means - x[0], x[-1] - means]) @ n
    distances = np.minimum(((cumulant + depth) / theta).min(axis=1), ends)
    return float(distances[0]), float(distances[1])
