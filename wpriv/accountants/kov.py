"""The optimal composition of n (eps0, delta0)-DP releases, exactly, at the best point of one release's profile.

Any (eps0, delta0)-DP mechanism is post-processed randomized response that reveals all with probability delta0, so the n-fold
loss of that one is the worst there is: a binomial sum. It must not be confused with ``pld``, which composes the mechanism's
whole profile; the two agree where the mechanism is randomized response. Unequal steps are #P-hard (Murtagh and Vadhan 2016)
and refused.
"""

from __future__ import annotations

import math

import numpy as np

from wpriv.accountants._randomized_response import response_log_delta
from wpriv.accountants._single_release import OneStep, one_steps
from wpriv.core.guarantee import Bracket, Curve, epsilon_at, safe_exp
from wpriv.core.process import Process
from wpriv.errors import Unsupported
from wpriv.numerics.arrays import Array
from wpriv.numerics.root_finding import minimize_quasiconvex

NOTION = "approximate-dp"
CLAIM = "upper-bound"
SOURCE = "Kairouz, Oh, Viswanath 2017, Theorem 3.3; Sommer, Meiser, Mohammadi 2019, Example 1 (corrected)"
EXPLAIN = """\
delta <= min over eps0 of 1 - (1-d0)^n + (1-d0)^n E (1 - e^(eps - eps0 (2k-n)))_+, k binomial(n, 1/(1+e^-eps0)),
d0 the exact delta of one release at eps0.
A rigorous upper bound for every mechanism, adaptively chosen queries included; exact for randomized response.
Equal steps only: for unequal ones the optimum is #P-hard."""


def account(process: Process, *, tol: float = 1e-3) -> Curve:
    """Optimal composition over the exact one-release profile; ``tol`` is not used.

    Raises:
        Unsupported: the steps are not all alike.
    """
    steps = one_steps(process)
    if len(steps) > 1:
        raise Unsupported(
            f"kov composes equal steps only: the optimal composition of unequal ones is #P-hard (Murtagh, Vadhan 2016); "
            f"found {len(steps)} kinds of steps. Use pld, advanced or basic"
        )
    step = steps[0]

    def delta(eps: float) -> Bracket:
        return Bracket.above(safe_exp(_log_delta(step, eps)))

    def epsilon(delta: float) -> Bracket:
        def at(share: Array) -> Array:
            return _solve(step, step.epsilon(np.log(share * delta) - math.log(step.n)), delta)

        return Bracket.above(
            float(min([minimize_quasiconvex(at, 1e-12, 1.0, rounds=4)[1], *_solve(step, _jumps(step), delta)]))
        )

    return Curve(process, "kov", NOTION, CLAIM, SOURCE, delta, epsilon)


def _solve(step: OneStep, eps0: Array, delta: float) -> Array:
    """[k] the eps at delta of n releases, all taken at the same point eps0 of the profile."""
    eps = np.full(eps0.shape, np.inf)
    for at in np.flatnonzero(np.isfinite(eps0)):
        x, guess = float(eps0[at]), eps[at - 1] if at and math.isfinite(eps[at - 1]) else float(eps0[at])
        log_delta0 = float(step.log_delta(eps0[at : at + 1])[0])
        ask = lambda e, x=x, d=log_delta0: response_log_delta(step.n, x, d, e)  # noqa: E731
        eps[at] = epsilon_at(ask, delta, guess=guess, high=step.n * x)
    return eps


def _jumps(step: OneStep) -> Array:
    """The points of the profile where one of them may be the whole truth: its atoms and its largest loss."""
    atoms = np.concatenate([pair.atoms for pair in step.pairs])
    return np.unique([*np.unique(atoms[atoms > 0])[-64:], min(step.top, _far(step))])


def _log_delta(step: OneStep, eps: float) -> float:
    """ln delta at the best eps0: on a grid that is zoomed in on, and among the jumps of the profile, where it may be exact."""

    def at(eps0: Array) -> Array:
        return np.array(
            [response_log_delta(step.n, x, float(d), eps) for x, d in zip(eps0, step.log_delta(eps0), strict=True)]
        )

    # eps0 <= eps/n is basic composition; above the largest loss, or beyond every delta asked for, nothing is gained
    low, high = min(eps / step.n, step.top), min(step.top, max(_far(step), eps))
    special = np.array([*_jumps(step), low, high])
    best = float(at(special).min())
    return (
        best
        if high - low <= 1e-9 * high
        else min(best, minimize_quasiconvex(lambda x: at(low + x), 1e-9 * high, high - low)[1])
    )


def _far(step: OneStep) -> float:
    """An eps0 at which one release's delta is below every question, 1e-320 / n."""
    return float(step.epsilon(np.array([-740.0 - math.log(step.n)]))[0])
