"""The orthonormal cosine transform (DCT-II) of records, as a linear map that gradients pass."""

from __future__ import annotations

import math

import torch
from torch import Tensor


def matrix(n: int, like: Tensor) -> Tensor:
    """[n, n] orthogonal matrix of the transform of n numbers, in the type and on the device of ``like``."""
    k = torch.arange(n, dtype=torch.float64)
    found = torch.cos(math.pi / n * k[:, None] * (k + 0.5)) * math.sqrt(2 / n)
    found[0] /= math.sqrt(2)
    return found.to(like)


def cosine(x: Tensor) -> Tensor:
    """The transform of each record: over height and width of [N, C, H, W], over the last axis of [N, D]. It keeps l2 norms.

    The same as ``wpriv privatize --dct`` applies to what it makes noisy.

    Source:
        Ahmed, Natarajan, Rao (1974), scaled to be orthonormal.
    """
    found = x @ matrix(x.shape[-1], x).T
    return found if x.ndim < 3 else matrix(x.shape[-2], x) @ found


def inverse(x: Tensor) -> Tensor:
    """The records of which ``cosine`` makes these coefficients."""
    found = x @ matrix(x.shape[-1], x)
    return found if x.ndim < 3 else matrix(x.shape[-2], x).T @ found
