"""Pairs of discrete distributions, which have finitely many losses: exact tails, profiles, divergences and moments."""

from __future__ import annotations

import math
from functools import cached_property

import numpy as np
from numpy.typing import ArrayLike

from wpriv.core.loss_pair import LOSS_ROUNDING, LossPair, Tails
from wpriv.numerics.arrays import Array, CellParts
from wpriv.numerics.log_space import log1mexp, log_exp_excess, safe_log
from wpriv.numerics.numbers import raised, total_up

# the largest number of sums of two losses in a composition, and the share of the least distance between losses up to
# which sums that differ by rounding are one loss
MAX_SUMS, MERGED_SHARE = 2**18, 1e-3
# the range of losses (nats) up to which e^L Q is P to rounding
MAX_PLAIN_LOSS = 200.0


class AtomicPair(LossPair):
    """A pair of discrete distributions, given by its finite losses and their probabilities.

    A pair with infinitely many losses may be given by those that matter to delta. Then ``max_lam`` is the largest
    lambda for which they hold all but 1e-20 of the moment E_P[e^(lambda L)], ``extended_to`` returns a pair with enough
    losses for a larger lambda, and ``log_beyond`` is ln of the P-mass of the omitted losses, a lower end of the
    profile.

    Args:
        losses: [k] finite losses in nats, in any order. log_p: [k] ln of their P-probabilities.
        mass_at_plus_infinity: P-mass of outcomes that are impossible under Q.
        mass_at_minus_infinity: Q-mass of outcomes that are impossible under P.
        symmetric: whether the reverse pair has the same privacy loss distributions.
        log_q: [k] ln of their Q-probabilities, equal to ``log_p - losses``; give it where it is known to more digits.
    """

    max_lam: float = math.inf
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
        self.atoms, self.errors = self.losses, LOSS_ROUNDING * np.abs(self.losses)
        self.support = (float(self.losses[0]), float(self.losses[-1])) if self.losses.size else (0.0, 0.0)
        self._above_p = _log_sums_above(self.log_p, mass_at_plus_infinity)
        self._above_q = _log_sums_above(self.log_q, 0.0)
        self._below_p = _log_sums_above(self.log_p[::-1], 0.0)[::-1]
        self._below_q = _log_sums_above(self.log_q[::-1], mass_at_minus_infinity)[::-1]

    def tails(self, eps: Array) -> Tails:
        at = np.searchsorted(self.losses, np.asarray(eps, dtype=float), side="right")
        return Tails(self._above_p[at], self._below_p[at], self._above_q[at], self._below_q[at])

    def cell_parts(self, low: Array, high: Array) -> CellParts:
        """Sum over the losses inside of each of the cells, which must not overlap."""
        cell = np.searchsorted(low, self.losses) - 1
        inside = (cell >= 0) & (self.losses < high[cell])
        cell, loss, mass = cell[inside], self.losses[inside], np.exp(self.log_p[inside])
        with np.errstate(over="ignore", invalid="ignore"):
            parts = -np.expm1(low[cell] - loss) * mass, np.expm1(high[cell] - loss) * mass
        return CellParts(*(np.bincount(cell, part, low.size).astype(float) for part in parts))

    def log_moment(self, lam: Array) -> Array | None:
        """Compute [k] ln E_P[e^(lam L)] at [k] lam > 0 in closed form, or return None: then the losses are summed."""
        return None

    def extended_to(self, lam: float) -> AtomicPair | None:
        """Return this pair with enough losses for the moment of order lam, or None if they would be too many."""
        return self if lam <= self.max_lam else None

    def self_compose(self, n: int) -> LossPair | None:
        """Compose by repeated squaring; None where a composition has more than ``MAX_SUMS`` losses to add up."""
        product: LossPair | None = None
        square: LossPair | None = self
        while n and isinstance(square, AtomicPair):
            if n & 1:
                product = square if product is None else product.compose_with(square)
                if product is None:
                    return None
            n >>= 1
            square = square.compose_with(square) if n else None
        return product if n == 0 else None

    def compose_with(self, other: LossPair) -> LossPair | None:
        """Add up all losses of both pairs; None where that gives more than ``MAX_SUMS`` sums."""
        if not isinstance(other, AtomicPair) or self.losses.size * other.losses.size > MAX_SUMS:
            return None
        return _product(self, other)

    def mean_loss(self) -> float:
        """Compute E_P[L], the Kullback-Leibler divergence, rounded up, of a pair without infinite losses."""
        # E_P[e^-L] = 1, so that E_P[L] = E_P[e^-L - 1 + L], a sum of terms >= 0
        log_mean = np.logaddexp.reduce(self.log_p + log_exp_excess(-self.losses))
        return math.exp(float(log_mean)) * (1 + LOSS_ROUNDING)

    def reverse(self) -> LossPair:
        if self.symmetric:
            return self
        infinities = self.mass_at_minus_infinity, self.mass_at_plus_infinity
        pair = AtomicPair(-self.losses, self.log_q, *infinities, log_q=self.log_p)
        pair.errors, pair.support = self.errors[::-1], (-self.support[1], raised(-self.support[0]))
        return pair

    def log_delta(self, eps: ArrayLike) -> Array:
        # the profile is piecewise linear in t = e^eps with slope -Q(L > eps): value at the next loss, plus a piece > 0
        y = np.asarray(eps, dtype=float)
        if self.support[1] - self.support[0] > MAX_PLAIN_LOSS:
            return self._log_delta_of_large_losses(y)
        at = np.searchsorted(self.losses, y, side="right")
        following = np.append(self.losses, 0.0)[at]
        piece = following + log1mexp(np.minimum(y - following, 0.0)) + self._above_q[at]
        return np.clip(np.logaddexp(self._log_profile[at], piece), self.log_beyond, 0.0)

    def _log_delta_of_large_losses(self, eps: Array) -> Array:
        """Sum P (1 - e^(eps - L)) over the losses, since e^L Q has lost the digits that a large loss L takes."""
        logs, rest = np.empty(eps.size), np.array([safe_log(self.mass_at_plus_infinity)])
        for place, y in enumerate(eps.ravel().tolist()):
            at = int(np.searchsorted(self.losses, y, side="right"))
            terms = self.log_p[at:] + log1mexp(y - self.losses[at:])
            logs[place] = np.logaddexp.reduce(np.append(terms, rest))
        return np.clip(logs.reshape(eps.shape), self.log_beyond, 0.0)

    def log_delta_error(self, eps: float) -> float:
        """A loss L that is off by d changes delta by at most P(L) d e^(eps - L + d), and by P(L) d."""
        near = self.losses + self.errors > eps
        with np.errstate(divide="ignore"):
            log_errors = np.log(self.errors[near])
        excess = np.minimum(eps - self.losses[near] + self.errors[near], 0.0)
        return float(np.logaddexp.reduce(self.log_p[near] + excess + log_errors, initial=-np.inf))

    @cached_property
    def _log_profile(self) -> Array:
        """[k+1] ln delta at each loss and beyond the last, from sums of positive pieces only."""
        pieces = self.losses[1:] + log1mexp(-np.diff(self.losses)) + self._above_q[1:-1]
        return np.append(_log_sums_above(pieces, self.mass_at_plus_infinity), safe_log(self.mass_at_plus_infinity))

    def renyi(self, orders: Array) -> Array:
        """Sum exactly, right to rounding also where the divergence is tiny; inf where P has mass that Q has not."""
        rates = np.asarray(orders, dtype=float) - 1
        if self.mass_at_plus_infinity > 0:
            return np.full(rates.shape, np.inf)
        if np.any(rates > self.max_lam):
            divergences = [_extended_renyi(self, float(rate)) for rate in rates.ravel()]
            return np.reshape(np.array(divergences), rates.shape)
        # E_P[e^{sL}] - 1 = E_P[g(sL) + s g(-L)] + s Q(L = -inf) with g(x) = e^x - 1 - x >= 0, as E_P[e^{-L}] = 1 - Q(L
        # = -inf)
        inverse = log_exp_excess(-self.losses)
        excess = []
        for s in rates.ravel():
            terms = np.logaddexp(log_exp_excess(s * self.losses), math.log(s) + inverse) + self.log_p
            excess.append(np.logaddexp.reduce(np.append(terms, safe_log(s * self.mass_at_minus_infinity))))
        return np.asarray(np.logaddexp(0.0, np.reshape(excess, rates.shape)) / rates)


