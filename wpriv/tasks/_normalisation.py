"""Records as networks take them: float32, and where a recipe says so normalised by public numbers."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

from wpriv.config.field_types import Field, Number, Positive, StrictModel

if TYPE_CHECKING:
    import torch
    from torch import Tensor


class Normalise(StrictModel):
    """(x - mean) / std of every channel; public constants, never computed from the private data."""

    mean: Annotated[list[Number], Field(min_length=1)]
    std: Annotated[list[Positive], Field(min_length=1)]


def floats(x: Any, device: torch.device) -> Tensor:
    """Records as float32, bytes in [0, 1]; a copy, since what a reader returns may be the file itself, which nothing may write to."""
    import torch

    inputs = torch.tensor(x, device=device)
    return inputs.float() / 255 if inputs.dtype == torch.uint8 else inputs.float()


def normalised(inputs: Tensor, by: Normalise | None) -> Tensor:
    """Records [N, C, ...], channel by channel; as they are where a recipe says nothing."""
    import torch

    if by is None:
        return inputs
    shape = (1, -1, *[1] * (inputs.dim() - 2))
    mean, std = (torch.tensor(numbers, device=inputs.device).view(shape) for numbers in (by.mean, by.std))
    return (inputs - mean) / std
