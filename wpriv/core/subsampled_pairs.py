"""Dominating pairs of Poisson and fixed-size sampling, of single records."""

from __future__ import annotations

import math
from collections.abc import Callable, Hashable, Sequence
from typing import Literal

import numpy as np
from numpy.typing import ArrayLike
from scipy.special import betainc, log_ndtr, ndtr

from wpriv.core.atomic_pair import AtomicPair
from wpriv.core.loss_pair import (
    LOSS_ROUNDING,
    NO_ATOMS,
    BetweenPair,
    KeyedPair,
    LossPair,
    Reversed,
    Tails,
    as_column,
    map_sandwich,
    symmetric_log_delta,
)
from wpriv.numerics.arrays import Array, CellParts, atom_parts
from wpriv.numerics.bracket import share_of
from wpriv.numerics.log_space import inverse_log_mixture, log1mexp, log_binomial_excess, log_mixture
from wpriv.numerics.numbers import raised

Combine = Callable[[Array, Array, float], Array]


def mix(log_q: Array, log_p: Array, rate: float) -> Array:
    """ln((1-q) Q + q P) of two log probabilities."""
    return np.asarray(np.minimum(np.logaddexp(np.log1p(-rate) + log_q, np.log(rate) + log_p), 0.0))


def blend(q_mass: Array, p_mass: Array, rate: float) -> Array:
    """(1-q) Q + q P of two probabilities."""
    return (1 - rate) * q_mass + rate * p_mass


class LossMap:
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


class _Sampled(KeyedPair):
    """A pair sampled from a base pair at a rate; subclasses sample another base in the same way by ``sampled``."""

    def __init__(self, base: LossPair, rate: float):
        self.base, self.rate, self.key = base, rate, (base, rate)
        # each point of the profile is one of the base pair's: it is attained where that one is (under replace-one all
        # other records are equal to the one that is replaced)
        self.exact_alone = base.exact_alone
        self.mass_at_plus_infinity = share_of(base.mass_at_plus_infinity, rate)

    def sampled(self, base: LossPair) -> LossPair:
        raise NotImplementedError

    def sandwich(self, tol: float) -> tuple[LossPair, LossPair] | None:
        return map_sandwich(self.base.sandwich(tol), self.sampled)

    def for_delta(self, delta: float) -> LossPair:
        return self.sampled(self.base.for_delta(delta / self.rate))

    def batch_key(self) -> tuple[Hashable, tuple[float, ...]] | None:
        batch_key = self.base.batch_key()
        return None if batch_key is None else ((type(self), batch_key[0]), (self.rate, *batch_key[1]))

    def batched(self, pairs: Sequence[_Sampled]) -> LossPair:
        return type(self)(self.base.batched([pair.base for pair in pairs]), as_column([pair.rate for pair in pairs]))

    def log_delta_error(self, eps: float) -> float:
        # the base loss has the rounding of the map beside its own
        base = float(inverse_log_mixture(np.array(eps), self.rate))
        return math.log(self.rate) + LossPair.log_delta_error(self.base, base)


class SampledAtoms(AtomicPair):
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
        sampled = base.losses > 0 if self.symmetric else np.isfinite(base.losses)
        # the error of a base loss, times the derivative of the mixed loss by it
        slope = base.losses[sampled] + math.log(rate) - log_mixture(base.losses[sampled], rate)
        error = base.errors[sampled] * np.exp(np.minimum(slope, 0.0))
        mirrored = error[::-1] if self.symmetric else error[:0]
        # between or below them is a loss of which no base loss decides
        self.errors[: mirrored.size] += mirrored
        self.errors[self.errors.size - error.size :] += error
        high = math.inf if math.isinf(base.support[1]) else raised(self.support[1])
        self.support = (-high if self.symmetric else self.support[0], high)
        return self


# Poisson sampling: the dominating pair under add-remove, from that of the base mechanism.

MAX_BINOMIAL = 300  # Renyi divergences of higher orders are computed by quadrature


