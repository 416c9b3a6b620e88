"""Sigma of Gaussian noise for one release at (eps, delta) and l2 sensitivity 1: exact, and by older closed forms."""

from __future__ import annotations

import math

import numpy as np

from wpriv.errors import UsageError
from wpriv.numerics.conversions import log_mills_drop, normal_log_delta
from wpriv.numerics.root_finding import smallest_meeting


def exact(eps: float, delta: float) -> float:
    """Compute the smallest sigma that is (eps, delta)-DP at sensitivity 1, by root search on the exact profile.

    Args:
        eps: at least 0.
        delta: in (0, 1).
    Returns:
        sigma, above the exact value by at most 1e-12 relative. 1/sigma is the largest mu for which mu-GDP implies
        (eps, delta)-DP.
    Source:
        Balle, Wang (2018), Theorem 8.
    """
    target = math.log(delta)
    return smallest_meeting(
        lambda sigma: _log_delta(eps, sigma) - target,
        guess=classical(max(eps, 1.0), delta),
    )


def _log_delta(eps: float, sigma: float) -> float:
    """ln delta at sensitivity 1, by sigma itself, whose square may overflow or underflow."""
    a = eps * sigma - 1 / (2 * sigma)
    # far below every positive double; the omitted factor is below 1
    return -a * a / 2 if a > 1e6 else float(log_mills_drop(np.array(a), 1 / sigma))


def epsilon(sigma: float, delta: float) -> float:
    """Compute the smallest eps >= 0 of Gaussian noise sigma at delta and sensitivity 1: the inverse of ``exact``."""
    target, mean = math.log(delta), 1 / (2 * sigma**2)
    return smallest_meeting(lambda eps: normal_log_delta(eps, mean, 2 * mean) - target, guess=max(mean, 1e-12))


def classical(eps: float, delta: float) -> float:
    """Compute sigma = sqrt(2 ln(1.25/delta))/eps, proven for 0 < eps <= 1 only: Dwork, Roth (2014), Theorem A.1."""
    return math.sqrt(2 * (math.log(1.25) - math.log(delta))) / eps  # 1.25 / delta may overflow


def zhao(eps: float, delta: float) -> float:
    """Compute sigma = (c + sqrt(c^2 + eps))/(eps sqrt 2), c^2 = ln(2/(sqrt(16 delta + 1) - 1)).

    It suffices at every eps > 0 but is not the smallest.

    Raises:
        UsageError: delta is not below 1/2, where c is undefined.
    Source:
        Zhao et al. (2019), quoted as equation (4) of Reshetova, Chen, Ozgur (2023).
    """
    if not 0 < delta < 0.5:
        raise UsageError(f"equation (4) requires 0 < delta < 1/2; found delta {delta:g}")
    # sqrt(16 delta + 1) - 1, without cancellation
    root = 16 * delta / (math.sqrt(16 * delta + 1) + 1)
    square = math.log(2) - math.log(root)  # 2 / root may overflow
    return (math.sqrt(square) + math.sqrt(square + eps)) / (eps * math.sqrt(2))
