"""Correlated Gaussian noise by matrix factorization, accounted for by the sensitivity of its strategy.

Row i of C x is released at step i, and row j of x is what a record contributes to step j, a vector of norm at most 1.
The steps in which a record takes part, its pattern, lie at least ``separation`` apart. docs/theory/bands.md has the
proofs.
"""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
from numpy.typing import ArrayLike

from wpriv import strategies
from wpriv.accounting.mechanisms._balls_in_bins import pair_in_bins
from wpriv.accounting.mechanisms._validation import reading
from wpriv.accounting.mechanisms.gauss import GaussPair
from wpriv.core.kinds import Adjacency, Neighbours, Release
from wpriv.core.loss_pair import LossPair, Tails
from wpriv.core.mechanism import Mechanism
from wpriv.core.parameters import parameter
from wpriv.errors import UsageError
from wpriv.files import array_files
from wpriv.numerics.arrays import Array
from wpriv.numerics.numbers import text
from wpriv.numerics.strategy_sensitivity import UNIT, Sensitivity, bands, strategy_sensitivity
from wpriv.strategies import KINDS, MAX_STEPS

# most steps of a matrix whose columns overlap for steps of one record, which needs all their products
MAX_OVERLAPPING = 4096
MAX_BYTES = 8 * MAX_STEPS**2 + 4096
HELP = (
    f"a .npy file with a lower-triangular matrix, or {', '.join(KINDS)} with their number and n, as in banded:4,n=1000 "
    "(without n beside `sampling='balls-in-bins'`)"
)


@lru_cache(maxsize=32)
def _bounded(strategy: str, identity: tuple[int, ...], separation: int, participations: int) -> Sensitivity:
    """The sensitivity of a strategy; ``identity`` changes with the content of its file."""
    matrix = _matrix(strategy, identity, separation, participations)
    if matrix.shape[0] > MAX_OVERLAPPING and participations != 1 and bands(matrix) > separation:
        raise UsageError(
            f"matrix-gauss: the columns of {strategy} overlap at a separation of {separation}, and all their products "
            f"are needed, for at most {MAX_OVERLAPPING} steps; found {matrix.shape[0]}. Give a `separation=...` "
            f"of at least the {bands(matrix)} bands of the matrix, or `participations=1`"
        )
    return strategy_sensitivity(matrix, separation, participations)


def _identity(strategy: str) -> tuple[int, ...]:
    """What changes with the content of a file; nothing for a matrix that is made by name."""
    kind, colon, _ = strategy.partition(":")
    if kind in KINDS or (colon and Path(strategy).suffix != ".npy"):
        return ()
    with reading("matrix-gauss", strategy, HELP, f"strategy must be {HELP}") as identity:
        if identity[-1] > MAX_BYTES:
            size = f"{identity[-1] >> 20} MB"
            raise UsageError(f"{strategy}: a matrix of at most {MAX_STEPS} steps was wanted; found a file of {size}")
        return identity


