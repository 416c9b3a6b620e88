"""Renyi filter: steps whose noise, rate and number are chosen from earlier outputs, accounted at one fixed order.

Divergences of one order add up along every path of outputs. It must not be confused with ``rdp``, which takes the best of all orders
for the steps as they came out, and so needs them to be fixed in advance.
"""

from __future__ import annotations

import dataclasses
import math

import numpy as np

from wpriv.core.convert import rdp_to_epsilon, rdp_to_log_delta
from wpriv.core.curve import Bracket, Curve, safe_exp
from wpriv.core.orders import LogMoments
from wpriv.core.pair import Array
from wpriv.core.process import Process
from wpriv.core.roots import lowest
from wpriv.errors import Unsupported, UsageError

NOTION = "approximate-dp"
CLAIM = "upper-bound"
SOURCE = "Feldman, Zrnic 2021, Theorem 4.3 (filter); Canonne, Kamath, Steinke 2020, Proposition 12 (conversion)"
EXPLAIN = """\
eps = B + (ln(1/delta) - ln a)/(a - 1) + ln(1 - 1/a), B the sum over all steps of the Renyi divergence of one fixed order a.
Noise, rates and the number of steps may be chosen from earlier outputs, provided that whatever the outputs the sum never exceeds B.
The order is the best one for the first kind of step alone, unless it is given (rdp-filter:order=8): never that for what came out."""
LAMBDAS = (1e-6, 1e9)


def account(process: Process, *, tol: float = 1e-3, order: float = 0.0) -> Curve:
    """The guarantee of every procedure whose total divergence of one order is at most that of these steps; ``tol`` is not used.

    Proof. Fix neighbours D, D' and the order a > 1. Given the past, step t has the laws P_t and Q_t of its output under D and D', and
    its parameters, which the past decides, give D_a(P_t || Q_t) <= r_t. Then V_t = prod over s <= t of (p_s/q_s)^a e^(-(a-1) r_s) is a
    supermartingale under Q, for E_Q[(p_t/q_t)^a | past] = e^((a-1) D_a(P_t || Q_t)); so E_Q[V] <= 1 at the end of any procedure of
    bounded length (steps that do not happen have r = 0). Where the sum of r_t is at most B on every path, the density ratio of all
    outputs satisfies E_Q[(p/q)^a] <= e^((a-1) B) E_Q[V] <= e^((a-1) B): (a, B)-RDP, which converts to (eps, delta). The order must be
    the same on every path: of an order picked by what came out, the sum is not bounded on the other paths.

    Args:
        order: a > 1; 0 for the best one for the first kind of step (all of its compositions here), which is known before any output.
    Raises:
        Unsupported: some step has distinguishing events, so that its divergence is infinite. UsageError: an order of at most 1.
    """
    if order != 0 and not order > 1:
        raise UsageError(f"rdp-filter: the order must be greater than 1 (0: the best one for the first kind of step); found {order:g}")
    runs = [LogMoments(run) for run in process.runs()]
    if any(run.infinity > 0 for run in runs):
        raise Unsupported(
            f"rdp-filter adds up Renyi divergences, and these are infinite here: outcomes that only one of two neighbours can have carry "
            f"probability {max(run.infinity for run in runs):.3g}. Use basic, whose sums may be chosen adaptively as well"
        )
    first = first_kind(process)

    def sums(*, eps: float | None = None, delta: float | None = None) -> tuple[Array, list[Array]]:
        lam = np.array([(order or best_order(first, eps=eps, delta=delta)) - 1])
        return lam, [run(lam) for run in runs]

    def delta(eps: float) -> Bracket:
        lam, moments = sums(eps=eps)
        return Bracket.above(safe_exp(max(float(rdp_to_log_delta(lam, moment, eps)[0]) for moment in moments)))

    def epsilon(delta: float) -> Bracket:
        lam, moments = sums(delta=delta)
        return Bracket.above(max(0.0, *(float(rdp_to_epsilon(lam, moment, math.log(delta))[0]) for moment in moments)))

    source = f"{SOURCE}; order {order:.6g}" if order else SOURCE
    return Curve(process, "rdp-filter", NOTION, CLAIM, source, delta, epsilon)


def first_kind(process: Process) -> Process:
    """The first kind of step of a process, with all of its compositions, alone."""
    first = process.steps[0]
    n = sum(step.n for step in process.steps if dataclasses.replace(step, n=first.n) == first)
    return Process((dataclasses.replace(first, n=n),), process.adjacency)


def best_order(process: Process, *, eps: float | None = None, delta: float | None = None) -> float:
    """The order at which a process fixed in advance has the least eps at ``delta``, or the least delta at ``eps``."""
    runs = [LogMoments(run) for run in process.runs()]

    def worst(lam: Array) -> Array:
        if delta is not None:
            return np.asarray(np.max([rdp_to_epsilon(lam, run(lam), math.log(delta)) for run in runs], axis=0))
        return np.asarray(np.max([rdp_to_log_delta(lam, run(lam), eps or 0.0) for run in runs], axis=0))

    return 1 + lowest(worst, *LAMBDAS)[0]