def disjoint_pair() -> AtomicPair:
    """Return the pair of distributions with disjoint supports: no finite loss, delta = 1 at every eps."""
    nothing = np.empty(0)
    return AtomicPair(nothing, nothing, mass_at_plus_infinity=1.0, mass_at_minus_infinity=1.0, symmetric=True)


def _product(a: AtomicPair, b: AtomicPair) -> AtomicPair:
    """Compose two atomic pairs; sums that differ by rounding alone become one loss, whose masses are added up."""
    losses = np.add.outer(a.losses, b.losses).ravel()
    order = np.argsort(losses, kind="stable")
    losses, errors = losses[order], np.add.outer(a.errors, b.errors).ravel()[order]
    tolerance = LOSS_ROUNDING * (float(np.abs(a.losses).max(initial=0.0)) + float(np.abs(b.losses).max(initial=0.0)))
    # beside a loss of 1e17, losses near 1 remain what they are
    tolerance = min(tolerance, *(MERGED_SHARE * float(np.diff(pair.losses).min(initial=np.inf)) for pair in (a, b)))
    starts = np.flatnonzero(np.diff(losses, prepend=-np.inf) > tolerance)
    masses = []
    for one, two in ((a.log_p, b.log_p), (a.log_q, b.log_q)):
        masses.append(np.logaddexp.reduceat(np.add.outer(one, two).ravel()[order], starts) if losses.size else losses)
    at_plus = -math.expm1(_log1m(a.mass_at_plus_infinity) + _log1m(b.mass_at_plus_infinity))
    at_minus = -math.expm1(_log1m(a.mass_at_minus_infinity) + _log1m(b.mass_at_minus_infinity))
    joint = AtomicPair(losses[starts], masses[0], at_plus, at_minus, a.symmetric and b.symmetric, masses[1])
    if losses.size:
        merged = losses - np.repeat(losses[starts], np.diff(np.append(starts, losses.size)))
        joint.errors = np.maximum.reduceat(errors + merged + LOSS_ROUNDING * np.abs(losses), starts)
    joint.log_beyond = float(np.logaddexp(a.log_beyond, b.log_beyond))
    lowest, highest = zip(a.support, b.support, strict=True)
    joint.support = -total_up((1, -end) for end in lowest), total_up((1, end) for end in highest)
    return joint


