"""Convolutional network of Yang, Qi and Zhou (2024) for 28x28 images."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from wpriv.core.parameters import Parameters, parameter
from wpriv.models._shapes import image_channels

if TYPE_CHECKING:
    from torch import nn

SOURCE = "Yang, Qi, Zhou 2024, the network of Table 2 for MNIST and Fashion-MNIST"
WIDTH = 64


@dataclass(frozen=True)
class Params(Parameters):
    """Normalisation after the convolutions."""

    norm: str = parameter(
        "group, or paper: BatchNorm as published, which mixes examples", default="group", choices=("group", "paper")
    )
    groups: int = parameter("groups of the group normalisation", default=16, minimum=1)


def build(params: Params, shape: Sequence[int], classes: int) -> nn.Module:
    """Map [N, C, 28, 28] to logits [N, classes].

    573,834 parameters for one channel and ten classes, with either normalisation. As in the paper, the first
    normalisation follows its pooling and the second precedes it.
    """
    from torch import nn

    from wpriv.models._layers import channel_norm

    channels = image_channels(params.name, shape, 28)
    norms = [channel_norm(params.name, params.norm, WIDTH, params.groups) for _ in range(2)]
    return nn.Sequential(
        *(nn.Conv2d(channels, WIDTH, 5), nn.ReLU(), nn.MaxPool2d(2), norms[0]),  # to 12 x 12
        *(nn.Conv2d(WIDTH, WIDTH, 5), nn.ReLU(), norms[1], nn.MaxPool2d(2)),  # to 4 x 4
        nn.Flatten(),
        *(nn.Linear(WIDTH * 4 * 4, 384), nn.SELU()),
        *(nn.Linear(384, 192), nn.SELU()),
        nn.Linear(192, classes),
    )
