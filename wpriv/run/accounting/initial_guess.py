"""Guess the solution for a parameter by the central limit theorem."""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
from scipy.special import ndtri

from wpriv.core.mechanism import Mechanism
from wpriv.core.process import Process, Step
from wpriv.errors import Unsupported, UsageError
from wpriv.numerics import gaussian_calibration
from wpriv.run.accounting.search_parameter import SearchParameter


def initial_guess(
    knob: SearchParameter,
    at: Callable[[float], Process],
    eps: float,
    delta: float,
    fpr: float | None = None,
    measure: str = "tpr",
) -> float:
    """Guess by the central limit: n rate^2 chi^2 of a step equals mu^2 of a Gauss mechanism that meets the target.

    The step is the last one of the process; what those before it need is taken off the target.

    Args:
        fpr: where it is given, the target is a true-positive rate of ``delta`` at this false-positive rate.
        measure: "mu" where it is mu of ``delta``.
    """
    if measure == "mu":
        mu = delta
    else:
        mu = 1 / gaussian_calibration.exact(eps, delta) if fpr is None else float(ndtri(delta) - ndtri(fpr))
    target = min(max(mu, 1e-150), 1e150) ** 2  # in the range of doubles; a guess affects the speed only
    target = max(target - _spent(knob, at), target / 1000)

    def total_mu_squared(value: float) -> float:
        try:
            return _mu_squared(at(value).steps[-1])
        except (Unsupported, UsageError):
            return math.inf

    if knob.whole:
        return _clamp(knob.unit * target / max(total_mu_squared(knob.unit), 1e-300), knob)
    if knob.privacy_direction < 0:
        return _clamp(math.sqrt(target / max(total_mu_squared(1.0), 1e-300)), knob)
    value = 1.0
    for _ in range(60):
        # chi^2 falls like 1 / value^2 where it is small, and exponentially where it is large
        ratio = total_mu_squared(value) / target
        move = 0.5 * math.log(min(max(ratio, 1e-300), 1e300))
        move = min(max(move, -7.0), 0.7 if ratio > 1e3 else 7.0)
        value = _clamp(value * math.exp(move), knob)
        if abs(move) < 1e-3:
            break
    return value


def _spent(knob: SearchParameter, at: Callable[[float], Process]) -> float:
    """mu^2 of all steps before the last one, which do not depend on the parameter; 0 where it is not known."""
    try:
        return sum(_mu_squared(step) for step in at(min(max(1.0, knob.low), knob.high)).steps[:-1])
    except (Unsupported, UsageError):
        return 0.0


def _mu_squared(step: Step) -> float:
    return float(step.n * step.sampling.rate**2 * _chi_square(step.mechanism))


def _clamp(value: float, knob: SearchParameter) -> float:
    return min(max(value, knob.low), knob.high)


def _chi_square(mechanism: Mechanism) -> float:
    """The chi-square divergence of one release without distinguishing events; capped where it overflows."""
    pair = mechanism.renyi_bound() or mechanism.pair()
    if pair.mass_at_plus_infinity >= 1:
        return math.inf
    from wpriv.core.loss_moments import log_moment

    return math.expm1(min(float(log_moment(pair, np.ones(1), finite=True)[0]), 600.0))
