"""The loss pair: all that privacy accounting needs to know of a mechanism.

Under one adjacency and in one direction (a record added, or one removed) an adversary has to distinguish the
distribution P of the release from the distribution Q. The privacy loss of an outcome o is L(o) = ln(P(o)/Q(o)), and its
distributions under P and under Q determine every guarantee. A ``LossPair`` gives them through four tail probabilities,
as natural logarithms so that a probability of 1e-300 keeps its digits.

To write a pair, derive a frozen dataclass from ``LossPair``, or a class from ``KeyedPair`` where fields have to be
computed; a pair with finitely many losses is an ``AtomicPair``. Required is ``tails``, accurate to rounding also where
a tail is tiny; the attributes where their defaults (no infinite loss, losses on the whole line, continuous, asymmetric)
are wrong; and ``log_delta`` if the two tails nearly cancel at some eps. Everything else saves time or tightens results.
``tests/accounting/mechanisms/test_mechanism_contract.py`` checks every pair; ``wpriv/accounting/mechanisms/laplace.py``
is a complete example.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Hashable, Sequence
from fractions import Fraction
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from wpriv.numerics.arrays import Array, CellParts
from wpriv.numerics.log_space import log1mexp

NO_ATOMS: Array = np.empty(0)

# ln of the least positive double, about
LOG_UNDERFLOW = -745.0
# relative error of a loss, and ln of an error, relative to delta, that is no larger than other rounding
LOSS_ROUNDING = 4e-15
LOG_NEGLIGIBLE = math.log(1e-13)

Bounds = Callable[[float], tuple[float, float]]


class Tails(NamedTuple):
    """P(L > eps), P(L <= eps), Q(L > eps) and Q(L <= eps), or their logarithms; each of the shape of eps."""

    sf_p: Array
    cdf_p: Array
    sf_q: Array
    cdf_q: Array


class LossPair:
    """The privacy loss distributions of an ordered pair (P, Q); the module's docstring says how to write one.

    Pairs are immutable and hashable, and equal pairs are composed once; an ``AtomicPair`` equals only itself. They
    give:

    - ``mass_at_plus_infinity``: P(L = +inf), the probability under P of outcomes that are impossible under Q.
    - ``mass_at_minus_infinity``: Q(L = -inf), the same for the pair (Q, P).
    - ``support``: an interval that holds every finite loss; ``largest``: its upper end, if known exactly.
    - ``atoms``: the losses of positive probability, and those where the density jumps; lattices and quadrature panels
      are aligned with them.
    - ``symmetric``: whether the reverse pair (Q, P) has the same privacy loss distributions.
    - ``exact_alone``: whether the profile of a single release is exact although the pair has a ``sandwich``.
    """

    mass_at_plus_infinity: float = 0.0
    mass_at_minus_infinity: float = 0.0
    support: tuple[float, float] = (-math.inf, math.inf)
    largest: float | Fraction | None = None
    atoms: Array = NO_ATOMS
    symmetric: bool = False
    exact_alone: bool = False

    def tails(self, eps: Array) -> Tails:
        """Compute ln of the four tail probabilities at eps.

        Args:
            eps: any shape, in nats, finite or infinite.
        Returns:
            Logarithms of the shape of eps. An atom at eps counts as L <= eps; ``sf_p`` includes the mass at +inf,
            ``cdf_q`` that at -inf.
        """
        raise NotImplementedError

    def probabilities(self, eps: Array) -> Tails:
        """The four tail probabilities themselves; override it where that is faster than exponentials of ``tails``."""
        return Tails(*(np.exp(tail) for tail in self.tails(eps)))

    def cell_parts(self, low: Array, high: Array) -> CellParts | None:
        """Compute P - e^low Q and e^high Q - P of the losses strictly between ``low`` and ``high``.

        Args:
            low, high: [k] finite ends of cells, in nats.
        Returns:
            Both right to some 16 roundings relative to themselves, of the shape of the tails; nan in cells where only
            the difference of tails is known, None where that is so everywhere.
        """
        return None

    def self_compose(self, n: int) -> LossPair | None:
        """Return the n-fold composition (n >= 1) in closed form, or None where there is none."""
        return self if n == 1 else None

    def optimal_composition(self, n: int, top: float) -> tuple[Bounds, Bounds] | None:
        """Return bounds of the largest delta at eps, and eps at delta, of n adaptively chosen releases, or None.

        For pairs that stand for all releases of a kind, whose compositions are no composition of one pair. ``top`` is
        about the largest eps of interest.
        """
        return None

    def compose_with(self, other: LossPair) -> LossPair | None:
        """Return the composition with another pair in closed form, or None where there is none."""
        return None

    def renyi(self, orders: Array) -> Array | None:
        """Compute Renyi divergences D_alpha(P||Q) in nats at real alpha > 1, or return None without a closed form."""
        return None

    def zcdp_rho(self) -> float | None:
        """Return the smallest proven rho of zCDP, D_alpha(P||Q) <= rho alpha for every alpha > 1, or None."""
        return None

    def zcdp_line(self) -> tuple[float, float] | None:
        """Return proven xi and rho with D_alpha(P||Q) <= xi + rho alpha for every alpha > 1, or None."""
        rho = self.zcdp_rho()
        return None if rho is None else (0.0, rho)

    def sandwich(self, tol: float) -> tuple[LossPair, LossPair] | None:
        """Return a dominated and a dominating pair if the exact distributions are unavailable, else None.

        The two are so close that eps of one step differs by less than about ``tol``, relative. All other methods of
        such a pair answer for a dominating pair, which is safe.
        """
        return None

    def for_delta(self, delta: float) -> LossPair:
        """Return this pair with a ``sandwich`` that is close also where delta is as small as this."""
        return self

    def reverse(self) -> LossPair:
        """Return the pair (Q, P): the other direction of the adjacency."""
        return self if self.symmetric else Reversed(self)

    def batch_key(self) -> tuple[Hashable, tuple[float, ...]] | None:
        """Return the family of this pair and its parameters, all positive; None if ``batched`` is not implemented."""
        return None

    def batched(self, pairs: Sequence[Any]) -> LossPair:
        """Return one pair that evaluates K pairs of this family at once: tails [K, m] at eps [m], a joint support."""
        raise NotImplementedError

    def log_delta(self, eps: ArrayLike) -> Array:
        """Compute ln H_{e^eps}(P||Q) = ln sup_S [P(S) - e^eps Q(S)], the privacy profile.

        This general form subtracts two tails. Override it by a sum of terms of one sign where the tails may nearly
        cancel.

        Args:
            eps: any shape, in nats, finite or infinite; may be negative.
        Returns:
            ln delta of the shape of eps; -inf where delta is 0.
        """
        y = np.asarray(eps, dtype=float)
        tails = self.tails(y)
        with np.errstate(invalid="ignore"):
            gap = np.where(np.isneginf(tails.sf_q), -np.inf, y + tails.sf_q - tails.sf_p)
            return np.where(np.isneginf(tails.sf_p), -np.inf, tails.sf_p + log1mexp(np.minimum(gap, 0.0)))

    def reversed_log_delta_at(self, eps: Array) -> Array:
        """Compute ln H_{e^eps}(Q||P) for eps >= 0: the profile of the reversed pair, for ``ReversedOfBoth``."""
        raise NotImplementedError

    def log_delta_error(self, eps: float) -> float:
        """Return ln of a bound on the error of delta at eps that the rounding of losses close to eps makes."""
        # a shift of all losses above eps by d changes delta by at most d e^eps Q(L > eps)
        log_q = float(self.tails(np.array([eps])).sf_q[0])
        return math.log(LOSS_ROUNDING) + math.log(eps) + eps + log_q if eps > 0 else -math.inf


class KeyedPair(LossPair):
    """A pair that is determined by its class and ``key``, its parameters: pairs with equal keys are equal."""

    key: tuple[object, ...] = ()

    def __eq__(self, other: object) -> bool:
        return type(self) is type(other) and self.key == getattr(other, "key", None)

    def __hash__(self) -> int:
        return self._hash

    @cached_property
    def _hash(self) -> int:
        return hash((type(self), self.key))


class Reversed(KeyedPair):
    """The pair (Q, P) of a given pair (P, Q): its loss is -L, with the roles of the two distributions exchanged."""

    def __init__(self, forward: LossPair):
        self.forward = forward
        self.key = (forward,)
        self.mass_at_plus_infinity = forward.mass_at_minus_infinity
        self.mass_at_minus_infinity = forward.mass_at_plus_infinity
        self.exact_alone = forward.exact_alone
        self.support = (-forward.support[1], -forward.support[0])
        self.atoms = np.sort(-forward.atoms) if forward.atoms.size else NO_ATOMS

    def tails(self, eps: Array) -> Tails:
        return self._exchanged(self.forward.tails, eps)

    def probabilities(self, eps: Array) -> Tails:
        return self._exchanged(self.forward.probabilities, eps)

    def _exchanged(self, tails: Callable[[Array], Tails], eps: Array) -> Tails:
        # P(-L > eps) = P(L < -eps): evaluate just below -eps, so that an atom at -eps is counted on the right side
        x = -np.asarray(eps, dtype=float)
        forward = tails(np.nextafter(x, -np.inf) if self.atoms.size else x)
        return Tails(forward.cdf_q, forward.sf_q, forward.cdf_p, forward.sf_p)

    def cell_parts(self, low: Array, high: Array) -> CellParts | None:
        forward = self.forward.cell_parts(-high, -low)
        return None if forward is None else forward.mirrored(-high, -low)

    def reverse(self) -> LossPair:
        return self.forward

    def sandwich(self, tol: float) -> tuple[LossPair, LossPair] | None:
        return map_sandwich(self.forward.sandwich(tol), lambda end: end.reverse())

    def for_delta(self, delta: float) -> LossPair:
        return self.forward.for_delta(delta).reverse()

    def batch_key(self) -> tuple[Hashable, tuple[float, ...]] | None:
        batch_key = self.forward.batch_key()
        return None if batch_key is None else (("reversed", batch_key[0]), batch_key[1])

    def batched(self, pairs: Sequence[Reversed]) -> LossPair:
        return type(self)(self.forward.batched([pair.forward for pair in pairs]))

    def log_delta(self, eps: ArrayLike) -> Array:
        y = np.asarray(eps, dtype=float)
        negative = np.minimum(y, 0.0)
        return np.where(y < 0, reversed_log_delta(negative, self.forward.log_delta(-negative)), super().log_delta(y))


class ReversedOfBoth(Reversed):
    """The pair (Q, P) of a pair that has its profile for eps >= 0, ``reversed_log_delta_at``, without a difference."""

    def log_delta(self, eps: ArrayLike) -> Array:
        y = np.asarray(eps, dtype=float)
        above = self.forward.reversed_log_delta_at(np.asarray(np.maximum(y, 0.0)))
        return np.where(y < 0, super().log_delta(np.minimum(y, 0.0)), above)


class BetweenPair(KeyedPair):
    """A pair between a dominated one, ``least``, and a dominating one, ``most``, which gives all but ``sandwich``."""

    def __init__(self, least: LossPair, most: LossPair):
        self.key = (least, most)
        self.least, self.most = least, most
        self.mass_at_plus_infinity = most.mass_at_plus_infinity
        self.mass_at_minus_infinity = most.mass_at_minus_infinity
        self.support, self.atoms = most.support, most.atoms

    def sandwich(self, tol: float) -> tuple[LossPair, LossPair]:
        return self.least, self.most

    def tails(self, eps: Array) -> Tails:
        return self.most.tails(eps)

    def probabilities(self, eps: Array) -> Tails:
        return self.most.probabilities(eps)

    def cell_parts(self, low: Array, high: Array) -> CellParts | None:
        return self.most.cell_parts(low, high)

    def log_delta(self, eps: ArrayLike) -> Array:
        return self.most.log_delta(eps)

    def reverse(self) -> LossPair:
        return BetweenPair(self.least.reverse(), self.most.reverse())


def map_sandwich(
    sandwich: tuple[LossPair, LossPair] | None, monotone: Callable[[LossPair], LossPair]
) -> tuple[LossPair, LossPair] | None:
    """Apply a map that preserves domination to both pairs of ``LossPair.sandwich``."""
    return None if sandwich is None else (monotone(sandwich[0]), monotone(sandwich[1]))


def gaussian_mu(pair: LossPair) -> float | None:
    """Return mu if the pair is N(mu, 1) against N(0, 1), whichever mechanism it belongs to, else None."""
    batch_key = pair.batch_key()
    return batch_key[1][0] if batch_key is not None and batch_key[0] == "gauss" else None


def bounded_tails(
    inside: tuple[Array, ...], below: NDArray[np.bool_], beyond: NDArray[np.bool_], log_infinity: float = -math.inf
) -> Tails:
    """The logarithms of the tails ``inside`` a bounded support, below it and beyond, with an infinite loss's mass."""
    rest = float(log1mexp(log_infinity))
    ends = ((0.0, log_infinity), (-np.inf, rest), (rest, -np.inf), (log_infinity, 0.0))
    return Tails(*(np.select((below, beyond), end, tail) for end, tail in zip(ends, inside, strict=True)))


