"""The exponential mechanism, and every other mechanism whose privacy loss has a bounded range."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import ClassVar

import numpy as np
from numpy.typing import ArrayLike

from wpriv.core.adjacency import Release
from wpriv.core.loss_pair import Bounds, KeyedPair, LossPair, Tails, reversed_log_delta
from wpriv.core.mechanism import Mechanism
from wpriv.core.parameters import parameter
from wpriv.errors import UsageError
from wpriv.mechanisms.randomized_response import ResponsePair
from wpriv.numerics.arrays import Array
from wpriv.numerics.bounded_range import profile
from wpriv.numerics.log_space import log1mexp, log_exp_excess

MIN_RANGE, MAX_RANGE = 1e-6, 1e100
# of the exponentials and logarithms in rho
RHO_ROUNDING = 1e-14


@dataclass(frozen=True)
class Exponential(Mechanism):
    """Select an outcome y with probability proportional to e^(eps0 u(D, y) / (2 s)), s the sensitivity of the score u.

    More generally, any release whose privacy loss lies in an interval of length eps0 on every pair of neighbours
    (bounded range): also e^(eps0 u / s) where a record moves all scores in the same direction, and report-noisy-max
    with Gumbel noise of scale 2 s / eps0. One release is eps0-DP, but several cost less than as many other eps0-DP
    releases.

    Source:
        McSherry, Talwar (2007); Durfee, Rogers (2019) (bounded range); Dong, Durfee, Rogers (2020), whose generalised
        randomised response is the worst case at each end of the interval; Harrison, Manurangsi (2025) (its rho).
    """

    release: ClassVar[Release] = Release.SELECTION
    source: ClassVar[str] = "Durfee, Rogers 2019; Dong, Durfee, Rogers 2020; Harrison, Manurangsi 2025"

    eps0: float = parameter("range of the privacy loss of one selection, in nats (its eps)", exclusive_minimum=0)

    def __post_init__(self) -> None:
        super().__post_init__()
        # below, the density of the loss varies by less than the rounding of its tails
        if not MIN_RANGE <= self.eps0 <= MAX_RANGE:
            raise UsageError(
                f"exponential: eps0 must lie between {MIN_RANGE:g} and {MAX_RANGE:g}; found {self.eps0:g}. "
                f"For a smaller one use `mech='zcdp'` with rho = eps0^2 / 8"
            )

    def pair(self) -> LossPair:
        return BoundedRangePair(self.eps0)

    def grouped(self, records: int) -> Exponential:
        """Losses of m records add up, and so do the lengths of their intervals."""
        return replace(self, eps0=records * self.eps0)


class SupremumPair(KeyedPair):
    """The pair whose profile is the supremum of the profiles of all releases of range r; it dominates each of them.

    Proof. The loss L lies in [t - r, t] for some t in [0, r], and T = e^L has mean 1 under Q. For every convex f, E_Q
    f(T) is largest if T takes the two ends of its interval only, so the profile is at most that of the pair G_t with
    losses t and t - r, P(L = t) = (e^r - e^t) / (e^r - 1) and Q(L = t) = e^-t P(L = t), which is an exponential
    mechanism on two outcomes. Its delta at y <= t is (e^r - e^t - e^(y + r - t) + e^y) / (e^r - 1), which is largest
    at t = (y + r)/2: delta(y) = (e^(r/2) - e^(y/2))^2 / (e^r - 1) for |y| <= r. As a function of e^y it is convex,
    falls from 1 - e^y at y = -r to 0 at y = r, and is therefore a profile itself, of a pair with a density: Q(L > y) =
    -d delta / d e^y = (e^((r-y)/2) - 1) / (e^r - 1). A pair that dominates every step dominates adaptive compositions
    (Zhu, Dong, Wang 2022, Theorem 10). No single release attains it at every y, so that its compositions are upper
    bounds.
    """

    symmetric = True

    def __init__(self, r: float):
        self.key = (r,)
        self.r = r
        self.support, self.atoms = (-r, r), np.array([-r, r])

    def tails(self, eps: Array) -> Tails:
        y = np.asarray(eps, dtype=float)
        inner = np.clip(y, -self.r, self.r)
        below, above = -(self.r + inner) / 2, (inner - self.r) / 2
        low, high = self._log_share(below), self._log_share(above)
        inside = (high, above + low, below + high, low)
        ends = ((0.0, -np.inf), (-np.inf, 0.0), (0.0, -np.inf), (-np.inf, 0.0))
        outside = (y <= -self.r, y >= self.r)
        return Tails(*(np.select(outside, end, tail) for end, tail in zip(ends, inside, strict=True)))

    def log_delta(self, eps: ArrayLike) -> Array:
        """Compute ln of (e^(r/2) - e^(eps/2))^2 / (e^r - 1) for 0 <= eps <= r; delta is 0 above."""
        y = np.asarray(eps, dtype=float)
        half = np.minimum((np.abs(y) - self.r) / 2, 0.0)
        above = self._log_share(half) + log1mexp(half)
        return np.where(y < 0, reversed_log_delta(np.minimum(y, 0.0), above), above)

    def _log_share(self, x: Array) -> Array:
        """Compute ln((1 - e^x) / (1 - e^-r)) for -r <= x <= 0; a difference of logarithms would lose digits."""
        with np.errstate(divide="ignore"):
            return np.asarray(np.minimum(np.log(np.expm1(x) / np.expm1(-self.r)), 0.0))


class BoundedRangePair(SupremumPair):
    """All releases of range r: ``SupremumPair`` from above, G_t at t = r/2 from below, and the largest divergences.

    The profile of one release is exact: each of its points is attained by some G_t.
    """

    exact_alone = True

    def sandwich(self, tol: float) -> tuple[LossPair, LossPair]:
        """Return G_(r/2), randomized response at r/2, of which compositions may consist, and the dominating pair."""
        return ResponsePair(self.r / 2, 0.0, 1), SupremumPair(self.r)

    def renyi(self, orders: Array) -> Array:
        """Compute the largest divergence of each order over all releases of range r, which bounds every composition.

        Proof. As in ``SupremumPair``, G_t is the worst for given t. E_Q e^(alpha L) = A e^((alpha-1) t) - B e^(alpha
        t) for G_t, with A = e^r (1 - e^(-alpha r)) / (e^r - 1) and B = (1 - e^(-(alpha-1) r)) / (e^r - 1), is largest
        at e^t = A (alpha-1) / (B alpha). With phi(x) = ln(sinh(x/2) / (x/2)) the maximum is e^K, K = alpha phi(alpha
        r) - phi(r) - (alpha-1) phi((alpha-1) r). K / (alpha (alpha-1)) is largest at alpha = 1
        (``zcdp_rho``). (Rounding: for small alpha - 1 the three terms nearly cancel, so that the result is rounded up.)
        """
        alpha = np.asarray(orders, dtype=float)
        lam = alpha - 1
        largest = alpha * _phi(alpha * self.r)
        exponent = (largest - _phi(np.asarray(self.r)) - lam * _phi(lam * self.r) + 1e-15 * largest) / lam
        return np.asarray(np.minimum(np.minimum(exponent, alpha * self.zcdp_rho()), self.r))

    def optimal_composition(self, n: int, top: float) -> tuple[Bounds, Bounds] | None:
        composed = profile(self.r, n, top)
        return None if composed is None else (composed.delta, composed.epsilon)

    def zcdp_rho(self) -> float:
        """x - 1 - ln x with x = r / (1 - e^-r), rounded up: at most r^2 / 8 (docs/theory/bounded-range.md)."""
        if self.r < 1:
            # ln x from the small difference of x and e^(r/2)
            rho = math.exp(float(log_exp_excess(self.r / 2 - _phi(np.asarray(self.r)))))
        else:
            x = self.r / -math.expm1(-self.r)
            rho = x - 1 - math.log(x)
        return rho * (1 + RHO_ROUNDING)


def _phi(x: Array) -> Array:
    """Compute ln(sinh(x/2) / (x/2)) for x >= 0, right to rounding: by its series for small x."""
    z = np.minimum(x / 2, 2.0)
    series = np.zeros_like(z)
    for k in range(18, 0, -1):
        series = z * z / (2 * k * (2 * k + 1)) * (1 + series)
    far = np.maximum(x, 4.0)
    return np.asarray(np.where(x <= 4, np.log1p(series), far / 2 + np.log1p(-np.exp(-far)) - np.log(far)))
