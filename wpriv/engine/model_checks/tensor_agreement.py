"""Compare tensors up to rounding, and batches in the records that they share."""

from __future__ import annotations

import math

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


def differs(one: Tensor, two: Tensor, size: int, left_out: bool) -> bool:
    """Return whether two outputs differ for the records that both batches share, along any dimension of their size."""
    reduced = size - left_out
    if one.dim() != two.dim() or one.dim() == 0:
        return False
    places = [
        place
        for place, (first, second) in enumerate(zip(one.shape, two.shape, strict=True))
        if (first, second) == (size, reduced)
        and one.shape[:place] + one.shape[place + 1 :] == two.shape[:place] + two.shape[place + 1 :]
    ]
    arranged = [(one, two, place) for place in places]
    if 0 not in places and one.shape[0] % size == 0 and one.shape[0] * reduced == two.shape[0] * size and one.numel():
        # positions or copies folded into the batch
        arranged.append((one.reshape(size, -1), two.reshape(reduced, -1), 0))
    tolerance = RESIZED.get(one.dtype, 0.05) if left_out else exact(one)
    start = 0 if left_out else 1
    pairs = [
        (first.narrow(place, start, size - 1), second.narrow(place, start, size - 1))
        for first, second, place in arranged
    ]
    return bool(pairs) and all(not near(mine, theirs, tolerance) for mine, theirs in pairs)


def exact(tensor: Tensor) -> float:
    """Return the relative difference that rounding may cause in a tensor."""
    return EXACT * torch.finfo(tensor.dtype).eps if tensor.is_floating_point() else 0.0


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
