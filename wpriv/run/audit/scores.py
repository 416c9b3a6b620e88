"""Scores of canaries: large where the noisy sums along a canary's direction look as if it took part."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]
LEAST = 1e-3
"""The least noise, in clipping norms, that is told from none."""
SPREAD = 1.4826
"""Standard deviations of normal numbers over the median of their distances from the median."""


def sums(canaries: Array, others: Array, rate: float, absent: float) -> Array:
    """Return the logarithm of the likelihood ratio of "in" to "out" for independent steps.

    The noise of each step is measured on the outputs themselves, so that a step with less noise than planned counts
    for more.

    Args:
        canaries: [steps, m] noisy sums along each canary. others: [steps, k] along directions without one.
        rate: the chance of a record to be in a step. absent: what a canary that is out adds instead of 1.
    Returns:
        [m] scores.
    """
    noise = _noise(np.hstack([canaries, others]))
    present = _log_mixture(canaries, noise, {0.0: 1 - rate, 1.0: rate})
    missing = _log_mixture(canaries, noise, {0.0: 1 - rate, absent: rate}) if absent else 0.0
    scores: Array = np.sum(present - missing, axis=0)
    return scores


def differences(canaries: Array, others: Array, rate: float) -> Array:
    """Return the logarithm of the likelihood ratio of "in" to "out" for differences of consecutive steps.

    They are strong evidence where the noise of one step was used in the next one too. For canaries that add nothing
    where they are out.

    Args and Returns: as ``sums``.
    """
    gaps = np.diff(canaries, axis=0)
    noise = _noise(np.hstack([gaps, np.diff(others, axis=0)]))
    change = rate * (1 - rate)
    scores: Array = np.sum(_log_mixture(gaps, noise, {0.0: 1 - 2 * change, 1.0: change, -1.0: change}), axis=0)
    return scores


def _noise(numbers: Array) -> Array:
    """Return the standard deviation of each row [steps, 1], as its central half shows it."""
    centre = np.median(numbers, axis=1, keepdims=True)
    return np.maximum(SPREAD * np.median(np.abs(numbers - centre), axis=1, keepdims=True), LEAST)


def _log_mixture(numbers: Array, noise: Array, weights: dict[float, float]) -> Array:
    """Return the log density of a mixture of normal distributions with some means, over that of mean 0."""
    terms = [
        np.log(weight) + mean * (2 * numbers - mean) / (2 * noise**2) for mean, weight in weights.items() if weight > 0
    ]
    mixture: Array = np.logaddexp.reduce(terms, axis=0)
    return mixture
