"""Gaussian noise on the data of one person: local differential privacy."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import ClassVar

from wpriv.accounting.mechanisms._validation import NO_BATCH
from wpriv.accounting.mechanisms.gauss import GaussPair
from wpriv.core.kinds import Release
from wpriv.core.loss_pair import LossPair
from wpriv.core.mechanism import AdditiveNoise, ClipBall, Mechanism
from wpriv.core.parameters import parameter
from wpriv.errors import UsageError


@dataclass(frozen=True)
class LocalGauss(Mechanism):
    """Send one person's vector, clipped to an l2 ball, + N(0, sigma^2 I) to an untrusted collector.

    Any two inputs are neighbours, so the sensitivity is the DIAMETER of the ball, 2 radius; of its nonnegative part,
    sqrt(2) radius, since ``|x - x'|^2 <= |x|^2 + |x'|^2``. Exact: the analytic Gaussian mechanism. n counts the
    reports of one person about the same data.

    Source:
        Balle, Wang (2018); Reshetova, Chen, Ozgur (2023), equations (3) and (4) (their Corollary 2 takes the radius for
        the diameter).
    """

    release: ClassVar[Release] = Release.LOCAL
    noise: ClassVar[str | None] = "sigma"
    ratios: ClassVar[tuple[tuple[str, str], ...]] = (("sensitivity", "sigma"),)
    clip_norm: ClassVar[int | None] = 2
    why_not_sampled: ClassVar[str] = NO_BATCH
    source: ClassVar[str] = (
        "Balle, Wang 2018, at the diameter of the clip ball; Reshetova, Chen, Ozgur 2023 (corrected)"
    )

    sigma: float = parameter("standard deviation of the noise, in the units of the data", exclusive_minimum=0)
    radius: float = parameter("l2 norm to which every input is clipped, in the units of the data", exclusive_minimum=0)
    nonnegative: int = parameter("1 where no input has a negative coordinate, else 0", default=0, minimum=0)

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.nonnegative not in (0, 1):
            raise UsageError(
                f"{self.name}: nonnegative must be 1 (no input has a negative coordinate) or 0; "
                f"found {self.nonnegative}"
            )

    @property
    def sensitivity(self) -> float:
        """The largest l2 distance of two inputs, in the units of the data."""
        return self.radius * (math.sqrt(2) if self.nonnegative else 2)

    def additive_noise(self) -> AdditiveNoise:
        return AdditiveNoise("gauss", self.sigma, self.sensitivity, local=True)

    def clip_ball(self) -> ClipBall:
        return ClipBall(self.radius, bool(self.nonnegative))

    def pair(self) -> LossPair:
        return GaussPair(self.sensitivity / self.sigma)

    def reading(self) -> tuple[str, ...]:
        return (f"sensitivity = {self.sensitivity:.6g}, the l2 diameter of the inputs; any two inputs are neighbours",)
