"""Advanced composition: eps grows like sqrt(n) at the cost of an additional delta', over (eps_i, delta_i)-DP releases.

The closed form of Kairouz, Oh and Viswanath holds for unequal steps and improves that of Dwork, Rothblum and Vadhan. It
must not be confused with ``kov``, the same authors' optimal composition, which has no closed form and is never worse.
"""

from __future__ import annotations

import math

import numpy as np

from wpriv.accounting.accountants.basic import SingleRelease, single_releases
from wpriv.core.guarantee import Curve
from wpriv.core.process import Process, refuse_passes
from wpriv.numerics.arrays import Array
from wpriv.numerics.bracket import Bracket, safe_exp
from wpriv.numerics.root_finding import minimize_quasiconvex

NOTION = "approximate-dp"
CLAIM = "upper-bound"
SOURCE = "Kairouz, Oh, Viswanath 2017, Theorem 3.5; Dwork, Rothblum, Vadhan 2010"
EXPLAIN = """\
eps = min(E1, m + sqrt(2 v ln(1/d')), m + sqrt(2 v ln(e + sqrt(v)/d'))) at delta = 1 - (1-d') prod (1-delta_i),
E1 = sum eps_i, m = sum eps_i tanh(eps_i/2), v = sum eps_i^2.
Each release is (eps_i, delta_i)-DP by its exact profile, at the best common delta_i.
A rigorous upper bound for every mechanism, adaptively chosen queries included; kov and pld are tighter."""
_SHARES = (1e-15, 1.0)  # n delta_i as a share of delta


def account(process: Process, *, tol: float = 1e-3) -> Curve:
    """Account for a process by advanced composition of the exact profiles of single releases; ``tol`` is not used."""
    refuse_passes(process, "advanced")
    steps = single_releases(process)
    count, pure = sum(step.n for step in steps), _pure(steps)

    def delta(eps: float) -> Bracket:
        # ln delta_i is -x: delta_i from 1e-300 to 1
        best = minimize_quasiconvex(lambda x: _log_delta(steps, -x, eps), 1e-12, 690.0)[1]
        return Bracket.above(safe_exp(float(min([best, *_log_delta(steps, pure, eps)]))))

    def epsilon(delta: float) -> Bracket:
        def at(share: Array) -> Array:
            return _epsilon(steps, math.log(delta) - math.log(count) + np.log(share), delta)

        return Bracket.above(float(min([minimize_quasiconvex(at, *_SHARES)[1], *_epsilon(steps, pure, delta)])))

    return Curve(process, "advanced", NOTION, CLAIM, SOURCE, delta, epsilon)


def _sums(steps: list[SingleRelease], eps: list[Array]) -> tuple[Array, Array, Array]:
    """Sums over all releases of eps, eps tanh(eps/2) and eps^2, from the eps of each step."""
    terms = [(s.n * e, s.n * e * np.tanh(e / 2), s.n * e * e) for s, e in zip(steps, eps, strict=True)]
    plain, drift, square = (np.sum(part, axis=0) for part in zip(*terms, strict=True))
    return plain, drift, square


def _log_no_failure(steps: list[SingleRelease], log_delta0: Array) -> Array:
    """[k] ln of prod (1 - delta_i): the probability that no release fails."""
    count = sum(step.n for step in steps)
    with np.errstate(divide="ignore"):
        return np.asarray(count * np.log1p(-np.exp(np.minimum(log_delta0, 0.0))))


def _epsilon(steps: list[SingleRelease], log_delta0: Array, delta: float) -> Array:
    """[k] eps at delta where every release spends the given delta_i, [k] ln of it."""
    plain, drift, square = _sums(steps, [step.epsilon(log_delta0) for step in steps])
    # the remainder for delta': 1 - delta = (1 - delta') prod (1 - delta_i)
    log_rest = np.log1p(-delta) - _log_no_failure(steps, log_delta0)
    rest = -np.expm1(np.minimum(log_rest, 0.0))
    with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
        first = drift + np.sqrt(2 * square * -np.log(rest))
        second = drift + np.sqrt(2 * square * np.log(math.e + np.sqrt(square) / rest))
        best = np.minimum(plain, np.minimum(first, second))
    return np.where(log_rest > 0, np.inf, np.where((rest > 0) & np.isfinite(plain), best, plain))


def _log_delta(steps: list[SingleRelease], log_delta0: Array, eps: float) -> Array:
    """[k] ln delta at eps where every release spends the given delta_i, [k] ln of it."""
    plain, drift, square = _sums(steps, [step.epsilon(log_delta0) for step in steps])
    rest = np.exp(_log_rest(plain, drift, square, eps))
    with np.errstate(divide="ignore"):
        return np.asarray(np.log(-np.expm1(np.log1p(-rest) + _log_no_failure(steps, log_delta0))))


def _log_rest(plain: Array, drift: Array, square: Array, eps: float) -> Array:
    """[k] ln of the smallest delta' for which the theorem gives eps."""
    with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
        power = np.where(np.isfinite(plain) & (eps > drift), (eps - drift) ** 2 / (2 * square), 0.0)
        first = -power
        second = np.where(power > 1, 0.5 * np.log(square) - power - np.log(-np.expm1(1 - power)), 0.0)
        return np.where(plain <= eps, -np.inf, np.minimum(np.minimum(first, second), 0.0))


def _pure(steps: list[SingleRelease]) -> Array:
    """[1] ln of the delta_i of the distinguishing events alone, -inf for pure DP; empty where a loss is unbounded."""
    if not all(math.isfinite(step.top) for step in steps):
        return np.empty(0)
    infinity = max(step.mass_at_plus_infinity for step in steps)
    return np.array([math.log(infinity) if infinity > 0 else -math.inf])
