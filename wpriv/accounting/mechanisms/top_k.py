"""Top-k: the k candidates with the largest noisy scores, noise being drawn once on each score."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from wpriv.accounting.mechanisms.exponential import Exponential
from wpriv.accounting.mechanisms.noisy_max import (
    MONOTONE,
    SENSITIVITY,
    exponential_scores,
    laplace_at,
    laplace_scores,
)
from wpriv.core.kinds import Release
from wpriv.core.loss_pair import LossPair
from wpriv.core.mechanism import Mechanism
from wpriv.core.parameters import parameter


@dataclass(frozen=True)
class TopK(Mechanism):
    """Release the k candidates with the largest score + noise, in their order or not, from one draw of noise.

    With Gumbel noise this is k exponential mechanisms one after another, each on the candidates that are left, and is
    accounted for as these, where no records are sampled. With Laplace or exponential noise it is pure DP, with a
    largest loss of 2 k s / scale, or of k s / scale where a record moves all scores in the same direction. Fresh noise
    for each of the k (peeling) is ``noisy-max`` with n = k, which costs less.

    Source:
        Durfee, Rogers (2019), Lemma 4.2 (Gumbel noise); docs/theory/selection.md, Theorem 5.
    """

    release: ClassVar[Release] = Release.SCORES
    noise: ClassVar[str | None] = "scale"
    ratios: ClassVar[tuple[tuple[str, str], ...]] = (("sensitivity", "scale"),)
    source: ClassVar[str] = "Durfee, Rogers 2019; wpriv (interpolation)"

    scale: float = parameter("scale of the noise, in the units of a score", exclusive_minimum=0)
    k: int = parameter("number of candidates that are released", minimum=1)
    sensitivity: float = parameter(SENSITIVITY, default=1.0, exclusive_minimum=0)
    distribution: str = parameter("the noise", default="gumbel", choices=("gumbel", "laplace", "exponential"))
    monotone: bool = parameter(MONOTONE, default=False)

    def pair(self) -> LossPair:
        if self.distribution == "gumbel":
            selection, count = self._selections()
            return selection.grouped(count).pair()
        moves = 1 if self.monotone else 2
        bound = laplace_at([(moves * self.k, self.sensitivity, self.scale)])
        if self.distribution == "exponential" and self.k == 1:
            return exponential_scores(bound)
        # k - 1 candidates far ahead of two others leave one selection between these
        one = moves * self.sensitivity / self.scale
        return laplace_scores(bound, one)

    def unrolled(self) -> tuple[Mechanism, int]:
        return self._selections() if self.distribution == "gumbel" else (self, 1)

    def _selections(self) -> tuple[Exponential, int]:
        """One exponential mechanism, and how many there are."""
        return Exponential((1 if self.monotone else 2) * self.sensitivity / self.scale), self.k
