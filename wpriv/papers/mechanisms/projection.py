"""Gaussian noise on random projections, whose pair is Gaussian with a random, public separation."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
from numpy.typing import ArrayLike
from scipy.special import ndtr

from wpriv.core.kinds import Release
from wpriv.core.loss_pair import KeyedPair, LossPair, Tails, symmetric_log_delta
from wpriv.core.mechanism import Mechanism, RandomProjection
from wpriv.core.parameters import parameter
from wpriv.errors import UsageError
from wpriv.numerics import counted_work
from wpriv.numerics.arrays import Array
from wpriv.numerics.conversions import log_mills_drop
from wpriv.papers.projected_length import length_bracket, log_moment

_BLOCK = 1 << 19
# nanoseconds for each separation: of the tails at a loss, and of the profile at an eps
TAIL_WORK, PROFILE_WORK = 15.0, 600.0


class GaussMixture(KeyedPair):
    """The pair (mu, N(mu, 1)) against (mu, N(0, 1)), with mu drawn from a public discrete distribution.

    Args:
        mu: [J] separations > 0. weight: [J] their probabilities. key: what determines both, for equality.
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
        return symmetric_log_delta(y, above)


MAX_DIRECTIONS, MAX_DIMENSIONS = 2**20, 2**30
# relative width of the sandwich at tolerances below 1e-6, and where a single dominating pair is needed
FINEST, USUAL = 2e-6, 3e-3


@dataclass(frozen=True)
class Projection(Mechanism):
    """Release k fresh uniform directions U of R^d and X U + N(0, sigma^2), where the records are the rows of X.

    U is public and independent of the data, so given U this is Gaussian noise at separation ``|z U| / sigma``, with
    z the difference of a record and its replacement. The squared length ``|z U|^2`` is ``|z|^2`` times a sum of k
    independent Beta(1/2, (d-1)/2) variables, and the privacy profile is the mean over it of Gaussian profiles. The
    longest z is the worst, since every profile grows with the separation. Where records are sampled, the rows must be
    in random order (docs/theory/subsampling.md).

    Source:
        Rakotomamonjy and Ralaivola (2021), Algorithm 1 and Lemma 1; exact accounting instead of their Proposition 2.
    """

    release: ClassVar[Release] = Release.PROJECTION
    noise: ClassVar[str | None] = "sigma"
    norm: ClassVar[str] = "l2"
    ratios: ClassVar[tuple[tuple[str, str], ...]] = (("sensitivity", "sigma"),)
    why_not_sampled: ClassVar[str] = (
        "it releases one row for each drawn record, so the shape of the release would reveal the batch size, and its "
        "neighbours have equal size. Use `sampling='fixed'`"
    )
    source: ClassVar[str] = "Rakotomamonjy, Ralaivola 2021, Algorithm 1 and Lemma 1"
    example: ClassVar[dict[str, object]] = {"d": 20, "k": 5}

    d: int = parameter("dimension of the records (of the space that is projected)", minimum=2)
    k: int = parameter("number of random directions, fresh at every release", minimum=1)
    sigma: float = parameter(
        "standard deviation of the noise on each projected coordinate, in the units of the records", exclusive_minimum=0
    )
    sensitivity: float = parameter(
        "largest l2 distance between a record and its replacement; sampled rows are released in a secret random order",
        default=1.0,
        exclusive_minimum=0,
    )

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.k > MAX_DIRECTIONS or self.d > MAX_DIMENSIONS:
            raise UsageError(
                f"projection: k must be at most {MAX_DIRECTIONS:,} and d at most {MAX_DIMENSIONS:,}; "
                f"found k = {self.k}, d = {self.d}"
            )

    def random_projection(self) -> RandomProjection:
        return RandomProjection(self.d, self.k, self.sigma, self.sensitivity)

    def pair(self) -> LossPair:
        return ProjectionPair(self.k, self.d, self.sigma / self.sensitivity)


def at_multiplier(d: int, k: int, sensitivity: float, multiplier: float) -> Projection:
    """Return the projections with noise of ``multiplier`` times the sensitivity."""
    return Projection(d, k, multiplier * sensitivity, sensitivity)


@dataclass(frozen=True)
class ProjectionPair(LossPair):
    """A mixture over H of Gaussian pairs at separation sqrt(H) / sigma; ``sigma`` in units of the sensitivity.

    Its tails and profile are those of a dominating pair, by about 1e-3 of eps; ``renyi`` is exact.
    """

    k: int
    d: int
    sigma: float
    symmetric = True

    def sandwich(self, tol: float) -> tuple[GaussMixture, GaussMixture]:
        accuracy = min(max(tol / 3, FINEST), 1e-2)
        low, high = length_bracket(self.k, self.d, self.sigma, accuracy)
        parameters = (self.k, self.d, self.sigma, accuracy)
        return (
            GaussMixture(low.u / self.sigma, low.weight, ("below", *parameters)),
            GaussMixture(high.u / self.sigma, high.weight, ("above", *parameters)),
        )

    def tails(self, eps: Array) -> Tails:
        return self.sandwich(USUAL)[1].tails(eps)

    def log_delta(self, eps: ArrayLike) -> Array:
        return self.sandwich(USUAL)[1].log_delta(eps)

    def renyi(self, orders: Array) -> Array:
        """Compute k/(a-1) ln 1F1(1/2; d/2; a(a-1)/(2 sigma^2)), the mean over H of the Gaussian moment."""
        a = np.asarray(orders, dtype=float)
        exponent = a * (a - 1) / 2 / self.sigma / self.sigma
        return np.asarray(self.k * log_moment(self.d, exponent) / (a - 1))
