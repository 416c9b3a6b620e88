"""A release of which mu-Gaussian differential privacy is known."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import ClassVar

from wpriv.accounting.mechanisms.gauss import GaussPair
from wpriv.core.kinds import Release
from wpriv.core.loss_pair import LossPair
from wpriv.core.mechanism import Mechanism
from wpriv.core.parameters import parameter
from wpriv.errors import UsageError


@dataclass(frozen=True)
class Gdp(Mechanism):
    """A release of which only mu-Gaussian DP is known: no easier to attack than one draw of N(mu, 1) or N(0, 1).

    The pair N(mu, 1), N(0, 1) dominates that of every mu-GDP release by definition, and is attained by Gaussian noise
    with mu = sensitivity / sigma, so the result is the best that holds for all of them. mu-GDP must hold for the
    neighbours of the process, in both directions. With ``sampling`` the guarantee is that of the mechanism on the
    records that were drawn, for every size of the sample: dominating pairs are preserved by sampling (Zhu, Dong, Wang
    2022). The mu of a central limit theorem is an approximation and must not be given here.

    Source:
        Dong, Roth, Su (2019).
    """

    release: ClassVar[Release] = Release.GDP
    source: ClassVar[str] = "Dong, Roth, Su 2019 (mu-GDP)"

    mu: float = parameter("mu of the Gaussian DP guarantee of one release", exclusive_minimum=0)

    def __post_init__(self) -> None:
        super().__post_init__()
        if not 1e-100 <= self.mu <= 1e100:
            raise UsageError(f"gdp: mu must lie between 1e-100 and 1e100; found {self.mu:g}")

    def pair(self) -> LossPair:
        return GaussPair(self.mu)

    def grouped(self, records: int) -> Gdp:
        """mu-GDP is m mu-GDP for groups of m (Dong, Roth, Su 2019, Theorem 2.14)."""
        return replace(self, mu=records * self.mu)

    def reading(self) -> tuple[str, ...]:
        return (
            f"{self.mu:g}-GDP of each release is taken as given, for the neighbours that are named with the answer",
        )
