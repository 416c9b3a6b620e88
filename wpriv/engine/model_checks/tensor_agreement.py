"""Compare tensors up to rounding, and batches in the records that they share."""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor

EXACT = 16.0
"""Units of rounding allowed between two passes of one shape, for sums over the batch in another order."""
RESIZED = {torch.float32: 1e-4, torch.float64: 1e-9}
"""Relative difference allowed between passes of different sizes with other kernels; 0.05 in half precision."""


def same(one: Tensor, other: Tensor) -> bool:
    """Return whether two tensors are equal in shape, type and every number; NaN equals NaN."""
    if one.shape != other.shape or one.dtype != other.dtype:
        return False
    return bool(((one == other) | ((one != one) & (other != other))).all())


@dataclass(frozen=True)
class Shared:
    """The records that two batches share.

    Args:
        sizes: of both batches. begin, end: the first shared record, and the one behind the last.
    """

    sizes: tuple[int, int]
    begin: int
    end: int

    def differ(self, one: Tensor, two: Tensor) -> bool:
        """Return whether two outputs differ for the shared records, along any dimension of the size of the batches."""
        size, other = self.sizes
        if one.dim() != two.dim() or one.dim() == 0:
            return False
        places = [
            place
            for place, sizes in enumerate(zip(one.shape, two.shape, strict=True))
            if sizes == self.sizes
            and one.shape[:place] + one.shape[place + 1 :] == two.shape[:place] + two.shape[place + 1 :]
        ]
        arranged = [(one, two, place) for place in places]
        if 0 not in places and one.shape[0] % size == 0 and one.shape[0] * other == two.shape[0] * size and one.numel():
            # positions or copies folded into the batch
            arranged.append((one.reshape(size, -1), two.reshape(other, -1), 0))
        tolerance = exact(one) if size == other else RESIZED.get(one.dtype, 0.05)
        count = self.end - self.begin
        pairs = [
            (first.narrow(place, self.begin, count), second.narrow(place, self.begin, count))
            for first, second, place in arranged
        ]
        return bool(pairs) and all(not near(mine, theirs, tolerance) for mine, theirs in pairs)


def is_rounding(tensor: Tensor) -> bool:
    """Return whether a tensor holds rounding errors of numbers near 1 alone, as a mean of normalised ones does."""
    return tensor.is_floating_point() and float(tensor.abs().amax() if tensor.numel() else 0) <= 4 * exact(tensor)


def exact(tensor: Tensor) -> float:
    """Return the relative difference that rounding may cause in a tensor."""
    return EXACT * torch.finfo(tensor.dtype).eps if tensor.is_floating_point() else 0.0


def apart(one: Tensor, two: Tensor) -> bool:
    """Return whether two tensors differ by more than rounding between two passes of one batch."""
    return not near(one, two, exact(one))


def near(one: Tensor, two: Tensor, tolerance: float) -> bool:
    """Return whether two tensors agree up to a share of their maximum, with NaN and infinities at equal places."""
    if one.shape != two.shape:
        return False
    if not one.is_floating_point() or same(one, two):
        return same(one, two)
    finite = one.isfinite() & two.isfinite()
    if not same(one.masked_fill(finite, 0.0), two.masked_fill(finite, 0.0)):
        return False
    one, two = one.masked_fill(~finite, 0.0), two.masked_fill(~finite, 0.0)
    largest = float(torch.maximum(one.abs(), two.abs()).max()) if one.numel() else 0.0
    return math.isfinite(largest) and float((one - two).abs().max()) <= tolerance * largest
