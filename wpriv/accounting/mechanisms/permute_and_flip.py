"""Permute-and-flip: look at the candidates in random order, and take one by a coin that its score decides."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import ClassVar

from wpriv.accounting.mechanisms.noisy_max import exponential_scores, laplace_at
from wpriv.core.kinds import Release
from wpriv.core.loss_pair import LossPair
from wpriv.core.mechanism import Mechanism
from wpriv.core.parameters import parameter
from wpriv.errors import UsageError


@dataclass(frozen=True)
class PermuteAndFlip(Mechanism):
    """Take candidate y, in random order, with probability e^(eps0 (u(y) - max u) / (2 s)), s the sensitivity of u.

    The exponent may be eps0 (u - max u) / s where a record moves all scores in the same direction. It is eps0-DP and
    not of range eps0: to call it eps0^2/8-zCDP, as is right for the exponential mechanism, is refuted. It equals
    report-noisy-max with exponential noise of scale 2 s / eps0.

    Source:
        McKenna, Sheldon (2020); Ding et al. (2021) (exponential noise); docs/theory/selection.md, Theorem 2 (its pair).
    """

    release: ClassVar[Release] = Release.SCORES
    source: ClassVar[str] = "McKenna, Sheldon 2020; wpriv (its pair)"

    eps0: float = parameter("eps of one selection, in nats", exclusive_minimum=0)

    def __post_init__(self) -> None:
        super().__post_init__()
        if not 1e-100 <= self.eps0 <= 1e100:
            raise UsageError(f"permute-and-flip: eps0 must lie between 1e-100 and 1e100; found {self.eps0:g}")

    def pair(self) -> LossPair:
        return exponential_scores(laplace_at([(1, self.eps0, 1.0)]))

    def grouped(self, records: int) -> PermuteAndFlip:
        """A group of m moves the scores m times as far."""
        return replace(self, eps0=records * self.eps0)