def poisson(base: LossPair, rate: float) -> LossPair:
    """Return the pair ((1-q) Q + q P, Q) of removing a record that is sampled with probability q.

    Its ``reverse()`` is the pair of adding one.

    Args:
        base: dominating pair (P, Q) of the mechanism under add-remove.
        rate: q in (0, 1], the probability that a record takes part in a step.
    Source: Zhu, Dong, Wang (2022), Theorem 11 (Poisson subsampling).
    """
    if rate == 1.0:
        return base
    if isinstance(base, AtomicPair):
        return _atomic_poisson(base, rate)
    return _Poisson(base, rate)


def poisson_parts(pair: LossPair) -> tuple[LossPair, float] | None:
    """Return the base pair and the rate of a pair that ``poisson`` has made of a pair with a density, else None."""
    return (pair.base, pair.rate) if isinstance(pair, _Poisson) else None


class _Poisson(_Sampled):
    """The pair ((1-q) Q + q P, Q) of a base pair (P, Q)."""

    def __init__(self, base: LossPair, rate: float):
        super().__init__(base, rate)
        self.floor = np.log1p(-rate)
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
        return self._mixed(self.base.tails, mix, (0.0, -np.inf, 0.0, -np.inf), eps)

    def probabilities(self, eps: Array) -> Tails:
        edges = (1.0, 0.0, 1.0, 0.0) if self.base.mass_at_minus_infinity > 0 else None
        return self._mixed(self.base.probabilities, blend, edges, eps)

    def _mixed(
        self, tails: Callable[[Array], Tails], combine: Combine, edges: tuple[float, ...] | None, eps: Array
    ) -> Tails:
        eps = np.asarray(eps, dtype=float)
        base = tails(self._map.base(eps))
        mixed = combine(base.sf_q, base.sf_p, self.rate), combine(base.cdf_q, base.cdf_p, self.rate)
        if edges is None:
            return Tails(*mixed, base.sf_q, base.cdf_q)
        # no loss is below ln(1-q), and outcomes with a base loss of -inf have exactly this loss
        each = zip(edges, (*mixed, base.sf_q, base.cdf_q), strict=True)
        return Tails(*(np.where(eps < self.floor, edge, tail) for edge, tail in each))

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

    def renyi(self, orders: Array) -> Array | None:
        """E_Q (1-q+qT)^a - 1 = sum over k >= 2 of Binom(k; a, q) (E_Q T^k - 1), all positive, at integer orders a."""
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

    def sampled(self, base: LossPair) -> LossPair:
        return poisson(base, self.rate)


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
    pair = SampledAtoms(losses, log_p, mass_at_plus_infinity=share_of(base.mass_at_plus_infinity, rate), log_q=log_q)
    return pair.sampled_from(base, rate, _atomic_poisson)


# Fixed-size sampling without replacement: the dominating pair under replace-one, from that of the base mechanism.


def fixed(base: LossPair, rate: float) -> LossPair:
    """Return the pair of fixed-size sampling without replacement under replace-one.

    Its profile is H_t((1-g) Q + g P || Q) for t >= 1 and H_t(P || (1-g) P + g Q) for t < 1.

    Args:
        base: dominating pair (P, Q) of the mechanism under replace-one; ``base.symmetric`` must hold.
        rate: g = batch / records in (0, 1].
    Source: Zhu, Dong, Wang (2022), subset sampling.
    """
    if rate == 1.0:
        return base
    if isinstance(base, AtomicPair):
        return _atomic_fixed(base, rate)
    return _Fixed(base, rate)


