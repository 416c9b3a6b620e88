"""Records as networks take them: float32, normalised by public constants where a recipe gives some."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

from wpriv.config.field_types import Field, Number, Positive, StrictModel
from wpriv.errors import UsageError

if TYPE_CHECKING:
    import torch
    from torch import Tensor


MEANING = (
    "{mean: [...], std: [...]}, a number for each channel or column: records become (x - mean) / std; from public "
    "knowledge, never from the private records"
)


class Normalise(StrictModel):
    """(x - mean) / std of each channel; public constants, never computed from the private data."""

    mean: Annotated[list[Number], Field(min_length=1)]
    std: Annotated[list[Positive], Field(min_length=1)]


def to_floats(x: Any, device: torch.device) -> Tensor:
    """Copy records to the device as float32; bytes are divided by 255.

    A copy, since the array may be a file mapped into memory, which nothing may write to.
    """
    import torch

    inputs = torch.tensor(x, device=device)
    return inputs.float() / 255 if inputs.dtype == torch.uint8 else inputs.float()


def normalised(x: Any, constants: Normalise | None, device: torch.device) -> Tensor:
    """Copy records to the device, normalise them, and return them as float32; float64 is rounded after that."""
    import torch

    if x.dtype != "float64" or constants is None:
        return normalise(to_floats(x, device), constants)
    return normalise(torch.tensor(x, device=device), constants).float()


def normalise(inputs: Tensor, constants: Normalise | None) -> Tensor:
    """Normalise records [N, C, ...] by channel; return them unchanged without constants.

    Raises:
        UsageError: mean or std has neither one number nor one for each channel.
    """
    import torch

    if constants is None:
        return inputs
    for name, values in (("mean", constants.mean), ("std", constants.std)):
        if len(values) not in (1, inputs.shape[1]):
            raise UsageError(
                f"options: normalise: {name} must have one number, or one for each of the {inputs.shape[1]} channels "
                f"or columns of a record; found {len(values)}"
            )
    shape = (1, -1, *[1] * (inputs.dim() - 2))
    mean, std = (
        torch.tensor(values, dtype=inputs.dtype, device=inputs.device).view(shape)
        for values in (constants.mean, constants.std)
    )
    return (inputs - mean) / std
