"""Dominating pairs of subsampled mechanisms, from the dominating pair of the base mechanism.

Both theorems are from Zhu, Dong and Wang, "Optimal Accounting of Differential Privacy via Characteristic Function"
(AISTATS 2022). The adjacency is part of each: Poisson sampling is proven under add-remove, fixed-size sampling without
replacement under replace-one, and their results are not interchangeable.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Hashable, Sequence
from typing import Literal

import numpy as np
from numpy.typing import ArrayLike

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
from wpriv.numerics.log_space import inverse_log_mixture, log1mexp, log_binomial_excess, log_mixture

MAX_BINOMIAL = 300  # Renyi divergences of higher orders are computed by quadrature


def poisson(base: LossPair, rate: float) -> LossPair:
    """Return the pair ((1-q) Q + q P, Q) of removing a record that is sampled with probability q.

    Its ``reverse()`` is the pair of adding one.

    Args:
        base: dominating pair (P, Q) of the mechanism under add-remove.
        rate: q in (0, 1], the probability that a record takes part in a step.
    Source:
        Zhu, Dong, Wang (2022), Theorem 11 (Poisson subsampling).
    """
    if rate == 1.0:
        return base
    if isinstance(base, AtomicPair):
        return _atomic_poisson(base, rate)
    return _Poisson(base, rate)


def fixed(base: LossPair, rate: float) -> LossPair:
    """Return the pair of fixed-size sampling without replacement under replace-one.

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


def _mix(log_q: Array, log_p: Array, rate: float) -> Array:
    """ln((1-q) Q + q P) of two log probabilities."""
    return np.asarray(np.minimum(np.logaddexp(np.log1p(-rate) + log_q, np.log(rate) + log_p), 0.0))


def _blend(q_mass: Array, p_mass: Array, rate: float) -> Array:
    """(1-q) Q + q P of two probabilities."""
    return (1 - rate) * q_mass + rate * p_mass


class _LossMap:
    """The map from mixed to base losses, on the right side of every atom whatever the rounding of the map."""

    def __init__(self, atoms: Array, mixed: Array, rate: float):
        self.atoms, self.mixed, self.rate = atoms, mixed, rate

    def base(self, eps: Array, side: Literal["left", "right"] = "right") -> Array:
        """Return the base loss whose tails are those just above eps (``right``), or just below it (``left``)."""
        if not self.mixed.size:
            return inverse_log_mixture(eps, self.rate)
        at = np.searchsorted(self.mixed, eps, side=side)
        low, high = np.append(-np.inf, self.atoms), np.append(np.nextafter(self.atoms, -np.inf), np.inf)
        return np.clip(inverse_log_mixture(eps, self.rate), low[at], high[at])


class _Poisson(KeyedPair):
    """The pair ((1-q) Q + q P, Q) of a base pair (P, Q)."""

    def __init__(self, base: LossPair, rate: float):
        self.base, self.rate, self.floor = base, rate, np.log1p(-rate)
        self.key = (base, rate)
        self.mass_at_plus_infinity = rate * base.mass_at_plus_infinity if base.mass_at_plus_infinity else 0.0
        if base.support == (-math.inf, math.inf):
            self.support = (float(self.floor if isinstance(rate, float) else self.floor.min()), math.inf)
        else:
            ends = log_mixture(np.array(base.support), rate)
            self.support = (self.floor if base.mass_at_minus_infinity > 0 else float(ends.min()), float(ends.max()))
        mixed = log_mixture(base.atoms, rate).ravel() if base.atoms.size else NO_ATOMS
        self.atoms = np.concatenate([[self.floor], mixed]) if base.mass_at_minus_infinity > 0 else mixed
        self._map = _LossMap(base.atoms, mixed, rate)

    def tails(self, eps: Array) -> Tails:
        eps = np.asarray(eps, dtype=float)
        base = self.base.tails(self._map.base(eps))
        mixed = (_mix(base.sf_q, base.sf_p, self.rate), _mix(base.cdf_q, base.cdf_p, self.rate), base.sf_q, base.cdf_q)
        # no loss is below ln(1-q), and outcomes with a base loss of -inf have exactly this loss
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
        amplified = math.log(self.rate) + self.base.log_delta(inverse_log_mixture(np.where(inside, y, 0.0), self.rate))
        return np.where(inside, amplified, log1mexp(np.minimum(y, 0.0)))

    def renyi(self, orders: Array) -> Array | None:
        """Evaluate E_Q (1-q+qT)^a - 1 = sum over k >= 2 of Binom(k; a, q) (E_Q T^k - 1) at integer orders a.

        All terms are positive.
        """
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
        return _sampled_batch_key("poisson", self.base, self.rate)

    def batched(self, pairs: Sequence[_Poisson]) -> LossPair:
        return _Poisson(self.base.batched([pair.base for pair in pairs]), as_column([pair.rate for pair in pairs]))


