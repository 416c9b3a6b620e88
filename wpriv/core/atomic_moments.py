"""Moments of the privacy loss of pairs with finitely many losses (atoms): plain sums, in log space."""

from __future__ import annotations

import math

import numpy as np

from wpriv.core.atomic_pair import AtomicPair
from wpriv.numerics.arrays import Array


def atomic_log_moment(pair: AtomicPair, lam: Array) -> Array:
    """ln E_P[e^(lam L)] of a pair of finitely many losses, summed exactly for some orders at a time.

    Args:
        lam: [k] positive reals (the Renyi order less one).
    Returns:
        [k] values in nats; +inf where too many losses would have to be summed.
    """
    closed = pair.log_moment(lam)
    if closed is not None:
        return closed
    moments, left = np.full(lam.shape, np.inf), np.ones(lam.shape, dtype=bool)
    while left.any() and (whole := pair.covering(float(lam[left].min()))) is not None:
        now = left & (lam <= whole.most)
        rows = max(1, 2**19 // max(whole.losses.size, 1))
        some = lam[now]
        moments[now] = np.concatenate([_atomic_part(whole, some[at : at + rows]) for at in range(0, some.size, rows)])
        left &= ~now
    return moments


def _log_bend(alpha: Array, y: Array) -> Array:
    """ln of e^(alpha y) - 1 - alpha (e^y - 1), the excess of t^alpha over its tangent at t = 1, for t = e^y; alpha > 1."""
    ay = alpha * y
    with np.errstate(over="ignore", divide="ignore", invalid="ignore"):
        mid = np.expm1(ay) - alpha * np.expm1(y)
        # the common leading terms of both exponentials cancel for small y: their series starts at y^2
        tiny = (
            alpha
            * y
            * y
            / 2
            * ((alpha - 1) + y / 3 * (alpha**2 - 1) + y * y / 12 * (alpha**3 - 1) + y**3 / 60 * (alpha**4 - 1))
        )
        small = np.log(np.where(np.abs(ay) < 1e-3, tiny, mid))
        return np.where(ay > 30, ay + np.log1p(-(1 + alpha * np.expm1(y)) * np.exp(-np.maximum(ay, 30.0))), small)


def _atomic_part(pair: AtomicPair, lam: Array) -> Array:
    """Summed plainly; about the centre ln P(L < inf), at ten times the price, where the sum is too near 1 to keep its digits."""
    moments = _log_sum(lam[:, None] * pair.losses + pair.log_p)
    near = np.abs(moments) < 1e-3
    if near.any():
        few, centre = lam[near], math.log1p(-pair.mass_at_plus_infinity)
        bend = _log_sum(_log_bend(few[:, None] + 1, pair.losses - centre) + pair.log_q)
        if pair.mass_at_minus_infinity > 0:
            bend = np.logaddexp(bend, np.log(pair.mass_at_minus_infinity * few))
        moments[near] = (few + 1) * centre + np.logaddexp(0.0, bend)
    return moments


def _log_sum(exponent: Array) -> Array:
    """ln of the sum of e^exponent over each row."""
    peak = np.maximum(exponent.max(axis=1, initial=-np.inf), -1e300)
    with np.errstate(divide="ignore"):
        return np.asarray(peak + np.log(np.exp(exponent - peak[:, None]).sum(axis=1)))
