"""The central limit of Gaussian differential privacy for subsampled Gaussian steps: one mu-GDP release in the limit.

An estimate that UNDER-reports in many practical settings (eps 23-28% too low at q=1e-4, sigma=.6, n=1e6). It must not
be confused with ``gdp``, which is exact and takes unsampled Gaussian steps only, nor with ``clt``, which uses the exact
mean and variance of the loss.
"""

from __future__ import annotations

import math

import numpy as np
from scipy.special import erf, ndtr

from wpriv.core.guarantee import Curve, epsilon_at
from wpriv.core.loss_pair import gaussian_mu
from wpriv.core.process import Process, Step, refuse_passes, refuse_special_sampling
from wpriv.errors import Unsupported, UsageError
from wpriv.numerics.bracket import Bracket, safe_exp
from wpriv.numerics.conversions import normal_log_delta

NOTION = "approximate-dp"
CLAIM = "approximate"
SOURCE = "Dong, Roth, Su 2019, Corollary 4; Bu, Dong, Long, Su 2020, Theorem 5"
WARNING = "gdp-clt is a limit, not a bound, and often lies below the true value; use pld for a certified bound"
OTHER = "gdp-clt:formula={0} is the limit of {1}, and some step of this process is sampled otherwise"
EXPLAIN = """\
mu^2 = sum of q^2 n (e^(1/s^2) - 1) for Poisson sampling, n/s^2 without sampling, and
2 q^2 n (e^(1/s^2) Phi(1.5/s) + 3 Phi(-.5/s) - 2) for fixed-size sampling, s = sigma/sensitivity;
then delta = Phi(mu/2 - eps/mu) - e^eps Phi(-mu/2 - eps/mu).
A central limit as n -> inf with q sqrt(n) fixed: for Gaussian steps only, and never a guarantee."""
FORMULAS = {
    "sampling": "",
    "poisson": "Poisson sampling (the default of Opacus' GDP accountant)",
    "uniform": "fixed-size sampling",
}
KINDS = {"poisson": "poisson", "uniform": "fixed"}


def account(process: Process, *, tol: float = 1e-3, formula: str = "sampling") -> Curve:
    """Account for Gaussian steps, under any sampling, by mu-GDP at the mu of the limit; ``tol`` is not used.

    Args:
        formula: ``sampling`` (of each step), or ``poisson`` or ``uniform`` for all sampled steps, whatever their
            sampling.
    Raises:
        Unsupported: some step is not Gaussian, or its noise is so small that mu of the limit overflows.
        UsageError: an unknown formula.
    """
    refuse_passes(process, "gdp-clt")
    refuse_special_sampling(process, "gdp-clt")
    if formula not in FORMULAS:
        raise UsageError(f"gdp-clt: formula must be one of {', '.join(FORMULAS)}; found {formula!r}")
    kind = KINDS.get(formula)
    variance = math.fsum(step.n * _variance(step, kind or step.sampling.kind) for step in process.steps)
    if not math.isfinite(variance):
        raise Unsupported(
            "gdp-clt's mu grows like e^(1/(2 s^2)), s = sigma/sensitivity, and overflows here. Increase the noise, or "
            "use pld"
        )

    def log_delta(eps: float) -> float:
        return normal_log_delta(eps, variance / 2, variance)

    def delta(eps: float) -> Bracket:
        return Bracket(safe_exp(log_delta(eps)))

    def epsilon(delta: float) -> Bracket:
        return Bracket(epsilon_at(log_delta, delta, guess=max(variance / 2, 1e-12)))

    foreign = kind and any(step.sampling.kind not in ("none", kind) for step in process.steps)
    warnings = (WARNING, OTHER.format(formula, FORMULAS[formula])) if foreign else (WARNING,)
    source = SOURCE if formula == "sampling" else f"{SOURCE}; formula of {FORMULAS[formula]}"
    return Curve(process, "gdp-clt", NOTION, CLAIM, source, delta, epsilon, warnings)


def _variance(step: Step, kind: str) -> float:
    """mu^2 of one step in the limit, by the formula of a kind of sampling."""
    mu, rate = gaussian_mu(step.mechanism.pair()), step.sampling.rate
    if mu is None:
        raise Unsupported(
            f"gdp-clt has the limit of Gaussian mechanisms only; found {step.mechanism.name}. Use clt or pld"
        )
    square = mu**2
    if step.sampling.kind == "none":
        return square
    with np.errstate(over="ignore"):
        growth = float(np.expm1(square))
    if kind == "poisson":
        return rate**2 * growth
    # e^(m^2) Phi(1.5 m) + 3 Phi(-.5 m) - 2 without its constants, which cancel for small m
    halves = (float(erf(1.5 * mu / math.sqrt(2))) - 3 * float(erf(0.5 * mu / math.sqrt(2)))) / 2
    return 2 * rate**2 * (growth * float(ndtr(1.5 * mu)) + halves)
