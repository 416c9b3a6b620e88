"""Convolutional network with tanh, the reference for DP-SGD on CIFAR-10."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from wpriv.core.parameters import Parameters
from wpriv.models._shapes import image_channels

if TYPE_CHECKING:
    from torch import nn

SOURCE = "Papernot, Thakurta, Song, Chien, Erlingsson 2021, Table 2; Tramer, Boneh 2021"


@dataclass(frozen=True)
class Params(Parameters):
    """No parameters."""


def build(params: Params, shape: Sequence[int], classes: int) -> nn.Module:
    """Map [N, C, 32, 32] to logits [N, classes]; 550,570 parameters for three channels and ten classes.

    Three times two 3x3 convolutions (32, 64 and 128 channels) and a max pooling, then one hidden layer of 128 units.
    """
    from torch import nn

    size = image_channels(params.name, shape, 32)
    layers: list[nn.Module] = []
    for width in (32, 64, 128):
        for _ in range(2):
            layers += [nn.Conv2d(size, width, 3, padding=1), nn.Tanh()]
            size = width
        layers.append(nn.MaxPool2d(2))
    return nn.Sequential(*layers, nn.Flatten(), nn.Linear(size * 4 * 4, 128), nn.Tanh(), nn.Linear(128, classes))
