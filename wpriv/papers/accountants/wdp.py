"""Wasserstein differential privacy: the mean distance that a released value moves, in its own unit. Not DP.

The Wasserstein accountant of Yang et al. (2024) as printed, as in the authors' program, and the exact distance that
both estimate; also the paper's budgets of the basic mechanisms and its conversions. It must not be confused with (eps,
delta)-DP: a WDP eps of 0.1 can belong to a release without any noise.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Mapping
from dataclasses import replace

import numpy as np
from numpy.typing import ArrayLike
from scipy.special import logsumexp

from wpriv.accounting.accountants._moment_bounds import check_order
from wpriv.accounting.accountants.zcdp import total_line
from wpriv.core.guarantee import Curve
from wpriv.core.kinds import Adjacency, Sampling
from wpriv.core.mechanism import Mechanism
from wpriv.core.pair_distances import Observed, of_distances
from wpriv.core.process import Process, Step, refuse_passes, refuse_special_sampling
from wpriv.errors import Unsupported, UsageError
from wpriv.numerics import wasserstein_1d
from wpriv.numerics.arrays import Array
from wpriv.numerics.bracket import Bracket, exp_or_inf
from wpriv.numerics.conversions import zcdp_to_epsilon, zcdp_to_log_delta

NOTION = "wdp"
CLAIM = "as-published"
SOURCE = "Yang, Qi, Zhou 2024"
EXPLAIN = """\
(mu, eps)-WDP promises that outputs on neighbouring data can be coupled at a mu-th mean distance of at most eps.
It bounds how far a value moves, not how well data sets are told apart: without noise the budget is Delta, finite.
It implies (eps', delta)-DP only through the noise distribution at shift eps, or fresh noise after a WDP stage.
eps has the unit of the output, not that of a DP eps, and as published it GROWS with the noise. Corollary 1: eps = sum
of step losses W_t - ln(delta)/beta, delta a chance over training paths; the exact W_mu is q^(1/mu) d at most."""

UNIT = (
    "a wdp eps has the unit of the output and can grow with the noise: it is no (eps, delta)-DP guarantee and shares "
    "no scale with one"
)
VARIANTS = {
    "paper": "Theorem 2 (sum over coordinates), Corollary 1",
    "code": "Theorem 2 as the authors' program has it (sum over pairs), Corollary 1",
    "exact": "W_mu of the pairs themselves",
    "kdp": "Definition 4, W_1 by its dual",
    "generalised": "Definition 5, Theorem 1 corrected by Hoeffding's inequality",
    "table1": "Table 1, Propositions 7 and 8",
    "prop9": "Proposition 9, from pure DP",
    "prop10": "Proposition 10, from RDP",
    "prop11": "Proposition 11, from the exact WDP budget to DP",
    "to-zcdp": "from the exact WDP budget to zCDP, by Proposition 11",
}
# options of some variants alone: the variants, and the default
OPTIONS = {"coordinates": (("paper",), 0.0), "alpha": (("prop10",), 2.0), "lipschitz": (("prop11", "to-zcdp"), 0.0)}
# a query of the output attains the dual, and moving the outputs along it costs no more
DUAL = "kdp: attained by the query f(y) = <y, v> / |v| of the output, v the largest change that one record makes"
PATHS = (
    "generalised wdp: delta is the probability, over training paths, that the losses of all steps add up to more than "
    "eps; the mean losses are those that were observed, and the steps are taken to be independent"
)
FALSE = (
    "as published: wdp:variant={} is false for every finite order: (1-h) Lap(0,1) + h Lap(T,1) with h = e^(-T/2) and "
    "Lap(0,1) have 1-Lipschitz log densities, W -> 0 and a largest loss near T/2; use pld"
)
_NO_OBSERVATIONS = (
    "is computed from observed pair distances or gradients, and found none: give `observed`; wdp:variant=exact and "
    "wdp:variant=table1 use the sensitivity instead"
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
    """Evaluate every step by one variant, add up (Proposition 6), split off delta (Corollary 1); ``tol`` is not used.

    Args:
        order: mu in [1, 1000]; ``kdp`` has 1. variant: one of ``VARIANTS``.
        beta: of Corollary 1, > 0; 0 stands for 1 in ``paper`` and ``code`` and for no path randomness (delta = 0)
            elsewhere.
        coordinates: of a gradient, where the observations do not give them (``paper``). group: k records at once
            (Proposition 13).
        alpha: the Renyi order that ``prop10`` starts from. lipschitz: constant of the log density, which ``prop11``
            and ``to-zcdp`` need.
    Raises:
        Unsupported: nothing was observed, or the variant does not cover some step.
        UsageError: an option out of range, or one of another variant.
    """
    refuse_passes(process, "wdp")
    refuse_special_sampling(process, "wdp")
    wasserstein_1d.check_order(order)
    if variant not in VARIANTS:
        raise UsageError(f"wdp: variant must be one of {', '.join(VARIANTS)}; found {variant!r}")
    if beta < 0 or not (group >= 1 and group == int(group)):
        raise UsageError(
            f"wdp: beta must be at least 0, and group a whole number of records from 1; found {beta:g} and {group:g}"
        )
    check_order("wdp with alpha", alpha)
    option = _option(variant, {"coordinates": coordinates, "alpha": alpha, "lipschitz": lipschitz})
    if variant in ("kdp", "generalised", "to-zcdp") and (beta or (variant == "to-zcdp" and group > 1)):
        raise UsageError(f"wdp:variant={variant} takes no beta, and to-zcdp no group; leave them out")
    if variant == "kdp":
        if order not in (1.0, 2.0):
            raise UsageError(f"wdp:variant=kdp has order 1; found {order:g}. Leave it out, or use wdp:variant=exact")
        order = 1.0
    total = group * _total(process, variant, order, option)
    if variant == "generalised":
        return _generalised(process, order, total, group)
    rate = beta or (1.0 if variant in ("paper", "code") else 0.0)
    rate /= group  # of Corollary 1: ln delta falls by this for each unit of eps

    def delta(eps: float) -> Bracket:
        if variant == "to-zcdp":
            return bracket(math.exp(zcdp_to_log_delta(total, eps)))
        return bracket(math.exp(published_log_delta(total, rate, eps)) if rate else float(eps < total))

    def epsilon(delta: float) -> Bracket:
        if variant == "to-zcdp":
            return bracket(zcdp_to_epsilon(total, math.log(delta)))
        return bracket(published_epsilon(total, rate, math.log(delta)) if rate else total)

    claim, warnings = _claim(process, variant, order, total / group)
    if variant == "exact" and rate:
        claim = CLAIM  # Corollary 1 charges for delta, whatever the losses are
    elif claim == "exact" and group > 1:
        claim = "upper-bound"
    bracket: Callable[[float], Bracket] = {"exact": Bracket.exact, "upper-bound": Bracket.above}.get(claim, Bracket)
    settings = f"order {order:g}"
    settings += f", beta {beta or 1:g}" if rate else ""
    settings += f", groups of {group:g}" if group > 1 else ""
    settings += f", rho {total:.6g}" if variant == "to-zcdp" else ""
    notion = "approximate-dp" if variant in ("prop11", "to-zcdp") else NOTION
    return Curve(process, "wdp", notion, claim, f"{SOURCE}: {VARIANTS[variant]}; {settings}", delta, epsilon, warnings)


def _option(variant: str, given: Mapping[str, float]) -> float:
    """The option that only this variant has, 0 where it has none; refuses those of other variants."""
    for name, (users, default) in OPTIONS.items():
        if variant not in users and given[name] != default:
            raise UsageError(
                f"wdp: {name} is an option of wdp:variant={users[0]} and has no effect on variant={variant}; found "
                f"{given[name]:g}. Leave it out, or use wdp:variant={users[0]}"
            )
    return next((given[name] for name, (users, _) in OPTIONS.items() if variant in users), 0.0)


def _generalised(process: Process, order: float, total: float, group: float) -> Curve:
    """Definition 5 by Hoeffding's inequality, for independent W_t in [0, w_t] of the mean sum ``total``.

    P(sum W_t >= total + x) <= exp(-2 x^2 / sum w_t^2), w_t being W_mu at the sensitivity. Without observations W_t is
    w_t, and delta is 0. Theorem 1 as printed takes E e^X <= e^(E X), which is Jensen's inequality reversed.
    """
    most = spread = 0.0
    for step in process.steps:
        if step.observed is None:
            most += group * step.n * float(_exact(step, order)[0])
            continue
        apart = _distances(replace(step, observed=None)) * (1 if process.adjacency == Adjacency.REPLACE_ONE else 2)
        if float((step.observed.distances / step.observed.unit[:, None]).max()) > float(apart[0]) * (1 + 1e-9):
            raise Unsupported(
                "wdp:variant=generalised needs losses that the sensitivity bounds, and observed pairs are further "
                "apart. Clip the gradients, or give their largest change as `sensitivity`"
            )
        widest = group * step.observed.unit * _exact(replace(step, observed=of_distances(apart)), order)
        most, spread = most + step.observed.total(widest, step.n), spread + step.observed.total(widest**2, step.n)
    bracket: Callable[[float], Bracket] = Bracket if spread else Bracket.above

    def delta(eps: float) -> Bracket:
        if eps >= most:
            return bracket(0.0)
        return bracket(math.exp(-2 * (eps - total) ** 2 / spread) if spread and eps > total else 1.0)

    def epsilon(delta: float) -> Bracket:
        return bracket(min(total + math.sqrt(-math.log(delta) * spread / 2), most))

    fixed = _claim(process, "exact", order, total)[1]
    claim, warnings = ("approximate", (UNIT, PATHS)) if spread else ("upper-bound", fixed)
    source = f"{SOURCE}: {VARIANTS['generalised']}; order {order:g}" + (f", groups of {group:g}" if group > 1 else "")
    return Curve(process, "wdp", NOTION, claim, source, delta, epsilon, warnings)


def _total(process: Process, variant: str, order: float, option: float) -> float:
    """The sum of the losses of all steps."""
    steps = process.steps
    losses = [_losses(step.mechanism, step.sampling, step.observed, variant, order, option) for step in steps]
    return math.fsum(
        step.n * float(step_losses[0]) if step.observed is None else step.observed.total(step_losses, step.n)
        for step, step_losses in zip(steps, losses, strict=True)
    )


def _claim(process: Process, variant: str, order: float, total: float) -> tuple[str, tuple[str, ...]]:
    """The claim of the figure and its warnings."""
    if variant in ("prop11", "to-zcdp"):
        return CLAIM, (FALSE.format(variant), *(_compared_with_rho(process, total) if variant == "to-zcdp" else ()))
    if variant not in ("exact", "kdp"):
        return CLAIM, (UNIT, *_compared_with_exact(process, order, total))
    dual = (DUAL,) if variant == "kdp" else ()
    if any(step.observed is not None for step in process.steps):
        return "approximate", (
            *(UNIT, *dual),
            "wdp evaluates the furthest observed pair of each step; other data may contain pairs further apart",
        )
    if sum(step.n for step in process.steps) == 1:
        return "exact", (UNIT, *dual)
    return "upper-bound", (
        *(UNIT, *dual),
        "the sum over the steps holds for releases fixed in advance, not for steps chosen by earlier outputs",
    )


def _compared_with_rho(process: Process, printed: float) -> tuple[str, ...]:
    """A warning that compares the printed rho with the least one, where that is known (accountant zcdp)."""
    try:
        proven = total_line(process)[1]
    except Unsupported:
        return ()
    relation = "BELOW" if printed < proven * (1 - 1e-9) else "above"
    return (f"the published rho, {printed:.6g}, lies {relation} the proven one, {proven:.6g} (accountant zcdp)",)


def _compared_with_exact(process: Process, order: float, total: float) -> tuple[str, ...]:
    """A warning that compares a published figure with the exact one, where that is known."""
    try:
        exact = _total(process, "exact", order, 0.0)
    except Unsupported:
        return ()
    relation = "BELOW" if total < exact * (1 - 1e-9) else "above"
    return (
        f"the published loss of all steps, {total:.6g}, lies {relation} their exact W_{order:g}, {exact:.6g} "
        f"(wdp:variant=exact)",
    )


@functools.lru_cache(maxsize=256)
def _losses(
    mechanism: Mechanism, sampling: Sampling, observed: Observed | None, variant: str, order: float, option: float
) -> Array:
    """[observed steps] the loss of each step, or [1] where none was observed; ``option`` is that of the variant."""
    step = Step(mechanism, 1, sampling, observed)
    if variant in ("paper", "code"):
        return _published(step, variant, order, option)
    if variant in ("exact", "generalised"):
        return _exact(step, order)
    if variant == "kdp":
        return step.sampling.rate * _distances(step)
    return np.array([_basic(step, variant, order, option)])


def _published(step: Step, variant: str, order: float, coordinates: float) -> Array:
    """Theorem 2 at each observed step."""
    noise, observed, rate = step.mechanism.additive_noise(), step.observed, step.sampling.rate
    if noise is None or not noise.is_textbook("gauss"):
        raise Unsupported(
            f"wdp:variant={variant} is stated for Gaussian noise; found {step.mechanism.name}. Use wdp:variant=exact, "
            f"or pld"
        )
    if observed is None:
        raise Unsupported(f"wdp:variant={variant} {_NO_OBSERVATIONS}")
    sigma, rows = noise.scale, list(zip(observed.distances, observed.unit, strict=True))
    if variant == "code":
        return np.array([code_step(d, rate, sigma * unit, order) for d, unit in rows])
    count = int(coordinates) or observed.coordinates
    if count < 1:
        raise Unsupported(
            "wdp:variant=paper sums over the coordinates of a gradient, and the number of coordinates is unknown where "
            "only distances were observed: use wdp:coordinates=..., give gradients as `observed`, or use "
            "wdp:variant=code"
        )
    return np.array([published_step(d, rate, sigma * unit, order, count) for d, unit in rows])


def _exact(step: Step, order: float) -> Array:
    """W_mu of the furthest observed pair of each step, or of the sensitivity where nothing was observed."""
    mechanism, sampling, noise = step.mechanism, step.sampling, step.mechanism.additive_noise()
    distances, units = _distances(step), np.ones(1) if step.observed is None else step.observed.unit
    if sampling.rate == 1:
        return np.array([wasserstein_1d.shift(d) for d in distances])
    if sampling.kind != "poisson" or noise is None or not noise.is_textbook(noise.family):
        raise Unsupported(
            f"wdp:variant=exact covers Gaussian and Laplace noise under Poisson sampling; found "
            f"{mechanism.name}, sampling {sampling.kind}. Use `sampling='poisson'`, or pld"
        )
    distance = {"gauss": wasserstein_1d.subsampled_gauss, "laplace": wasserstein_1d.subsampled_laplace}[noise.family]
    return np.array(
        [
            distance(sampling.rate, float(d), float(noise.scale * unit), order)
            for d, unit in zip(distances, units, strict=True)
        ]
    )


def _distances(step: Step) -> Array:
    """[observed steps] the distance of the furthest observed pair, or [1] the sensitivity where none was observed."""
    noise = step.mechanism.additive_noise()
    if noise is None or noise.local:
        raise Unsupported(f"wdp:variant=exact covers additive noise only; found {step.mechanism.name}. Use pld")
    return np.array([noise.sensitivity]) if step.observed is None else step.observed.distances.max(axis=1)


def _basic(step: Step, variant: str, order: float, option: float) -> float:
    """Table 1 and the conversions, from the parameters of one unsampled release."""
    mechanism = step.mechanism
    sensitivity = mechanism.describe().get("sensitivity")
    if step.sampling.rate != 1 or sensitivity is None:
        raise Unsupported(
            f"wdp:variant={variant} is stated for one release of known sensitivity without sampling; found "
            f"{mechanism.name} with {step.sampling.kind} sampling"
        )
    if variant == "table1":
        noise = mechanism.additive_noise()
        if noise is not None and noise.is_textbook("gauss"):
            return published_gauss(sensitivity, noise.scale, order)
        if noise is not None and noise.is_textbook("laplace"):
            return published_laplace(sensitivity, noise.scale, order)
        raise Unsupported(
            f"Table 1 has budgets of Gaussian and Laplace noise; found {mechanism.name}. Use wdp:variant=exact"
        )
    pair = mechanism.pair()
    if variant == "prop9":
        if pair.mass_at_plus_infinity > 0 or not math.isfinite(pair.support[1]):
            raise Unsupported(
                f"Proposition 9 starts from pure DP, and {mechanism.name} has an unbounded privacy loss. Use "
                f"wdp:variant=prop10"
            )
        return published_from_dp(pair.support[1], sensitivity, order)
    if variant == "prop10":
        if not option > 1:
            raise UsageError(f"wdp: the Renyi order alpha must exceed 1; found {option:g}")
        divergence = pair.renyi(np.array([option]))
        if divergence is None:
            raise Unsupported(
                f"Proposition 10 starts from RDP, and {mechanism.name} has no closed form of it. Use wdp:variant=exact"
            )
        return published_from_rdp(float(divergence[0]), sensitivity, order)
    if not option > 0:
        raise UsageError(
            f"wdp:variant={variant} needs the Lipschitz constant of the log density, as in lipschitz=0.1; Laplace "
            "noise has 1/b"
        )
    bound = published_to_rdp(float(_exact(step, order)[0]), option, order)
    return bound * bound / 2 if variant == "to-zcdp" else bound


# The formulas as printed: ``published_*`` gives the number of the paper. None is a differential privacy guarantee, and
# most are not even bounds of the Wasserstein distance that they are stated for. ``distance`` is the sensitivity.


def published_laplace(distance: float, scale: float, order: float) -> float:
    """Proposition 7 and Table 1: (1/2) Delta sqrt(2 [1/b + e^(-1/b) - 1])^(1/mu).

    The exact budget is Delta, for every b and mu.
    """
    t = 1 / _positive(scale, "scale")
    # t + e^-t - 1 by its series where it would cancel
    kl = t * t / 2 - t**3 / 6 + t**4 / 24 - t**5 / 120 if t < 1e-3 else t + math.expm1(-t)
    return distance / 2 * math.pow(2 * kl, 0.5 / wasserstein_1d.check_order(order))


def published_gauss(distance: float, sigma: float, order: float) -> float:
    """Proposition 8 and Table 1: (1/2) (Delta/sigma)^(1/mu), whose unit is wrong. The exact budget is Delta."""
    return 0.5 * math.pow(distance / _positive(sigma, "sigma"), 1 / wasserstein_1d.check_order(order))


def published_from_dp(eps: float, distance: float, order: float) -> float:
    """Proposition 9, eps-DP to WDP: (1/2) Delta (2 eps (e^eps - 1))^(1/(2 mu)).

    False: within outputs of diameter D the smallest bound is D tanh(eps/2)^(1/mu), attained by randomized response on
    {0, D}.
    """
    wasserstein_1d.check_order(order)
    log_inside = math.log(2 * eps) + (eps if eps > 700 else math.log(math.expm1(eps))) if eps > 0 else -math.inf
    return distance / 2 * exp_or_inf(log_inside / (2 * order))


def published_from_rdp(eps: float, distance: float, order: float) -> float:
    """Proposition 10, (alpha, eps)-RDP to WDP: (1/2) Delta (2 eps)^(1/(2 mu)).

    False: within outputs of diameter D, Pinsker's inequality gives D min(1, sqrt(eps/2))^(1/mu).
    """
    return distance / 2 * math.pow(2 * eps, 0.5 / wasserstein_1d.check_order(order))


def published_to_rdp(eps: float, lipschitz: float, order: float, alpha: float = math.inf) -> float:
    """Proposition 11, WDP to (alpha, .)-RDP and, at alpha = inf, to DP: alpha/(alpha-1) L eps^(mu/(mu+1)).

    L is the Lipschitz constant of the log density. False, and beyond repair for finite mu: distributions with
    1-Lipschitz log densities can have W_mu near 0 and a loss of any size. Additive noise has L Delta.
    """
    if not alpha > 1:
        raise UsageError(f"a Renyi order alpha must exceed 1; found {alpha}")
    factor = 1.0 if math.isinf(alpha) else alpha / (alpha - 1)
    return factor * lipschitz * math.pow(eps, wasserstein_1d.check_order(order) / (order + 1))


def published_step(distances: ArrayLike, rate: float, sigma: float, order: float, coordinates: int = 1) -> float:
    """Theorem 2: (sum over the coordinates of E|Z|^mu)^(1/mu), Z ~ N(q d, (2 - 2q + 2q^2) sigma^2), at the smallest d.

    Args:
        distances: [pairs] ||g - g'|| of one step, in the units of the output. coordinates: how many the gradient has.
    Returns:
        W in those units. It grows with sigma, is positive at q = 0, and can lie far below the exact W_mu.
    """
    least = float(np.min(np.asarray(distances, dtype=float)))
    return math.exp((math.log(coordinates) + float(_log_moment(least, rate, sigma, order))) / order)


def code_step(distances: ArrayLike, rate: float, sigma: float, order: float) -> float:
    """The step loss of the authors' program: a sum over sampled pairs, not coordinates (see ``published_step``)."""
    return math.exp(float(logsumexp(_log_moment(np.ravel(distances), rate, sigma, order))) / order)


def _log_moment(distance: ArrayLike, rate: float, sigma: float, order: float) -> Array:
    if not 0 <= rate <= 1:
        raise UsageError(f"the sampling rate must lie in [0, 1]; found {rate}")
    spread = math.sqrt(2 - 2 * rate + 2 * rate * rate)
    return wasserstein_1d.log_absolute_moment(rate * np.asarray(distance, dtype=float), spread * sigma, order)


def published_epsilon(total: float, beta: float, log_delta: float) -> float:
    """Corollary 1: eps = sum of the step losses - ln(delta)/beta, beta free. Its proof reverses Jensen's inequality."""
    return total - log_delta / _positive(beta, "beta")


def published_log_delta(total: float, beta: float, eps: float) -> float:
    """Theorem 3: ln delta = beta (sum of the step losses - eps), at most 0."""
    return min(_positive(beta, "beta") * (total - eps), 0.0)


def _positive(value: float, name: str) -> float:
    if not value > 0:
        raise UsageError(f"{name} must be greater than 0; found {value}")
    return value
