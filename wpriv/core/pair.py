"""The loss pair: all that privacy accounting needs to know of a mechanism.

A mechanism under one neighbouring relation asks an adversary to tell P from Q. Everything about how hard that is lies in
the law of the privacy loss L = ln dP/dQ, under P and under Q. A ``LossPair`` gives that law through its four tails, in log
space so that a probability of 1e-300 keeps its digits.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Hashable, Sequence
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike

from wpriv.numerics.arrays import Array
from wpriv.numerics.log_space import log1mexp, log_exp_excess

NO_ATOMS: Array = np.empty(0)
# sums of two losses that a product of atomic pairs may have, and sums that differ by less than this, relative, are one
MAX_SUMS, ROUNDED = 2**18, 4e-15


class Tails(NamedTuple):
    """Natural logs of P(L > eps), P(L <= eps), Q(L > eps), Q(L <= eps), or these probabilities themselves; all of the shape of eps."""

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

    def probabilities(self, eps: Array) -> Tails:
        """The four tails at eps as plain probabilities, as good to rounding where they do not underflow, and often far quicker."""
        return Tails(*(np.exp(tail) for tail in self.tails(eps)))

    def power(self, n: int) -> LossPair | None:
        """The n-fold composition in closed form, or None where there is none; n >= 1."""
        return self if n == 1 else None

    def join(self, other: LossPair) -> LossPair | None:
        """The composition with another pair in closed form, or None where there is none."""
        return None

    def renyi(self, orders: Array) -> Array | None:
        """Renyi divergences D_alpha(P||Q) in nats at real orders alpha > 1 in closed form, or None."""
        return None

    def concentrated(self) -> float | None:
        """The least known rho of zCDP, D_alpha(P||Q) <= rho alpha for every alpha > 1, by a theorem of its own; else None."""
        return None

    def between(self, tol: float) -> tuple[LossPair, LossPair] | None:
        """A pair that this one dominates and a pair that dominates it, where its own law is known only so; else None.

        The two lie so close that eps of one step differs by less than about ``tol``, relative. Wherever one law alone is asked for, such a
        pair answers with one that dominates it, which is safe.
        """
        return None

    def reverse(self) -> LossPair:
        """The pair (Q, P): what tells the two apart when their roles are exchanged."""
        return self if self.symmetric else Reversed(self)

    def family(self) -> tuple[Hashable, tuple[float, ...]] | None:
        """What kind of pair this is and its parameters (all positive), where ``stacked`` can evaluate many of a kind at once; else None."""
        return None

    def stacked(self, alike: Sequence[Any]) -> LossPair:
        """One pair whose tails at eps [m] are [K, m], a row for each of K pairs of this pair's family; its support holds all of theirs."""
        raise NotImplementedError

    def log_delta(self, eps: ArrayLike) -> Array:
        """ln H_{e^eps}(P||Q) = ln sup_S [P(S) - e^eps Q(S)], the privacy profile, for eps of any shape, finite or +-inf.

        This general form subtracts two tails; pairs whose tails may nearly agree override it with a sum of one sign.
        """
        y = np.asarray(eps, dtype=float)
        tails = self.tails(y)
        with np.errstate(invalid="ignore"):
            gap = np.where(np.isneginf(tails.sf_q), -np.inf, y + tails.sf_q - tails.sf_p)
            return np.where(np.isneginf(tails.sf_p), -np.inf, tails.sf_p + log1mexp(np.minimum(gap, 0.0)))


class Derived(LossPair):
    """A pair made from others by a map: two made alike are equal, so that equal steps are recognised and priced once."""

    made_from: tuple[object, ...] = ()

    def __eq__(self, other: object) -> bool:
        return type(self) is type(other) and self.made_from == getattr(other, "made_from", None)

    def __hash__(self) -> int:
        return self._hash

    @cached_property
    def _hash(self) -> int:
        return hash((type(self), self.made_from))


class Reversed(Derived):
    """The pair (Q, P) of a given pair (P, Q): its loss is -L, with the roles of the two laws exchanged."""

    def __init__(self, forward: LossPair):
        self.forward = forward
        self.made_from = (forward,)
        self.infinity, self.lost = forward.lost, forward.infinity
        self.support = (-forward.support[1], -forward.support[0])
        self.atoms = np.sort(-forward.atoms) if forward.atoms.size else NO_ATOMS

    def tails(self, eps: Array) -> Tails:
        return self._exchanged(self.forward.tails, eps)

    def probabilities(self, eps: Array) -> Tails:
        return self._exchanged(self.forward.probabilities, eps)

    def _exchanged(self, tails: Callable[[Array], Tails], eps: Array) -> Tails:
        # P(-L > eps) is P(L < -eps): the tails just below -eps, so that an atom at -eps falls on the right side
        x = -np.asarray(eps, dtype=float)
        forward = tails(np.nextafter(x, -np.inf) if self.atoms.size else x)
        return Tails(forward.cdf_q, forward.sf_q, forward.cdf_p, forward.sf_p)

    def reverse(self) -> LossPair:
        return self.forward

    def between(self, tol: float) -> tuple[LossPair, LossPair] | None:
        return mapped(self.forward.between(tol), LossPair.reverse)

    def family(self) -> tuple[Hashable, tuple[float, ...]] | None:
        found = self.forward.family()
        return None if found is None else (("reversed", found[0]), found[1])

    def stacked(self, alike: Sequence[Reversed]) -> LossPair:
        return type(self)(self.forward.stacked([pair.forward for pair in alike]))

    def log_delta(self, eps: ArrayLike) -> Array:
        y = np.asarray(eps, dtype=float)
        below = np.minimum(y, 0.0)
        return np.where(y < 0, mirrored(below, self.forward.log_delta(-below)), super().log_delta(y))


