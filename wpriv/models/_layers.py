"""Layers that several models share. Loads torch, so that models import this file in ``build`` only."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor, nn

from wpriv.errors import UsageError

ACTIVATIONS: dict[str, type[nn.Module]] = {"relu": nn.ReLU, "tanh": nn.Tanh}


def group_norm(name: str, channels: int, groups: int) -> nn.Module:
    """Build a GroupNorm, which normalises each example by its own mean and variance.

    Raises:
        UsageError: the groups do not divide the channels; the message names the model ``name``.
    """
    if channels % groups:
        raise UsageError(f"{name}: groups must divide the {channels} channels; found {groups}")
    return nn.GroupNorm(groups, channels)


def channel_norm(name: str, kind: str, channels: int, groups: int) -> nn.Module:
    """Build the normalisation ``kind``: ``group``, or ``paper`` for BatchNorm as published.

    BatchNorm makes the gradient of an example depend on the other examples: per-example clipping cannot bound it.

    Raises:
        UsageError: the groups do not divide the channels.
    """
    return nn.BatchNorm2d(channels) if kind == "paper" else group_norm(name, channels, groups)


class OutputOffset(nn.Module):
    """Last layer of a generator: add a trainable offset to every number, then the logistic function if ``bounded``.

    Args:
        shape: the shape of one generated record. bounded: map the outputs to [0, 1].
    """

    def __init__(self, shape: Sequence[int], *, bounded: bool):
        super().__init__()
        self.bounded, self.offset = bounded, nn.Parameter(torch.zeros(tuple(shape)))

    def set_mean(self, mean: Tensor) -> None:
        """Set the offsets so that an input of zeros gives ``mean``; bounded means are clamped to [0.02, 0.98] first."""
        with torch.no_grad():
            self.offset.copy_(torch.logit(mean.clamp(0.02, 0.98)) if self.bounded else mean)

    def forward(self, x: Tensor) -> Tensor:
        return torch.sigmoid(x + self.offset) if self.bounded else x + self.offset


class ToUnitInterval(nn.Module):
    """Map the range [-1, 1] of the hyperbolic tangent to [0, 1]."""

    def forward(self, x: Tensor) -> Tensor:
        return (x + 1) / 2
