"""What a run really showed: distances between pairs of gradients, which the Wasserstein and Bayesian accountants price.

They are no worst case over neighbours: another data set may hold a record that moves the gradient further.
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
    """Pair distances of every step, and the unit (the clipping norm) in which that step's sigma and sensitivity are given.

    Args:
        origin: how it was given, as tables show it. digest: a fingerprint of the arrays; two are equal where it is.
        distances: [steps, pairs] >= 0, in the units of the output; a single row stands for every step.
        unit: [steps] > 0: the noise of step t is sigma unit[t]. coordinates: of a gradient, 0 where it is not known.
        records: where > 0 the pairs are all those among so many records, in the order (0,1), (0,2), ..., (1,2), ...
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

    def told(self) -> str:
        """Its size and unit in words."""
        unit, far = (f"{found.min():.6g} to {found.max():.6g}" for found in (self.unit, self.distances))
        return f"{self.steps} x {self.distances.shape[1]} pairs, unit {unit}, distances {far}"

    def total(self, losses: Array, n: int) -> float:
        """The sum over n steps of what each step loses, [steps]; a single one counts n times."""
        return n * float(losses[0]) if self.steps == 1 else math.fsum(losses[:n])

    def independent(self) -> Array:
        """[steps, records // 2] distances of pairs that share no record: (0,1), (2,3), ...

        Raises:
            UsageError: the pairs were given as distances, which do not tell which records they share.
        """
        if not self.records:
            raise UsageError(
                "independent pairs need the gradients themselves; found distances, which do not tell what records they share"
            )
        first = np.arange(0, self.records - 1, 2)
        # pair (i, i+1) stands behind all pairs whose first record is below i
        place = first * self.records - first * (first + 1) // 2
        return self.distances[:, place]


def of_distances(
    distances: ArrayLike, *, unit: ArrayLike = 1.0, coordinates: int = 0, origin: str = "", records: int = 0
) -> Observed:
    """Observations from [pairs] distances, the same at every step, or from [steps, pairs].

    Raises:
        UsageError: they are empty, negative or not finite, or ``unit`` (a number or [steps]) does not fit or is not above 0.
    """
    found = np.atleast_2d(np.asarray(distances, dtype=float))
    if found.ndim != 2 or found.size == 0 or not np.all(np.isfinite(found)) or np.any(found < 0):
        raise UsageError(
            f"observed distances must be finite and at least 0, as [pairs] or [steps, pairs]; found {_shape(distances)}"
        )
    scale = np.asarray(unit, dtype=float)
    if scale.ndim > 1 or scale.size not in (1, found.shape[0]) or not np.all(np.isfinite(scale)) or np.any(scale <= 0):
        raise UsageError(
            f"the unit of the observed steps must be one number above 0, or one a step; found {_shape(unit)}"
        )
    units = np.broadcast_to(scale.reshape(-1), (found.shape[0],)).copy()
    if coordinates < 0:
        raise UsageError(f"the number of coordinates must be at least 0; found {coordinates}")
    digest = hashlib.sha256(b"".join((str(found.shape).encode(), found.tobytes(), units.tobytes()))).hexdigest()[:16]
    told = origin or f"{found.shape[0]} x {found.shape[1]} distances, sha256 {digest}"
    return Observed(told, digest, found, units, int(coordinates), records)


def of_gradients(gradients: ArrayLike, *, unit: ArrayLike = 1.0, clip: bool = False, origin: str = "") -> Observed:
    """Observations from the gradients of single records, [records, coordinates] or [steps, records, coordinates]: all their pairs.

    Args:
        clip: scale every gradient down to a norm of at most the step's unit first.
    Raises:
        UsageError: fewer than two records, or something not finite.
    """
    found = np.asarray(gradients, dtype=float)
    found = found[None] if found.ndim == 2 else found
    if found.ndim != 3 or found.shape[1] < 2 or found.size == 0 or not np.all(np.isfinite(found)):
        raise UsageError(
            f"observed gradients must be finite, as [records, coordinates] or [steps, records, coordinates] with at least two records; "
            f"found {_shape(gradients)}"
        )
    scale = np.asarray(unit, dtype=float)
    if scale.size not in (1, found.shape[0]):
        raise UsageError(
            f"the unit of the observed steps must be one number above 0, or one a step; found {_shape(unit)}"
        )
    units = np.broadcast_to(scale.reshape(-1), (found.shape[0],))
    rows = [pair_distances(_clipped(g, float(c)) if clip else g) for g, c in zip(found, units, strict=True)]
    return of_distances(np.array(rows), unit=units, coordinates=found.shape[2], origin=origin, records=found.shape[1])


def pair_distances(gradients: Array) -> Array:
    """[records (records-1)/2] Euclidean distances between all rows, (0,1), (0,2), ..., (1,2), ...; by differences, without cancellation."""
    return np.concatenate(
        [np.linalg.norm(gradients[i + 1 :] - gradients[i], axis=1) for i in range(len(gradients) - 1)]
    )


def _clipped(gradients: Array, norm: float) -> Array:
    norms = np.linalg.norm(gradients, axis=1, keepdims=True)
    return np.asarray(gradients * np.minimum(1.0, norm / np.maximum(norms, 1e-300)))


def _shape(value: ArrayLike) -> str:
    found = np.asarray(value)
    return f"{found}" if found.size == 1 else f"an array of shape {found.shape}"