def log_profile(pair: LossPair, eps: float) -> float:
    """Return ln delta of a pair at one eps.

    From the largest loss on it is that of the distinguishing events: there ``LossPair.log_delta`` may leave a rest of
    its own rounding, which is more than a tiny delta that is asked for.
    """
    if eps >= pair.support[1] and pair.mass_at_plus_infinity > 0:
        return math.log(pair.mass_at_plus_infinity)
    value = float(pair.log_delta(eps))
    # a mass that underflows is in ``LossPair.log_delta`` alone
    return -math.inf if eps >= pair.support[1] and value > LOG_UNDERFLOW else value


def log_profile_ends(pair: LossPair, eps: float) -> tuple[float, float]:
    """Return ln of both ends of delta of a pair at one eps, which are equal where rounding of losses is negligible."""
    value = log_profile(pair, eps)
    log_error = -math.inf if eps >= pair.support[1] else pair.log_delta_error(eps)
    if log_error <= value + LOG_NEGLIGIBLE:
        return value, value
    low = value + math.log1p(-math.exp(log_error - value)) if log_error < value else -math.inf
    return low, min(float(np.logaddexp(value, log_error)), 0.0)


def reversed_log_delta(eps: Array, forward: Array) -> Array:
    """Compute ln H_{e^eps}(Q||P) for eps <= 0 from ``forward`` = ln H_{e^-eps}(P||Q).

    With t = e^eps it is ln(1 - t + t e^forward), a sum of two positive terms. For a symmetric pair it is the profile at
    negative eps.
    """
    return np.asarray(np.logaddexp(log1mexp(eps), eps + forward))


def symmetric_log_delta(eps: ArrayLike, above: Array) -> Array:
    """Complete ln delta of a symmetric pair at eps from ``above``, its values at |eps|."""
    y = np.asarray(eps, dtype=float)
    return np.where(y < 0, reversed_log_delta(np.minimum(y, 0.0), above), above)


def as_column(values: Sequence[float]) -> Any:
    """Return one parameter of K pairs as [K, 1], in the place of a single pair's number, for ``LossPair.batched``."""
    return np.array(values, dtype=float)[:, None]