def _log1m(x: float) -> float:
    """ln(1 - x), -inf at x = 1."""
    return math.log1p(-x) if x < 1 else -math.inf


def _extended_renyi(pair: AtomicPair, lam: float) -> float:
    """Renyi divergence of order lam + 1 from as many losses as it needs; inf where they are too many to sum."""
    extended = pair.extended_to(lam)
    value = None if extended is None else extended.renyi(np.array([lam + 1]))
    return math.inf if value is None else float(value[0])


def _log_sums_above(log_mass: Array, rest: float) -> Array:
    """[k+1] ln of the sum of all masses from index i on, plus ``rest`` (a probability)."""
    # logaddexp keeps far tails that a plain cumulative sum, scaled to its largest term, would flush to zero
    return np.minimum(np.logaddexp.accumulate(np.concatenate([[safe_log(rest)], log_mass[::-1]]))[::-1], 0.0)


def atomic_log_moment(pair: AtomicPair, lam: Array) -> Array:
    """Compute ln E_P[e^(lam L)] of an atomic pair by exact sums, for a block of orders at a time.

    Args:
        lam: [k] positive reals (the Renyi order less one).
    Returns:
        [k] values in nats; +inf where the sum would have too many terms.
    """
    closed = pair.log_moment(lam)
    if closed is not None:
        return closed
    moments, pending = np.full(lam.shape, np.inf), np.ones(lam.shape, dtype=bool)
    while pending.any() and (extended := pair.extended_to(float(lam[pending].min()))) is not None:
        covered = pending & (lam <= extended.max_lam)
        rows = max(1, 2**19 // max(extended.losses.size, 1))
        block = lam[covered]
        parts = [_summed_log_moment(extended, block[at : at + rows]) for at in range(0, block.size, rows)]
        moments[covered] = np.concatenate(parts)
        pending &= ~covered
    return moments


def _log_bend(lam: Array, y: Array) -> Array:
    """ln of e^(alpha y) - 1 - alpha (e^y - 1), alpha = 1 + lam, in terms that are of first order in lam."""
    alpha = 1 + lam
    ay = alpha * y
    with np.errstate(over="ignore", divide="ignore", invalid="ignore"):
        mid = np.exp(y) * np.expm1(lam * y) - lam * np.expm1(y)
        # the leading terms cancel for small y: the series starts at y^2
        second, third = 3 + lam * (3 + lam), (2 + lam) * (1 + alpha**2)
        tiny = lam * alpha * y * y / 2 * (1 + y / 3 * (2 + lam) + y * y / 12 * second + y**3 / 60 * third)
        small = np.log(np.where(np.abs(ay) < 1e-3, tiny, mid))
        slow = y + np.log(np.expm1(lam * y) + lam * np.expm1(-np.maximum(y, 0.0)))
        fast = ay + np.log1p(-(1 + alpha * np.expm1(y)) * np.exp(-np.maximum(ay, 30.0)))
        return np.where(ay > 30, np.where(lam * y < 1, slow, fast), small)


def _summed_log_moment(pair: AtomicPair, lam: Array) -> Array:
    """Sum over the losses; if the moment is near 1, sum excesses about the centre ln P(L < inf), ten times slower."""
    moments = _log_sum(lam[:, None] * pair.losses + pair.log_p)
    near = np.abs(moments) < 1e-3
    if near.any():
        small, centre = lam[near], math.log1p(-pair.mass_at_plus_infinity)
        bend = _log_sum(_log_bend(small[:, None], pair.losses - centre) + pair.log_q)
        if pair.mass_at_minus_infinity > 0:
            bend = np.logaddexp(bend, np.log(pair.mass_at_minus_infinity * small))
        # the excess of an infinitely large loss is no number
        bend = np.where(np.isnan(bend), np.inf, bend)
        moments[near] = (small + 1) * centre + np.logaddexp(0.0, bend)
    return moments


def _log_sum(exponent: Array) -> Array:
    """ln of the sum of e^exponent over each row."""
    peak = np.maximum(exponent.max(axis=1, initial=-np.inf), -1e300)
    with np.errstate(divide="ignore"):
        return np.asarray(peak + np.log(np.exp(exponent - peak[:, None]).sum(axis=1)))
