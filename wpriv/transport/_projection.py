"""Projections of samples onto directions, in blocks that fit in memory, and the gradients of the directions."""

from __future__ import annotations

from collections.abc import Iterator

import torch
from torch import Tensor

ORIGIN_RECORDS = 16  # from which the origin is estimated
FAR = 16  # in units of the spread: data that are nearer lose at most four of their bits
RECORDS_PER_BLOCK = 4096  # shifted to the origin at once


def find_origin(x: Tensor, y: Tensor) -> Tensor | None:
    """Return a centre of the records if they lie so far from 0 that their projections would lose digits; else None.

    The distance is invariant under a common shift. Centre and spread are estimated from a few evenly spaced records,
    which is cheap and affects only rounding errors.
    """
    few = torch.cat([sample[:: len(sample) // ORIGIN_RECORDS + 1] for sample in (x, y)])
    centre = few.mean(0)
    far = centre.norm() > FAR * (few - centre).square().sum(1).mean().sqrt()
    return centre if bool(far) else None


def blocks(sample: Tensor, origin: Tensor | None) -> Iterator[tuple[slice, Tensor]]:
    """Yield all records unchanged, or in blocks relative to the origin, so that no second copy of them is held."""
    step = len(sample) if origin is None else RECORDS_PER_BLOCK
    for start in range(0, len(sample), step):
        rows = slice(start, start + step)
        yield rows, sample if origin is None else sample[rows] - origin


def project(sample: Tensor, directions: Tensor, origin: Tensor | None) -> Tensor:
    """Return the projections [k, n] of the records."""
    out = sample.new_empty(directions.shape[1], len(sample))
    for rows, block in blocks(sample, origin):
        out[:, rows] = directions.T @ block.T
    return out


def gradient_of_directions(sample: Tensor, slopes: Tensor, origin: Tensor | None) -> Tensor:
    """Return the derivative [d, k] in the directions from the slopes [k, n] in the projections."""
    gradient = sample.new_zeros(sample.shape[1], len(slopes))
    for rows, block in blocks(sample, origin):
        gradient.addmm_(block.T, slopes[:, rows].T)
    return gradient
