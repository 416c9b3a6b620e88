"""Poisson sampling where a person has several records, for Laplace noise; see group_pair.py."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import ArrayLike

from wpriv.core.loss_pair import LossPair, Tails
from wpriv.core.sampling.group_pair import AlignedGroupPair
from wpriv.errors import Unsupported
from wpriv.numerics.arrays import Array

# largest loss (nats) of all records of a person together
MAX_LOSS = 600.0


def laplace_group(pairs: Sequence[LossPair], rate: float) -> LossPair:
    """Return the pair (sum over j of Binom(j; m, q) Laplace(j t), Laplace(0)) of removing a group of m records.

    Args:
        pairs: the Laplace pairs of 1, ..., m records, whose largest losses are t, ..., m t; the scale is 1.
        rate: q in (0, 1), the probability that a record takes part in a step.
    Raises:
        Unsupported: m t exceeds ``MAX_LOSS``.
    """
    if pairs[-1].support[1] > MAX_LOSS:
        raise Unsupported(
            f"the losses of a sampled group with Laplace noise are added up to {MAX_LOSS:g} nats; found "
            f"{pairs[-1].support[1]:g}. Add noise, or ask without sampling"
        )
    return LaplaceGroupPair(tuple(pairs), rate)


class LaplaceGroupPair(AlignedGroupPair):
    """The mixture of Laplace distributions of scale 1 around 0, t, ..., m t against the one around 0.

    The ratio is a constant where x <= 0 and where x >= m t, and a + b e^(2x) between two neighbouring centres.
    """

    def __init__(self, pairs: tuple[LossPair, ...], rate: float):
        super().__init__(pairs, rate)
        self.centres = np.array([0.0, *(pair.support[1] for pair in pairs)])
        weights = self.weights
        low, high = weights * np.expm1(-self.centres[1:]), weights * np.expm1(self.centres[1:])
        # on the piece between centres k and k + 1: ratio - 1 = constant[k] + slope[k] (e^(2x) - 1)
        self.constant = np.array([high[:k].sum() + low[k:].sum() for k in range(len(pairs) + 1)])
        self.slope = np.array([(weights[k:] * np.exp(-self.centres[k + 1 :])).sum() for k in range(len(pairs))])
        pieces = self.constant[:-1] + self.slope * np.expm1(2 * self.centres[:-1])
        self.atoms = np.log1p(np.append(pieces, self.constant[-1]))
        self.support = (float(self.atoms[0]), float(self.atoms[-1]))

    @property
    def inner_loss(self) -> float:
        return float((self.atoms[0] + self.atoms[-1]) / 2)

    def aligned(self, x: Array) -> Array:
        centres = self.centres[1:].reshape(-1, *[1] * np.ndim(x))
        return np.asarray(np.clip(2 * x - centres, -centres, centres))

    def position(self, eps: ArrayLike) -> Array:
        y = np.asarray(eps, dtype=float)
        piece = np.clip(np.searchsorted(self.atoms, y, side="right") - 1, 0, len(self.pairs) - 1)
        growth = (np.expm1(y) - self.constant[piece]) / self.slope[piece]
        x = np.log1p(np.maximum(growth, 0.0)) / 2
        return np.asarray(np.clip(x, self.centres[piece], self.centres[piece + 1]))

    def tails(self, eps: Array) -> Tails:
        with np.errstate(divide="ignore"):
            return Tails(*(np.log(tail) for tail in self.probabilities(eps)))

    def probabilities(self, eps: Array) -> Tails:
        y = np.asarray(eps, dtype=float)
        inside = (y >= self.support[0]) & (y < self.support[1])
        distance = self.position(np.where(inside, y, self.inner_loss)) - self.centres.reshape(-1, *[1] * y.ndim)
        smaller = np.exp(-np.abs(distance)) / 2
        above = np.where(distance > 0, smaller, 1 - smaller)
        below = np.where(distance > 0, 1 - smaller, smaller)
        weights = np.array([self.none, *self.weights]).reshape(-1, *[1] * y.ndim)
        all_above = y < self.support[0]
        ends = (1.0, 0.0, 1.0, 0.0)
        tails = ((weights * above).sum(axis=0), (weights * below).sum(axis=0), above[0], below[0])
        return Tails(
            *(np.where(inside, tail, np.where(all_above, end, 1 - end)) for tail, end in zip(tails, ends, strict=True))
        )
