"""Pairs of discrete distributions: finitely many losses, summed exactly."""

from __future__ import annotations

import math
from functools import cached_property

import numpy as np
from numpy.typing import ArrayLike

from wpriv.core.loss_pair import LossPair, Tails
from wpriv.numerics.arrays import Array
from wpriv.numerics.log_space import log1mexp, log_exp_excess, safe_log

# sums of two losses that a product of atomic pairs may have, and sums that differ by less than this, relative, are one
MAX_SUMS, ROUNDED = 2**18, 4e-15


class AtomicPair(LossPair):
    """A pair of discrete laws: finitely many losses, each with its probability under P; exact sums.

    Args:
        losses: [k] finite losses in nats, in any order.
        log_p: [k] ln of the P-probability of each.
        mass_at_plus_infinity: P-mass where Q has none.
        mass_at_minus_infinity: Q-mass where P has none.
        symmetric: the reverse pair has the same law of the loss.
        log_q: [k] ln of the Q-probability of each, which must be ``log_p - losses``; give it where it is known to more digits.

    A law with infinitely many losses may be given by those that matter to delta. ``most`` is then the largest lambda for which these
    hold all but 1e-20 of the moment E_P[e^(lambda L)], ``covering`` a pair with enough of them for a larger one, and ``log_beyond``
    ln of the P-mass of the losses left out, which the profile does not fall below.
    """

    most: float = math.inf
    log_beyond: float = -math.inf

    def __init__(
        self,
        losses: Array,
        log_p: Array,
        mass_at_plus_infinity: float = 0.0,
        mass_at_minus_infinity: float = 0.0,
        symmetric: bool = False,
        log_q: Array | None = None,
    ):
        order = np.argsort(losses, kind="stable")
        self.losses, self.log_p = np.asarray(losses, float)[order], np.asarray(log_p, float)[order]
        self.log_q = self.log_p - self.losses if log_q is None else np.asarray(log_q, float)[order]
        self.mass_at_plus_infinity, self.mass_at_minus_infinity = mass_at_plus_infinity, mass_at_minus_infinity
        self.symmetric = symmetric
        self.atoms = self.losses
        self.support = (float(self.losses[0]), float(self.losses[-1])) if self.losses.size else (0.0, 0.0)
        self._above_p, self._above_q = (
            _log_sums_above(self.log_p, mass_at_plus_infinity),
            _log_sums_above(self.log_q, 0.0),
        )
        self._below_p = _log_sums_above(self.log_p[::-1], 0.0)[::-1]
        self._below_q = _log_sums_above(self.log_q[::-1], mass_at_minus_infinity)[::-1]

    def tails(self, eps: Array) -> Tails:
        at = np.searchsorted(self.losses, np.asarray(eps, dtype=float), side="right")
        return Tails(self._above_p[at], self._below_p[at], self._above_q[at], self._below_q[at])

    def log_moment(self, lam: Array) -> Array | None:
        """[k] ln E_P[e^(lam L)] at [k] lam > 0 in closed form, or None: then it is a sum over the losses."""
        return None

    def covering(self, lam: float) -> AtomicPair | None:
        """This pair, with losses enough for the moment of order lam; None where they would be too many."""
        return self if lam <= self.most else None

    def self_compose(self, n: int) -> LossPair | None:
        """By squaring; None where the losses of a product are too many to be summed one by one."""
        whole: LossPair | None = None
        square: LossPair | None = self
        while n and isinstance(square, AtomicPair):
            if n & 1:
                whole = square if whole is None else whole.compose_with(square)
                if whole is None:
                    return None
            n >>= 1
            square = square.compose_with(square) if n else None
        return whole if n == 0 else None

    def compose_with(self, other: LossPair) -> LossPair | None:
        """The sums of every loss of each; None where they are more than ``MAX_SUMS``."""
        if not isinstance(other, AtomicPair) or self.losses.size * other.losses.size > MAX_SUMS:
            return None
        return _product(self, other)

    def reverse(self) -> LossPair:
        return (
            self
            if self.symmetric
            else AtomicPair(
                -self.losses, self.log_q, self.mass_at_minus_infinity, self.mass_at_plus_infinity, log_q=self.log_p
            )
        )

    def log_delta(self, eps: ArrayLike) -> Array:
        # the profile is a polygon in t = e^eps with slope -Q(L > eps): from the loss above eps it rises by a positive piece
        y = np.asarray(eps, dtype=float)
        at = np.searchsorted(self.losses, y, side="right")
        following = np.append(self.losses, 0.0)[at]
        piece = following + log1mexp(np.minimum(y - following, 0.0)) + self._above_q[at]
        return np.clip(np.logaddexp(self._log_profile[at], piece), self.log_beyond, 0.0)

    @cached_property
    def _log_profile(self) -> Array:
        """[k+1] ln delta at each loss, and beyond the last; sums of positive pieces only."""
        pieces = self.losses[1:] + log1mexp(-np.diff(self.losses)) + self._above_q[1:-1]
        return np.append(_log_sums_above(pieces, self.mass_at_plus_infinity), safe_log(self.mass_at_plus_infinity))

    def renyi(self, orders: Array) -> Array:
        """Exact sums, right to rounding also where the divergence is tiny; inf where P has mass that Q has not."""
        rates = np.asarray(orders, dtype=float) - 1
        if self.mass_at_plus_infinity > 0:
            return np.full(rates.shape, np.inf)
        if np.any(rates > self.most):
            parts = [_beyond(self, float(rate)) for rate in rates.ravel()]
            return np.reshape(np.array(parts), rates.shape)
        # E_P[e^{sL}] - 1 = E_P[g(sL) + s g(-L)] + s Q(L = -inf) with g(x) = e^x - 1 - x >= 0, as E_P[e^{-L}] = 1 - Q(L = -inf)
        inverse = log_exp_excess(-self.losses)
        found = [
            np.logaddexp(log_exp_excess(s * self.losses), math.log(s) + inverse) + self.log_p for s in rates.ravel()
        ]
        excess = [
            np.logaddexp.reduce(np.append(terms, safe_log(s * self.mass_at_minus_infinity)))
            for s, terms in zip(rates.ravel(), found, strict=True)
        ]
        return np.asarray(np.logaddexp(0.0, np.reshape(excess, rates.shape)) / rates)


