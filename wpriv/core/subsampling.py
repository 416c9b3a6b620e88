"""What subsampling does to a loss pair: maps of the loss that hold for every base pair.

Both theorems are from Zhu, Dong and Wang, "Optimal Accounting of Differential Privacy via Characteristic Function"
(AISTATS 2022). The neighbouring relation is part of each: Poisson sampling is proven under add-remove, fixed-size sampling
without replacement under replace-one, and their figures are not interchangeable.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Hashable, Sequence

import numpy as np
from numpy.typing import ArrayLike
from scipy.special import gammaln, logsumexp

from wpriv.core.atomic_pair import AtomicPair
from wpriv.core.loss_pair import (
    NO_ATOMS,
    KeyedPair,
    LossPair,
    Reversed,
    Tails,
    as_column,
    map_sandwich,
    reversed_log_delta,
)
from wpriv.numerics.arrays import Array
from wpriv.numerics.log_space import log1mexp

MAX_BINOMIAL = 300  # orders beyond it are left to quadrature


def log_binomial_excess(a: Array, k: Array, rate: float, log_moment: Array) -> Array:
    """ln of sum over k of Binom(k; a, q) (e^m_k - 1), without cancellation; over the last axis of ``a`` [..., 1] and m [..., k]."""
    rest = a - k
    with np.errstate(divide="ignore", invalid="ignore"):
        log_rest = np.where(rest == 0, 0.0, rest * (math.log1p(-rate) if rate < 1 else -math.inf))
        choose = gammaln(a + 1) - gammaln(k + 1) - gammaln(np.maximum(rest, 0.0) + 1) + k * math.log(rate) + log_rest
        grown = np.where(
            log_moment > 1,
            log_moment + log1mexp(-np.maximum(log_moment, 1.0)),
            np.log(np.expm1(np.minimum(log_moment, 1.0))),
        )
    return np.asarray(logsumexp(np.where(rest >= 0, choose + grown, -np.inf), axis=-1))


def poisson(base: LossPair, rate: float) -> LossPair:
    """The pair ((1-q) Q + q P, Q): a record present with probability q was removed. ``reverse()`` is the pair of adding one.

    Args:
        base: dominating pair (P, Q) of the mechanism under add-remove.
        rate: q in (0, 1], the chance that a record takes part in a step.
    Source:
        Zhu, Dong, Wang (2022), Theorem 11 (Poisson subsampling).
    """
    if rate == 1.0:
        return base
    if isinstance(base, AtomicPair):
        return _atomic_poisson(base, rate)
    return _Poisson(base, rate)


def fixed(base: LossPair, rate: float) -> LossPair:
    """The pair of fixed-size sampling without replacement under replace-one, from a base pair with the same law both ways.

    Its profile is H_t((1-g) Q + g P || Q) for t >= 1 and H_t(P || (1-g) P + g Q) for t < 1.

    Args:
        base: dominating pair (P, Q) of the mechanism under replace-one; ``base.symmetric`` must hold.
        rate: g = batch / records in (0, 1].
    Source:
        Zhu, Dong, Wang (2022), subset sampling.
    """
    if rate == 1.0:
        return base
    if isinstance(base, AtomicPair):
        return _atomic_fixed(base, rate)
    return _Fixed(base, rate)


def _mixed_loss(loss: Array, rate: float) -> Array:
    """ln(1 - q + q e^loss), the loss of the mixture, for loss of any size or sign."""
    with np.errstate(over="ignore"):
        near = np.log1p(rate * np.expm1(np.clip(loss, -0.7, 700.0)))
    far = np.logaddexp(np.log1p(-rate), np.log(rate) + loss)
    return np.where((loss > -0.7) & (loss < 700.0), near, far)


def _base_loss(eps: Array, rate: float) -> Array:
    """The inverse of ``_mixed_loss``; -inf where eps lies at or below its least value ln(1-q)."""
    # t' = 1 + (t - 1)/q where that keeps its digits, else t' = t/q (1 - (1-q)/t)
    with np.errstate(over="ignore"):
        ratio = np.expm1(np.clip(eps, -1.0, 600.0)) / rate
    loss = np.asarray(np.log1p(np.maximum(ratio, -0.5)))
    far = (ratio <= -0.5) | (ratio >= 1e250)
    if far.any():
        y, q = (np.broadcast_to(x, loss.shape)[far] for x in (eps, rate))
        loss[far] = y - np.log(q) + log1mexp(np.minimum(np.log1p(-q) - y, 0.0))
    return loss


def _mix(log_q: Array, log_p: Array, rate: float) -> Array:
    """ln((1-q) Q + q P) of two log masses."""
    return np.asarray(np.minimum(np.logaddexp(np.log1p(-rate) + log_q, np.log(rate) + log_p), 0.0))


def _blend(q_mass: Array, p_mass: Array, rate: float) -> Array:
    """(1-q) Q + q P of two masses."""
    return (1 - rate) * q_mass + rate * p_mass


class _Map:
    """The base loss of a mixed loss, on the right side of every atom whatever the rounding of the map and its inverse."""

    def __init__(self, atoms: Array, mixed: Array, rate: float):
        self.atoms, self.mixed, self.rate = atoms, mixed, rate

    def base(self, eps: Array, side: str = "right") -> Array:
        """The base loss whose tails hold just above eps (``right``), or just below it (``left``)."""
        if not self.mixed.size:
            return _base_loss(eps, self.rate)
        at = np.searchsorted(self.mixed, eps, side="right" if side == "right" else "left")
        low, high = np.append(-np.inf, self.atoms), np.append(np.nextafter(self.atoms, -np.inf), np.inf)
        return np.clip(_base_loss(eps, self.rate), low[at], high[at])


class _Poisson(KeyedPair):
    def __init__(self, base: LossPair, rate: float):
        self.base, self.rate, self.floor = base, rate, np.log1p(-rate)
        self.key = (base, rate)
        self.mass_at_plus_infinity, self.mass_at_minus_infinity = (
            rate * base.mass_at_plus_infinity if base.mass_at_plus_infinity else 0.0,
            0.0,
        )
        if base.support == (-math.inf, math.inf):
            self.support = (float(self.floor if isinstance(rate, float) else self.floor.min()), math.inf)
        else:
            ends = _mixed_loss(np.array(base.support), rate)
            self.support = (self.floor if base.mass_at_minus_infinity > 0 else float(ends.min()), float(ends.max()))
        mixed = _mixed_loss(base.atoms, rate).ravel() if base.atoms.size else NO_ATOMS
        self.atoms = np.concatenate([[self.floor], mixed]) if base.mass_at_minus_infinity > 0 else mixed
        self._map = _Map(base.atoms, mixed, rate)

    def tails(self, eps: Array) -> Tails:
        eps = np.asarray(eps, dtype=float)
        base = self.base.tails(self._map.base(eps))
        mixed = (_mix(base.sf_q, base.sf_p, self.rate), _mix(base.cdf_q, base.cdf_p, self.rate), base.sf_q, base.cdf_q)
        # no loss lies below ln(1-q); outcomes that the base pair gives a loss of -inf sit right there
        below = eps < self.floor
        return Tails(
            *(np.where(below, edge, tail) for edge, tail in zip((0.0, -np.inf, 0.0, -np.inf), mixed, strict=True))
        )

    def probabilities(self, eps: Array) -> Tails:
        eps = np.asarray(eps, dtype=float)
        base = self.base.probabilities(self._map.base(eps))
        mixed = (
            _blend(base.sf_q, base.sf_p, self.rate),
            _blend(base.cdf_q, base.cdf_p, self.rate),
            base.sf_q,
            base.cdf_q,
        )
        if self.base.mass_at_minus_infinity == 0:
            return Tails(*mixed)
        below = eps < self.floor
        return Tails(*(np.where(below, edge, tail) for edge, tail in zip((1.0, 0.0, 1.0, 0.0), mixed, strict=True)))

    def log_delta(self, eps: ArrayLike) -> Array:
        # H_t((1-q) Q + q P || Q) = q H_{t'}(P || Q) with t' = (t - 1 + q)/q, and 1 - t where t' <= 0
        y = np.asarray(eps, dtype=float)
        inside = y > self.floor
        amplified = math.log(self.rate) + self.base.log_delta(_base_loss(np.where(inside, y, 0.0), self.rate))
        return np.where(inside, amplified, log1mexp(np.minimum(y, 0.0)))

    def renyi(self, orders: Array) -> Array | None:
        """At whole orders, from the base pair's: E_Q (1-q+qT)^a - 1 = sum over k >= 2 of Binom(k; a, q) (E_Q T^k - 1), all positive."""
        a = np.asarray(orders, dtype=float)
        if a.size == 0 or np.any(a != np.floor(a)) or a.min() < 2 or a.max() > MAX_BINOMIAL:
            return None
        k = np.arange(2.0, a.max() + 1)
        base = self.base.renyi(k)
        if base is None:
            return None
        excess = log_binomial_excess(a[..., None], k, self.rate, (k - 1) * base)
        return np.asarray(np.logaddexp(0.0, excess) / (a - 1))

    def reverse(self) -> LossPair:
        return _PoissonReversed(self)

    def sandwich(self, tol: float) -> tuple[LossPair, LossPair] | None:
        return map_sandwich(self.base.sandwich(tol), lambda end: poisson(end, self.rate))

    def batch_key(self) -> tuple[Hashable, tuple[float, ...]] | None:
        return _sampled_family("poisson", self.base, self.rate)

    def batched(self, pairs: Sequence[_Poisson]) -> LossPair:
        return _Poisson(self.base.batched([pair.base for pair in pairs]), as_column([pair.rate for pair in pairs]))


