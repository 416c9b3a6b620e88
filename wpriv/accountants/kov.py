"""The optimal composition of (eps0, delta0)-DP releases: what n of them give at worst, exactly, over the best point of one release's profile.

Any (eps0, delta0)-DP mechanism is post-processed randomized response that reveals all with probability delta0, so the n-fold loss of that
one is the worst there is: a binomial sum. It must not be confused with ``pld``, which composes the mechanism's whole profile; the two
agree where the mechanism is randomized response. Unequal steps are #P-hard (Murtagh and Vadhan 2016) and refused.
"""

from __future__ import annotations

import math

import numpy as np

from wpriv.core.binomial import response_log_delta
from wpriv.core.curve import Bracket, Curve, epsilon_at
from wpriv.core.onestep import OneStep, one_steps
from wpriv.core.pair import Array
from wpriv.core.process import Process
from wpriv.core.roots import lowest
from wpriv.errors import Unsupported

NOTION = "approximate-dp"
CLAIM = "upper-bound"
SOURCE = "Kairouz, Oh, Viswanath 2017, Theorem 3.3; Sommer, Meiser, Mohammadi 2019, Example 1 (corrected)"
EXPLAIN = """delta <= min over eps0 of 1 - (1-d0)^n + (1-d0)^n E (1 - e^(eps - eps0 (2k-n)))_+, k binomial(n, 1/(1+e^-eps0)), d0 = delta of one release at eps0.
A rigorous upper bound for every mechanism, adaptive composition included; exact for randomized response.
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
        return Bracket.above(math.exp(min(_best(step, eps)[1], 0.0)))

    def epsilon(delta: float) -> Bracket:
        # any eps0 gives an upper bound: solve for eps at one, find the best one there, and so on until nothing is gained
        eps0 = float(step.epsilon(np.array([math.log(delta / 2) - math.log(step.n)]))[0])
        eps0, eps = (eps0 if math.isfinite(eps0) else step.top), math.inf
        for _ in range(12):
            solved = _solve(step, eps0, delta)
            if not solved < eps * (1 - 1e-12):
                break
            eps = solved
            eps0 = _best(step, eps)[0]
        return Bracket.above(eps)

    return Curve(process, "kov", NOTION, CLAIM, SOURCE, delta, epsilon)


def _solve(step: OneStep, eps0: float, delta: float) -> float:
    """The eps at delta of n releases, each taken at one point of its profile."""
    if not math.isfinite(eps0):
        return math.inf
    log_delta0 = float(step.log_delta(np.array([eps0]))[0])
    return epsilon_at(lambda eps: response_log_delta(step.n, eps0, log_delta0, eps), delta, guess=eps0, high=step.n * eps0)


def _best(step: OneStep, eps: float) -> tuple[float, float]:
    """The best eps0 and its ln delta: on a grid that is zoomed in on, and among the jumps of the profile, where it may be exact."""

    def at(eps0: Array) -> Array:
        return np.array([response_log_delta(step.n, x, float(d), eps) for x, d in zip(eps0, step.log_delta(eps0), strict=True)])

    atoms = np.concatenate([pair.atoms for pair in step.pairs])
    # eps0 <= eps/n is basic composition; above the largest loss, or beyond every delta asked for, nothing is gained
    high = min(step.top, max(_far(step), eps))
    low = min(max(eps / step.n, high * 1e-9), high)
    special = np.array([*np.unique(atoms[atoms > 0])[-64:], low, high])
    values = at(special)
    best = (float(special[np.argmin(values)]), float(values.min()))
    zoomed = lowest(at, low, high) if 0 < low < high else best
    return min(best, zoomed, key=lambda point: point[1])


def _far(step: OneStep) -> float:
    """An eps0 at which one release's delta is below every question, 1e-320 / n."""
    return float(step.epsilon(np.array([-740.0 - math.log(step.n)]))[0])