class _Fixed(_Sampled):
    """The pair of fixed-size sampling: the mixture ((1-g) Q + g P, Q) at losses above 0, and its mirror image below."""

    symmetric = True

    def __init__(self, base: LossPair, rate: float):
        super().__init__(base, rate)
        self.mass_at_minus_infinity = self.mass_at_plus_infinity
        high = raised(float(np.max(log_mixture(np.array(base.support[1]), rate))))
        self.support = (-high, high)
        above = base.atoms[base.atoms > 0]
        mixed = log_mixture(above, rate).ravel()
        self.atoms = np.concatenate([-mixed[::-1], [0.0], mixed])
        self._map = LossMap(above, mixed, rate)

    def tails(self, eps: Array) -> Tails:
        return self._with_mirror_image(self.base.tails, mix, eps)

    def probabilities(self, eps: Array) -> Tails:
        return self._with_mirror_image(self.base.probabilities, blend, eps)

    def _with_mirror_image(self, tails: Callable[[Array], Tails], combine: Combine, eps: Array) -> Tails:
        eps = np.asarray(eps, dtype=float)
        up = eps >= 0
        mirror = np.abs(eps)
        base = tails(np.where(up, self._map.base(mirror), self._map.base(mirror, "left")))
        upper_p, lower_p = combine(base.sf_q, base.sf_p, self.rate), combine(base.cdf_q, base.cdf_p, self.rate)
        # below zero the pair is the mirror image: L = -L' with the roles of P and Q exchanged
        each = ((upper_p, base.cdf_q), (lower_p, base.sf_q), (base.sf_q, lower_p), (base.cdf_q, upper_p))
        return Tails(*(np.where(up, above, below) for above, below in each))

    def cell_parts(self, low: Array, high: Array) -> CellParts | None:
        # as under Poisson sampling above 0, and the mirror image of that below
        up, down = np.maximum((low, high), 0.0), np.maximum((-high, -low), 0.0)
        above, below = self._above_zero(*up), self._above_zero(*down)
        if above is None or below is None:
            return None
        below = below.mirrored(*down)
        parts = CellParts(*(np.where(low >= 0, one, other) for one, other in zip(above, below, strict=True)))
        across = (low < 0) & (high > 0)
        if not across.any():
            return parts
        a, b = low[across], high[across]
        zero = np.zeros_like(a)
        one, other = (CellParts(*(part[..., across] for part in half)) for half in (above, below))
        joined = one.within(one.mass(b), (zero, b), (a, b)).plus(other.within(other.mass(-a), (a, zero), (a, b)))
        at_zero = (1 - self.rate) * np.exp(self.base.log_delta(np.zeros(1)))
        for part, values in zip(parts, joined.plus(atom_parts(0.0, at_zero, a, b)), strict=True):
            part[..., across] = values
        return parts

    def _above_zero(self, low: Array, high: Array) -> CellParts | None:
        base = self.base.cell_parts(self._map.base(low), self._map.base(high, "left"))
        return None if base is None else base.times(self.rate)

    def sampled(self, base: LossPair) -> LossPair:
        return fixed(base, self.rate)

    def log_delta(self, eps: ArrayLike) -> Array:
        y = np.asarray(eps, dtype=float)
        above = math.log(self.rate) + self.base.log_delta(inverse_log_mixture(np.abs(y), self.rate))
        return symmetric_log_delta(y, above)


def _atomic_fixed(base: AtomicPair, rate: float) -> AtomicPair:
    up = base.losses > 0
    losses, log_p, log_q = log_mixture(base.losses[up], rate), base.log_p[up], base.log_q[up]
    mixed = mix(log_q, log_p, rate)
    # the mass at loss 0 is P(L = 0) + (1-g) [P(L > 0) - Q(L > 0)], a sum of positive terms
    excess = log_p + log1mexp(-base.losses[up])
    if base.mass_at_plus_infinity > 0:
        excess = np.append(excess, math.log(base.mass_at_plus_infinity))
    rest = np.concatenate([base.log_p[base.losses == 0], math.log1p(-rate) + excess])
    middle = np.logaddexp.reduce(rest, keepdims=True)
    pair = SampledAtoms(
        np.concatenate([-losses, [0.0], losses]),
        np.concatenate([log_q, middle, mixed]),
        mass_at_plus_infinity=share_of(base.mass_at_plus_infinity, rate),
        mass_at_minus_infinity=share_of(base.mass_at_plus_infinity, rate),
        symmetric=True,
        log_q=np.concatenate([mixed, middle, log_q]),
    )
    return pair.sampled_from(base, rate, _atomic_fixed)


