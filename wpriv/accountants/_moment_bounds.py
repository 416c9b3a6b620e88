"""Upper bounds made of moments: of all orders, the one that answers a question best."""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np

from wpriv.core.guarantee import Bracket, Curve, safe_exp
from wpriv.core.loss_moments import log_moment
from wpriv.core.process import Process, WeightedPairs, log_finite
from wpriv.errors import Unsupported
from wpriv.numerics.arrays import Array
from wpriv.numerics.conversions import rdp_to_epsilon, rdp_to_log_delta, tail_to_epsilon, tail_to_log_delta
from wpriv.numerics.root_finding import minimize_quasiconvex

LAMBDAS = (1e-12, 1e12)
CONVERSIONS = {"tail": (tail_to_log_delta, tail_to_epsilon), "rdp": (rdp_to_log_delta, rdp_to_epsilon)}


class LogMoments:
    """K(lam) = sum_i n_i ln E[e^(lam L_i); L_i < inf] of a whole run, and what its distinguishing events weigh.

    ``infinity`` is the mass at +inf of the composition, 1 - prod (1 - w_i)^n_i (Sommer et al. 2019, Theorem 1); ``top`` is its
    largest finite loss. ``deep`` is as in ``log_moment``.
    """

    def __init__(self, run: WeightedPairs, deep: bool = False):
        self.run, self.deep = run, deep
        self.log_finite = log_finite(run)
        self.mass_at_plus_infinity = -math.expm1(self.log_finite)
        self.top = math.fsum(n * pair.support[1] for pair, n in run) * (1 + 1e-15)

    def __call__(self, lam: Array) -> Array:
        return np.asarray(
            np.sum([n * log_moment(pair, lam, finite=True, deep=self.deep) for pair, n in self.run], axis=0)
        )


def moment_curve(process: Process, *, accountant: str, source: str, conversion: str, lam: Array | None = None) -> Curve:
    """The upper bound of delta and of eps by the best single moment, in the worse of the two orders of the neighbours.

    Args:
        conversion: "rdp" (Canonne, Kamath, Steinke 2020) or "tail" (Chernoff's bound: Abadi et al. 2016, Mironov 2017).
        lam: the moments to choose from; all real ones where None.
    Raises:
        Unsupported: some step has distinguishing events, so that every moment is infinite.
    """
    to_log_delta, to_epsilon = CONVERSIONS[conversion]
    runs = [LogMoments(run) for run in process.directions()]
    if any(run.mass_at_plus_infinity > 0 for run in runs):
        raise Unsupported(
            f"{accountant} bounds delta by moments of the loss, and all are infinite here: outcomes that only one of two neighbours can "
            f"have carry probability {max(run.mass_at_plus_infinity for run in runs):.3g}. Use pld, markov or kov"
        )
    fixed = None if lam is None else [run(lam) for run in runs]

    def best(question: Callable[[Array, Array], Array]) -> list[float]:
        if fixed is not None and lam is not None:
            return [float(np.min(question(lam, moments))) for moments in fixed]
        return [minimize_quasiconvex(lambda x, run=run: question(x, run(x)), *LAMBDAS)[1] for run in runs]  # type: ignore[misc]

    def delta(eps: float) -> Bracket:
        logs = best(lambda x, moments: to_log_delta(x, moments, eps))
        logs = [-math.inf if eps >= run.top else value for run, value in zip(runs, logs, strict=True)]
        return Bracket.above(safe_exp(max(logs)))

    def epsilon(delta: float) -> Bracket:
        values = best(lambda x, moments: to_epsilon(x, moments, math.log(delta)))
        return Bracket.above(max(0.0, *(min(value, run.top) for run, value in zip(runs, values, strict=True))))

    return Curve(process, accountant, "approximate-dp", "upper-bound", source, delta, epsilon)