def _product(a: AtomicPair, b: AtomicPair) -> AtomicPair:
    """The composition of two atomic pairs: sums that differ by rounding alone are one loss, with the masses of both laws added up."""
    losses = np.add.outer(a.losses, b.losses).ravel()
    order = np.argsort(losses, kind="stable")
    losses = losses[order]
    hair = ROUNDED * (float(np.abs(a.losses).max(initial=0.0)) + float(np.abs(b.losses).max(initial=0.0)))
    starts = (
        np.flatnonzero(np.concatenate([[True], np.diff(losses) > hair])) if losses.size else np.empty(0, dtype=np.int64)
    )
    masses = []
    for one, two in ((a.log_p, b.log_p), (a.log_q, b.log_q)):
        masses.append(np.logaddexp.reduceat(np.add.outer(one, two).ravel()[order], starts) if losses.size else losses)
    infinity, lost = (
        -math.expm1(_log1m(one) + _log1m(two))
        for one, two in (
            (a.mass_at_plus_infinity, b.mass_at_plus_infinity),
            (a.mass_at_minus_infinity, b.mass_at_minus_infinity),
        )
    )
    joint = AtomicPair(losses[starts], masses[0], infinity, lost, a.symmetric and b.symmetric, masses[1])
    joint.log_beyond = float(np.logaddexp(a.log_beyond, b.log_beyond))
    if math.isfinite(joint.log_beyond):
        ends = zip(a.support, b.support, strict=True)
        joint.support = tuple(float(one + two) for one, two in ends)  # type: ignore[assignment]
    return joint


def _log1m(x: float) -> float:
    return math.log1p(-x) if x < 1 else -math.inf


def _beyond(pair: AtomicPair, lam: float) -> float:
    """The Renyi divergence of order lam + 1, from as many losses as it needs; inf where they are too many to sum."""
    whole = pair.covering(lam)
    value = None if whole is None else whole.renyi(np.array([lam + 1]))
    return math.inf if value is None else float(value[0])


def _log_sums_above(log_mass: Array, rest: float) -> Array:
    """[k+1] ln of the sum of all masses from index i on, plus ``rest`` (a plain probability)."""
    # logaddexp keeps far tails that a plain cumulative sum, scaled to its largest term, would flush to zero
    return np.minimum(np.logaddexp.accumulate(np.concatenate([[safe_log(rest)], log_mass[::-1]]))[::-1], 0.0)


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
