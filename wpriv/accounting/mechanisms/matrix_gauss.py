"""Correlated Gaussian noise by matrix factorization, with the sensitivity of its strategy: an upper end, and a pattern.

Row i of C x is released at step i, and row j of x is what a record contributes to step j, a vector of norm at most 1.
The steps in which a record takes part, its pattern, lie at least ``separation`` apart. docs/theory/bands.md has the
proofs.
"""

from __future__ import annotations

import dataclasses
import math
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any, ClassVar, NamedTuple

import numpy as np
from numpy.typing import ArrayLike

from wpriv.accounting.mechanisms._balls_in_bins import pair_in_bins
from wpriv.accounting.mechanisms._validation import reading
from wpriv.accounting.mechanisms.gauss import GaussPair
from wpriv.core import registry
from wpriv.core.kinds import Adjacency, Neighbours, Release
from wpriv.core.loss_pair import LossPair, Tails
from wpriv.core.mechanism import Mechanism
from wpriv.core.parameters import parameter
from wpriv.errors import UsageError
from wpriv.files import array_files
from wpriv.hints import did_you_mean
from wpriv.numerics.arrays import Array
from wpriv.numerics.numbers import text, whole

# operations up to which the bound of far pairs counts participations
MAX_WORK = 2e9
# unit of rounding, and what underflow may hide in a matrix whose largest entry is near 1
UNIT, HIDDEN = 2.0**-53, 1e-300
# moves from one pattern to a better one
MAX_MOVES = 30


class Sensitivity(NamedTuple):
    """Both ends of the largest norm of a record's contribution to the rows of C x.

    Attributes:
        lower, upper: the ends, rounded outwards.
        pattern: steps, counted from 0, whose contributions reach the lower end.
    """

    lower: float
    upper: float
    pattern: tuple[int, ...]


