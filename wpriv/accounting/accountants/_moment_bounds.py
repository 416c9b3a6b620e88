"""Upper bounds of delta and eps by moments of the privacy loss, at the best order."""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np

from wpriv.core.guarantee import Curve
from wpriv.core.loss_moments import log_moment
from wpriv.core.process import Process, WeightedPairs, log_finite, refuse_passes
from wpriv.errors import Unsupported, UsageError
from wpriv.numerics.arrays import Array
from wpriv.numerics.bracket import Bracket, safe_exp
from wpriv.numerics.conversions import rdp_to_epsilon, rdp_to_log_delta, tail_to_epsilon, tail_to_log_delta
from wpriv.numerics.root_finding import minimize_quasiconvex

LAMBDAS = (1e-12, 1e12)
# beyond it products of orders and losses overflow, where differences of them are meant
MAX_ORDER = 1e12
CONVERSIONS = {"tail": (tail_to_log_delta, tail_to_epsilon), "rdp": (rdp_to_log_delta, rdp_to_epsilon)}


def check_order(accountant: str, order: float) -> None:
    """Raise UsageError where a single order that was given exceeds ``MAX_ORDER``."""
    if order > MAX_ORDER:
        raise UsageError(f"{accountant}: the order must be at most {MAX_ORDER:g}; found {order:g}")


class LogMoments:
    """K(lam) = sum_i n_i ln E[e^(lam L_i); L_i < inf] of a composition, and the mass of its distinguishing events.

    ``mass_at_plus_infinity`` is that of the composition, 1 - prod (1 - w_i)^n_i (Sommer et al. 2019, Theorem 1);
    ``top`` is its largest finite loss. ``deep`` is as in ``log_moment``.
    """

    def __init__(self, pairs: WeightedPairs, deep: bool = False):
        self.pairs, self.deep = pairs, deep
        self.log_finite = log_finite(pairs)
        self.mass_at_plus_infinity = -math.expm1(self.log_finite)
        self.top = math.fsum(n * pair.support[1] for pair, n in pairs) * (1 + 1e-15)

    def __call__(self, lam: Array) -> Array:
        """[k] K at [k] lam > 0."""
        moments = [n * log_moment(pair, lam, finite=True, deep=self.deep) for pair, n in self.pairs]
        return np.asarray(np.sum(moments, axis=0))


def moment_curve(process: Process, *, accountant: str, source: str, conversion: str, lam: Array | None = None) -> Curve:
    """Bound delta and eps by the best single moment, in the worse of the two orders of the neighbours.

    Args:
        conversion: "rdp" (Canonne, Kamath, Steinke 2020) or "tail" (Chernoff's bound: Abadi et al. 2016, Mironov 2017).
        lam: [k] the orders of the moments to choose from; all real orders where None.
    """
    refuse_passes(process, accountant)
    to_log_delta, to_epsilon = CONVERSIONS[conversion]
    directions = [LogMoments(pairs) for pairs in process.renyi_directions()]
    infinity = max(moments.mass_at_plus_infinity for moments in directions)
    if infinity > 0:
        raise Unsupported(
            f"{accountant} bounds delta by moments of the loss, and all are infinite here: outcomes that only one of "
            f"two neighbours can have carry probability {infinity:.3g}. Use pld, markov or kov"
        )
    at_lam = None if lam is None else [moments(lam) for moments in directions]

    def best(bound: Callable[[Array, Array], Array]) -> list[float]:
        if at_lam is not None and lam is not None:
            return [float(np.min(bound(lam, values))) for values in at_lam]
        return [minimize_quasiconvex(lambda x, at=at: bound(x, at(x)), *LAMBDAS)[1] for at in directions]  # type: ignore[misc]

    def delta(eps: float) -> Bracket:
        logs = best(lambda x, moments: to_log_delta(x, moments, eps))
        logs = [-math.inf if eps >= at.top else value for at, value in zip(directions, logs, strict=True)]
        return Bracket.above(safe_exp(max(logs)))

    def epsilon(delta: float) -> Bracket:
        values = best(lambda x, moments: to_epsilon(x, moments, math.log(delta)))
        return Bracket.above(max(0.0, *(min(value, at.top) for at, value in zip(directions, values, strict=True))))

    return Curve(process, accountant, "approximate-dp", "upper-bound", source, delta, epsilon)
