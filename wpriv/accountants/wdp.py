"""Wasserstein differential privacy: how far a released value moves on average, in its own unit. Not differential privacy.

The Wasserstein accountant of Yang et al. (2024) as printed, as their program has it, and the distance that both stand for; with their
budgets of the basic mechanisms and their conversions. It must not be confused with any (eps, delta): a WDP eps of 0.1 can belong to a
release without any noise.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable

import numpy as np

from wpriv.accountants import _wdp_formulas
from wpriv.core.guarantee import Bracket, Curve
from wpriv.core.mechanism import Mechanism
from wpriv.core.pair_distances import Observed
from wpriv.core.process import Process, Sampling, Step
from wpriv.errors import Unsupported, UsageError
from wpriv.numerics import wasserstein_1d
from wpriv.numerics.arrays import Array

NOTION = "wdp"
CLAIM = "as-published"
SOURCE = "Yang, Qi, Zhou 2024"
EXPLAIN = """\
(mu, eps)-WDP promises that the outputs on neighbouring data can be coupled so that the mu-th mean of their distance is at most eps.
It bounds how far a value moves, not how well data sets are told apart: a release without noise has the finite budget Delta.
It implies (eps', delta)-DP only with more: the noise's own law at shift eps, or fresh noise added after a WDP stage; else never.
Its eps has the unit of the output, so it cannot be set beside a DP eps, and as published it GROWS with the noise. Corollary 1:
eps = sum of step losses W_t - ln(delta)/beta; delta is a chance over training paths; the exact W_mu is q^(1/mu) d at most, noise or not."""

UNIT = "a wdp eps has the unit of the output and can grow with the noise: it is no (eps, delta)-DP guarantee and shares no scale with one"
VARIANTS = {
    "paper": "Theorem 2 (sum over coordinates), Corollary 1",
    "code": "Theorem 2 as the authors' program has it (sum over pairs), Corollary 1",
    "exact": "W_mu of the pairs themselves",
    "table1": "Table 1, Propositions 7 and 8",
    "prop9": "Proposition 9, from pure DP",
    "prop10": "Proposition 10, from RDP",
    "prop11": "Proposition 11, from the exact WDP budget to DP",
}
_ADDITIVE = ("gauss", "laplace", "discrete-gauss", "discrete-laplace", "truncated-gauss", "truncated-laplace")
_NEED = (
    "prices what a run showed, and nothing was observed: give --observed FILE (or in a recipe `observed:`), pair distances or gradients; "
    "wdp:variant=exact and wdp:variant=table1 price the sensitivity instead"
)


def account(
    process: Process,
    *,
    tol: float = 1e-3,
    order: float = 2.0,
    variant: str = "paper",
    beta: float = 0.0,
    coordinates: float = 0.0,
    group: float = 1.0,
    alpha: float = 2.0,
    lipschitz: float = 0.0,
) -> Curve:
    """Prices every step by one variant, adds up (Proposition 6), and splits off delta by Corollary 1; ``tol`` is not used.

    Args:
        order: mu in [1, 1000]; 1 is Kantorovich DP. variant: one of ``VARIANTS``.
        beta: of Corollary 1, > 0; 0 stands for 1 in ``paper`` and ``code`` and for no path randomness (delta = 0) elsewhere.
        coordinates: of a gradient, where the observations do not tell (``paper``). group: k records at once (Proposition 13).
        alpha: the Renyi order that ``prop10`` starts from. lipschitz: of the log density, which ``prop11`` needs.
    Raises:
        Unsupported: nothing was observed, or the step is none that the variant knows. UsageError: an option out of range.
    """
    wasserstein_1d.check_order(order)
    if variant not in VARIANTS:
        raise UsageError(f"wdp: variant must be one of {', '.join(VARIANTS)}; found {variant!r}")
    if beta < 0 or not (group >= 1 and group == int(group)):
        raise UsageError(
            f"wdp: wanted beta >= 0 and a group of a whole number of records; found {beta:g} and {group:g}"
        )
    extra = {"paper": coordinates, "prop10": alpha, "prop11": lipschitz}.get(variant, 0.0)
    losses = [_losses(step.mechanism, step.sampling, step.observed, variant, order, extra) for step in process.steps]
    total = group * math.fsum(_total(step, own) for step, own in zip(process.steps, losses, strict=True))
    tail = beta or (1.0 if variant in ("paper", "code") else 0.0)
    tail /= group

    def delta(eps: float) -> Bracket:
        return seal(math.exp(_wdp_formulas.published_log_delta(total, tail, eps)) if tail else float(eps < total))

    def epsilon(delta: float) -> Bracket:
        return seal(_wdp_formulas.published_epsilon(total, tail, math.log(delta)) if tail else total)

    claim, warnings = _claim(process, variant, order, total / group)
    if variant == "exact" and tail:
        claim = CLAIM  # Corollary 1 charges for delta, whatever the losses are
    elif claim == "exact" and group > 1:
        claim = "upper-bound"
    seal: Callable[[float], Bracket] = {"exact": Bracket.exact, "upper-bound": Bracket.above}.get(claim, Bracket)
    settings = (
        f"order {order:g}" + (f", beta {beta or 1:g}" if tail else "") + (f", groups of {group:g}" if group > 1 else "")
    )
    notion = "approximate-dp" if variant == "prop11" else NOTION
    return Curve(process, "wdp", notion, claim, f"{SOURCE}: {VARIANTS[variant]}; {settings}", delta, epsilon, warnings)


def _total(step: Step, losses: Array) -> float:
    return step.n * float(losses[0]) if step.observed is None else step.observed.total(losses, step.n)


def _claim(process: Process, variant: str, order: float, total: float) -> tuple[str, tuple[str, ...]]:
    """What the figure is, and what must be said with it."""
    observed = any(step.observed is not None for step in process.steps)
    if variant != "exact":
        told = (
            "as published: wdp:variant=prop11 is false for every finite order; use pld" if variant == "prop11" else UNIT
        )
        return CLAIM, (told, *_beside(process, variant, order, total))
    if observed:
        return "approximate", (
            UNIT,
            "wdp prices the furthest observed pair of each step; other data may hold further ones",
        )
    if sum(step.n for step in process.steps) == 1:
        return "exact", (UNIT,)
    return "upper-bound", (
        UNIT,
        "the sum over the steps holds for releases fixed in advance, not for steps chosen by earlier outputs",
    )


def _beside(process: Process, variant: str, order: float, total: float) -> tuple[str, ...]:
    """The exact figure beside a published one, where the step is one whose distance is known."""
    if variant == "prop11":
        return ()
    try:
        losses = [_losses(step.mechanism, step.sampling, step.observed, "exact", order, 0.0) for step in process.steps]
    except Unsupported:
        return ()
    truth = math.fsum(_total(step, own) for step, own in zip(process.steps, losses, strict=True))
    where = "BELOW" if total < truth * (1 - 1e-9) else "above"
    return (
        f"the published loss of all steps, {total:.6g}, lies {where} their exact W_{order:g}, {truth:.6g} (wdp:variant=exact)",
    )


@functools.lru_cache(maxsize=256)
def _losses(
    mechanism: Mechanism, sampling: Sampling, observed: Observed | None, variant: str, order: float, extra: float
) -> Array:
    """[observed steps] what each step loses, or [1] where none was observed; ``extra`` is the one option that the variant takes."""
    step = Step(mechanism, 1, sampling, observed)
    if variant in ("paper", "code"):
        return _accountant(step, variant, order, extra)
    if variant == "exact":
        return _exact(step, order)
    return np.array([_basic(step, variant, order, extra)])


def _accountant(step: Step, variant: str, order: float, coordinates: float) -> Array:
    """Theorem 2 at each observed step."""
    name, seen, rate = step.mechanism.name, step.observed, step.sampling.rate
    if name != "gauss":
        raise Unsupported(
            f"wdp:variant={variant} is stated for Gauss noise; found {name}. Use wdp:variant=exact, or pld"
        )
    if seen is None:
        raise Unsupported(f"wdp:variant={variant} {_NEED}")
    sigma, rows = step.mechanism.describe()["sigma"], list(zip(seen.distances, seen.unit, strict=True))
    if variant == "code":
        return np.array([_wdp_formulas.code_step(d, rate, sigma * unit, order) for d, unit in rows])
    count = int(coordinates) or seen.coordinates
    if count < 1:
        raise Unsupported(
            "wdp:variant=paper sums over the coordinates of a gradient, and distances do not tell how many there are: "
            "use wdp:coordinates=..., give gradients with --observed, or use wdp:variant=code"
        )
    return np.array([_wdp_formulas.published_step(d, rate, sigma * unit, order, count) for d, unit in rows])


def _exact(step: Step, order: float) -> Array:
    """W_mu of the furthest observed pair of each step, or of the sensitivity where nothing was observed."""
    name, about, sampling, seen = step.mechanism.name, step.mechanism.describe(), step.sampling, step.observed
    if name not in _ADDITIVE:
        raise Unsupported(
            f"wdp:variant=exact knows the distance between outputs for additive noise only; found {name}. Use pld"
        )
    far, unit = (
        (np.array([about["sensitivity"]]), np.ones(1)) if seen is None else (seen.distances.max(axis=1), seen.unit)
    )
    if sampling.rate == 1:
        return np.array([wasserstein_1d.shift(d) for d in far])
    if sampling.kind != "poisson" or name not in ("gauss", "laplace"):
        raise Unsupported(
            f"wdp:variant=exact knows the distance of Poisson-subsampled Gauss and Laplace noise; found {name}, sampling {sampling.kind}. "
            f"Use --sampling poisson, or pld"
        )
    law = wasserstein_1d.subsampled_gauss if name == "gauss" else wasserstein_1d.subsampled_laplace
    noise = about["sigma"] if name == "gauss" else about["scale"]
    return np.array([law(sampling.rate, float(d), float(noise * u), order) for d, u in zip(far, unit, strict=True)])


def _basic(step: Step, variant: str, order: float, extra: float) -> float:
    """Table 1 and the conversions, from the parameters of one unsampled release."""
    name, about = step.mechanism.name, step.mechanism.describe()
    if step.sampling.rate != 1 or "sensitivity" not in about:
        raise Unsupported(
            f"wdp:variant={variant} is stated for one release without sampling; found {name} with {step.sampling.kind} sampling"
        )
    distance = about["sensitivity"]
    if variant == "table1":
        if name == "gauss":
            return _wdp_formulas.published_gauss(distance, about["sigma"], order)
        if name == "laplace":
            return _wdp_formulas.published_laplace(distance, about["scale"], order)
        raise Unsupported(f"Table 1 has budgets of Gauss and Laplace noise; found {name}. Use wdp:variant=exact")
    pair = step.mechanism.pair()
    if variant == "prop9":
        if pair.mass_at_plus_infinity > 0 or not math.isfinite(pair.support[1]):
            raise Unsupported(f"Proposition 9 starts from pure DP, which {name} has not. Use wdp:variant=prop10")
        return _wdp_formulas.published_from_dp(pair.support[1], distance, order)
    if variant == "prop10":
        if not extra > 1:
            raise UsageError(f"wdp: the Renyi order alpha must exceed 1; found {extra:g}")
        divergence = pair.renyi(np.array([extra]))
        if divergence is None:
            raise Unsupported(
                f"Proposition 10 starts from RDP, whose closed form {name} has not. Use wdp:variant=exact"
            )
        return _wdp_formulas.published_from_rdp(float(divergence[0]), distance, order)
    if not extra > 0:
        raise UsageError(
            "wdp:variant=prop11 needs the Lipschitz constant of the log density, as in lipschitz=0.1; Laplace noise has 1/b"
        )
    return _wdp_formulas.published_to_rdp(float(_exact(step, order)[0]), extra, order)
