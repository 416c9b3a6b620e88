"""Fixed-size sampling without replacement: the dominating pair under replace-one, from that of the base mechanism."""

from __future__ import annotations

import math
from collections.abc import Callable, Hashable, Sequence

import numpy as np
from numpy.typing import ArrayLike

from wpriv.core.atomic_pair import AtomicPair
from wpriv.core.loss_pair import (
    KeyedPair,
    LossPair,
    Tails,
    as_column,
    map_sandwich,
    reversed_log_delta,
)
from wpriv.core.sampling.mixture import LossMap, SampledAtoms, blend, mix, sampled_batch_key
from wpriv.numerics.arrays import Array
from wpriv.numerics.cell_parts import CellParts, atom_parts
from wpriv.numerics.log_space import inverse_log_mixture, log1mexp, log_mixture
from wpriv.numerics.safe_rounding import raised


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


class _Fixed(KeyedPair):
    """The pair of fixed-size sampling: the mixture ((1-g) Q + g P, Q) at losses above 0, and its mirror image below."""

    symmetric = True

    def __init__(self, base: LossPair, rate: float):
        self.base, self.rate = base, rate
        self.key = (base, rate)
        # each point of the profile is one of the base pair's: it is attained where that one is, all other records
        # being equal to the one that is replaced
        self.exact_alone = base.exact_alone
        self.mass_at_plus_infinity = rate * base.mass_at_plus_infinity if base.mass_at_plus_infinity else 0.0
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

    def _with_mirror_image(
        self, tails: Callable[[Array], Tails], combine: Callable[[Array, Array, float], Array], eps: Array
    ) -> Tails:
        eps = np.asarray(eps, dtype=float)
        up = eps >= 0
        mirror = np.abs(eps)
        base = tails(np.where(up, self._map.base(mirror), self._map.base(mirror, "left")))
        upper_p, lower_p = combine(base.sf_q, base.sf_p, self.rate), combine(base.cdf_q, base.cdf_p, self.rate)
        # below zero the pair is the mirror image: L = -L' with the roles of P and Q exchanged
        return Tails(
            np.where(up, upper_p, base.cdf_q),
            np.where(up, lower_p, base.sf_q),
            np.where(up, base.sf_q, lower_p),
            np.where(up, base.cdf_q, upper_p),
        )

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

    def sandwich(self, tol: float) -> tuple[LossPair, LossPair] | None:
        return map_sandwich(self.base.sandwich(tol), lambda end: fixed(end, self.rate))

    def for_delta(self, delta: float) -> LossPair:
        return fixed(self.base.for_delta(delta / self.rate), self.rate)

    def batch_key(self) -> tuple[Hashable, tuple[float, ...]] | None:
        return sampled_batch_key("fixed", self.base, self.rate)

    def batched(self, pairs: Sequence[_Fixed]) -> LossPair:
        return _Fixed(self.base.batched([pair.base for pair in pairs]), as_column([pair.rate for pair in pairs]))

    def log_delta(self, eps: ArrayLike) -> Array:
        y = np.asarray(eps, dtype=float)
        above = math.log(self.rate) + self.base.log_delta(inverse_log_mixture(np.abs(y), self.rate))
        return np.where(y < 0, reversed_log_delta(np.minimum(y, 0.0), above), above)

    def log_delta_error(self, eps: float) -> float:
        # the base loss has the rounding of the map beside its own
        base = float(inverse_log_mixture(np.array(eps), self.rate))
        return math.log(self.rate) + LossPair.log_delta_error(self.base, base)


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
        mass_at_plus_infinity=rate * base.mass_at_plus_infinity,
        mass_at_minus_infinity=rate * base.mass_at_plus_infinity,
        symmetric=True,
        log_q=np.concatenate([mixed, middle, log_q]),
    )
    return pair.sampled_from(base, rate, _atomic_fixed)
