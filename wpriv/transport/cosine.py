"""The orthonormal cosine transform (DCT-II) of records, as a differentiable linear map."""

from __future__ import annotations

import math

import torch
from torch import Tensor


def matrix(n: int, like: Tensor) -> Tensor:
    """Return the [n, n] orthogonal matrix of the transform of n numbers, in the type and on the device of ``like``."""
    k = torch.arange(n, dtype=torch.float64)
    basis = torch.cos(math.pi / n * k[:, None] * (k + 0.5)) * math.sqrt(2 / n)
    basis[0] /= math.sqrt(2)
    return basis.to(like)


def cosine(x: Tensor) -> Tensor:
    """Transform each record: over height and width of [N, C, H, W], over the last axis of [N, D]. Preserves l2 norms.

    ``wpriv privatize --dct`` applies the same transform before it adds noise.

    Source:
        Ahmed, Natarajan, Rao (1974), scaled to be orthonormal.
    """
    coefficients = x @ matrix(x.shape[-1], x).T
    return coefficients if x.ndim < 3 else matrix(x.shape[-2], x) @ coefficients


def inverse(x: Tensor) -> Tensor:
    """Return the records whose coefficients under ``cosine`` are ``x``."""
    records = x @ matrix(x.shape[-1], x)
    return records if x.ndim < 3 else matrix(x.shape[-2], x).T @ records
