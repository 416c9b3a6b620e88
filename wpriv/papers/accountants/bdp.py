"""Bayesian differential privacy (Triastcyn and Faltings 2020), estimated from sampled pairs of records.

The privacy cost of a step is an upper confidence limit, by Student's t, of a mean over pairs of records drawn from the
data. It must not be confused with differential privacy: it describes the distribution of the pairs, and gives no
guarantee to an unusual record, which they do not represent.
"""

from __future__ import annotations

import functools
import math

import numpy as np
from scipy.special import stdtrit

from wpriv.core.guarantee import Curve
from wpriv.core.pair_distances import Observed
from wpriv.core.process import Process, Step, refuse_passes, refuse_special_sampling
from wpriv.errors import Unsupported, UsageError
from wpriv.numerics.arrays import Array
from wpriv.numerics.bracket import Bracket
from wpriv.numerics.conversions import rdp_to_epsilon, rdp_to_log_delta, tail_to_epsilon, tail_to_log_delta
from wpriv.numerics.log_space import log_binomial_excess

# failure probability of one confidence limit: the smallest that 1 - probability can represent in a double
FAILURE = 2.0**-53
LOG_CONFIDENCE = math.log1p(-FAILURE)


def log_moments(distances: Array, rate: float, sigma: float, order: int) -> Array:
    """[pairs] lambda times the Renyi divergence of order lambda + 1 of the Poisson-subsampled Gaussian mechanism.

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


NOTION = "bdp"
CLAIM = "as-published"
SOURCE = "Triastcyn, Faltings 2020, Theorem 4"
EXPLAIN = """\
eps = min over l of (sum of step costs - ln(delta - f))/l, f = 1 - (1 - 2^-53)^n for one confidence limit a step.
A step's cost is (1/T) ln of the upper t-limit of the mean of e^(T c_l(d)) over the observed pairs at distance d,
c_l the log moment of the subsampled Gaussian mechanism.
Strong form: P(loss >= eps) <= delta; weak form: like (eps, delta)-DP, by the conversion of 2020.
Both hold on average over the record drawn."""
ORDERS = (1, 2, 3, 4, 6, 8, 12, 16, 24, 32)
MAX_ORDER = 2**14
FORMS = {"strong": (tail_to_log_delta, tail_to_epsilon), "weak": (rdp_to_log_delta, rdp_to_epsilon)}
ON_AVERAGE = (
    "bdp holds on average over records drawn like the observed pairs, if at all; it is no (eps, delta)-DP guarantee "
    "for each record"
)
SHARED = (
    "the observed pairs share records, so the confidence limit's independence does not hold; bdp:pairs=independent "
    "uses disjoint pairs"
)


def account(
    process: Process,
    *,
    tol: float = 1e-3,
    order: float = 0.0,
    form: str = "strong",
    pairs: str = "combinations",
    steps: float = 0.0,
) -> Curve:
    """Account for Gaussian steps, without or with Poisson sampling, by the Bayesian accountant; ``tol`` is not used.

    Args:
        order: lambda, whole and from 1 to 16,384; 0 takes the best of ``ORDERS``. form: ``strong`` or ``weak``.
        pairs: ``combinations`` (all that were observed, as the authors' program) or ``independent`` (disjoint; needs
            gradients).
        steps: the declared total T, 0 for as many as were observed or run.
    Raises:
        Unsupported: nothing was observed, fewer than three pairs, or another mechanism or sampling.
        UsageError: an option out of range.
    """
    refuse_passes(process, "bdp")
    refuse_special_sampling(process, "bdp")
    if form not in FORMS or pairs not in ("combinations", "independent"):
        raise UsageError(
            f"bdp: form must be strong or weak, pairs combinations or independent; found {form!r} and {pairs!r}"
        )
    if order != int(order) or order < 0 or steps != int(steps) or steps < 0:
        raise UsageError(
            f"bdp: order and steps must be whole numbers from 1 (or 0 to leave them open); found {order:g} and "
            f"{steps:g}"
        )
    if order > MAX_ORDER:
        raise UsageError(f"bdp: order must be at most {MAX_ORDER:,}, as it sums so many terms; found {order:g}")
    orders = np.array([order] if order else ORDERS, dtype=float)
    n = sum(step.n for step in process.steps)
    declared = int(steps) or sum(max(step.n, step.observed.steps if step.observed else 0) for step in process.steps)
    cost = np.array([math.fsum(_cost(step, int(lam), pairs, declared) for step in process.steps) for lam in orders])
    failure = math.exp(log_failure(n))
    to_log_delta, to_epsilon = FORMS[form]

    def delta(eps: float) -> Bracket:
        return Bracket(min(1.0, math.exp(min(float(np.min(to_log_delta(orders, cost, eps))), 0.0)) + failure))

    def epsilon(delta: float) -> Bracket:
        rest = delta - failure
        return Bracket(max(float(np.min(to_epsilon(orders, cost, math.log(rest)))), 0.0) if rest > 0 else math.inf)

    warnings = (ON_AVERAGE, *((SHARED,) if pairs == "combinations" else ()))
    if n > declared:
        warnings += (
            f"{n} steps exceed the declared {declared}: the exponent T of the estimator is too small for them",
        )
    chosen = f"order {order:g}" if order else f"best of the orders {ORDERS[0]} to {ORDERS[-1]}"
    source = f"{SOURCE}; {form} form, {chosen}, {pairs}, T = {declared}"
    return Curve(process, "bdp", NOTION, CLAIM, source, delta, epsilon, warnings)


def _cost(step: Step, order: int, pairs: str, declared: int) -> float:
    """The cost of all releases of a step at one order."""
    noise, sampling, observed = step.mechanism.additive_noise(), step.sampling, step.observed
    if observed is None:
        raise Unsupported(
            "bdp is computed from observed pair distances or gradients, and found none: give `observed`; pld uses the "
            "sensitivity instead"
        )
    if noise is None or not noise.is_textbook("gauss") or sampling.kind == "fixed":
        raise Unsupported(
            f"bdp is stated for Gaussian noise, without or with Poisson sampling; found {step.mechanism.name}, "
            f"sampling {sampling.kind}"
        )
    return observed.total(_costs(noise.scale, sampling.rate, observed, order, pairs, declared), step.n)


@functools.lru_cache(maxsize=256)
def _costs(sigma: float, rate: float, observed: Observed, order: int, pairs: str, declared: int) -> Array:
    """[observed steps] costs at one order."""
    rows = observed.distances if pairs == "combinations" else observed.independent()
    return np.array(
        [
            step_cost(distances, rate, sigma * unit, order, declared)
            for distances, unit in zip(rows, observed.unit, strict=True)
        ]
    )
