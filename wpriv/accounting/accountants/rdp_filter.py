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

    Proof. Fix neighbours D, D', a limit (eps, delta), and orders a_j with shares w_j of sum 1, which depend on the
    limit alone. Given the past, step t has the distributions P_t and Q_t of its output under D and D'; its parameters,
    which the past decides, give D_a(P_t || Q_t) <= r_t(a) for every a. With lam = a - 1 and L_t the privacy loss of t
    steps, V_t = e^(lam L_t - lam (r_1(a) + ... + r_t(a))) is a supermartingale under P, for E_P[(p_t/q_t)^lam | past]
    = e^(lam D_a(P_t || Q_t)); so E_P[V] <= 1 at the end of any procedure of bounded length. Let A_j be the outputs on
    whose path the sum of r_t(a_j) is at most B_j. As (1 - e^-x)_+ <= c e^(lam x), with c = lam^lam / (1 + lam)^(1 +
    lam): E_P[(1 - e^(eps - L))_+; A_j] <= c e^(-lam eps) E_P[V e^(lam B_j)] <= c e^(lam (B_j - eps)), which is w_j
    delta for the B_j that converts to (eps, w_j delta). On the paths on which the largest finite losses sum to at most
    eps the loss never exceeds eps: they need no share. If every path lies in some A_j or is one of these, the sum is at
    most delta: (eps, delta)-DP. A larger limit admits every path that a smaller one admits, so that the least eps at
    delta (and delta at eps) that admits the steps on a path is a figure of that path, and the figures of all paths stay
    below a limit exactly where its filter admits all of them. With one order this is the filter of Feldman and Zrnic.

    Distinguishing outcomes: let the probabilities leak_t, which the past decides, have 1 - prod(1 - leak_t) <= A on
    every path, for an A fixed in advance. 1{all losses finite} / prod(1 - leak_t) is a martingale from 1, so some loss
    is infinite with probability at most A. The rest is as above, with moments of the finite losses, for delta - A.

    Args:
        order: a single order a > 1; 0 for those that follow from the limit.
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
    """The order a that a limit determines: that of the largest B_a / a, with B_a as in ``account`` at w = 1.

    It admits the most Gaussian noise, whose divergence of order a is a mu^2 / 2.
    """
    return 1 + _largest_lam(lambda lam: eps - float(rdp_limit_epsilon(lam, math.log(delta))))


def orders(eps: float, delta: float) -> tuple[float, ...]:
    """The orders of a limit on finite losses: the one that it determines, and those that are always there."""
    first = () if delta <= 0 else (limit_order(eps, LIMIT_SHARE * delta),)
    return (*first, *(1 + LAMBDAS).tolist())


def loss_bound(process: Process, delta: float) -> float | None:
    """A bound that the privacy loss of all releases exceeds with probability at most ``delta``, however chosen.

    Proof. In the notation of ``account``, V_t of order a_j is a nonnegative supermartingale under P of mean at most 1.
    By Ville's inequality it exceeds 1/(w_j delta) at some t with probability at most w_j delta. Otherwise, at every t
    and for every j, the loss is at most the sum of r_s(a_j) up to t plus ln(1/(w_j delta)) / (a_j - 1), and so at most
    the smallest of these (compare Whitehouse, Ramdas, Rogers, Wu 2023). Without a limit, the orders are the fixed ones.

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
