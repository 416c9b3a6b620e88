"""A release of which only rho-zCDP is known."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import ClassVar

import numpy as np

from wpriv.accounting.mechanisms._validation import RenyiBound, RenyiGuarantee
from wpriv.core.kinds import Release
from wpriv.core.parameters import parameter
from wpriv.errors import UsageError
from wpriv.numerics.arrays import Array


@dataclass(frozen=True)
class Zcdp(RenyiGuarantee):
    """A release of which only rho-zero-concentrated DP is known: D_alpha(P||Q) <= rho alpha for every alpha > 1.

    It must hold for the neighbours of the process, in both directions. Gaussian noise has rho = sensitivity^2 / (2
    sigma^2) and is better described by ``gauss``, whose privacy loss is known exactly.

    Source:
        Bun, Steinke (2016), Definition 1.1; the rhos of adaptively chosen releases add up.
    """

    release: ClassVar[Release] = Release.ZCDP
    source: ClassVar[str] = "Bun, Steinke 2016, Definition 1.1"

    rho: float = parameter("rho of the zCDP guarantee of one release", exclusive_minimum=0)

    def __post_init__(self) -> None:
        super().__post_init__()
        if not 1e-100 <= self.rho <= 1e100:
            raise UsageError(f"zcdp: rho must lie between 1e-100 and 1e100; found {self.rho:g}")

    def grouped(self, records: int) -> Zcdp:
        """rho-zCDP is m^2 rho-zCDP for groups of m (Bun, Steinke 2016, Proposition 1.9)."""
        return replace(self, rho=records * records * self.rho)

    def renyi_bound(self) -> ZcdpBound:
        return ZcdpBound(self.rho)

    def reading(self) -> tuple[str, ...]:
        return (
            f"{self.rho:g}-zCDP of each release is taken as given, for the neighbours that are named with the answer",
        )


@dataclass(frozen=True)
class ZcdpBound(RenyiBound):
    """The divergences of rho-zCDP."""

    rho: float

    def renyi(self, orders: Array) -> Array:
        return self.rho * np.asarray(orders, dtype=float)

    def zcdp_rho(self) -> float:
        return self.rho