class _PoissonReversed(Reversed):
    """The pair (Q, (1-q) Q + q P) of adding a record."""

    forward: _Poisson

    def log_delta(self, eps: ArrayLike) -> Array:
        # H_t(Q || (1-q) Q + q P) = r H_{tq/r}(Q || P) with r = 1 - t(1-q), and 0 where r <= 0
        y = np.asarray(eps, dtype=float)
        log_ratio = log1mexp(np.minimum(y + self.forward.floor, 0.0))
        base = -inverse_log_mixture(-y, self.forward.rate)
        inside = np.isfinite(base) & ~np.isneginf(log_ratio)
        amplified = log_ratio + self.forward.base.reverse().log_delta(np.where(inside, base, 0.0))
        return np.where(inside, amplified, np.where(y < 0, 0.0, -np.inf))


class _Fixed(KeyedPair):
    """The pair of fixed-size sampling: the mixture ((1-g) Q + g P, Q) at losses above 0, and its mirror image below."""

    symmetric = True

    def __init__(self, base: LossPair, rate: float):
        self.base, self.rate = base, rate
        self.key = (base, rate)
        self.mass_at_plus_infinity = rate * base.mass_at_plus_infinity if base.mass_at_plus_infinity else 0.0
        self.mass_at_minus_infinity = self.mass_at_plus_infinity
        high = float(np.max(log_mixture(np.array(base.support[1]), rate)))
        self.support = (-high, high)
        above = base.atoms[base.atoms > 0]
        mixed = log_mixture(above, rate).ravel()
        self.atoms = np.concatenate([-mixed[::-1], [0.0], mixed])
        self._map = _LossMap(above, mixed, rate)

    def tails(self, eps: Array) -> Tails:
        return self._with_mirror_image(self.base.tails, _mix, eps)

    def probabilities(self, eps: Array) -> Tails:
        return self._with_mirror_image(self.base.probabilities, _blend, eps)

    def _with_mirror_image(
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
        return _sampled_batch_key("fixed", self.base, self.rate)

    def batched(self, pairs: Sequence[_Fixed]) -> LossPair:
        return _Fixed(self.base.batched([pair.base for pair in pairs]), as_column([pair.rate for pair in pairs]))

    def log_delta(self, eps: ArrayLike) -> Array:
        y = np.asarray(eps, dtype=float)
        above = math.log(self.rate) + self.base.log_delta(inverse_log_mixture(np.abs(y), self.rate))
        return np.where(y < 0, reversed_log_delta(np.minimum(y, 0.0), above), above)


def _sampled_batch_key(kind: str, base: LossPair, rate: float) -> tuple[Hashable, tuple[float, ...]] | None:
    batch_key = base.batch_key()
    return None if batch_key is None else ((kind, batch_key[0]), (rate, *batch_key[1]))


class _SampledAtoms(AtomicPair):
    """A pair sampled from an atomic pair that may omit losses; moments use a base with as many losses as they need."""

    base: AtomicPair
    rate: float
    sample: Callable[[AtomicPair, float], AtomicPair]

    def extended_to(self, lam: float) -> AtomicPair | None:
        if lam <= self.max_lam:
            return self
        extended = self.base.extended_to(lam)
        return None if extended is None else self.sample(extended, self.rate)

    def sampled_from(
        self, base: AtomicPair, rate: float, sample: Callable[[AtomicPair, float], AtomicPair]
    ) -> AtomicPair:
        """Record the base pair, whose losses limit the moments, and return this pair."""
        self.base, self.rate, self.sample = base, rate, sample
        self.max_lam, self.log_beyond = base.max_lam, base.log_beyond
        if math.isinf(base.support[1]):
            self.support = (-math.inf if self.symmetric else self.support[0], math.inf)
        return self


def _atomic_poisson(base: AtomicPair, rate: float) -> AtomicPair:
    losses, log_q = log_mixture(base.losses, rate), base.log_q
    if base.mass_at_minus_infinity > 0:
        losses = np.concatenate([[math.log1p(-rate)], losses])
        log_q = np.concatenate([[math.log(base.mass_at_minus_infinity)], log_q])
    pair = _SampledAtoms(losses, log_q + losses, mass_at_plus_infinity=rate * base.mass_at_plus_infinity, log_q=log_q)
    return pair.sampled_from(base, rate, _atomic_poisson)


def _atomic_fixed(base: AtomicPair, rate: float) -> AtomicPair:
    up = base.losses > 0
    losses, log_p, log_q = log_mixture(base.losses[up], rate), base.log_p[up], base.log_q[up]
    mixed = losses + log_q
    # the mass at loss 0 is P(L = 0) + (1-g) [P(L > 0) - Q(L > 0)], a sum of positive terms
    excess = log_p + log1mexp(-base.losses[up])
    if base.mass_at_plus_infinity > 0:
        excess = np.append(excess, math.log(base.mass_at_plus_infinity))
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
