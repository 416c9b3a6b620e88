"""What several models share: the check of the input's shape, and normalisation that does not mix examples."""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch
from torch import Tensor, nn

from wpriv.errors import UsageError

ACTIVATIONS: dict[str, type[nn.Module]] = {"relu": nn.ReLU, "tanh": nn.Tanh}


def image(name: str, shape: Sequence[int], side: int | None = None) -> int:
    """The number of channels of an image of shape [C, H, W], which must have the side that the model is made for.

    Raises:
        UsageError: examples of another shape.
    """
    if len(shape) != 3 or min(shape) < 1 or (side is not None and tuple(shape[1:]) != (side, side)):
        wanted = "[C, H, W]" if side is None else f"[C, {side}, {side}]"
        raise UsageError(
            f"{name} takes images of shape {wanted}; found examples of shape {list(shape)}. Choose another model or data set"
        )
    return shape[0]


def inputs(shape: Sequence[int]) -> int:
    """The number of numbers in one example."""
    return math.prod(shape)


def widths(name: str, text: str) -> list[int]:
    """The units of hidden layers, written as ``128-64-64``.

    Raises:
        UsageError: the text is no such list.
    """
    parts = text.split("-")
    if not all(part.isdecimal() and 1 <= int(part) <= 10**6 for part in parts):
        raise UsageError(
            f"{name}: widths are whole numbers with dashes between them, as 128-64-64; found {text[:40]!r}"
        )
    return [int(part) for part in parts]


def group_norm(name: str, channels: int, groups: int) -> nn.Module:
    """GroupNorm: each example is normalised by its own mean and variance.

    Raises:
        UsageError: the groups do not divide the channels.
    """
    if channels % groups:
        raise UsageError(f"{name}: groups must divide the {channels} channels; found {groups}")
    return nn.GroupNorm(groups, channels)


class Offset(nn.Module):
    """The end of a generator: an offset for every number of a record and, where ``bounded``, the logistic function to [0, 1]."""

    def __init__(self, shape: Sequence[int], *, bounded: bool):
        super().__init__()
        self.bounded, self.offset = bounded, nn.Parameter(torch.zeros(tuple(shape)))

    def begin(self, mean: Tensor) -> None:
        """Offsets that make this record of everything that is 0 before."""
        with torch.no_grad():
            self.offset.copy_(torch.logit(mean.clamp(0.02, 0.98)) if self.bounded else mean)

    def forward(self, x: Tensor) -> Tensor:
        return torch.sigmoid(x + self.offset) if self.bounded else x + self.offset
