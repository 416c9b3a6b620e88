"""The network of Yang, Qi and Zhou for 32x32 colour images."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from torch import nn

from wpriv.models._parts import Normalised, image

SOURCE = "Yang, Qi, Zhou 2024, the network of Table 2 for CIFAR-10 and SVHN"
WIDTH = 64


@dataclass(frozen=True)
class Params(Normalised):
    """Which normalisation stands after the convolutions."""


def build(params: Params, shape: Sequence[int], classes: int) -> nn.Module:
    """[N, C, 32, 32] to [N, classes] logits; 874,058 parameters for three channels and ten classes, with either normalisation."""
    channels = image(params.name, shape, 32)
    return nn.Sequential(
        *(nn.Conv2d(channels, WIDTH, 5), nn.ReLU(), nn.MaxPool2d(2), params.layer(WIDTH)),  # to 14 x 14
        *(nn.Conv2d(WIDTH, WIDTH, 5), nn.ReLU(), params.layer(WIDTH), nn.MaxPool2d(2)),  # to 5 x 5
        nn.Flatten(),
        *(nn.Linear(WIDTH * 5 * 5, 384), nn.ReLU()),
        *(nn.Linear(384, 384), nn.ReLU()),
        nn.Linear(384, classes),
    )
