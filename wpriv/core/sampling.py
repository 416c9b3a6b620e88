"""What subsampling does to a loss pair: maps of the loss that hold for every base pair.

Both theorems are from Zhu, Dong and Wang, "Optimal Accounting of Differential Privacy via Characteristic Function"
(AISTATS 2022). The neighbouring relation is part of each: Poisson sampling is proven under add-remove, fixed-size sampling
without replacement under replace-one, and their figures are not interchangeable.
"""

from __future__ import annotations

import math

import numpy as np

from wpriv.core.pair import Array, AtomicPair, LossPair, Tails


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
    return _Fixed(base, rate)


def _mixed_loss(loss: Array, rate: float) -> Array:
    """ln(1 - q + q e^loss), the loss of the mixture, for loss of any size."""
    with np.errstate(over="ignore"):
        small = np.log1p(rate * np.expm1(np.minimum(loss, 30.0)))
    return np.where(loss > 30.0, loss + math.log(rate) + np.log1p((1 - rate) / rate * np.exp(-np.maximum(loss, 30.0))), small)


def _base_loss(eps: Array, rate: float) -> Array:
    """The inverse of ``_mixed_loss``; -inf where eps lies at or below its least value ln(1-q)."""
    with np.errstate(over="ignore", divide="ignore", invalid="ignore"):
        small = np.log1p(np.maximum(np.expm1(np.minimum(eps, 30.0)) / rate, -1.0))
        large = eps - math.log(rate) + np.log1p(-(1 - rate) * np.exp(-np.maximum(eps, 30.0)))
    return np.where(eps > 30.0, large, small)


def _mix(log_q: Array, log_p: Array, rate: float) -> Array:
    """ln((1-q) Q + q P) of two log masses."""
    return np.logaddexp(math.log1p(-rate) + log_q, math.log(rate) + log_p)


class _Poisson(LossPair):
    def __init__(self, base: LossPair, rate: float):
        self.base, self.rate = base, rate
        self.infinity, self.lost = rate * base.infinity, 0.0
        low, high = _mixed_loss(np.array(base.support), rate)
        self.support = (math.log1p(-rate) if base.lost > 0 else float(low), float(high))
        floor = [math.log1p(-rate)] if base.lost > 0 else []
        self.atoms = np.concatenate([floor, _mixed_loss(base.atoms, rate)])

    def tails(self, eps: Array) -> Tails:
        eps = np.asarray(eps, dtype=float)
        base = self.base.tails(_base_loss(eps, self.rate))
        mixed = Tails(_mix(base.sf_q, base.sf_p, self.rate), _mix(base.cdf_q, base.cdf_p, self.rate), base.sf_q, base.cdf_q)
        if self.base.lost == 0:
            return mixed
        # the outcomes with base loss -inf sit at the atom ln(1-q), which is above any eps below it
        below = eps < math.log1p(-self.rate)
        return Tails(*(np.where(below, edge, tail) for edge, tail in zip((0.0, -np.inf, 0.0, -np.inf), mixed, strict=True)))


class _Fixed(LossPair):
    symmetric = True

    def __init__(self, base: LossPair, rate: float):
        self.base, self.rate = base, rate
        self.infinity = self.lost = rate * base.infinity
        high = float(_mixed_loss(np.array(base.support[1]), rate))
        self.support = (-high, high)
        above = _mixed_loss(base.atoms[base.atoms > 0], rate)
        self.atoms = np.concatenate([-above[::-1], [0.0], above])

    def tails(self, eps: Array) -> Tails:
        eps = np.asarray(eps, dtype=float)
        up = eps >= 0
        base = self.base.tails(_base_loss(np.where(up, eps, np.nextafter(-eps, -np.inf)), self.rate))
        upper_p, lower_p = _mix(base.sf_q, base.sf_p, self.rate), _mix(base.cdf_q, base.cdf_p, self.rate)
        # below zero the pair is the mirror image: L = -L' with the roles of P and Q exchanged
        return Tails(
            np.where(up, upper_p, base.cdf_q),
            np.where(up, lower_p, base.sf_q),
            np.where(up, base.sf_q, lower_p),
            np.where(up, base.cdf_q, upper_p),
        )


def _atomic_poisson(base: AtomicPair, rate: float) -> AtomicPair:
    losses, log_q = _mixed_loss(base.losses, rate), base.log_q
    if base.lost > 0:
        losses = np.concatenate([[math.log1p(-rate)], losses])
        log_q = np.concatenate([[math.log(base.lost)], log_q])
    return AtomicPair(losses, log_q + losses, infinity=rate * base.infinity)
