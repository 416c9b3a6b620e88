"""Renyi filter: steps whose noise, rate and number are chosen from earlier outputs, at orders fixed in advance.

Divergences of one order add up along every path of outputs. It must not be confused with ``rdp``, which takes the best
of all orders for the steps that ran, and therefore needs the steps to be fixed in advance.
"""

from __future__ import annotations

import dataclasses
import math
from dataclasses import dataclass

import numpy as np

from wpriv.accountants._moment_bounds import LogMoments, check_order
from wpriv.core.guarantee import Curve
from wpriv.core.process import Process, refuse_passes
from wpriv.errors import Unsupported, UsageError
from wpriv.numerics.arrays import Array
from wpriv.numerics.bracket import Bracket, safe_exp
from wpriv.numerics.conversions import rdp_to_epsilon, rdp_to_log_delta
from wpriv.numerics.root_finding import minimize_quasiconvex

NOTION = "approximate-dp"
CLAIM = "upper-bound"
SOURCE = (
    "Feldman, Zrnic 2021 (filter at one order); Canonne, Kamath, Steinke 2020, Proposition 12 (conversion); a union "
    "over orders"
)
EXPLAIN = """\
eps = min over eleven orders a of B_a + (ln(1/(w_a delta)) - ln a)/(a - 1) + ln(1 - 1/a),
B_a the divergence summed over all steps.
Noise, rates and the number of steps may be chosen from earlier outputs, if no output leads to more than this eps.
The orders are the best one for the first kind of step (w = 1/2) and others around it (w = 1/20 each), or one:
rdp-filter:order=8."""
LAMBDAS = (1e-6, 1e9)
# the orders less one, relative to the best one for the first kind of step, whose share of delta is 1/2; most are
# smaller, since more steps or less noise than in the first ones lower the best order
FACTORS = 2.0 ** (np.arange(-8, 3) / 2)


def account(process: Process, *, tol: float = 1e-3, order: float = 0.0) -> Curve:
    """The guarantee of all procedures that never exceed the eps (or delta) of these steps; ``tol`` is not used.

    Proof. Fix neighbours D, D', eps, and orders a_j with shares w_j of sum 1, none of which depends on an output. Given
    the past, step t has the distributions P_t and Q_t of its output under D and D'; its parameters, which the past
    decides, give D_a(P_t || Q_t) <= r_t(a) for every a. With lam = a - 1 and L_t the privacy loss of t steps, V_t =
    e^(lam L_t - lam (r_1(a) + ... + r_t(a))) is a supermartingale under P, for E_P[(p_t/q_t)^lam | past] = e^(lam
    D_a(P_t || Q_t)); so E_P[V] <= 1 at the end of any procedure of bounded length. Let A_j be the outputs on whose path
    the sum of r_t(a_j) is at most B_j. As (1 - e^-x)_+ <= c e^(lam x), with c = lam^lam / (1 + lam)^(1 + lam): E_P[(1 -
    e^(eps - L))_+; A_j] <= c e^(-lam eps) E_P[V e^(lam B_j)] <= c e^(lam (B_j - eps)), which is w_j delta for the B_j
    that converts to (eps, w_j delta). If every path lies in some A_j, that is, if on none the least eps over the orders
    exceeds eps, the sum over j is at most
    delta: (eps, delta)-DP. With one order this is the filter of Feldman and Zrnic.

    Args:
        order: a single order a > 1; 0 for the orders of ``orders``.
    Raises:
        Unsupported: some step has distinguishing events, so that its divergences are infinite, or random allocation.
        UsageError: an order of at most 1, or above 1e12.
    """
    if order != 0 and not order > 1:
        raise UsageError(
            f"rdp-filter: the order must be greater than 1 (0: those around the best one for the first step); found "
            f"{order:g}"
        )
    check_order("rdp-filter", order)
    return filtered(process, Orders(np.array([order - 1]), np.ones(1)) if order else first_kind(process))


def filtered(process: Process, fixed: Process | Orders) -> Curve:
    """``account`` at given orders, or at those that a process planned before the first release determines.

    Raises:
        Unsupported: some step has distinguishing events.
    """
    refuse_passes(process, "rdp-filter")
    directions = [LogMoments(pairs) for pairs in process.renyi_directions()]
    infinity = max(moments.mass_at_plus_infinity for moments in directions)
    if infinity > 0:
        raise Unsupported(
            f"rdp-filter adds up Renyi divergences, and these are infinite here: outcomes that only one of two "
            f"neighbours can have carry probability {infinity:.3g}. Fix the parameters in advance, and use pld; or add "
            f"up the eps and the delta of all steps, if each is stated when its step is chosen"
        )

    def delta(eps: float) -> Bracket:
        chosen = fixed if isinstance(fixed, Orders) else orders(fixed, eps=eps)
        return Bracket.above(delta_of(directions, chosen, eps))

    def epsilon(delta: float) -> Bracket:
        chosen = fixed if isinstance(fixed, Orders) else orders(fixed, delta=delta)
        return Bracket.above(max(0.0, epsilon_of(directions, chosen, delta)))

    source = f"{SOURCE}; order {float(fixed.lam[0]) + 1:.6g}" if isinstance(fixed, Orders) else SOURCE
    return Curve(process, "rdp-filter", NOTION, CLAIM, source, delta, epsilon)


@dataclass(frozen=True)
class Orders:
    """Orders less one, [k] > 0, and the share of delta that each gets, [k] of sum 1."""

    lam: Array
    share: Array


def epsilon_of(directions: list[LogMoments], orders: Orders, delta: float) -> float:
    """The smallest eps over the orders at their shares of delta, in the worse order of the neighbours."""
    lam, log_share = orders.lam, np.log(orders.share)
    return max(
        float(np.min(rdp_to_epsilon(lam, moments(lam), math.log(delta)) - log_share / lam)) for moments in directions
    )


def delta_of(directions: list[LogMoments], orders: Orders, eps: float) -> float:
    """The smallest delta over the orders, each divided by its share, in the worse order of the neighbours."""
    lam, log_share = orders.lam, np.log(orders.share)
    return safe_exp(max(float(np.min(rdp_to_log_delta(lam, moments(lam), eps) - log_share)) for moments in directions))


def orders(first: Process, *, eps: float | None = None, delta: float | None = None) -> Orders:
    """The orders of a procedure that begins with ``first``, for its eps at ``delta`` or its delta at ``eps``."""
    share = np.where(FACTORS == 1, 0.5, 0.5 / (FACTORS.size - 1))
    return Orders((best_order(first, eps=eps, delta=delta) - 1) * FACTORS, share)


def first_kind(process: Process) -> Process:
    """The first kind of step of a process with all of its compositions, as a process."""
    first = process.steps[0]
    n = sum(step.n for step in process.steps if dataclasses.replace(step, n=first.n) == first)
    return process.with_steps((dataclasses.replace(first, n=n),))


def best_order(process: Process, *, eps: float | None = None, delta: float | None = None) -> float:
    """The order at which a process fixed in advance has the smallest eps at ``delta``, or smallest delta at ``eps``."""
    directions = [LogMoments(pairs) for pairs in process.renyi_directions()]

    def worst(lam: Array) -> Array:
        if delta is not None:
            return np.asarray(np.max([rdp_to_epsilon(lam, at(lam), math.log(delta)) for at in directions], axis=0))
        return np.asarray(np.max([rdp_to_log_delta(lam, at(lam), eps or 0.0) for at in directions], axis=0))

    return 1 + minimize_quasiconvex(worst, *LAMBDAS)[0]