def mapped(ends: tuple[LossPair, LossPair] | None, to: Callable[[LossPair], LossPair]) -> tuple[LossPair, LossPair] | None:
    """Both ends of ``LossPair.between`` under a map that keeps the order of domination."""
    return None if ends is None else (to(ends[0]), to(ends[1]))


class AtomicPair(LossPair):
    """A pair of discrete laws: finitely many losses, each with its probability under P; exact sums.

    Args:
        losses: [k] finite losses in nats, in any order.
        log_p: [k] ln of the P-probability of each.
        infinity: P-mass where Q has none.
        lost: Q-mass where P has none.
        symmetric: the reverse pair has the same law of the loss.
        log_q: [k] ln of the Q-probability of each, which must be ``log_p - losses``; give it where it is known to more digits.

    A law with infinitely many losses may be given by those that matter to delta. ``most`` is then the largest lambda for which these
    hold all but 1e-20 of the moment E_P[e^(lambda L)], ``covering`` a pair with enough of them for a larger one, and ``log_beyond``
    ln of the P-mass of the losses left out, which the profile does not fall below.
    """

    most: float = math.inf
    log_beyond: float = -math.inf

    def __init__(
        self,
        losses: Array,
        log_p: Array,
        infinity: float = 0.0,
        lost: float = 0.0,
        symmetric: bool = False,
        log_q: Array | None = None,
    ):
        order = np.argsort(losses, kind="stable")
        self.losses, self.log_p = np.asarray(losses, float)[order], np.asarray(log_p, float)[order]
        self.log_q = self.log_p - self.losses if log_q is None else np.asarray(log_q, float)[order]
        self.infinity, self.lost, self.symmetric = infinity, lost, symmetric
        self.atoms = self.losses
        self.support = (float(self.losses[0]), float(self.losses[-1])) if self.losses.size else (0.0, 0.0)
        self._above_p, self._above_q = _log_sums_above(self.log_p, infinity), _log_sums_above(self.log_q, 0.0)
        self._below_p = _log_sums_above(self.log_p[::-1], 0.0)[::-1]
        self._below_q = _log_sums_above(self.log_q[::-1], lost)[::-1]

    def tails(self, eps: Array) -> Tails:
        at = np.searchsorted(self.losses, np.asarray(eps, dtype=float), side="right")
        return Tails(self._above_p[at], self._below_p[at], self._above_q[at], self._below_q[at])

    def log_moment(self, lam: Array) -> Array | None:
        """[k] ln E_P[e^(lam L)] at [k] lam > 0 in closed form, or None: then it is a sum over the losses."""
        return None

    def covering(self, lam: float) -> AtomicPair | None:
        """This pair, with losses enough for the moment of order lam; None where they would be too many."""
        return self if lam <= self.most else None

    def power(self, n: int) -> LossPair | None:
        """By squaring; None where the losses of a product are too many to be summed one by one."""
        whole: LossPair | None = None
        square: LossPair | None = self
        while n and isinstance(square, AtomicPair):
            if n & 1:
                whole = square if whole is None else whole.join(square)
                if whole is None:
                    return None
            n >>= 1
            square = square.join(square) if n else None
        return whole if n == 0 else None

    def join(self, other: LossPair) -> LossPair | None:
        """The sums of every loss of each; None where they are more than ``MAX_SUMS``."""
        if not isinstance(other, AtomicPair) or self.losses.size * other.losses.size > MAX_SUMS:
            return None
        return _product(self, other)

    def reverse(self) -> LossPair:
        return self if self.symmetric else AtomicPair(-self.losses, self.log_q, self.lost, self.infinity, log_q=self.log_p)

    def log_delta(self, eps: ArrayLike) -> Array:
        # the profile is a polygon in t = e^eps with slope -Q(L > eps): from the loss above eps it rises by a positive piece
        y = np.asarray(eps, dtype=float)
        at = np.searchsorted(self.losses, y, side="right")
        following = np.append(self.losses, 0.0)[at]
        piece = following + log1mexp(np.minimum(y - following, 0.0)) + self._above_q[at]
        return np.clip(np.logaddexp(self._log_profile[at], piece), self.log_beyond, 0.0)

    @cached_property
    def _log_profile(self) -> Array:
        """[k+1] ln delta at each loss, and beyond the last; sums of positive pieces only."""
        pieces = self.losses[1:] + log1mexp(-np.diff(self.losses)) + self._above_q[1:-1]
        return np.append(_log_sums_above(pieces, self.infinity), _log(self.infinity))

    def renyi(self, orders: Array) -> Array:
        """Exact sums, right to rounding also where the divergence is tiny; inf where P has mass that Q has not."""
        rates = np.asarray(orders, dtype=float) - 1
        if self.infinity > 0:
            return np.full(rates.shape, np.inf)
        if np.any(rates > self.most):
            parts = [_beyond(self, float(rate)) for rate in rates.ravel()]
            return np.reshape(np.array(parts), rates.shape)
        # E_P[e^{sL}] - 1 = E_P[g(sL) + s g(-L)] + s Q(L = -inf) with g(x) = e^x - 1 - x >= 0, as E_P[e^{-L}] = 1 - Q(L = -inf)
        inverse = log_exp_excess(-self.losses)
        found = [np.logaddexp(log_exp_excess(s * self.losses), math.log(s) + inverse) + self.log_p for s in rates.ravel()]
        excess = [np.logaddexp.reduce(np.append(terms, _log(s * self.lost))) for s, terms in zip(rates.ravel(), found, strict=True)]
        return np.asarray(np.logaddexp(0.0, np.reshape(excess, rates.shape)) / rates)


