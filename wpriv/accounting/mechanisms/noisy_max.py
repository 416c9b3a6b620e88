"""Report noisy max: the candidate with the largest score after independent noise on each; and pairs of selections.

docs/theory/selection.md has the theorems.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass
from fractions import Fraction
from typing import ClassVar

from scipy.special import log_ndtr

from wpriv.accounting.mechanisms.exponential import Exponential
from wpriv.accounting.mechanisms.gauss import GaussPair
from wpriv.accounting.mechanisms.laplace import LaplacePair
from wpriv.accounting.mechanisms.randomized_response import ResponsePair
from wpriv.core.kinds import Release
from wpriv.core.loss_pair import BetweenPair, LossPair
from wpriv.core.mechanism import Mechanism
from wpriv.core.parameters import parameter
from wpriv.errors import UsageError
from wpriv.numerics.arrays import Array
from wpriv.numerics.numbers import decimal

MONOTONE = "true where a record moves all scores in the same direction, as counts do"
SENSITIVITY = "largest change of one score between neighbours, in its units"
# a factor below the rounding of the odds of two candidates
ROUNDING = 1e-13
# ln of the least probability whose odds are computed as such
LOG_TINY = -600.0


@dataclass(frozen=True)
class NoisyMax(Mechanism):
    """Report which candidate has the largest score after independent noise on each score; the value stays secret.

    Exponential noise is permute-and-flip, and Gumbel noise is the exponential mechanism, whose pairs are exact. Of
    Laplace noise an upper bound is known that holds for any number of candidates, and of Gaussian noise one that grows
    with their number; for two candidates it is exact. Fresh noise is drawn in every release.

    Source:
        docs/theory/selection.md, Theorems 1 to 3; McKenna, Sheldon 2020; Ding et al. 2021; Durfee, Rogers 2019.
    """

    release: ClassVar[Release] = Release.SCORES
    noise: ClassVar[str | None] = "scale"
    ratios: ClassVar[tuple[tuple[str, str], ...]] = (("sensitivity", "scale"),)
    source: ClassVar[str] = "wpriv (interpolation); McKenna, Sheldon 2020; Durfee, Rogers 2019"

    scale: float = parameter(
        "scale of the noise, for gauss its standard deviation, in the units of a score", exclusive_minimum=0
    )
    sensitivity: float = parameter(SENSITIVITY, default=1.0, exclusive_minimum=0)
    distribution: str = parameter("the noise", default="laplace", choices=("laplace", "exponential", "gumbel", "gauss"))
    monotone: bool = parameter(MONOTONE, default=False)
    candidates: int | None = parameter("number of candidates, which gauss needs", default=None, minimum=2)

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.distribution == "gauss" and self.candidates is None:
            raise UsageError(
                "noisy-max: Gaussian noise needs `candidates=...`, since its bound grows with their number; found none"
            )

    def pair(self) -> LossPair:
        moves = 1 if self.monotone else 2
        if self.distribution == "gumbel":
            return Exponential(moves * self.sensitivity / self.scale).pair()
        if self.distribution == "gauss" and self.candidates is not None:
            half = self.candidates // 2
            spread = math.sqrt(half * (self.candidates - half) / self.candidates)
            moved = moves * self.sensitivity / self.scale
            return gauss_scores(GaussPair(moved * spread), moved, self.candidates)
        bound = laplace_at([(moves, self.sensitivity, self.scale)])
        return exponential_scores(bound) if self.distribution == "exponential" else laplace_scores(bound, bound.t)


class ScoresPair(BetweenPair):
    """Between the pair of two candidates, one against the other, and the pair that dominates every selection.

    Args:
        most: the dominating pair. log_q: ln of the probability q with which the candidate that gains is selected before
            the scores move, and the other one afterwards. gap: 1 - 2 q, without its cancellation.
        exact_alone: whether the profile of ``most`` is attained at each eps.
    """

    symmetric = True

    def __init__(self, most: LaplacePair | GaussPair, log_q: float, gap: float, exact_alone: bool = False):
        odds = math.log1p(gap * math.exp(-log_q)) if log_q > LOG_TINY else -log_q
        super().__init__(ResponsePair(odds * (1 - ROUNDING), 0.0, 1), most)
        self.key = (most, log_q, exact_alone)
        self.largest, self.exact_alone = most.largest, exact_alone

    def renyi(self, orders: Array) -> Array | None:
        return self.most.renyi(orders)

    def zcdp_rho(self) -> float | None:
        return self.most.zcdp_rho()

    def log_delta_error(self, eps: float) -> float:
        return self.most.log_delta_error(eps)

    def reverse(self) -> ScoresPair:
        return self


def laplace_at(terms: Iterable[tuple[int, float, float]]) -> LaplacePair:
    """Laplace distributions at the distance of the sum of count x sensitivity / scale, in units of their scale."""
    terms = list(terms)
    exact = sum((count * Fraction(a) / Fraction(b) for count, a, b in terms), Fraction(0))
    t = float(exact)
    t = t if Fraction(t) >= exact else math.nextafter(t, math.inf)
    pair = LaplacePair(t, float(exact - Fraction(t)))
    pair.largest = sum((count * decimal(a) / decimal(b) for count, a, b in terms), Fraction(0))
    return pair


def exponential_scores(most: LaplacePair) -> ScoresPair:
    """Exponential noise: the difference of two candidates is Laplace noise, whose pair is ``most`` itself."""
    half = most.t / 2
    return ScoresPair(most, -half - math.log(2), -math.expm1(-half), exact_alone=True)


def laplace_scores(most: LaplacePair, moved: float, wide: float = 1.0, narrow: float = 1.0) -> ScoresPair:
    """Laplace noise of two scales on two numbers, whose difference moves from -moved/2 to moved/2.

    The noise exceeds h = moved/2 with probability e^(-h/wide) / 2 (1 + h narrow / (wide (wide + narrow)) f(u)), f(u) =
    (1 - e^-u) / u and u = h (wide - narrow) / (wide narrow): the convolution of two Laplace densities.
    """
    wide, narrow = max(wide, narrow), min(wide, narrow)
    x = moved / wide / 2
    u = moved / narrow / 2 - x
    more = x * narrow / (wide + narrow) * (-math.expm1(-u) / u if u > 0 else 1.0)
    return ScoresPair(most, math.log1p(more) - x - math.log(2), -math.expm1(-x) - more * math.exp(-x))


def gauss_scores(most: GaussPair, moved: float, candidates: int) -> ScoresPair:
    """Gaussian noise of deviation 1: the difference of two candidates has deviation sqrt(2)."""
    half = moved / math.sqrt(8)
    return ScoresPair(most, float(log_ndtr(-half)), math.erf(half / math.sqrt(2)), exact_alone=candidates == 2)
