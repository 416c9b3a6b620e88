"""Bounds on membership inference: advantage and true-positive rates from a privacy curve.

The bounds are those of the trade-off functions of both orders of the neighbours; see
``wpriv/core/membership.py``.
"""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import numpy as np
from scipy.special import ndtr, ndtri

from wpriv.accounting import evaluate
from wpriv.core.guarantee import RIGOROUS, Curve, Guarantee
from wpriv.core.membership import Membership
from wpriv.core.process import Process
from wpriv.core.trade_off import DEFAULT_FPR, GaussianMu
from wpriv.errors import Unsupported
from wpriv.numerics.numbers import finite_number, rounded

RATES = (1e-3, 1e-2)
# the widest relative brackets of the points that bounds are derived from
WIDEST_TOL = 1e-3


def chance_of_right_guess(row: Guarantee) -> dict[str, object] | None:
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


# Figures of membership inference beside a guarantee: mu of Gaussian DP, and points of the trade-off curve.

# relative width of the deltas from which mu and the trade-off curve are made: many points, each needing fewer digits
POINT_TOL = 1e-4
CURVE_POINTS = 37


def membership(process: Process, accountant: str, tol: float | None = None) -> Membership:
    """Bounds on membership inference by one accountant.

    Raises:
        Unsupported: the accountant refuses the process, or gives no proven bounds of (eps, delta)-DP.
    """
    return Membership(evaluate.curve(process, accountant, POINT_TOL if tol is None else max(tol, POINT_TOL)))


def mu(process: Process, accountant: str, fpr: float | None = None, tol: float | None = None) -> GaussianMu:
    """mu of Gaussian DP for all tests with both error rates at least ``fpr`` (default 1e-9).

    Raises:
        UsageError: ``fpr`` is outside (0, 1/2].
        Unsupported: as ``membership``; or no finite mu holds.
    """
    result = membership(process, accountant, tol).mu(DEFAULT_FPR if fpr is None else fpr)
    if math.isinf(result.upper):
        raise Unsupported(
            f"no finite mu was proven by {accountant} for every false-positive rate of at least {result.fpr:g}: some "
            f"test may have no error at all there; mu is at least {result.lower:.6g}. Add noise, or run fewer steps"
        )
    return result


def mu_keys(value: GaussianMu) -> dict[str, object]:
    """The keys of ``Guarantee.as_dict`` about mu."""
    orders = [{"order": name, "mu_lower": low, "mu_upper": high} for name, low, high in value.orders]
    return {
        "mu": value.upper,
        "mu_lower": value.lower,
        "mu_upper": value.upper,
        "mu_fpr": 0.0 if value.exact else value.fpr,
        "mu_orders": orders,
    }


def with_mu(row: Guarantee, value: GaussianMu, *, alone: bool) -> Guarantee:
    """The guarantee with mu beside it; with ``alone``, mu is what was asked, and the claim is that of mu."""
    revealed = evaluate.infinity_mass(row.process)
    if revealed > 0:
        note = (
            f"the distinguishing events, of probability {revealed:.3g}, give a record away without a false positive: "
            f"mu grows without bound as the smallest false-positive rate falls"
        )
        row = evaluate.with_warnings(row, [note])
    row = row.with_extra(**mu_keys(value))
    if not alone:
        return row
    inexact = row.claim == "exact" and not value.exact
    return replace(row, claim="certified" if inexact else row.claim).with_extra(asked="mu")


def with_true_positive_rate(row: Guarantee, curve: Curve, fpr: float, tol: float, work: float) -> Guarantee:
    """The guarantee of the true-positive rate at ``fpr``, certified from both sides, under ``extra["attack"]``.

    Raises:
        Unsupported: as ``membership``.
    """
    bounds = Membership(curve, work=work)
    (point,) = bounds.error_rates([fpr], tol)
    low, high = bounds.advantage()
    rates = {"fpr": fpr, "tpr_lower": point.tpr_lower, "tpr_upper": point.tpr_upper}
    attack = {"advantage_lower": low, "advantage_upper": high, "tpr_at_fpr": [rates]}
    claim = "certified" if row.claim == "exact" else row.claim
    return replace(row, claim=claim).with_extra(asked="tpr", attack=attack)


def point_row(bounds: Membership, fpr: float) -> dict[str, object]:
    """The best attack at one false-positive rate, and mu for tests with both error rates at least that (up to 1/2).

    Columns: ``fnr_lower``, ``fnr_upper``, ``tpr_lower``, ``tpr_upper``, ``mu_lower`` and ``mu_upper``.
    """
    (point,) = bounds.error_rates([fpr], POINT_TOL * 10)
    value = bounds.mu(fpr) if fpr <= 0.5 else None
    rates = {key: getattr(point, key) for key in ("fnr_lower", "fnr_upper", "tpr_lower", "tpr_upper")}
    finite = value is not None and math.isfinite(value.upper)
    return {
        **rates,
        "mu_lower": None if value is None else value.lower,
        "mu_upper": value.upper if value is not None and finite else None,
    }


def trade_off_rows(
    process: Process, accountant: str, fpr: float | None = None, tol: float | None = None
) -> list[dict[str, object]]:
    """Points of the trade-off curve at false-positive rates from ``fpr`` (default 1e-9) to 1, equally spaced in ln FPR.

    Each row has ``fpr``; ``fnr_lower`` and ``fnr_upper`` of the best test of either order of the neighbours; the same
    for each order where they differ, as ``remove_fnr_lower``; ``guess``, the false-negative rate 1 - FPR of a test
    that only guesses; and ``gauss``, that of mu-GDP at the upper end of mu for this smallest rate (none where it
    is infinite), with ``mu_lower`` and ``mu_upper``.

    Raises:
        UsageError: ``fpr`` is outside (0, 1/2].
        Unsupported: as ``membership``.
    """
    lowest = DEFAULT_FPR if fpr is None else finite_number(fpr, "`fpr`")
    bounds = membership(process, accountant, tol)
    value = bounds.mu(lowest)
    grid = np.geomspace(lowest, 1.0, CURVE_POINTS)
    rates = [lowest, *(rounded(float(rate), up=True, digits=4) for rate in grid[1:-1]), 1.0]
    orders = {
        name: bounds.order_rates(order, rates) for name, order in zip(bounds.names, bounds.trade_offs, strict=True)
    }
    rows = []
    for index, rate in enumerate(rates):
        points = {name: curve[index] for name, curve in orders.items()}
        row = {
            "fpr": rate,
            "fnr_lower": min(point.fnr_lower for point in points.values()),
            "fnr_upper": min(point.fnr_upper for point in points.values()),
        }
        if len(points) > 1:
            for name, point in points.items():
                key = name.replace(" ", "_").lower()
                row |= {f"{key}_fnr_lower": point.fnr_lower, f"{key}_fnr_upper": point.fnr_upper}
        gauss = float(ndtr(-ndtri(rate) - value.upper)) if math.isfinite(value.upper) else None
        rows.append({**row, "guess": 1 - rate, "gauss": gauss, "mu_lower": value.lower, "mu_upper": value.upper})
    return rows