# Poisson sampling with a largest batch: a batch of more records is replaced by a random part of it.

# relative error allowed to the binomial tail probabilities, above the 1e-8 that was seen for up to 2^40 records
BINOMIAL_MARGIN = 1e-6


def truncated_poisson(one: LossPair, two: LossPair, rate: float, max_batch: int, records: int) -> LossPair:
    """Return the pair of removing a record, where a batch of more than B records keeps B of them, drawn uniformly.

    It is known between two pairs: see ``BetweenPair``.

    Args:
        one: dominating pair of the mechanism where one record is removed.
        two: where two are, or one is replaced by another. rate: q in (0, 1], the probability that a record is drawn.
        max_batch: B, at least 1. records: N, the largest number of records that a data set may have.
    Source: docs/theory/groups.md, Theorem 4; compare Chua et al. (2024).
    """
    if max_batch >= records:
        return poisson(one, rate)
    # P(at least B of the N - 1 other records are drawn), and P(more than B of all N are)
    full = float(betainc(max_batch, records - max_batch, rate))
    beyond = float(betainc(max_batch + 1, records - max_batch, rate))
    lost = rate * full * (1 + BINOMIAL_MARGIN) - max_batch / records * beyond * (1 - BINOMIAL_MARGIN)
    # a drawn record is kept with a probability of at least B/N
    least = poisson(one, max(rate - lost, rate * max_batch / records * (1 - 1e-12)))
    chance = min(full * (1 + BINOMIAL_MARGIN) + 1e-300, 1.0)
    other = poisson(two, rate)
    return BetweenPair(least, other if chance >= 1 else AlternativesPair(poisson(one, rate), other, chance))


class AlternativesPair(KeyedPair):
    """A public coin decides between two pairs: the second has the given probability."""

    def __init__(self, usual: LossPair, other: LossPair, chance: float):
        self.key = (usual, other, chance)
        self.usual, self.other, self.chance = usual, other, chance
        self.mass_at_plus_infinity, self.mass_at_minus_infinity = (
            share_of(first, 1 - chance) + share_of(second, chance)
            for first, second in (
                (usual.mass_at_plus_infinity, other.mass_at_plus_infinity),
                (usual.mass_at_minus_infinity, other.mass_at_minus_infinity),
            )
        )
        ends = usual.support, other.support
        self.support = min(end[0] for end in ends), max(end[1] for end in ends)
        self.atoms = np.unique(np.concatenate([usual.atoms, other.atoms]))

    def tails(self, eps: Array) -> Tails:
        each = zip(self.usual.tails(eps), self.other.tails(eps), strict=True)
        return Tails(*(mix(first, second, self.chance) for first, second in each))

    def probabilities(self, eps: Array) -> Tails:
        each = zip(self.usual.probabilities(eps), self.other.probabilities(eps), strict=True)
        return Tails(*(blend(first, second, self.chance) for first, second in each))

    def cell_parts(self, low: Array, high: Array) -> CellParts | None:
        first, second = self.usual.cell_parts(low, high), self.other.cell_parts(low, high)
        if first is None or second is None:
            return None
        return first.times(1 - self.chance).plus(second.times(self.chance))

    def log_delta(self, eps: ArrayLike) -> Array:
        return mix(self.usual.log_delta(eps), self.other.log_delta(eps), self.chance)

    def reverse(self) -> LossPair:
        return AlternativesPair(self.usual.reverse(), self.other.reverse(), self.chance)


# Poisson sampling under replace-one, for Gaussian noise on a sum of clipped vectors.