@lru_cache(maxsize=1)
def _matrix(strategy: str, identity: tuple[int, ...], separation: int, participations: int) -> Array:
    """The [n, n] matrix: finite, lower triangular and not zero; one by name suits its participations."""
    if not identity:
        return strategies.strategy(strategy, 0, separation, participations).matrix()
    try:
        matrix = array_files.load(strategy)
    except array_files.DAMAGED as error:
        raise UsageError(f"{strategy} is no .npy file of numbers, or is damaged. Give {HELP}") from error
    if not isinstance(matrix, np.ndarray) or matrix.dtype.kind not in "fiu":
        kind = f"the type {matrix.dtype}" if isinstance(matrix, np.ndarray) else "several arrays"
        raise UsageError(f"{strategy}: one array of real numbers was wanted; found {kind}. Give {HELP}")
    if matrix.ndim != 2 or matrix.shape[0] != matrix.shape[1] or not 1 <= matrix.shape[0] <= MAX_STEPS:
        raise UsageError(
            f"{strategy}: a square matrix of 1 to {MAX_STEPS} rows was wanted, a row and a column for each step; found "
            f"the shape {matrix.shape}"
        )
    matrix = matrix.astype(float)
    if not np.isfinite(matrix).all() or not 1e-100 <= np.abs(matrix).max() <= 1e100:
        raise UsageError(f"{strategy}: finite numbers were wanted, the largest from 1e-100 to 1e100 in size")
    above = np.argwhere(np.triu(matrix, 1))
    if above.size:
        row, column = above[0]
        raise UsageError(
            f"{strategy}: a lower-triangular matrix was wanted, whose row i depends on the first i steps; found "
            f"{matrix[row, column]:g} in row {row}, column {column} (counted from 0). Give the strategy C of the "
            f"factorization A = B C, not B, and not its transpose"
        )
    return np.asarray(matrix)


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
    norm: ClassVar[str] = "l2"
    ratios: ClassVar[tuple[tuple[str, str], ...]] = (("sensitivity", "sigma"),)
    why_not_sampled: ClassVar[str] = (
        "its records take part in given steps. Leave out `sampling` and `rate`, or use `sampling='balls-in-bins'` with "
        "`bins`; for cyclic Poisson sampling of a banded matrix use `mech='gauss'` with `bands`"
    )
    source: ClassVar[str] = "Denisov et al. 2022; Choquette-Choo et al. 2023 (matrix factorization)"
    example: ClassVar[dict[str, object]] = {"strategy": "prefix:n=20", "separation": 7}

    sigma: float = parameter("standard deviation of Z, in the units of a contribution", exclusive_minimum=0)
    strategy: str = parameter(f"strategy C: {HELP}")
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
        if not isinstance(self.strategy, str) or not self.strategy:
            raise UsageError(f"matrix-gauss: strategy must be {HELP}; found {self.strategy!r}")

    def sensitivity_bounds(self) -> tuple[float, float]:
        """Both ends of sens(C), for contributions of norm 1."""
        bounds = _bounded(self.strategy, _identity(self.strategy), self.separation, self.participations)
        return bounds.lower, bounds.upper

    def matrix(self) -> Array:
        """[n, n] the strategy C."""
        return _matrix(self.strategy, _identity(self.strategy), self.separation, self.participations)

    def in_bins(self, n: int, bins: int) -> Mechanism:
        """The mechanism with a matrix of n rows, whose steps of one record lie ``bins`` apart.

        Raises:
            UsageError: the matrix has another size or a negative entry, or the separation and the participations say
                something else.
        """
        if self.separation not in (1, bins) or self.participations:
            raise UsageError(
                "matrix-gauss: with balls in bins the steps of a record are those of its bin; leave out `separation` "
                "and `participations`"
            )
        strategy = self.strategy
        if not _identity(strategy) and not strategies.steps_of(strategy):
            strategy += f"{',' if ':' in strategy else ':'}n={n}"
        placed = dataclasses.replace(self, strategy=strategy, separation=bins)
        matrix = placed.matrix()
        if len(matrix) != n:
            raise UsageError(f"matrix-gauss: {strategy} has {len(matrix)} steps; found n = {n} = `bins` x `epochs`")
        if (negative := np.argwhere(matrix < 0)).size:
            row, column = negative[0]
            raise UsageError(
                f"matrix-gauss: balls in bins are proven for strategies without negative entries; {strategy} has "
                f"{matrix[row, column]:g} in row {row}, column {column} (counted from 0). Leave out `sampling`, for "
                f"the bound without amplification"
            )
        return placed

    def pair_in_bins(self, bins: int) -> LossPair:
        matrix = self.matrix()
        moves = np.stack([matrix[:, place::bins].sum(axis=1) for place in range(bins)])
        return pair_in_bins(moves, self.sensitivity / self.sigma, self.pair())

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
        matrix = self.matrix()
        return {
            "strategy_steps": len(matrix),
            "strategy_bands": bands(matrix),
            "strategy_column": float(np.sqrt((matrix**2).sum(axis=0).max())) * (1 + (len(matrix) + 8) * UNIT),
            "strategy_sensitivity_lower": lower,
            "strategy_sensitivity_upper": upper,
        }

    def reading(self) -> tuple[str, ...]:
        lower, upper = self.sensitivity_bounds()
        size = len(self.matrix())
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
