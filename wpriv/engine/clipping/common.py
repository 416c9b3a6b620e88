"""What the methods of clipping share: the losses of a batch, the factor that bounds a gradient, and what they hand back."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

from wpriv.errors import UsageError

Loss = Callable[[Tensor, Tensor], Tensor]
PRODUCTS = {"highest": 0.0, "high": 2.0**-8, "medium": 2.0**-5}
"""What torch's settings for products of float32 matrices (full, TF32, bfloat16) may do to the length of a gradient."""


@dataclass(frozen=True)
class Summed:
    """Clipped sums by trainable parameter, squared norms [B] before clipping by the name of what they belong to, and losses [B]."""

    parts: list[Tensor]
    squares: dict[str, Tensor]
    losses: Tensor


def losses_of(outputs: Tensor, targets: Tensor, loss: Loss) -> Tensor:
    """The losses [B] of a batch.

    Raises:
        UsageError: the loss gives something else than one number for each example, or does not depend on what is trained.
    """
    losses = loss(outputs, targets)
    if losses.shape != targets.shape[:1]:
        wanted = f"the loss must give one number for each of {len(targets)} examples"
        raise UsageError(f"{wanted}; found shape {tuple(losses.shape)}. Losses of torch need reduction='none'")
    if not losses.requires_grad:
        raise UsageError("the loss does not depend on the model's trainable parameters")
    return losses


def total(squares: dict[str, Tensor]) -> Tensor:
    """Squared norms [B] over all parameters."""
    return torch.stack(list(squares.values())).sum(dim=0)


def roughness(dtype: torch.dtype) -> float:
    """The relative error of a product as torch takes it in this precision."""
    coarse = PRODUCTS[torch.get_float32_matmul_precision()] if dtype == torch.float32 else 0.0
    return torch.finfo(dtype).eps + coarse


def clip_factors(squares: dict[str, Tensor], norm: float, weights: Tensor | None = None) -> Tensor:
    """min(1, norm / length) [B], times the weight, rounded down: the scaled gradient is no longer than ``norm``.

    A squared length is a sum of terms of one sign, which torch adds pairwise, so that its relative error, and that of scaling and
    adding up the gradient, is a few units in the last place; 64 are allowed for. Where products are taken in less than full
    precision, the slack is that of the products.
    """
    length = total(squares).sqrt()
    slack = 63 * torch.finfo(length.dtype).eps + roughness(length.dtype)
    found = (norm / (length * (1 + slack))).clamp(max=1.0)
    return found if weights is None else found * weights.to(found.dtype)
