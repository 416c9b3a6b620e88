"""A release of which only rho-zCDP, or (xi, rho)-zCDP, is known."""

from __future__ import annotations

import math
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
    """A release of which only zero-concentrated DP is known: D_alpha(P||Q) <= xi + rho alpha for every alpha > 1.

    It must hold for the neighbours of the process, in both directions. Gaussian noise has rho = sensitivity^2 / (2
    sigma^2) and xi = 0, and is better described by ``gauss``, whose privacy loss is known exactly.

    Source:
        Bun, Steinke (2016), Definitions 1.1 and 8.1; the xis and the rhos of adaptively chosen releases add up.
    """

    release: ClassVar[Release] = Release.ZCDP
    source: ClassVar[str] = "Bun, Steinke 2016, Definition 1.1"

    rho: float = parameter("rho of the zCDP guarantee of one release", exclusive_minimum=0)
    xi: float | None = parameter("xi of a guarantee of (xi, rho)-zCDP; left out, 0", default=None, minimum=0)

    def __post_init__(self) -> None:
        super().__post_init__()
        if not 1e-100 <= self.rho <= 1e100:
            raise UsageError(f"zcdp: rho must lie between 1e-100 and 1e100; found {self.rho:g}")
        if (self.xi or 0.0) > 1e100:
            raise UsageError(f"zcdp: xi must be at most 1e100; found {self.xi:g}")

    def grouped(self, records: int) -> Zcdp:
        """(m H_m xi, m^2 rho)-zCDP for groups of m, H_m = 1 + 1/2 + ... + 1/m (Bun, Steinke 2016, Proposition 27)."""
        return replace(self, rho=records * records * self.rho, xi=self.xi and group_xi(self.xi, records))

    def renyi_bound(self) -> ZcdpBound:
        return ZcdpBound(self.rho, self.xi or 0.0)

    def reading(self) -> tuple[str, ...]:
        stated = f"({self.xi:g}, {self.rho:g})" if self.xi else f"{self.rho:g}"
        return (f"{stated}-zCDP of each release is taken as given, for the neighbours that are named with the answer",)


def group_xi(xi: float, records: int) -> float:
    """The xi of groups of m records, rounded up: m H_m xi."""
    return records * math.fsum(1 / k for k in range(1, records + 1)) * xi * (1 + 1e-15) if xi else 0.0


@dataclass(frozen=True)
class ZcdpBound(RenyiBound):
    """The divergences of (xi, rho)-zCDP."""

    rho: float
    xi: float = 0.0

    def renyi(self, orders: Array) -> Array:
        return self.xi + self.rho * np.asarray(orders, dtype=float)

    def zcdp_line(self) -> tuple[float, float]:
        return self.xi, self.rho
