"""A Gaussian pair with a random, public separation: a mixture over finitely many separations."""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import ArrayLike
from scipy.special import ndtr

from wpriv.core.loss_pair import KeyedPair, Tails, reversed_log_delta
from wpriv.numerics import counted_work
from wpriv.numerics.arrays import Array
from wpriv.numerics.conversions import log_mills_drop

_BLOCK = 1 << 19
# nanoseconds for each separation: of the tails at a loss, and of the profile at an eps
TAIL_WORK, PROFILE_WORK = 15.0, 600.0


class GaussMixture(KeyedPair):
    """The pair (mu, N(mu, 1)) against (mu, N(0, 1)), with mu drawn from a public discrete distribution.

    Args:
        mu: [J] separations > 0.
        weight: [J] their probabilities.
        key: what determines both, for equality.
    """

    symmetric = True

    def __init__(self, mu: Array, weight: Array, key: tuple[object, ...]):
        keep = weight > 0
        self.mu, self.weight, self.key = mu[keep], weight[keep], key

    def tails(self, eps: Array) -> Tails:
        y = np.asarray(eps, dtype=float)
        flat = y.ravel()
        counted_work.add(TAIL_WORK * flat.size * self.mu.size)
        rows = max(_BLOCK // self.mu.size, 1)
        tails = np.concatenate([self._tails(flat[at : at + rows]) for at in range(0, max(flat.size, 1), rows)], axis=1)
        complement = np.minimum(tails[[1, 0, 3, 2]], 1.0)
        with np.errstate(divide="ignore"):
            # the larger of two tails follows from the smaller one, which has all its digits
            return Tails(*np.where(complement < 0.5, np.log1p(-complement), np.log(tails)).reshape(4, *y.shape))

    def _tails(self, eps: Array) -> Array:
        """[4, m] probabilities; the smaller tail of each Gaussian is computed, the larger one is its complement."""
        a = eps[:, None] / self.mu - self.mu / 2
        parts = []
        for x in (a, a + self.mu):
            small = ndtr(-np.abs(x))
            above = np.where(x > 0, small, 1 - small)
            parts += [above @ self.weight, np.where(x > 0, 1 - small, small) @ self.weight]
        return np.array(parts)

    def renyi(self, orders: Array) -> Array:
        a = np.asarray(orders, dtype=float)
        exponent = (a * (a - 1) / 2)[..., None] * self.mu**2
        peak = exponent.max(axis=-1)
        with np.errstate(over="ignore"):
            large = peak + np.log(np.exp(exponent - peak[..., None]) @ self.weight)
            small = np.log1p(np.expm1(np.minimum(exponent, 50.0)) @ self.weight)
        return np.asarray(np.where(peak > 50, large, small) / (a - 1))

    def log_delta(self, eps: ArrayLike) -> Array:
        y = np.asarray(eps, dtype=float)
        counted_work.add(PROFILE_WORK * y.size * self.mu.size)
        with np.errstate(divide="ignore", over="ignore", invalid="ignore"):
            each = log_mills_drop(np.abs(y)[..., None] / self.mu - self.mu / 2, self.mu) + np.log(self.weight)
        above = np.minimum(np.logaddexp.reduce(np.where(np.isnan(each), -math.inf, each), axis=-1), 0.0)
        return np.where(y < 0, reversed_log_delta(np.minimum(y, 0.0), above), above)
