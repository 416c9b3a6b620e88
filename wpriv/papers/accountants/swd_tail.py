"""The published accountant of the private sliced Wasserstein distance: a tail bound of the projected length.

Half of delta is spent on the event that the squared length H of the projected difference exceeds w; otherwise the
release is Gaussian with sensitivity sqrt(w), accounted for by Renyi divergences. It must not be confused with ``pld``
on the same mechanism, which averages over H, spends nothing, and certifies a far smaller eps.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np

from wpriv.core.guarantee import Curve
from wpriv.core.mechanism import RandomProjection
from wpriv.core.process import Process, Step
from wpriv.errors import Unsupported, UsageError
from wpriv.numerics.bracket import Bracket
from wpriv.numerics.conversions import zcdp_to_epsilon
from wpriv.numerics.root_finding import smallest_meeting
from wpriv.papers.projected_length import WIDTHS, fixed_size_moment

NOTION = "approximate-dp"
CLAIM = "as-published"
SOURCE = "Rakotomamonjy, Ralaivola 2021, Lemma 2 and Proposition 2"
EXPLAIN = """\
eps = min over orders a of [sum of Renyi divergences at order a with H = w] + ln(2/delta)/(a-1), w its tail bound at
delta/2: w=bernstein is Lemma 2, bernstein-code the authors' program (k twice), root its exact root, quantile that of H
itself; clt is no bound. charge=once takes delta/2 once, as published; T steps draw T fresh sets of directions, and
charge=every takes delta/(2T) at each. An upper bound without sampling where each step is charged;
with sampling the lemma used needs w for all pairs of records at once."""

CHARGES = ("once", "every")
ORDERS = np.unique(np.rint(np.concatenate([np.arange(2, 65), np.geomspace(64, 1024, 40)])).astype(int))
# range of ln delta that is searched where eps is given
MIN_LOG_DELTA, MAX_LOG_DELTA = -700.0, -1e-9
_CLT = (
    "swd-tail: w=clt is the quantile of a normal distribution, which lies below that of H and is no bound; pld is "
    "rigorous and lower still"
)
_SAMPLED = (
    "swd-tail: amplification by sampling needs the tail bound for all pairs of records at once, which the paper does "
    "not show"
)


def account(process: Process, *, tol: float = 1e-3, w: str = "bernstein", charge: str = "once") -> Curve:
    """Account for projections by Proposition 2 over all steps; ``tol`` is not used.

    Args:
        w: the tail bound, one of ``WIDTHS``.
        charge: ``once`` spends delta/2 on one failure for all steps, ``every`` on the failures of all steps together.
    Raises:
        Unsupported: some step is not a projection. UsageError: an unknown value of an option.
    """
    if w not in WIDTHS or charge not in CHARGES:
        raise UsageError(
            f"swd-tail: w must be one of {', '.join(WIDTHS)} and charge one of {', '.join(CHARGES)}; found {w!r} and "
            f"{charge!r}"
        )
    total = sum(step.n for step in process.steps)
    sampled = any(step.sampling.rate != 1 for step in process.steps)
    parts = [(_projection(step), step.n, step.sampling.rate) for step in process.steps]
    warnings = [_CLT] if w == "clt" else []
    if sampled:
        warnings.append(_SAMPLED)
    if total > 1 and charge == "once":
        warnings.append(f"swd-tail: one failure probability stands for {total} steps, each with directions of its own")
    claim = "upper-bound" if not warnings else "approximate" if warnings == [_CLT] else CLAIM
    bracket: Callable[[float], Bracket] = Bracket.above if claim == "upper-bound" else Bracket

    def epsilon_of(log_delta: float) -> float:
        log_failure = log_delta - math.log(2) - (math.log(total) if charge == "every" else 0.0)
        rho = [
            release.sensitivity**2
            * WIDTHS[w](release.directions, release.dimension, -log_failure)
            / (2 * release.sigma**2)
            for release, _, _ in parts
        ]
        if not sampled:
            # the divergence is rho at every order: the best order has a closed form
            return zcdp_to_epsilon(
                math.fsum(r * n for r, (_, n, _) in zip(rho, parts, strict=True)), log_delta - math.log(2)
            )
        best = math.inf
        for order in ORDERS.tolist():
            moment = math.fsum(
                n * fixed_size_moment(order, rate, r) for r, (_, n, rate) in zip(rho, parts, strict=True)
            )
            eps = (moment + math.log(2) - log_delta) / (order - 1)
            if eps > 2 * best:
                break
            best = min(best, eps)
        return best

    def delta(eps: float) -> Bracket:
        if epsilon_of(MAX_LOG_DELTA) > eps:
            return bracket(1.0)
        log_delta = smallest_meeting(
            lambda log_delta: epsilon_of(log_delta) - eps, -10.0, low=MIN_LOG_DELTA, high=MAX_LOG_DELTA
        )
        return bracket(math.exp(log_delta))

    def epsilon(delta: float) -> Bracket:
        return bracket(epsilon_of(math.log(delta)))

    return Curve(
        process, "swd-tail", NOTION, claim, f"{SOURCE}; w={w}, charge={charge}", delta, epsilon, tuple(warnings)
    )


def _projection(step: Step) -> RandomProjection:
    projection = step.mechanism.random_projection()
    if projection is None:
        raise Unsupported(f"swd-tail accounts for releases of random projections; found {step.mechanism.name}. Use pld")
    return projection
