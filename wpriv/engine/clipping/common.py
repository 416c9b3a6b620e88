"""Functions that the clipping methods share: the losses of a batch, clip factors, and the result record."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

from wpriv.engine.clipping import scale_factors
from wpriv.engine.clipping.scale_factors import Scaling
from wpriv.errors import UsageError

Loss = Callable[[Tensor, Tensor], Tensor]
PRODUCTS = {"highest": 0.0, "high": 2.0**-8, "medium": 2.0**-5}
"""Relative error of a gradient's length under torch's settings for float32 products (full, TF32, bfloat16)."""


@dataclass(frozen=True)
class Summed:
    """Clipped sums by trainable parameter, squared norms [B] before clipping by parameter name, and losses [B]."""

    parts: list[Tensor]
    squares: dict[str, Tensor]
    losses: Tensor


def losses_of(outputs: Tensor, targets: Tensor, loss: Loss) -> Tensor:
    """Return the losses [B] of a batch.

    Raises:
        UsageError: the loss does not give one number per example, or does not depend on the trainable parameters.
    """
    losses = loss(outputs, targets)
    if losses.shape != targets.shape[:1]:
        raise UsageError(
            f"the loss must give one number for each of {len(targets)} examples; found shape {tuple(losses.shape)}. "
            f"Losses of torch need reduction='none'"
        )
    if not losses.requires_grad and torch.is_inference_mode_enabled():
        raise UsageError("gradients cannot be computed within torch.inference_mode; take the steps outside of it")
    if not losses.requires_grad:
        raise UsageError("the loss does not depend on the model's trainable parameters")
    return losses


def total(squares: dict[str, Tensor]) -> Tensor:
    """Return the squared norms [B] over all parameters."""
    return torch.stack(list(squares.values())).sum(dim=0)


def roughness(dtype: torch.dtype) -> float:
    """Return the relative error of a product in this precision under torch's settings."""
    coarse = PRODUCTS[torch.get_float32_matmul_precision()] if dtype == torch.float32 else 0.0
    return torch.finfo(dtype).eps + coarse


def full_convolutions() -> bool:
    """Return whether torch computes convolutions on a CPU in the precision of their inputs, as it does by default."""
    settings = getattr(torch.backends.mkldnn, "conv", None)
    return getattr(settings, "fp32_precision", "none") in ("none", "ieee")


def clip_factors(squares: dict[str, Tensor], norm: Scaling, weights: Tensor | None = None) -> Tensor:
    """Return min(1, norm / length) [B], times the weight, rounded down: the scaled length is at most ``norm``.

    With automatic clipping it is 1 / (length + stability), and the scaled length at most 1.

    A squared length is a sum of terms of one sign, of which few are added one after another (``squares_of`` of
    shares.py), so that the relative error of the length, and of scaling the gradient, is at most 60 units in the last
    place; 64 are allowed for. Where products are computed in less than full precision, the slack includes theirs.
    """
    length = total(squares).sqrt()
    slack = 63 * torch.finfo(length.dtype).eps + roughness(length.dtype)
    factors = scale_factors.factors(length * (1 + slack), norm)
    return factors if weights is None else factors * weights.to(factors.dtype)
