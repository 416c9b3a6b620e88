"""Bounds on membership inference: advantage and true-positive rates from a privacy curve.

The bounds are those of the trade-off functions of both orders of the neighbours; see
``wpriv/core/attacks/membership.py``.
"""

from __future__ import annotations

import math
from typing import Any

from wpriv.core.attacks.membership import Membership
from wpriv.core.guarantee import RIGOROUS, Curve, Guarantee

RATES = (1e-3, 1e-2)
# the widest relative brackets of the points that bounds are derived from
WIDEST_TOL = 1e-3


def chance_of_right_guess(row: Guarantee) -> dict[str, Any] | None:
    """Return the chance of a right guess that Yang et al. (2024) derive from an eps, and what the notion really bounds.

    The neighbours are equally likely. 1/(1 + e^-eps) is the bound of pure DP. (eps, delta)-BDP bounds the mean over
    records by (e^eps + delta)/(1 + e^eps). WDP bounds nothing: a value released without noise has a finite WDP eps.
    None for notions to which the paper does not apply it.
    """
    eps, delta = row.epsilon.safe, row.delta.safe
    chance = 1 / (1 + math.exp(-min(eps, 700.0)))
    if row.notion == "wdp":
        return {
            "paper": chance,
            "bound": 1.0,
            "why": "a wdp eps does not bound the chance of a right guess: a release without noise has a finite one too",
        }
    if row.notion == "bdp":
        bound = min(1.0, chance + delta * math.exp(-min(eps, 700.0)) * chance)
        return {
            "paper": chance,
            "bound": bound,
            "why": "(e^eps + delta)/(1 + e^eps), on average over records distributed like the observed pairs",
        }
    return None


def attack_bounds(curve: Curve, rates: tuple[float, ...] = RATES, *, from_above: bool = False) -> dict[str, Any] | None:
    """Bound the advantage (largest TPR - FPR) and the TPR at each false-positive rate from both sides.

    The advantage is delta(0), the total variation distance. The rates are those of the better test of either order of
    the neighbours.

    Args:
        curve: a curve of notion approximate-dp and claim exact or certified; None is returned for any other.
        from_above: admit curves of claim upper-bound, whose lower bounds are the trivial ones.
    Source:
        Dong, Roth, Su (2019), Proposition 2.12 (f-DP and its dual); Wasserman and Zhou (2010).
    """
    claims = RIGOROUS if from_above else ("exact", "certified")
    if curve.notion != "approximate-dp" or curve.claim not in claims:
        return None
    membership = Membership(curve)
    low, high = membership.advantage()
    rows = [
        {"fpr": point.fpr, "tpr_lower": point.tpr_lower, "tpr_upper": point.tpr_upper}
        for point in membership.error_rates(rates)
    ]
    return {"advantage_lower": low, "advantage_upper": high, "tpr_at_fpr": rows}
