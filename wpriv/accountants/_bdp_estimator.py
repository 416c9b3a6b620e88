"""Bayesian differential privacy (Triastcyn and Faltings 2020): the estimator of its budget from sampled pair distances.

The privacy cost of a step is an upper confidence limit, by Student's t, of a mean over pairs of records drawn from the
data. It describes the distribution of the pairs, and gives no guarantee to an unusual record.
"""

from __future__ import annotations

import math

import numpy as np
from scipy.special import stdtrit

from wpriv.errors import Unsupported, UsageError
from wpriv.numerics.arrays import Array
from wpriv.numerics.log_space import log_binomial_excess

# failure probability of one confidence limit: the smallest that 1 - probability can represent in a double
FAILURE = 2.0**-53
LOG_CONFIDENCE = math.log1p(-FAILURE)


def log_moments(distances: Array, rate: float, sigma: float, order: int) -> Array:
    """[pairs] lambda times the Renyi divergence of order lambda + 1 of the Poisson-subsampled Gauss mechanism.

    It is ln of the sum over k <= lambda+1 of Binom(k; lambda+1, q) e^(k(k-1) d^2/(2 s^2)) at sensitivity d.

    Args:
        distances: [pairs] d >= 0, in the units of the output. rate: q in (0, 1].
        sigma: s > 0, in the units of the output. order: lambda >= 1, whole.
    Raises:
        UsageError: lambda is not a whole number of at least 1.
    """
    if order < 1 or order != int(order):
        raise UsageError(
            f"the order lambda of the Bayesian accountant must be a whole number of at least 1; found {order}"
        )
    k = np.arange(2.0, order + 2)
    with np.errstate(over="ignore"):
        half = (np.asarray(distances, dtype=float) / sigma) ** 2 / 2
    excess = log_binomial_excess(np.array(order + 1.0), k, rate, k * (k - 1) * half[..., None])
    return np.asarray(np.logaddexp(0.0, excess))


def step_cost(distances: Array, rate: float, sigma: float, order: int, steps: int) -> float:
    """The cost of one step at order lambda: (1/T) ln [mean + t S/sqrt(m-1)] of e^(T c) over m pairs.

    c are the log moments of the pairs.

    T is the declared number of steps: Hoelder's inequality lets the steps share the pairs' distribution. S is the
    population standard deviation, t the quantile of Student's t distribution with m - 1 degrees of freedom at
    confidence 1 - 2^-53.

    Raises:
        Unsupported: fewer than three pairs.
    """
    m = np.size(distances)
    if m < 3:
        raise Unsupported(f"the Bayesian accountant's confidence limit needs at least 3 pairs per step; found {m}")
    scaled = steps * log_moments(np.ravel(distances), rate, sigma, order)
    top = float(scaled.max())
    if not math.isfinite(top):
        return math.inf
    relative = np.exp(scaled - top)
    mean, spread = float(relative.mean()), float(relative.std())
    quantile = -float(stdtrit(m - 1, FAILURE))
    return (top + math.log(mean + quantile * spread / math.sqrt(m - 1))) / steps


def log_failure(n: int) -> float:
    """ln of the probability that one of n confidence limits is too low, 1 - (1 - 2^-53)^n; delta pays for it."""
    return math.log(-math.expm1(n * LOG_CONFIDENCE))