def _product(a: AtomicPair, b: AtomicPair) -> AtomicPair:
    """The composition of two atomic pairs: sums that differ by rounding alone are one loss, with the masses of both laws added up."""
    losses = np.add.outer(a.losses, b.losses).ravel()
    order = np.argsort(losses, kind="stable")
    losses = losses[order]
    hair = ROUNDED * (float(np.abs(a.losses).max(initial=0.0)) + float(np.abs(b.losses).max(initial=0.0)))
    starts = np.flatnonzero(np.concatenate([[True], np.diff(losses) > hair])) if losses.size else np.empty(0, dtype=np.int64)
    masses = []
    for one, two in ((a.log_p, b.log_p), (a.log_q, b.log_q)):
        masses.append(np.logaddexp.reduceat(np.add.outer(one, two).ravel()[order], starts) if losses.size else losses)
    infinity, lost = (-math.expm1(_log1m(one) + _log1m(two)) for one, two in ((a.infinity, b.infinity), (a.lost, b.lost)))
    joint = AtomicPair(losses[starts], masses[0], infinity, lost, a.symmetric and b.symmetric, masses[1])
    joint.log_beyond = float(np.logaddexp(a.log_beyond, b.log_beyond))
    if math.isfinite(joint.log_beyond):
        ends = zip(a.support, b.support, strict=True)
        joint.support = tuple(float(one + two) for one, two in ends)  # type: ignore[assignment]
    return joint


def _log1m(x: float) -> float:
    return math.log1p(-x) if x < 1 else -math.inf


def _beyond(pair: AtomicPair, lam: float) -> float:
    """The Renyi divergence of order lam + 1, from as many losses as it needs; inf where they are too many to sum."""
    whole = pair.covering(lam)
    value = None if whole is None else whole.renyi(np.array([lam + 1]))
    return math.inf if value is None else float(value[0])


def _log_sums_above(log_mass: Array, rest: float) -> Array:
    """[k+1] ln of the sum of all masses from index i on, plus ``rest`` (a plain probability)."""
    # logaddexp keeps far tails that a plain cumulative sum, scaled to its largest term, would flush to zero
    return np.minimum(np.logaddexp.accumulate(np.concatenate([[_log(rest)], log_mass[::-1]]))[::-1], 0.0)


def gaussian_mu(pair: LossPair) -> float | None:
    """mu of a pair that is N(mu, 1) against N(0, 1), whichever mechanism made it; None for any other pair."""
    found = pair.family()
    return found[1][0] if found is not None and found[0] == "gauss" else None


def mirrored(eps: Array, other: Array) -> Array:
    """ln H_{e^eps}(Q||P) for eps <= 0, from ``other`` = ln H_{e^-eps}(P||Q): ln(1 - t + t e^other), a sum of two positive terms."""
    return np.asarray(np.logaddexp(log1mexp(eps), eps + other))


def column(values: Sequence[float]) -> Any:
    """[K, 1]: one parameter of K pairs, in the place of a number where pairs are stacked."""
    return np.array(values, dtype=float)[:, None]


def _log(x: float) -> float:
    return math.log(x) if x > 0 else -math.inf
