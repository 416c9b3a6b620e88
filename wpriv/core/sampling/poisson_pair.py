"""Poisson sampling: the dominating pair under add-remove, from that of the base mechanism."""

from __future__ import annotations

import math
from collections.abc import Hashable, Sequence

import numpy as np
from numpy.typing import ArrayLike

from wpriv.core.atomic_pair import AtomicPair
from wpriv.core.loss_pair import (
    LOSS_ROUNDING,
    NO_ATOMS,
    KeyedPair,
    LossPair,
    Reversed,
    Tails,
    as_column,
    map_sandwich,
)
from wpriv.core.sampling.mixture import LossMap, SampledAtoms, blend, mix, sampled_batch_key
from wpriv.numerics.arrays import Array
from wpriv.numerics.cell_parts import CellParts, atom_parts
from wpriv.numerics.log_space import inverse_log_mixture, log1mexp, log_binomial_excess, log_mixture
from wpriv.numerics.safe_rounding import raised

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


def poisson_parts(pair: LossPair) -> tuple[LossPair, float] | None:
    """Return the base pair and the rate of a pair that ``poisson`` has made of a pair with a density, else None."""
    return (pair.base, pair.rate) if isinstance(pair, _Poisson) else None


class _Poisson(KeyedPair):
    """The pair ((1-q) Q + q P, Q) of a base pair (P, Q)."""

    def __init__(self, base: LossPair, rate: float):
        self.base, self.rate, self.floor = base, rate, np.log1p(-rate)
        self.key = (base, rate)
        # each point of the profile is one of the base pair's: it is attained where that one is
        self.exact_alone = base.exact_alone
        self.mass_at_plus_infinity = rate * base.mass_at_plus_infinity if base.mass_at_plus_infinity else 0.0
        if base.support == (-math.inf, math.inf):
            self.support = (float(self.floor if isinstance(rate, float) else self.floor.min()), math.inf)
        else:
            ends = log_mixture(np.array(base.support), rate)
            self.support = (
                self.floor if base.mass_at_minus_infinity > 0 else float(ends.min()),
                raised(float(ends.max())),
            )
        mixed = log_mixture(base.atoms, rate).ravel() if base.atoms.size else NO_ATOMS
        self.atoms = np.concatenate([[self.floor], mixed]) if base.mass_at_minus_infinity > 0 else mixed
        self._map = LossMap(base.atoms, mixed, rate)

    def tails(self, eps: Array) -> Tails:
        eps = np.asarray(eps, dtype=float)
        base = self.base.tails(self._map.base(eps))
        mixed = (mix(base.sf_q, base.sf_p, self.rate), mix(base.cdf_q, base.cdf_p, self.rate), base.sf_q, base.cdf_q)
        # no loss is below ln(1-q), and outcomes with a base loss of -inf have exactly this loss
        below = eps < self.floor
        return Tails(
            *(np.where(below, edge, tail) for edge, tail in zip((0.0, -np.inf, 0.0, -np.inf), mixed, strict=True))
        )

    def probabilities(self, eps: Array) -> Tails:
        eps = np.asarray(eps, dtype=float)
        base = self.base.probabilities(self._map.base(eps))
        mixed = (
            blend(base.sf_q, base.sf_p, self.rate),
            blend(base.cdf_q, base.cdf_p, self.rate),
            base.sf_q,
            base.cdf_q,
        )
        if self.base.mass_at_minus_infinity == 0:
            return Tails(*mixed)
        below = eps < self.floor
        return Tails(*(np.where(below, edge, tail) for edge, tail in zip((1.0, 0.0, 1.0, 0.0), mixed, strict=True)))

    def cell_parts(self, low: Array, high: Array) -> CellParts | None:
        # (1-q) Q + q P - e^a Q = q (P - e^x Q) with the base loss x of a; -inf at the floor ln(1-q), below which there
        # is (e^floor - e^a) Q beside it
        start, last = np.maximum(low, self.floor), self._map.base(np.maximum(high, self.floor), "left")
        base = self.base.cell_parts(self._map.base(start), last)
        if base is None:
            return None
        with np.errstate(over="ignore", invalid="ignore"):
            q_mass = np.where((low < start) & (last > -np.inf), (base.below + base.above) * np.exp(-last), 0.0)
        rest = -np.exp(self.floor) * np.expm1(np.minimum(low - start, 0.0)) * q_mass
        parts = CellParts(self.rate * base.above + rest, self.rate * base.below)
        if self.base.mass_at_minus_infinity > 0:
            mass = (1 - self.rate) * self.base.mass_at_minus_infinity
            parts = parts.plus(atom_parts(self.floor, mass, low, high))
        return parts

    def log_delta(self, eps: ArrayLike) -> Array:
        # H_t((1-q) Q + q P || Q) = q H_{t'}(P || Q) with t' = (t - 1 + q)/q, and 1 - t where t' <= 0
        y = np.asarray(eps, dtype=float)
        inside = y > self.floor
        amplified = math.log(self.rate) + self.base.log_delta(inverse_log_mixture(np.where(inside, y, 0.0), self.rate))
        return np.where(inside, amplified, log1mexp(np.minimum(y, 0.0)))

    def log_delta_error(self, eps: float) -> float:
        # the base loss has the rounding of the map beside its own
        base = float(inverse_log_mixture(np.array(eps), self.rate))
        return math.log(self.rate) + LossPair.log_delta_error(self.base, base)

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

    def for_delta(self, delta: float) -> LossPair:
        return poisson(self.base.for_delta(delta / self.rate), self.rate)

    def batch_key(self) -> tuple[Hashable, tuple[float, ...]] | None:
        return sampled_batch_key("poisson", self.base, self.rate)

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

    def log_delta_error(self, eps: float) -> float:
        # near the largest loss -ln(1-q) a loss has the rounding of e^loss
        log_q = float(self.tails(np.array([eps])).sf_q[0])
        return math.log(LOSS_ROUNDING) + 2 * eps + log1mexp(-eps).item() + log_q if eps > 0 else -math.inf


def _atomic_poisson(base: AtomicPair, rate: float) -> AtomicPair:
    losses, log_q = log_mixture(base.losses, rate), base.log_q
    # not log_q + losses, of which large ones have no digits left
    log_p = mix(log_q, base.log_p, rate)
    if base.mass_at_minus_infinity > 0:
        rest = math.log(base.mass_at_minus_infinity)
        losses, log_q = np.append(losses, math.log1p(-rate)), np.append(log_q, rest)
        log_p = np.append(log_p, rest + math.log1p(-rate))
    pair = SampledAtoms(losses, log_p, mass_at_plus_infinity=rate * base.mass_at_plus_infinity, log_q=log_q)
    return pair.sampled_from(base, rate, _atomic_poisson)