class _PoissonReversed(Reversed):
    """The pair (Q, (1-q) Q + q P) of a record that was added."""

    forward: _Poisson

    def log_delta(self, eps: ArrayLike) -> Array:
        # H_t(Q || (1-q) Q + q P) = r H_{tq/r}(Q || P) with r = 1 - t(1-q), and 0 where r <= 0
        y = np.asarray(eps, dtype=float)
        room = log1mexp(np.minimum(y + self.forward.floor, 0.0))
        base = -_base_loss(-y, self.forward.rate)
        inside = np.isfinite(base) & ~np.isneginf(room)
        amplified = room + self.forward.base.reverse().log_delta(np.where(inside, base, 0.0))
        return np.where(inside, amplified, np.where(y < 0, 0.0, -np.inf))


class _Fixed(KeyedPair):
    symmetric = True

    def __init__(self, base: LossPair, rate: float):
        self.base, self.rate = base, rate
        self.key = (base, rate)
        self.mass_at_plus_infinity = self.mass_at_minus_infinity = (
            rate * base.mass_at_plus_infinity if base.mass_at_plus_infinity else 0.0
        )
        high = float(np.max(_mixed_loss(np.array(base.support[1]), rate)))
        self.support = (-high, high)
        above = base.atoms[base.atoms > 0]
        mixed = _mixed_loss(above, rate).ravel()
        self.atoms = np.concatenate([-mixed[::-1], [0.0], mixed])
        self._map = _Map(above, mixed, rate)

    def tails(self, eps: Array) -> Tails:
        return self._mirrored(self.base.tails, _mix, eps)

    def probabilities(self, eps: Array) -> Tails:
        return self._mirrored(self.base.probabilities, _blend, eps)

    def _mirrored(
        self, tails: Callable[[Array], Tails], mix: Callable[[Array, Array, float], Array], eps: Array
    ) -> Tails:
        eps = np.asarray(eps, dtype=float)
        up = eps >= 0
        mirror = np.abs(eps)
        base = tails(np.where(up, self._map.base(mirror), self._map.base(mirror, "left")))
        upper_p, lower_p = mix(base.sf_q, base.sf_p, self.rate), mix(base.cdf_q, base.cdf_p, self.rate)
        # below zero the pair is the mirror image: L = -L' with the roles of P and Q exchanged
        return Tails(
            np.where(up, upper_p, base.cdf_q),
            np.where(up, lower_p, base.sf_q),
            np.where(up, base.sf_q, lower_p),
            np.where(up, base.cdf_q, upper_p),
        )

    def sandwich(self, tol: float) -> tuple[LossPair, LossPair] | None:
        return map_sandwich(self.base.sandwich(tol), lambda end: fixed(end, self.rate))

    def batch_key(self) -> tuple[Hashable, tuple[float, ...]] | None:
        return _sampled_family("fixed", self.base, self.rate)

    def batched(self, pairs: Sequence[_Fixed]) -> LossPair:
        return _Fixed(self.base.batched([pair.base for pair in pairs]), as_column([pair.rate for pair in pairs]))

    def log_delta(self, eps: ArrayLike) -> Array:
        y = np.asarray(eps, dtype=float)
        above = math.log(self.rate) + self.base.log_delta(_base_loss(np.abs(y), self.rate))
        return np.where(y < 0, reversed_log_delta(np.minimum(y, 0.0), above), above)


