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
from wpriv.numerics.log_space import log1mexp

NO_ATOMS: Array = np.empty(0)


class Tails(NamedTuple):
    """Natural logs of P(L > eps), P(L <= eps), Q(L > eps), Q(L <= eps), or these probabilities themselves; all of the shape of eps."""

    sf_p: Array
    cdf_p: Array
    sf_q: Array
    cdf_q: Array


class LossPair:
    """The law of the privacy loss L = ln dP/dQ of an ordered pair (P, Q); subclasses are frozen dataclasses.

    ``mass_at_plus_infinity`` is P(L = +inf), the mass of the distinguishing events; ``mass_at_minus_infinity`` is Q(L = -inf), the
    same of the pair (Q, P).
    ``support`` holds every finite loss; ``atoms`` are the losses of positive probability (or where a density jumps), so that
    a grid can be laid on them. ``symmetric`` says that (Q, P) has the same law of the loss as (P, Q).
    """

    mass_at_plus_infinity: float = 0.0
    mass_at_minus_infinity: float = 0.0
    support: tuple[float, float] = (-math.inf, math.inf)
    atoms: Array = NO_ATOMS
    symmetric: bool = False

    def tails(self, eps: Array) -> Tails:
        """The four log tails at eps (any shape, nats, finite or +-inf); sf_p counts the mass at +inf, cdf_q that at -inf."""
        raise NotImplementedError

    def probabilities(self, eps: Array) -> Tails:
        """The four tails at eps as plain probabilities, as good to rounding where they do not underflow, and often far quicker."""
        return Tails(*(np.exp(tail) for tail in self.tails(eps)))

    def self_compose(self, n: int) -> LossPair | None:
        """The n-fold composition in closed form, or None where there is none; n >= 1."""
        return self if n == 1 else None

    def compose_with(self, other: LossPair) -> LossPair | None:
        """The composition with another pair in closed form, or None where there is none."""
        return None

    def renyi(self, orders: Array) -> Array | None:
        """Renyi divergences D_alpha(P||Q) in nats at real orders alpha > 1 in closed form, or None."""
        return None

    def concentrated(self) -> float | None:
        """The least known rho of zCDP, D_alpha(P||Q) <= rho alpha for every alpha > 1, by a theorem of its own; else None."""
        return None

    def sandwich(self, tol: float) -> tuple[LossPair, LossPair] | None:
        """A pair that this one dominates and a pair that dominates it, where its own law is known only so; else None.

        The two lie so close that eps of one step differs by less than about ``tol``, relative. Wherever one law alone is asked for, such a
        pair answers with one that dominates it, which is safe.
        """
        return None

    def reverse(self) -> LossPair:
        """The pair (Q, P): what tells the two apart when their roles are exchanged."""
        return self if self.symmetric else Reversed(self)

    def batch_key(self) -> tuple[Hashable, tuple[float, ...]] | None:
        """What kind of pair this is and its parameters (all positive), where ``stacked`` can evaluate many of a kind at once; else None."""
        return None

    def batched(self, alike: Sequence[Any]) -> LossPair:
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
        self.mass_at_plus_infinity, self.mass_at_minus_infinity = (
            forward.mass_at_minus_infinity,
            forward.mass_at_plus_infinity,
        )
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

    def sandwich(self, tol: float) -> tuple[LossPair, LossPair] | None:
        return mapped(self.forward.sandwich(tol), LossPair.reverse)

    def batch_key(self) -> tuple[Hashable, tuple[float, ...]] | None:
        found = self.forward.batch_key()
        return None if found is None else (("reversed", found[0]), found[1])

    def batched(self, alike: Sequence[Reversed]) -> LossPair:
        return type(self)(self.forward.batched([pair.forward for pair in alike]))

    def log_delta(self, eps: ArrayLike) -> Array:
        y = np.asarray(eps, dtype=float)
        below = np.minimum(y, 0.0)
        return np.where(y < 0, mirrored(below, self.forward.log_delta(-below)), super().log_delta(y))


def mapped(
    ends: tuple[LossPair, LossPair] | None, to: Callable[[LossPair], LossPair]
) -> tuple[LossPair, LossPair] | None:
    """Both ends of ``LossPair.between`` under a map that keeps the order of domination."""
    return None if ends is None else (to(ends[0]), to(ends[1]))


def gaussian_mu(pair: LossPair) -> float | None:
    """mu of a pair that is N(mu, 1) against N(0, 1), whichever mechanism made it; None for any other pair."""
    found = pair.batch_key()
    return found[1][0] if found is not None and found[0] == "gauss" else None


def mirrored(eps: Array, other: Array) -> Array:
    """ln H_{e^eps}(Q||P) for eps <= 0, from ``other`` = ln H_{e^-eps}(P||Q): ln(1 - t + t e^other), a sum of two positive terms."""
    return np.asarray(np.logaddexp(log1mexp(eps), eps + other))


def column(values: Sequence[float]) -> Any:
    """[K, 1]: one parameter of K pairs, in the place of a number where pairs are stacked."""
    return np.array(values, dtype=float)[:, None]


def _log(x: float) -> float:
    return math.log(x) if x > 0 else -math.inf
