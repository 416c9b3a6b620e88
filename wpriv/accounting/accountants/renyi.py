"""Renyi differential privacy at one order: the divergence itself, without a conversion to (eps, delta).

It must not be confused with ``rdp``, which turns the divergences of all orders into an (eps, delta) guarantee: the eps
of this one belongs to (alpha, eps)-RDP, has no delta and shares no scale with that of (eps, delta)-DP.
"""

from __future__ import annotations

import math

import numpy as np

from wpriv.accounting.accountants._moment_bounds import LogMoments, check_order
from wpriv.core.guarantee import Curve
from wpriv.core.loss_moments import loss_class
from wpriv.core.process import Process, WeightedPairs, require_exact_plds
from wpriv.errors import Unsupported, UsageError
from wpriv.numerics.bracket import Bracket

NOTION = "rdp"
CLAIM = "exact"
SOURCE = "Mironov 2017, Definition 4 and Proposition 1"
EXPLAIN = """\
eps = D_alpha(P || Q) summed over all steps, in the worse order of the neighbours; at alpha = 1 the mean loss (KL).
Exact to rounding (a closed form or quadrature); an upper bound where only bounds of the divergences are given.
It has no delta; use rdp for an (eps, delta) guarantee."""


def account(process: Process, *, tol: float = 1e-3, order: float = 2.0) -> Curve:
    """The Renyi divergence of the whole process at the order alpha >= 1; ``tol`` is not used.

    Raises:
        Unsupported: some step has distinguishing events (infinite), its PLD is not known exactly, or the order is
            too high.
        UsageError: alpha below 1, or above 1e12.
    """
    if not order >= 1:
        raise UsageError(f"renyi: the order alpha must be at least 1; found {order:g}")
    check_order("renyi", order)
    # at order 1 it is the mean loss, which bounds of the divergences of higher orders do not give
    directions = process.directions() if order == 1 else process.renyi_directions()
    if order == 1 or any(pair.renyi(np.array([order])) is None for pairs in directions for pair, _ in pairs):
        require_exact_plds(directions, "renyi, where there is no closed form,")
    value = max(_divergence(pairs, order) for pairs in directions)
    given = any(step.mechanism.renyi_bound() is not None for step in process.steps)
    if math.isinf(value):
        fault = (
            f"renyi has no bound of the divergence of order {order:g}: none is given for it, or for a higher order"
            if given
            else f"renyi cannot resolve the divergence of order {order:g} here: it is dominated by losses too far in "
            f"the tail"
        )
        raise Unsupported(f"{fault}. Take a smaller order, or use rdp, which chooses the order for each delta")

    def delta(eps: float) -> Bracket:
        return Bracket.exact(float(eps < value))

    def epsilon(delta: float) -> Bracket:
        return Bracket.above(value) if given else Bracket.exact(value)

    return Curve(process, "renyi", NOTION, CLAIM, f"{SOURCE}; order {order:g}", delta, epsilon, order=order)


def _divergence(pairs: WeightedPairs, order: float) -> float:
    moments = LogMoments(pairs, deep=True)
    if moments.mass_at_plus_infinity > 0:
        raise Unsupported(
            f"Renyi divergences are infinite here: outcomes that only one of two neighbours can have carry probability "
            f"{moments.mass_at_plus_infinity:.3g}. Use pld, markov or kov"
        )
    if order == 1:
        return math.fsum(n * loss_class(pair).mean for pair, n in pairs)
    lam = order - 1
    return float(moments(np.array([lam]))[0]) / lam
