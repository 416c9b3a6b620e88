"""Matrix factorization: correlated noise on the steps of a training, as one Gaussian release."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
from numpy.typing import ArrayLike

from wpriv.core.adjacency import Adjacency, Neighbours, Release
from wpriv.core.loss_pair import LossPair, Tails
from wpriv.core.mechanism import Mechanism
from wpriv.core.parameters import parameter
from wpriv.errors import UsageError
from wpriv.mechanisms import _strategies
from wpriv.mechanisms._validation import ratio, whole_number
from wpriv.mechanisms.gauss import GaussPair
from wpriv.numerics.arrays import Array
from wpriv.numerics.safe_rounding import text

# relative distance of the two ends of a sensitivity that is known up to rounding
EXACT = 1e-11


@dataclass(frozen=True)
class MatrixGauss(Mechanism):
    """Release C x + Z row by row, where x_j is the sum of clipped contributions to step j and Z independent noise.

    The noise of the steps of a training is then C^-1 Z, of which parts cancel. A record may take part in steps that
    are at least ``separation`` apart, whatever the other records are, and at most ``participations`` times. Each
    contribution, which may depend on earlier rows, has a norm of at most ``sensitivity``. The whole is one Gaussian
    release of sensitivity sens(C) times that (docs/theory/bands.md, Theorem 2), and of twice that where a record is
    replaced (Theorem 5); ``n`` counts such trainings.

    Source:
        Denisov, McMahan, Rush, Smith, Thakurta (2022); Choquette-Choo et al. (2023).
    """

    release: ClassVar[Release] = Release.MATRIX
    noise: ClassVar[str | None] = "sigma"
    why_not_sampled: ClassVar[str] = (
        "its records take part in given steps. Leave out `sampling` and `rate`; for cyclic Poisson sampling of a "
        "banded matrix use `mech='gauss'` with `bands`"
    )
    source: ClassVar[str] = "Denisov et al. 2022; Choquette-Choo et al. 2023 (matrix factorization)"

    sigma: float = parameter("standard deviation of Z, in the units of a contribution", exclusive_minimum=0)
    strategy: str = parameter("strategy C: a .npy file, or identity:n=1000, prefix:n=1000, root:n=1000,bands=100")
    separation: int = parameter(
        "smallest distance of two steps in which a record takes part; 1 for any steps", default=1, minimum=1
    )
    participations: int = parameter(
        "largest number of steps in which a record takes part; 0 for no limit but the separation", default=0, minimum=0
    )
    sensitivity: float = parameter(
        "l2 norm of a record's contribution to one step (the clipping norm)", default=1.0, exclusive_minimum=0
    )

    def __post_init__(self) -> None:
        super().__post_init__()
        whole_number(self, "separation", 1)
        whole_number(self, "participations", 0)
        ratio(self, "sensitivity", "sigma")
        if not isinstance(self.strategy, str) or not self.strategy:
            raise UsageError(f"matrix-gauss: strategy must be {_strategies.HELP}; found {self.strategy!r}")

    def sensitivity_bounds(self) -> tuple[float, float]:
        """Both ends of sens(C), for contributions of norm 1.

        Raises:
            MissingResource: the file cannot be read.
            UsageError: it holds no such matrix.
        """
        bounds = _strategies.bounded(self.strategy, self.separation, self.participations)
        return bounds.lower, bounds.upper

    def between(self, neighbours: Neighbours) -> Mechanism:
        """With twice the sensitivity where a record is replaced, which takes one pattern away and adds another."""
        twice = 2 if neighbours.adjacency == Adjacency.REPLACE_ONE else 1
        return self.grouped(twice * neighbours.group)

    def pair(self) -> LossPair:
        lower, upper = self.sensitivity_bounds()
        inverse = self.sensitivity / self.sigma
        return GaussPair(upper * inverse) if self._exact else StrategyPair(lower * inverse, upper * inverse)

    def renyi_bound(self) -> LossPair | None:
        return None if self._exact else self.pair()

    @property
    def _exact(self) -> bool:
        lower, upper = self.sensitivity_bounds()
        return upper - lower <= EXACT * upper

    def computed(self) -> dict[str, Any]:
        lower, upper = self.sensitivity_bounds()
        return {
            "strategy_steps": _strategies.steps(self.strategy),
            "strategy_sensitivity_lower": lower,
            "strategy_sensitivity_upper": upper,
        }

    def reading(self) -> tuple[str, ...]:
        lower, upper = self.sensitivity_bounds()
        size = _strategies.steps(self.strategy)
        high = text(upper, up=True)
        value = f"= {high}, exact" if self._exact else f"between {text(lower, up=False)} and {high}"
        times = f", at most {self.participations} times" if self.participations else ""
        return (
            f"sens(C) {value}, of {self.strategy} with {size} steps: a record takes part in steps at least "
            f"{self.separation} apart{times}, whatever the other records are",
            f"noise multiplier sigma / (sens(C) x sensitivity) = {self.sigma / upper / self.sensitivity:.6g} of one "
            f"Gaussian release of all rows",
        )


@dataclass(frozen=True)
class StrategyPair(LossPair):
    """A Gaussian pair whose mu lies between two ends; its own figures are those of the upper one."""

    lower: float
    upper: float
    symmetric = True

    def sandwich(self, tol: float) -> tuple[LossPair, LossPair]:
        return GaussPair(self.lower), GaussPair(self.upper)

    def tails(self, eps: Array) -> Tails:
        return GaussPair(self.upper).tails(eps)

    def log_delta(self, eps: ArrayLike) -> Array:
        return GaussPair(self.upper).log_delta(eps)

    def renyi(self, orders: Array) -> Array:
        return GaussPair(self.upper).renyi(np.asarray(orders))

    def zcdp_rho(self) -> float:
        return GaussPair(self.upper).zcdp_rho()
