"""Observed distances between pairs of gradients, for the data-dependent Wasserstein and Bayesian accountants.

They are not a worst case over neighbours: another data set may hold a record that moves the gradient further.
"""

from __future__ import annotations

import hashlib
import math
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import ArrayLike

from wpriv.errors import UsageError
from wpriv.numerics.arrays import Array


@dataclass(frozen=True)
class Observed:
    """Pair distances of every step, and the unit (the clipping norm) of that step's sigma and sensitivity.

    Args:
        origin: description of the input, as tables show it. digest: hash of the arrays, which decides equality.
        distances: [steps, pairs] >= 0, in the units of the output; a single row holds for every step.
        unit: [steps] > 0: the noise of step t is sigma unit[t]. coordinates: dimension of a gradient, 0 if unknown.
        records: if > 0, the pairs are all pairs of this many records, in the order (0,1), (0,2), ..., (1,2), ...
    """

    origin: str = field(compare=False)
    digest: str
    distances: Array = field(compare=False, repr=False)
    unit: Array = field(compare=False, repr=False)
    coordinates: int = 0
    records: int = 0

    @property
    def steps(self) -> int:
        return len(self.distances)

    def describe(self) -> str:
        """Summarise size, units and distances in one line."""
        unit, distances = (f"{values.min():.6g} to {values.max():.6g}" for values in (self.unit, self.distances))
        return f"{self.steps} x {self.distances.shape[1]} pairs, unit {unit}, distances {distances}"

    def total(self, losses: Array, n: int) -> float:
        """Sum the [steps] losses over n steps; a single loss counts n times."""
        return n * float(losses[0]) if self.steps == 1 else math.fsum(losses[:n])

    def independent(self) -> Array:
        """Return [steps, records // 2] distances of the pairs (0,1), (2,3), ..., which share no record."""
        if not self.records:
            raise UsageError(
                "independent pairs require gradients; found distances, which do not show which records they share. "
                "Give an array 'gradients'"
            )
        first = np.arange(0, self.records - 1, 2)
        # pair (i, i+1) follows all pairs whose first record is below i
        index = first * self.records - first * (first + 1) // 2
        return self.distances[:, index]


def of_distances(
    distances: ArrayLike, *, unit: ArrayLike = 1.0, coordinates: int = 0, origin: str = "", records: int = 0
) -> Observed:
    """Build observations from [pairs] distances, the same at every step, or from [steps, pairs]."""
    array = np.atleast_2d(np.asarray(distances, dtype=float))
    if array.ndim != 2 or array.size == 0 or not np.all(np.isfinite(array)) or np.any(array < 0):
        wanted = "finite and at least 0, as [pairs] or [steps, pairs]"
        raise UsageError(f"observed distances must be {wanted}; found {_shape(distances)}")
    units = _units(unit, len(array)).copy()
    if np.ndim(unit) > 1 or not np.all(np.isfinite(units)) or np.any(units <= 0):
        raise UsageError(f"unit must be one finite number above 0, or one for each step; found {_shape(unit)}")
    if coordinates < 0:
        raise UsageError(f"the number of coordinates must be at least 0; found {coordinates}")
    digest = hashlib.sha256(b"".join((str(array.shape).encode(), array.tobytes(), units.tobytes()))).hexdigest()[:16]
    origin = origin or f"{array.shape[0]} x {array.shape[1]} distances, sha256 {digest}"
    return Observed(origin, digest, array, units, int(coordinates), records)


def of_gradients(gradients: ArrayLike, *, unit: ArrayLike = 1.0, clip: bool = False, origin: str = "") -> Observed:
    """Build observations of all pairs of per-record gradients, the same at every step or given for each.

    Args:
        gradients: [records, coordinates] or [steps, records, coordinates].
        unit: a number or [steps] > 0; see ``Observed``.
        clip: whether every gradient is first scaled down to a norm of at most the step's unit.
    """
    array = np.asarray(gradients, dtype=float)
    array = array[None] if array.ndim == 2 else array
    if array.ndim != 3 or array.shape[1] < 2 or array.size == 0 or not np.all(np.isfinite(array)):
        raise UsageError(
            "observed gradients must be finite, as [records, coordinates] or [steps, records, coordinates] with at "
            f"least two records; found {_shape(gradients)}"
        )
    steps, records, coordinates = array.shape
    units = _units(unit, steps)
    rows = [pair_distances(_clipped(g, float(c)) if clip else g) for g, c in zip(array, units, strict=True)]
    return of_distances(np.array(rows), unit=units, coordinates=coordinates, origin=origin, records=records)


def _units(unit: ArrayLike, steps: int) -> Array:
    """[steps] units from one number or one for each step."""
    units = np.asarray(unit, dtype=float)
    if units.size not in (1, steps):
        raise UsageError(f"unit must be one finite number above 0, or one for each step; found {_shape(unit)}")
    return np.broadcast_to(units.reshape(-1), (steps,))


def pair_distances(gradients: Array) -> Array:
    """Euclidean distances [records (records-1)/2] between all rows, as norms of differences: (0,1), (0,2), ..."""
    firsts = range(len(gradients) - 1)
    return np.concatenate([np.linalg.norm(gradients[i + 1 :] - gradients[i], axis=1) for i in firsts])


def _clipped(gradients: Array, norm: float) -> Array:
    norms = np.linalg.norm(gradients, axis=1, keepdims=True)
    return np.asarray(gradients * np.minimum(1.0, norm / np.maximum(norms, 1e-300)))


def _shape(value: ArrayLike) -> str:
    array = np.asarray(value)
    return f"{array}" if array.size == 1 else f"an array of shape {array.shape}"