def strategy_sensitivity(matrix: Array, separation: int, participations: int = 0) -> Sensitivity:
    """Bound max |C x| over the contributions x of one record: both ends, equal up to rounding where that is proven.

    Args:
        matrix: [n, n] the strategy C; finite numbers, at least one of which is not 0.
        separation: the smallest distance of two steps in which a record takes part, at least 1.
        participations: the largest number of steps in which a record takes part; 0 for no limit but the separation.

    Source: Choquette-Choo et al. (2023), Theorem 2 and Algorithm 3 (orthogonal columns); Kalinin, Lampert (2024),
        Theorem 2 (decreasing Toeplitz matrices); docs/theory/bands.md, Theorems 3 to 5.
    """
    exponent = math.frexp(float(np.abs(matrix).max()))[1]
    scaled = np.ldexp(np.asarray(matrix, dtype=float), -exponent)
    size = scaled.shape[0]
    most = -(-size // separation)
    limit = min(participations, most) if participations else most
    counts = limit if limit < most else 0
    if limit == 1 or bands(matrix) <= separation:
        squares = np.einsum("ij,ij->j", scaled, scaled) * (1 + 2 * (size + 2) * UNIT) + HIDDEN
        best, start = _path(squares, None, separation, counts)
        return _ends(scaled, best * _slack(limit), [start], separation, counts, exponent)
    overlaps = _overlaps(scaled, separation)
    weights = np.diagonal(overlaps).copy()
    if bands(matrix) > 2 * separation:
        weights += _far(overlaps, separation, counts)
    best, start = _path(weights, overlaps, separation, counts)
    upper = min(best * _slack(2 * limit), _monotone_bound(overlaps, separation, limit))
    starts = [start, np.arange(0, size, separation)[:limit]]
    return _ends(scaled, upper, starts, separation, counts, exponent)


def bands(matrix: Array) -> int:
    """Number of diagonals of a lower-triangular matrix, from the main one to the last that is not 0."""
    size = matrix.shape[0]
    filled = matrix != 0
    last = size - 1 - np.argmax(filled[::-1], axis=0)
    return int(np.max(np.where(filled.any(axis=0), last - np.arange(size), 0))) + 1


def _slack(terms: int) -> float:
    """A factor above the rounding of a sum of so many terms that are not negative, each of which is such a sum."""
    return 1 + 8 * (terms + 8) * UNIT


def _overlaps(scaled: Array, separation: int) -> Array:
    """[n, n] upper ends of |<column i, column j>| for steps that may be in one pattern, and 0 for others."""
    size = scaled.shape[0]
    products = np.abs(scaled.T @ scaled)
    sizes = np.abs(scaled)
    # the error of an inner product of n terms, in whatever order they are added
    products += 4 * (size + 4) * UNIT * (sizes.T @ sizes) + HIDDEN
    for distance in range(1, min(separation, size)):
        rows = np.arange(size - distance)
        products[rows, rows + distance] = products[rows + distance, rows] = 0.0
    return products


def _path(weights: Array, overlaps: Array | None, separation: int, counts: int) -> tuple[float, Array]:
    """The largest sum of weights over a pattern, with twice the overlaps of participations less than 2 b apart.

    Args:
        weights: [n] not negative. overlaps: [n, n] or None for none.
        counts: the largest number of participations; 0 for no limit.
    Returns:
        The sum, and the pattern in ascending order.
    """
    size, columns = weights.size, max(counts, 1)
    # of patterns with at most c + 1 participations: the best that ends at a step, and the best before a step
    ending, before = np.zeros((size, columns)), np.zeros((size + 1, columns))
    near = separation if overlaps is None else 2 * separation
    for j in range(size):
        rest = before[max(0, j - near + 1)]
        first, last = max(0, j - near + 1), max(0, j - separation + 1)
        if overlaps is not None and last > first:
            rest = np.maximum(rest, (ending[first:last] + 2 * overlaps[first:last, j, None]).max(axis=0))
        ending[j] = weights[j]
        if counts:
            ending[j, 1:] += rest[:-1]
        else:
            ending[j] += rest
        before[j + 1] = np.maximum(before[j], ending[j])
    column = columns - 1
    j = int(np.argmax(ending[:, column]))
    pattern = [j]
    while column > 0 or not counts:
        column -= 1 if counts else 0
        first, last = max(0, j - near + 1), max(0, j - separation + 1)
        values = ending[:last, column].copy()
        if overlaps is not None:
            values[first:] += 2 * overlaps[first:last, j]
        if not values.size:
            break
        j = int(np.argmax(values))
        pattern.append(j)
    return float(before[size, -1]), np.array(pattern[::-1])


def _far(overlaps: Array, separation: int, counts: int) -> Array:
    """[n] the largest sum of overlaps of a step with others of a pattern that lie at least 2 b away from it."""
    size = overlaps.shape[0]
    counts = counts if counts * size * size <= MAX_WORK else 0
    left = _far_left(overlaps, separation, counts)
    right = _far_left(overlaps[::-1, ::-1], separation, counts)[::-1]
    # at most c participations on one side leave counts - 1 - c for the other
    return np.asarray((left + right[:, ::-1]).max(axis=1))


def _far_left(overlaps: Array, separation: int, counts: int) -> Array:
    """[n, counts] the same of steps before, for at most 0, 1, ... participations; [n, 1] without a limit."""
    size, columns = overlaps.shape[0], max(counts, 1)
    result = np.zeros((size, columns))
    history = np.zeros((separation, size, columns))
    best = np.zeros((size, columns))
    for i in range(size - 2 * separation):
        slot = i % separation
        extended = history[slot]
        column = overlaps[:, i, None]
        if counts:
            best[:, 1:] = np.maximum(best[:, 1:], extended[:, :-1] + column)
        else:
            best = np.maximum(best, extended + column)
        history[slot] = best
        result[i + 2 * separation] = best[i + 2 * separation]
    return result


def _monotone_bound(overlaps: Array, separation: int, limit: int) -> float:
    """The sum over the pattern 0, b, 2 b, ... of the least overlaps above the given ones that fall with both steps."""
    size = overlaps.shape[0]
    starts = np.arange(limit) * separation
    diagonal = np.maximum.accumulate(np.diagonal(overlaps)[::-1])[::-1]
    sums = [math.fsum(diagonal[starts].tolist())]
    largest = np.zeros(size)
    for distance in range(size - 1, separation - 1, -1):
        np.maximum(largest[distance:], np.diagonal(overlaps, distance), out=largest[distance:])
        if distance % separation == 0 and distance <= starts[-1]:
            falling = np.maximum.accumulate(largest[::-1])[::-1]
            sums.append(2 * math.fsum(falling[starts[starts >= distance]].tolist()))
    return math.fsum(sums) * _slack(0)


def _ends(scaled: Array, upper: float, starts: list[Array], separation: int, counts: int, exponent: int) -> Sensitivity:
    """Both ends: the root of an upper end, and the norm of the best contribution that a search reaches."""
    searches = [_improved(scaled, start, separation, counts) for start in starts]
    _, pattern, signs = max(searches, key=lambda contribution: contribution[0])
    rows = (scaled[:, pattern] * signs).tolist()
    moved = [math.fsum(row) for row in rows]
    lower = math.sqrt(math.fsum(value * value for value in moved)) * (1 - 8 * UNIT)
    top = math.sqrt(upper) * (1 + 4 * UNIT)
    return Sensitivity(
        math.ldexp(min(lower, top), exponent), math.ldexp(top, exponent), tuple(int(step) for step in pattern)
    )


def _improved(scaled: Array, pattern: Array, separation: int, counts: int) -> tuple[float, Array, Array]:
    """A contribution of signs, searched from a pattern: |C x|^2, its pattern, and its signs.

    The first signs are those that lengthen the sum, one participation after the other. |C x|^2 is convex in x, so that
    the x with the largest inner product with its gradient is at least as good.
    """
    signs, total = np.ones(pattern.size), np.zeros(scaled.shape[0])
    for place, step in enumerate(pattern):
        signs[place] = -1.0 if scaled[:, step] @ total < 0 else 1.0
        total += signs[place] * scaled[:, step]
    value = float(np.sum((scaled[:, pattern] @ signs) ** 2))
    for _ in range(MAX_MOVES):
        gradient = scaled.T @ (scaled[:, pattern] @ signs)
        _, other = _path(np.abs(gradient), None, separation, counts)
        other_signs = np.where(gradient[other] < 0, -1.0, 1.0)
        moved = float(np.sum((scaled[:, other] @ other_signs) ** 2))
        if moved <= value:
            break
        value, pattern, signs = moved, other, other_signs
    return value, pattern, signs


# the largest matrix, and the largest whose columns overlap for steps of one record, which needs all their products
MAX_STEPS, MAX_OVERLAPPING = 8192, 4096
MAX_BYTES = 8 * MAX_STEPS**2 + 4096
# strategies by name: the first column of a Toeplitz matrix, of length 1 for the last four, and their one parameter
COLUMNS = {"identity": None, "prefix": None, "root": "bands", "banded": "bands", "blt": "buffers", "bisr": "bands"}
COLUMNS |= {"lambda": "value"}
DEFAULTS = {"root": 0, "banded": 4, "blt": 4, "bisr": 4, "lambda": 0.9}
HELP = (
    "a .npy file with a lower-triangular matrix, or identity:n=1000, prefix:n=1000, root:n=1000,bands=100, "
    "banded:4,n=1000, blt:4,n=1000, bisr:4,n=1000 or lambda:0.9,n=1000 (without n beside `sampling='balls-in-bins'`)"
)


@lru_cache(maxsize=32)
def _bounded(strategy: str, identity: tuple[int, ...], separation: int, participations: int) -> Sensitivity:
    """The sensitivity of a strategy; ``identity`` changes with the content of its file."""
    matrix = _matrix(strategy, identity)
    if matrix.shape[0] > MAX_OVERLAPPING and participations != 1 and bands(matrix) > separation:
        raise UsageError(
            f"matrix-gauss: the columns of {strategy} overlap at a separation of {separation}, and all their products "
            f"are needed, for at most {MAX_OVERLAPPING} steps; found {matrix.shape[0]}. Give a `separation=...` "
            f"of at least the {bands(matrix)} bands of the matrix, or `participations=1`"
        )
    return strategy_sensitivity(matrix, separation, participations)


def bounded(strategy: str, separation: int, participations: int) -> Sensitivity:
    """Bound the sensitivity of a strategy; arguments and errors as in ``MatrixGauss``."""
    return _bounded(strategy, _identity(strategy), separation, participations)


def steps(strategy: str) -> int:
    """The number of steps of a strategy."""
    return int(_matrix(strategy, _identity(strategy)).shape[0])


def _identity(strategy: str) -> tuple[int, ...]:
    """What changes with the content of a file; nothing for a matrix that is made by name."""
    kind, colon, _ = strategy.partition(":")
    if kind in COLUMNS or (colon and Path(strategy).suffix != ".npy"):
        return ()
    with reading("matrix-gauss", strategy, HELP, f"strategy must be {HELP}") as identity:
        if identity[-1] > MAX_BYTES:
            size = f"{identity[-1] >> 20} MB"
            raise UsageError(f"{strategy}: a matrix of at most {MAX_STEPS} steps was wanted; found a file of {size}")
        return identity


@lru_cache(maxsize=1)
def _matrix(strategy: str, identity: tuple[int, ...]) -> Array:
    """The [n, n] matrix: finite, lower triangular and not zero."""
    if not identity:
        return _made(strategy)
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


def _made(strategy: str) -> Array:
    """The Toeplitz matrix of a name: its first column (see ``_column``), repeated along the diagonals."""
    kind, _, rest = strategy.partition(":")
    if kind not in COLUMNS:
        near = did_you_mean(kind, list(COLUMNS)) or "."
        raise UsageError(f"matrix-gauss: no strategy called {kind[:60]!r}{near} Give {HELP}")
    name = COLUMNS[kind]
    if name and rest and "=" not in rest.partition(",")[0]:
        rest = f"{name}={rest}"
    given = registry.split(f"{kind}:{rest}")[1] if rest else {}
    values = registry.typed(kind, given, {"n": 0.0} | ({name: DEFAULTS[kind]} if name else {}))
    size = whole(values.get("n", 0), f"{kind}: n")
    if not 1 <= size <= MAX_STEPS:
        raise UsageError(f"{strategy}: wanted n from 1 to {MAX_STEPS}, the number of steps")
    column = _column(kind, size, float(values.get(name or "", DEFAULTS.get(kind, 0))), strategy)
    places = np.subtract.outer(np.arange(size), np.arange(size))
    return np.asarray(np.where(places >= 0, column[np.maximum(places, 0)], 0.0))


def _column(kind: str, size: int, value: float, strategy: str) -> Array:
    """The first column of a strategy by name.

    ``identity``; ``prefix``, all ones; ``root``, the square root of prefix, with some of its bands. Scaled to length 1:
    ``banded``, the same bands; ``blt``, the root with its coefficients, moments of the arcsine distribution, by Gauss's
    rule with as many nodes as buffers; ``bisr``, the inverse of so many bands of the inverse root (Kalinin et al.
    2025); ``lambda``, powers of a number, whose noise subtracts that multiple of the noise before.
    """
    if kind == "lambda":
        if not 0 <= value < 1:
            raise UsageError(f"{strategy}: lambda is a number from 0 to below 1; found {value:g}")
    elif COLUMNS[kind] and not (
        value == int(value) and (0 if kind == "root" else 1) <= value <= (size if kind == "root" else MAX_STEPS)
    ):
        raise UsageError(f"{strategy}: wanted {COLUMNS[kind]} from 1 to n; found {value:g}")
    width, places = int(value), np.arange(size)
    root = np.cumprod(np.append(1.0, 1 - 0.5 / places[1:]))
    if kind in ("identity", "prefix"):
        return np.asarray(places == 0, dtype=float) if kind == "identity" else np.ones(size)
    if kind == "root":
        return np.where(places < (width or size), root, 0.0)
    if kind == "banded":
        column = np.where(places < width, root, 0.0)
    elif kind == "blt":
        nodes = (1 + np.cos((2 * np.arange(width) + 1) * np.pi / (2 * width))) / 2
        column = (nodes[None, :] ** places[:, None]).mean(axis=1)
    elif kind == "bisr":
        inverse = np.cumprod(np.append(1.0, 1 - 1.5 / places[1:]))[:width]
        column = np.zeros(size + width)
        column[width] = 1.0
        for place in range(width + 1, size + width):
            column[place] = -inverse[1:] @ column[place - inverse.size + 1 : place][::-1]
        column = column[width:]
    else:
        column = value ** places.astype(float)
    return np.asarray(column / np.linalg.norm(column))


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
        bounds = bounded(self.strategy, self.separation, self.participations)
        return bounds.lower, bounds.upper

    def in_bins(self, n: int, bins: int) -> Mechanism:
        """The mechanism with a matrix of n rows, whose steps of one record lie ``bins`` apart.

        Raises:
            UsageError: the matrix has another size or a negative entry, or the separation and the participations say
                something else.
        """
        strategy = self.strategy
        kind, _, rest = strategy.partition(":")
        if kind in COLUMNS and "n=" not in rest:
            strategy = f"{kind}:{rest}{',' if rest else ''}n={n}"
        matrix = _matrix(strategy, _identity(strategy))
        if len(matrix) != n:
            raise UsageError(f"matrix-gauss: {strategy} has {len(matrix)} steps; found n = {n} = `bins` x `epochs`")
        if (negative := np.argwhere(matrix < 0)).size:
            row, column = negative[0]
            raise UsageError(
                f"matrix-gauss: balls in bins are proven for strategies without negative entries; {strategy} has "
                f"{matrix[row, column]:g} in row {row}, column {column} (counted from 0). Leave out `sampling`, for "
                f"the bound without amplification"
            )
        if self.separation not in (1, bins) or self.participations:
            raise UsageError(
                "matrix-gauss: with balls in bins the steps of a record are those of its bin; leave out `separation` "
                "and `participations`"
            )
        return dataclasses.replace(self, strategy=strategy, separation=bins)

    def pair_in_bins(self, bins: int) -> LossPair:
        matrix = _matrix(self.strategy, _identity(self.strategy))
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
        matrix = _matrix(self.strategy, _identity(self.strategy))
        return {
            "strategy_steps": len(matrix),
            "strategy_bands": bands(matrix),
            "strategy_column": float(np.sqrt((matrix**2).sum(axis=0).max())) * (1 + (len(matrix) + 8) * UNIT),
            "strategy_sensitivity_lower": lower,
            "strategy_sensitivity_upper": upper,
        }

    def reading(self) -> tuple[str, ...]:
        lower, upper = self.sensitivity_bounds()
        size = steps(self.strategy)
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
