"""Probabilistic differential privacy: the chance that the privacy loss exceeds eps. A notion of its own.

PDP implies (eps, delta)-DP with the same figures, but not the reverse, and it is not closed under post-processing, so
its delta is never to be called the delta of differential privacy. Not to be confused with ``pld``, whose delta is
smaller. The chance is that of the dominating pair: domination bounds the profile of every other pair of neighbours, not
the chance that its loss exceeds eps.
"""

from __future__ import annotations

from functools import partial

import numpy as np

from wpriv.accounting.pld.composition import Composition
from wpriv.accounting.pld.sandwich import LossTail
from wpriv.core.guarantee import Curve, epsilon_at
from wpriv.core.loss_pair import LossPair, gaussian_mu
from wpriv.core.process import Process, closed_form, require_exact_plds
from wpriv.numerics.bracket import Bracket

NOTION = "probabilistic-dp"
CLAIM = "certified"
SOURCE = "Sommer, Meiser, Mohammadi 2019, Definition 7, Lemma 7 and Corollary 5.1"
EXPLAIN = """\
delta_PDP(eps) = max over both orders of P(Y > eps), Y the sum of the privacy losses of all steps, for neighbours that
differ as much as they may at every step: others, and queries chosen from outputs, can exceed eps more often.
Exact where the composition has a closed form (Gauss: Corollary 5.1). Elsewhere P(Y > eps) = f - t f' at t = e^eps, the
slope of the convex profile f between the secants of its certified bracket. As (eps, delta)-DP the figures hold for all
neighbours. Not closed under post-processing."""
PAIR = (
    "pdp is about neighbours that differ as much as they may at every step: others can have a loss above eps more "
    "often. As (eps, delta)-DP its numbers hold for all neighbours"
)
# a smaller probability is bounded from above only
NEGLIGIBLE_PROBABILITY = 1e-100


def account(process: Process, *, tol: float = 1e-3) -> Curve:
    """The curve of probabilistic DP of any process that ``pld`` can account for.

    Args:
        tol: relative width asked of the bracket of delta underneath; the bracket of PDP is about its square root.
    Raises:
        Unsupported: a step has no exact PLD; or the composition would not fit in memory (raised when the curve is
        evaluated).
    """
    require_exact_plds(process.directions(), "pdp")
    runs = process.directions()
    closed = [pair for pair in map(closed_form, runs) if pair is not None]
    exact = len(closed) == len(runs)
    tails = [] if exact else [LossTail(Composition(run), min(tol, 1e-2) / 10) for run in runs]

    def log_tail(pair: LossPair, eps: float) -> float:
        return float(pair.tails(np.array(eps)).sf_p)

    def delta(eps: float) -> Bracket:
        if exact:
            return Bracket.exact_exp(max(log_tail(pair, eps) for pair in closed))
        low, high = 0.0, 0.0
        for tail in tails:
            # the second direction is not refined where it lies far below the first
            ends = tail.probability(eps, max(1e-3 * low, NEGLIGIBLE_PROBABILITY))
            low, high = max(low, ends[0]), max(high, ends[1])
        return Bracket(_estimate(low, high), low, high)

    def epsilon(delta: float) -> Bracket:
        if exact:
            return Bracket.exact(max(epsilon_at(partial(log_tail, p), delta, high=p.support[1]) for p in closed))
        low, high = 0.0, 0.0
        for tail in tails:
            # a direction that meets delta below the eps of the first does not matter
            if tail.probability(low, 1e-3 * delta)[1] > delta:
                ends = tail.epsilon(delta)
                low, high = max(low, ends[0]), max(high, ends[1])
        return Bracket(_estimate(low, high), low, high)

    warnings = () if _is_largest(process) else (PAIR,)
    return Curve(process, "pdp", NOTION, "exact" if exact else CLAIM, SOURCE, delta, epsilon, warnings)


def _is_largest(process: Process) -> bool:
    """Tell whether no neighbours have a loss above some eps >= 0 more often than the dominating pair, at fixed queries.

    So it is for Gaussian noise: P(Y > eps) = Phi(mu/2 - eps/mu) grows with mu. A guarantee of which mu is stated has no
    noise of its own, and holds for other distributions of the loss as well.
    """
    pairs = [pair for run in process.directions() for pair, _ in run]
    noisy = all(step.mechanism.noise is not None for step in process.steps)
    return noisy and all(gaussian_mu(pair) is not None for pair in pairs)


def _estimate(low: float, high: float) -> float:
    """An estimate between two ends: their mean, or the safe end where they are far apart."""
    return (low + high) / 2 if high <= 2 * low else high
