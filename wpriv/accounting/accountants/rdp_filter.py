"""Renyi filter: steps whose noise, rate and number are chosen from earlier outputs, at orders that the limit fixes.

Divergences of one order add up along every path of outputs. It must not be confused with ``rdp``, which takes the best
of all orders for the steps that ran, and therefore needs the steps to be fixed in advance.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np

from wpriv.accounting.accountants._moment_bounds import LogMoments, check_order
from wpriv.core.guarantee import Curve
from wpriv.core.process import Process, refuse_passes
from wpriv.errors import UsageError
from wpriv.numerics.arrays import Array
from wpriv.numerics.bracket import Bracket, safe_exp
from wpriv.numerics.conversions import rdp_limit_epsilon, rdp_limit_log_delta, rdp_to_epsilon, rdp_to_log_delta
from wpriv.numerics.root_finding import smallest_meeting

NOTION = "approximate-dp"
CLAIM = "upper-bound"
SOURCE = (
    "Feldman, Zrnic 2021 (filter at one order); Canonne, Kamath, Steinke 2020, Proposition 12 (conversion); a union "
    "over orders"
)
EXPLAIN = """\
eps = min over orders a of B_a + (ln(1/(w_a delta)) - ln a)/(a - 1) + ln(1 - 1/a),
B_a the divergence summed over all steps.
Noise, rates and the number of steps may be chosen from earlier outputs, if no output leads to more than this eps.
The orders follow from eps and delta alone: the one at which these two allow the most Gaussian noise (w = 3/4), and
1.5, 2, 3, 5, ..., 513 (w = 1/44 each); or one: rdp-filter:order=8."""
LIMIT_SHARE = 0.75
# orders less one for processes whose best order is far from that of Gaussian noise, such as trainings at a small rate
LAMBDAS: Array = np.power(2.0, np.arange(-1.0, 10.0))
FIXED_SHARE = (1 - LIMIT_SHARE) / LAMBDAS.size
LAM_RANGE = (1e-6, 1e12)


def account(process: Process, *, tol: float = 1e-3, order: float = 0.0) -> Curve:
    """The guarantee of all procedures that never exceed the eps (or delta) of these steps; ``tol`` is not used.

    The proof is that of docs/theory/classical-bounds.md, Theorem 6, with what follows it on bounded and infinite
    losses. The least eps at delta (and delta at eps) that admits the steps on a path is a figure of that path, and the
    figures of all paths stay below a limit exactly where its filter admits all of them.

    Args:
        order: a single order a > 1, for the filter of Feldman and Zrnic; 0 for those that follow from the limit.
    Raises:
        Unsupported: a step is one of a pass (random allocation, shuffled batches).
        UsageError: an order of at most 1, or above 1e12.
    """
    if order != 0 and not order > 1:
        raise UsageError(
            f"rdp-filter: the order must be greater than 1 (0: those that follow from eps and delta); found {order:g}"
        )
    check_order("rdp-filter", order)
    refuse_passes(process, "rdp-filter")
    directions = _moments(process)

    def delta(eps: float) -> Bracket:
        return Bracket.above(max(_delta(moments, eps, order) for moments in directions))

    def epsilon(delta: float) -> Bracket:
        return Bracket.above(max(0.0, *(_epsilon(moments, delta, order) for moments in directions)))

    source = f"{SOURCE}; order {order:.6g}" if order else SOURCE
    return Curve(process, "rdp-filter", NOTION, CLAIM, source, delta, epsilon)


def _moments(process: Process) -> list[LogMoments]:
    """The moments of the finite losses in each order of the neighbours, with the mass of infinite ones."""
    return [LogMoments(pairs) for pairs in process.renyi_directions()]


def limit_order(eps: float, delta: float) -> float:
    """The order a of a limit that admits the most Gaussian noise: that of the largest B / a, B of Theorem 6."""
    return 1 + _largest_lam(lambda lam: eps - float(rdp_limit_epsilon(lam, math.log(delta))))


def orders(eps: float, delta: float) -> tuple[float, ...]:
    """The orders of a limit on finite losses: the one that it determines, and those that are always there."""
    first = () if delta <= 0 else (limit_order(eps, LIMIT_SHARE * delta),)
    return (*first, *(1 + LAMBDAS).tolist())


def loss_bound(process: Process, delta: float) -> float | None:
    """A bound that the privacy loss of all releases exceeds with probability at most ``delta``, however chosen.

    Proof. V of Theorem 6 is for each order a_j a nonnegative supermartingale under P of mean at most 1. By Ville's
    inequality it ever exceeds 1/(w_j delta) with probability at most w_j delta. Otherwise, at every t and for every j,
    the loss is at most the sum of r_s(a_j) up to t plus ln(1/(w_j delta)) / (a_j - 1), and so at most the smallest of
    these (compare Whitehouse, Ramdas, Rogers, Wu 2023). Without a limit, the orders are the fixed ones.

    Returns:
        The bound in the worse direction; None where every divergence is infinite.
    """
    log_share = math.log(delta / LAMBDAS.size)
    value = max(min(float(np.min((at(LAMBDAS) - log_share) / LAMBDAS)), at.top) for at in _moments(process))
    return value if math.isfinite(value) else None


def _epsilon(moments: LogMoments, delta: float, order: float) -> float:
    """The least eps of a limit with ``delta`` that admits the steps, for one order of the neighbours; inf for none."""
    rest = delta - moments.mass_at_plus_infinity
    if not rest > 0:
        return math.inf
    if order:
        return _moment_bound(moments, order - 1, lambda lam, at: rdp_to_epsilon(lam, at, math.log(rest)))
    log_delta = math.log(rest * LIMIT_SHARE)
    fixed = np.min(rdp_to_epsilon(LAMBDAS, moments(LAMBDAS), math.log(rest * FIXED_SHARE)))

    def excess(lam: float) -> float:
        least = _moment_bound(moments, lam, lambda lam, at: rdp_to_epsilon(lam, at, log_delta))
        return least - float(rdp_limit_epsilon(lam, log_delta))

    of_limit = float(rdp_limit_epsilon(_largest_lam(excess), log_delta))
    return min(float(fixed), of_limit, moments.top)


def _delta(moments: LogMoments, eps: float, order: float) -> float:
    """The least delta of a limit with ``eps`` that admits the steps, for one order of the neighbours."""
    if order:
        log_delta = _moment_bound(moments, order - 1, lambda lam, at: rdp_to_log_delta(lam, at, eps))
    elif eps >= moments.top:
        log_delta = -math.inf
    else:
        fixed = np.min(rdp_to_log_delta(LAMBDAS, moments(LAMBDAS), eps)) - math.log(FIXED_SHARE)

        def excess(lam: float) -> float:
            least = _moment_bound(moments, lam, lambda lam, at: rdp_to_log_delta(lam, at, eps))
            return least - float(rdp_limit_log_delta(lam, eps))

        of_limit = float(rdp_limit_log_delta(_largest_lam(excess), eps)) - math.log(LIMIT_SHARE)
        log_delta = min(float(fixed), of_limit)
    return min(1.0, moments.mass_at_plus_infinity + safe_exp(log_delta))


def _moment_bound(moments: LogMoments, lam: float, bound: Callable[[Array, Array], Array]) -> float:
    """``bound`` of the moment at one order less one."""
    one = np.array([lam])
    return float(bound(one, moments(one))[0])


def _largest_lam(excess: Callable[[float], float]) -> float:
    """The largest lam with ``excess(lam) <= 0``, an increasing function; the least lam where there is none."""
    low, high = LAM_RANGE
    if excess(low) > 0:
        return low
    return math.exp(-smallest_meeting(lambda x: excess(math.exp(-x)), -3.0, low=-math.log(high), high=-math.log(low)))