def _sampled_family(kind: str, base: LossPair, rate: float) -> tuple[Hashable, tuple[float, ...]] | None:
    found = base.batch_key()
    return None if found is None else ((kind, found[0]), (rate, *found[1]))


class _SampledAtoms(AtomicPair):
    """A pair sampled from one that may have been cut: its moments come from a base with as many losses as they need."""

    base: AtomicPair
    rate: float
    sample: Callable[[AtomicPair, float], AtomicPair]

    def extended_to(self, lam: float) -> AtomicPair | None:
        if lam <= self.max_lam:
            return self
        whole = self.base.extended_to(lam)
        return None if whole is None else self.sample(whole, self.rate)

    def sampled_from(
        self, base: AtomicPair, rate: float, sample: Callable[[AtomicPair, float], AtomicPair]
    ) -> AtomicPair:
        """This pair, which knows what it was sampled from: its moments reach no further than those of the base."""
        self.base, self.rate, self.sample = base, rate, sample
        self.max_lam, self.log_beyond = base.max_lam, base.log_beyond
        if math.isinf(base.support[1]):
            self.support = (-math.inf if self.symmetric else self.support[0], math.inf)
        return self


def _atomic_poisson(base: AtomicPair, rate: float) -> AtomicPair:
    losses, log_q = _mixed_loss(base.losses, rate), base.log_q
    if base.mass_at_minus_infinity > 0:
        losses = np.concatenate([[math.log1p(-rate)], losses])
        log_q = np.concatenate([[math.log(base.mass_at_minus_infinity)], log_q])
    pair = _SampledAtoms(losses, log_q + losses, mass_at_plus_infinity=rate * base.mass_at_plus_infinity, log_q=log_q)
    return pair.sampled_from(base, rate, _atomic_poisson)


def _atomic_fixed(base: AtomicPair, rate: float) -> AtomicPair:
    up = base.losses > 0
    losses, log_p, log_q = _mixed_loss(base.losses[up], rate), base.log_p[up], base.log_q[up]
    mixed = losses + log_q
    # what is left at loss zero: P(L = 0) + (1-g) [P(L > 0) - Q(L > 0)], a sum of positive terms
    excess = np.concatenate(
        [
            log_p + log1mexp(-base.losses[up]),
            [math.log(base.mass_at_plus_infinity)] if base.mass_at_plus_infinity > 0 else [],
        ]
    )
    rest = np.concatenate([base.log_p[base.losses == 0], math.log1p(-rate) + excess])
    middle = np.logaddexp.reduce(rest, keepdims=True)
    pair = _SampledAtoms(
        np.concatenate([-losses, [0.0], losses]),
        np.concatenate([log_q, middle, mixed]),
        mass_at_plus_infinity=rate * base.mass_at_plus_infinity,
        mass_at_minus_infinity=rate * base.mass_at_plus_infinity,
        symmetric=True,
        log_q=np.concatenate([mixed, middle, log_q]),
    )
    return pair.sampled_from(base, rate, _atomic_fixed)
