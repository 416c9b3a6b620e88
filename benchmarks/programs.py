"""Adapters of the programs: ``PROGRAMS[name](job)`` returns the bounds (lower, upper), with 0 for a missing one.

Each function imports only its own program and runs in its own process, so that import time and memory can be
separated. A
program that refuses or fails may raise any exception: the report shows the last line of its traceback.
"""

# mypy: disable-error-code="import-untyped, import-not-found"
from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

from benchmarks.jobs import Job, Part

Ends = tuple[float, float]
DELTA_SHARE = 1e-3
"""The delta error of prv_accountant and Opacus over delta: the default of Opacus, and the advice of prv_accountant."""


def wpriv(job: Job, tol: float | None = None) -> Ends:
    """Return both bounds, at a relative tolerance or the default one; a calibrated value as (value, value)."""
    from wpriv.accounting import evaluate
    from wpriv.core import registry
    from wpriv.core.kinds import Sampling
    from wpriv.core.process import Process, Step

    if job.solve:
        return _wpriv_calibrate(job, tol)
    steps = []
    for part in job.parts:
        mechanism = registry.mechanism(part.mech)(part.noise)
        sampling = Sampling("poisson", part.rate) if part.rate < 1 else Sampling()
        steps.append(Step(mechanism, part.n, sampling))
    process = Process(tuple(steps))
    curve = registry.load("accountants", "pld").account(
        process, tol=evaluate.answer_tol(process) if tol is None else tol
    )
    found = curve.at(eps=job.eps, delta=job.delta)
    bracket = found.delta if job.delta is None else found.epsilon
    return bracket.lower, bracket.upper


def _wpriv_calibrate(job: Job, tol: float | None) -> Ends:
    from wpriv.accounting.calibrate import calibrate

    (part,) = job.parts
    given: dict[str, Any] = {
        "sigma": part.noise,
        "n": part.n,
        "rate": part.rate,
        **({} if tol is None else {"tol": tol}),
    }
    del given["sigma" if job.solve == "noise" else job.solve]
    assert job.eps is not None
    assert job.delta is not None
    found = calibrate(part.mech, eps=job.eps, delta=job.delta, sampling="poisson", **given).guarantee
    value = float(found.extra["calibrated"]["value"])
    return value, value


def wpriv_coarse(job: Job) -> Ends:
    return wpriv(job, tol=1e-3)


def dp_accounting(job: Job) -> Ends:
    """Google's PLD accountant at its default grid of 1e-4, pessimistic side."""
    from dp_accounting import dp_event
    from dp_accounting.pld import PLDAccountant

    if job.solve:
        return _dp_accounting_calibrate(job)
    accountant = PLDAccountant()
    for part in job.parts:
        noisy = dp_event.LaplaceDpEvent(part.noise) if part.mech == "laplace" else dp_event.GaussianDpEvent(part.noise)
        sampled = dp_event.PoissonSampledDpEvent(part.rate, noisy) if part.rate < 1 else noisy
        accountant.compose(dp_event.SelfComposedDpEvent(sampled, part.n))
    if job.delta is None:
        return 0.0, accountant.get_delta(job.eps)
    return 0.0, accountant.get_epsilon(job.delta)


def _dp_accounting_calibrate(job: Job) -> Ends:
    from dp_accounting import dp_event, mechanism_calibration
    from dp_accounting.pld import PLDAccountant

    (part,) = job.parts

    def event(value: float) -> dp_event.DpEvent:
        noise, n, rate = (value if job.solve == field else getattr(part, field) for field in ("noise", "n", "rate"))
        return dp_event.SelfComposedDpEvent(
            dp_event.PoissonSampledDpEvent(rate, dp_event.GaussianDpEvent(noise)), int(n)
        )

    bracket = {"noise": (1, 10), "n": (1, 10**5), "rate": (1e-4, 0.1)}[job.solve]
    interval = mechanism_calibration.ExplicitBracketInterval(*bracket)
    assert job.eps is not None
    assert job.delta is not None
    value = mechanism_calibration.calibrate_dp_mechanism(
        PLDAccountant, event, job.eps, job.delta, interval, discrete=job.solve == "n"
    )
    return value, value


def prv_accountant(job: Job) -> Ends:
    """Microsoft's PRV accountant at an eps error of 0.01, both ends."""
    import prv_accountant as prv

    if job.solve:
        return _prv_calibrate(job)

    def variable(part: Part) -> Any:
        if part.mech == "laplace":
            return prv.LaplaceMechanism(1 / part.noise)
        if part.rate < 1:
            return prv.PoissonSubsampledGaussianMechanism(part.rate, part.noise)
        return prv.GaussianMechanism(part.noise)

    counts = [part.n for part in job.parts]
    delta = 1e-5 if job.delta is None else job.delta
    variables = [variable(part) for part in job.parts]
    accountant = prv.PRVAccountant(
        variables, eps_error=0.01, delta_error=DELTA_SHARE * delta, max_self_compositions=counts
    )
    if job.delta is None:
        low, _, high = accountant.compute_delta(job.eps, counts)
    else:
        low, _, high = accountant.compute_epsilon(job.delta, counts)
    return max(low, 0.0), high


def _prv_calibrate(job: Job) -> Ends:
    if job.solve != "noise":
        raise NotImplementedError("solves for the noise only")
    from prv_accountant.dpsgd import find_noise_multiplier

    (part,) = job.parts
    value = find_noise_multiplier(part.rate, part.n, job.eps, job.delta, eps_error=0.01)
    return value, value


def opacus(job: Job) -> Ends:
    """Opacus's PRV accountant, at its default eps error of 0.01; it prints the upper end."""
    import torch
    from opacus.accountants import PRVAccountant
    from opacus.accountants.utils import get_noise_multiplier

    torch.set_num_threads(1)
    if any(part.mech != "gauss" for part in job.parts) or job.delta is None or job.solve in ("n", "rate"):
        raise NotImplementedError("answers eps at a delta, and the noise for it, of subsampled Gauss alone")
    if job.solve:
        (part,) = job.parts
        value = get_noise_multiplier(
            target_epsilon=job.eps,
            target_delta=job.delta,
            sample_rate=part.rate,
            steps=part.n,
            accountant="prv",
            epsilon_tolerance=0.01,
        )
        return value, value
    accountant = PRVAccountant()
    accountant.history = [(part.noise, part.rate, part.n) for part in job.parts]
    high = accountant.get_epsilon(job.delta)
    return 0.0, high if math.isfinite(high) else math.inf


PROGRAMS: dict[str, Callable[[Job], Ends]] = {
    "wpriv": wpriv,
    "wpriv at 1e-3": wpriv_coarse,
    "dp_accounting": dp_accounting,
    "prv_accountant": prv_accountant,
    "opacus": opacus,
}
PACKAGES = {"wpriv at 1e-3": "wpriv"}
"""The package of a program, if its name differs."""
