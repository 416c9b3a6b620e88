"""Laplace noise on every coordinate of the data of one person: pure local differential privacy."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from wpriv.accounting.mechanisms._validation import NO_BATCH
from wpriv.accounting.mechanisms.laplace import LaplacePair
from wpriv.core.kinds import Release
from wpriv.core.loss_pair import LossPair
from wpriv.core.mechanism import AdditiveNoise, ClipBall, Mechanism
from wpriv.core.parameters import parameter


@dataclass(frozen=True)
class LocalLaplace(Mechanism):
    """Send one person's vector, clipped to an l1 ball, + Laplace(scale) on every coordinate to an untrusted collector.

    Any two inputs are neighbours: the sensitivity is the DIAMETER 2 radius (also of the nonnegative part: e_1 against
    e_2), and a report is pure (2 radius/scale)-DP. The pair is that of a shift of ONE coordinate by the diameter, which
    dominates shifts spread over several coordinates. Proof: move the coordinates one after another. Along this chain
    T(P, R) >= g(1 - f(.)) if T(P, Q) >= f and T(Q, R) >= g, where T is the smallest type II error at a type I error.
    For log-concave noise with distribution function F a shift by t has f(a) = F(F^-1(1-a) - t), so the bound of the
    chain is the curve of the summed shift, which is the l1 distance.

    Source:
        Dwork, McSherry, Nissim, Smith (2006); Dong, Roth, Su (2019) for chains (group privacy); Reshetova, Chen, Ozgur
        (2023), Corollary 1, which takes the radius for the diameter.
    """

    release: ClassVar[Release] = Release.LOCAL
    noise: ClassVar[str | None] = "scale"
    ratios: ClassVar[tuple[tuple[str, str], ...]] = (("sensitivity", "scale"),)
    clip_norm: ClassVar[int | None] = 1
    why_not_sampled: ClassVar[str] = NO_BATCH
    source: ClassVar[str] = (
        "Dwork, McSherry, Nissim, Smith 2006, at the diameter of the clip ball; Reshetova, Chen, Ozgur 2023 (corrected)"
    )

    scale: float = parameter(
        "scale b of the noise on each coordinate, density exp(-|x|/b)/(2b), in the units of the data",
        exclusive_minimum=0,
    )
    radius: float = parameter("l1 norm to which every input is clipped, in the units of the data", exclusive_minimum=0)

    @property
    def sensitivity(self) -> float:
        """The largest l1 distance of two inputs, in the units of the data."""
        return 2 * self.radius

    def additive_noise(self) -> AdditiveNoise:
        return AdditiveNoise("laplace", self.scale, self.sensitivity, local=True)

    def clip_ball(self) -> ClipBall:
        return ClipBall(self.radius)

    def pair(self) -> LossPair:
        return LaplacePair.of_ratio(self.sensitivity, self.scale)

    def reading(self) -> tuple[str, ...]:
        eps = self.sensitivity / self.scale
        return (
            f"sensitivity = {self.sensitivity:.6g}, the l1 diameter of the inputs; one report is pure {eps:.6g}-DP "
            "(delta = 0)",
        )
