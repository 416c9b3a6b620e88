"""The loss pair: all that privacy accounting needs to know of a mechanism.

A mechanism under one neighbouring relation asks an adversary to tell P from Q. Everything about how hard that is lies in
the law of the privacy loss L = ln dP/dQ, under P and under Q. A ``LossPair`` gives that law through its four tails, in log
space so that a probability of 1e-300 keeps its digits.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

Array = NDArray[np.float64]
NO_ATOMS: Array = np.empty(0)


class Tails(NamedTuple):
    """Natural logs of P(L > eps), P(L <= eps), Q(L > eps), Q(L <= eps); all of the shape of eps."""

    sf_p: Array
    cdf_p: Array
    sf_q: Array
    cdf_q: Array


class LossPair:
    """The law of the privacy loss L = ln dP/dQ of an ordered pair (P, Q); subclasses are frozen dataclasses.

    ``infinity`` is P(L = +inf), the mass of the distinguishing events; ``lost`` is Q(L = -inf), the same of the pair (Q, P).
    ``support`` holds every finite loss; ``atoms`` are the losses of positive probability (or where a density jumps), so that
    a grid can be laid on them. ``symmetric`` says that (Q, P) has the same law of the loss as (P, Q).
    """

    infinity: float = 0.0
    lost: float = 0.0
    support: tuple[float, float] = (-math.inf, math.inf)
    atoms: Array = NO_ATOMS
    symmetric: bool = False

    def tails(self, eps: Array) -> Tails:
        """The four log tails at eps (any shape, nats, finite or +-inf); sf_p counts the mass at +inf, cdf_q that at -inf."""
        raise NotImplementedError

    def power(self, n: int) -> LossPair | None:
        """The n-fold composition in closed form, or None where there is none; n >= 1."""
        return self if n == 1 else None

    def join(self, other: LossPair) -> LossPair | None:
        """The composition with another pair in closed form, or None where there is none."""
        return None

    def renyi(self, orders: Array) -> Array | None:
        """Renyi divergences D_alpha(P||Q) in nats at real orders alpha > 1 in closed form, or None."""
        return None

    def reverse(self) -> LossPair:
        """The pair (Q, P): what tells the two apart when their roles are exchanged."""
        return self if self.symmetric else Reversed(self)

    def log_delta(self, eps: ArrayLike) -> Array:
        """ln H_{e^eps}(P||Q) = ln sup_S [P(S) - e^eps Q(S)], the privacy profile, for real eps of any shape."""
        y = np.asarray(eps, dtype=float)
        tails = self.tails(y)
        with np.errstate(invalid="ignore", over="ignore"):
            gap = np.minimum(y + tails.sf_q - tails.sf_p, 0.0)
            return np.where(np.isneginf(tails.sf_p), -np.inf, tails.sf_p + log1mexp(gap))


class Reversed(LossPair):
    """The pair (Q, P) of a given pair (P, Q): its loss is -L, with the roles of the two laws exchanged."""

    def __init__(self, forward: LossPair):
        self.forward = forward
        self.infinity, self.lost = forward.lost, forward.infinity
        self.support = (-forward.support[1], -forward.support[0])
        self.atoms = np.sort(-forward.atoms)

    def tails(self, eps: Array) -> Tails:
        # P(-L > eps) is P(L < -eps): the tails just below -eps, so that an atom at -eps falls on the right side
        x = -np.asarray(eps, dtype=float)
        forward = self.forward.tails(np.nextafter(x, -np.inf) if self.atoms.size else x)
        return Tails(forward.cdf_q, forward.sf_q, forward.cdf_p, forward.sf_p)

    def reverse(self) -> LossPair:
        return self.forward


class AtomicPair(LossPair):
    """A pair of discrete laws: finitely many losses, each with its probability under P; exact sums.

    Args:
        losses: [k] finite losses in nats, in any order.
        log_p: [k] ln of the P-probability of each; the Q-probability is then p e^{-loss}.
        infinity: P-mass where Q has none.
        lost: Q-mass where P has none.
    """

    def __init__(self, losses: Array, log_p: Array, infinity: float = 0.0, lost: float = 0.0, symmetric: bool = False):
        order = np.argsort(losses, kind="stable")
        self.losses, self.log_p = np.asarray(losses, float)[order], np.asarray(log_p, float)[order]
        self.log_q = self.log_p - self.losses
        self.infinity, self.lost, self.symmetric = infinity, lost, symmetric
        self.atoms = self.losses
        self.support = (float(self.losses[0]), float(self.losses[-1])) if self.losses.size else (0.0, 0.0)
        self._above_p, self._above_q = _log_sums_above(self.log_p, infinity), _log_sums_above(self.log_q, 0.0)
        self._below_p = _log_sums_above(self.log_p[::-1], 0.0)[::-1]
        self._below_q = _log_sums_above(self.log_q[::-1], lost)[::-1]

    def tails(self, eps: Array) -> Tails:
        at = np.searchsorted(self.losses, np.asarray(eps, dtype=float), side="right")
        return Tails(self._above_p[at], self._below_p[at], self._above_q[at], self._below_q[at])

    def reverse(self) -> LossPair:
        return self if self.symmetric else AtomicPair(-self.losses, self.log_q, self.lost, self.infinity)


def _log_sums_above(log_mass: Array, log_rest: float) -> Array:
    """[k+1] ln of the sum of all masses from index i on, plus ``log_rest`` (a plain probability)."""
    # logaddexp keeps far tails that a plain cumulative sum, scaled to its largest term, would flush to zero
    start = np.array([math.log(log_rest) if log_rest > 0 else -np.inf])
    return np.logaddexp.accumulate(np.concatenate([start, log_mass[::-1]]))[::-1]


def log1mexp(x: ArrayLike) -> Array:
    """ln(1 - e^x) for x <= 0, without cancellation at either end (Maechler 2012)."""
    x = np.asarray(x, dtype=float)
    with np.errstate(divide="ignore", invalid="ignore"):
        return np.where(x > -0.6931471805599453, np.log(-np.expm1(x)), np.log1p(-np.exp(x)))
