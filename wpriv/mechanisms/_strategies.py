"""Strategy matrices: read from .npy files, or made by name."""

from __future__ import annotations

import stat
from functools import lru_cache
from pathlib import Path

import numpy as np

from wpriv.core import registry
from wpriv.errors import MissingResource, UsageError
from wpriv.files import array_files
from wpriv.numerics.arrays import Array
from wpriv.numerics.parse_numbers import whole
from wpriv.numerics.strategy_sensitivity import Sensitivity, bands, strategy_sensitivity

# the largest matrix, and the largest whose columns overlap for steps of one record, which needs all their products
MAX_STEPS, MAX_OVERLAPPING = 8192, 4096
MAX_BYTES = 8 * MAX_STEPS**2 + 4096
KINDS = ("identity", "prefix", "root")
HELP = "a .npy file with a lower-triangular matrix, or identity:n=1000, prefix:n=1000 or root:n=1000,bands=100"


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


def _is_made(strategy: str) -> bool:
    kind, colon, _ = strategy.partition(":")
    return bool(colon) and (kind in KINDS or Path(strategy).suffix != ".npy")


def _identity(strategy: str) -> tuple[int, ...]:
    """What changes with the content of a file; nothing for a matrix that is made by name."""
    if _is_made(strategy):
        return ()
    try:
        status = Path(strategy).stat()
    except OSError as error:
        reason = error.strerror or str(error)
        raise MissingResource(f"matrix-gauss: cannot read {strategy!r}: {reason}. Give {HELP}") from error
    except ValueError as error:
        raise UsageError(f"matrix-gauss: strategy must be {HELP}; found {strategy!r}") from error
    if not stat.S_ISREG(status.st_mode):
        raise MissingResource(f"matrix-gauss: {strategy!r} is not a regular file. Give {HELP}")
    if status.st_size > MAX_BYTES:
        raise UsageError(
            f"{strategy}: a matrix of at most {MAX_STEPS} steps was wanted; found a file of {status.st_size >> 20} MB"
        )
    return status.st_dev, status.st_ino, status.st_mtime_ns, status.st_size


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
        raise UsageError(f"{strategy}: one array of real numbers was wanted; found {_kind(matrix)}. Give {HELP}")
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


def _kind(value: object) -> str:
    return f"the type {value.dtype}" if isinstance(value, np.ndarray) else "several arrays"


def _made(strategy: str) -> Array:
    """The identity, all ones (prefix sums), or the square root of the latter with some of its bands."""
    kind, given = registry.split(strategy)
    if kind not in KINDS:
        raise UsageError(f"matrix-gauss: no strategy called {kind[:60]!r}. Give {HELP}")
    values = registry.typed(kind, given, {"n": 0, "bands": 0} if kind == "root" else {"n": 0})
    size, width = (whole(values.get(name, 0), f"{kind}: {name}") for name in ("n", "bands"))
    if not 1 <= size <= MAX_STEPS or not 0 <= width <= size:
        raise UsageError(f"{strategy}: wanted n from 1 to {MAX_STEPS}, and bands from 1 to n (left out for all)")
    if kind == "identity":
        return np.eye(size)
    row = np.ones(size)
    if kind == "root":
        row[1:] = np.cumprod(1 - 0.5 / np.arange(1, size))
        row[width or size :] = 0.0
    places = np.subtract.outer(np.arange(size), np.arange(size))
    return np.asarray(np.where(places >= 0, row[np.maximum(places, 0)], 0.0))
