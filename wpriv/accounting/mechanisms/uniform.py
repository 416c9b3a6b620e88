"""Uniform noise on integers: every outcome either reveals nothing or identifies the neighbour."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from wpriv.core.atomic_pair import AtomicPair
from wpriv.core.kinds import Release
from wpriv.core.loss_pair import LossPair
from wpriv.core.mechanism import Mechanism
from wpriv.core.parameters import parameter
from wpriv.errors import UsageError


@dataclass(frozen=True)
class Uniform(Mechanism):
    """Release an integer-valued query plus noise uniform on ``outcomes`` consecutive integers.

    Two neighbours share outcomes - sensitivity of them, at loss 0; every other outcome identifies one of them. The
    query must have integer values: integer noise does not hide a shift of one half.

    Source:
        Sommer, Meiser, Mohammadi (2019), Example 2 (corrected).
    """

    release: ClassVar[Release] = Release.BOUNDED
    source: ClassVar[str] = "Sommer, Meiser, Mohammadi 2019, Example 2 (corrected)"
    example: ClassVar[dict[str, object]] = {"outcomes": 10}

    outcomes: int = parameter("number of values of the noise, all equally likely", minimum=2)
    sensitivity: int = parameter("largest change of the integer-valued query between neighbours", default=1, minimum=1)

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.sensitivity >= self.outcomes:
            raise UsageError(
                f"uniform: outcomes must exceed sensitivity, else the neighbours have no outcome in common; "
                f"found outcomes {self.outcomes} and sensitivity {self.sensitivity}"
            )

    def pair(self) -> LossPair:
        return UniformPair(math.log1p(-self.sensitivity / self.outcomes))


class UniformPair(AtomicPair):
    """One atom at loss 0 of mass e^log_keep; the rest is at infinity, in both directions."""

    def __init__(self, log_keep: float):
        self.log_keep = log_keep
        infinity = -math.expm1(log_keep)
        super().__init__(np.zeros(1), np.array([log_keep]), infinity, infinity, symmetric=True)

    def self_compose(self, n: int) -> UniformPair:
        return UniformPair(n * self.log_keep)

    def compose_with(self, other: LossPair) -> UniformPair | None:
        return UniformPair(self.log_keep + other.log_keep) if isinstance(other, UniformPair) else None
