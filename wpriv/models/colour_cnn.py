"""Convolutional network of Yang, Qi and Zhou (2024) for 32x32 colour images."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from wpriv.core.parameters import Parameters, parameter
from wpriv.models._shapes import image_channels

if TYPE_CHECKING:
    from torch import nn

SOURCE = "Yang, Qi, Zhou 2024, the network of Table 2 for CIFAR-10 and SVHN"
WIDTH = 64


@dataclass(frozen=True)
class Params(Parameters):
    """Normalisation after the convolutions."""

    norm: str = parameter(
        "group, or paper: BatchNorm as published, which mixes examples", default="group", choices=("group", "paper")
    )
    groups: int = parameter("groups of the group normalisation", default=16, minimum=1)


def build(params: Params, shape: Sequence[int], classes: int) -> nn.Module:
    """Map [N, C, 32, 32] to logits [N, classes].

    874,058 parameters for three channels and ten classes, with either normalisation.
    """
    from torch import nn

    from wpriv.models._layers import channel_norm

    channels = image_channels(params.name, shape, 32)
    norms = [channel_norm(params.name, params.norm, WIDTH, params.groups) for _ in range(2)]
    return nn.Sequential(
        *(nn.Conv2d(channels, WIDTH, 5), nn.ReLU(), nn.MaxPool2d(2), norms[0]),  # to 14 x 14
        *(nn.Conv2d(WIDTH, WIDTH, 5), nn.ReLU(), norms[1], nn.MaxPool2d(2)),  # to 5 x 5
        nn.Flatten(),
        *(nn.Linear(WIDTH * 5 * 5, 384), nn.ReLU()),
        *(nn.Linear(384, 384), nn.ReLU()),
        nn.Linear(384, classes),
    )