class ReplacedGaussPair(KeyedPair):
    """The pair ((1-q) N(0, 1) + q N(mu, 1), (1-q) N(0, 1) + q N(-mu, 1)) of replacing a record.

    The two are mirror images; their loss is an increasing, odd function of the outcome x.

    Args:
        half: the Gauss pair N(mu, 1), N(0, 1) of adding or removing a record.
        mu: distance in standard deviations that adding or removing a record moves the query. rate: q in (0, 1).
    Source: docs/theory/groups.md, Theorem 5.
    """

    symmetric = True

    def __init__(self, half: LossPair, mu: float, rate: float):
        self.key = (half, mu, rate)
        self.half, self.mu, self.rate = half, mu, rate
        # ln((1-q)/a), where a e^(mu x) is q times the ratio of N(mu, 1) to N(0, 1)
        self.log_ratio = math.log1p(-rate) - math.log(rate) + mu * mu / 2

    def _outcome(self, eps: ArrayLike) -> Array:
        """The outcome x of loss eps: mu x - eps/2 = asinh(((1-q)/a) sinh(eps/2)), whatever the size of eps."""
        y = np.asarray(eps, dtype=float)
        half = np.abs(y) / 2
        with np.errstate(divide="ignore", over="ignore"):
            log_sinh = np.where(half < 20, np.log(np.sinh(np.minimum(half, 20.0))), half - math.log(2))
            size = self.log_ratio + log_sinh
            grown = np.where(size < 300, np.arcsinh(np.exp(np.minimum(size, 300.0))), size + math.log(2))
        return np.asarray(np.sign(y) * (half + grown) / self.mu)

    def tails(self, eps: Array) -> Tails:
        x = self._outcome(eps)
        stays, moves = math.log1p(-self.rate), math.log(self.rate)

        def mixed(at: Array, moved: Array) -> Array:
            return np.asarray(np.minimum(np.logaddexp(stays + log_ndtr(at), moves + log_ndtr(moved)), 0.0))

        return Tails(mixed(-x, self.mu - x), mixed(x, x - self.mu), mixed(-x, -x - self.mu), mixed(x, x + self.mu))

    def probabilities(self, eps: Array) -> Tails:
        x = self._outcome(eps)
        stays = (1 - self.rate) * ndtr(-x), (1 - self.rate) * ndtr(x)
        ends = (self.mu - x, x - self.mu, -x - self.mu, x + self.mu)
        return Tails(*(stays[at % 2] + self.rate * ndtr(end) for at, end in enumerate(ends)))

    def cell_parts(self, low: Array, high: Array) -> CellParts | None:
        # with the ratio r of N(mu, 1) to N(0, 1): q times the integral of r(x) - r(x_a) + e^a (r(-x_a) - r(-x)) over
        # N(0, 1), the second of the half pair at the outcome -x
        first, last = self._outcome(low), self._outcome(high)
        near = self.half.cell_parts(self.mu * (first - self.mu / 2), self.mu * (last - self.mu / 2))
        far = self.half.cell_parts(self.mu * (-last - self.mu / 2), self.mu * (-first - self.mu / 2))
        if near is None or far is None:
            return None
        with np.errstate(over="ignore", invalid="ignore"):
            above, below = near.above + np.exp(low) * far.below, near.below + np.exp(high) * far.above
        return CellParts(self.rate * above, self.rate * below)

    def log_delta(self, eps: ArrayLike) -> Array:
        # q [H of N(mu), N(0) at its ratio in x, plus e^eps times H of N(0), N(-mu) at its own, divided by that ratio]
        y = np.abs(np.asarray(eps, dtype=float))
        x = self._outcome(y)
        near, far = self.mu * (x - self.mu / 2), self.mu * (x + self.mu / 2)
        with np.errstate(invalid="ignore"):
            # no loss is infinite, so that the second term is 0 there
            second = np.where(np.isposinf(far), -np.inf, y - far + self.half.log_delta(far))
        log_sum = np.logaddexp(self.half.log_delta(near), second)
        above = np.minimum(math.log(self.rate) + log_sum, 0.0)
        return symmetric_log_delta(eps, above)
