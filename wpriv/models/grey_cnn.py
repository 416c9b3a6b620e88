"""The network of Yang, Qi and Zhou for 28x28 images."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from torch import nn

from wpriv.models._parts import Normalised, image

SOURCE = "Yang, Qi, Zhou 2024, the network of Table 2 for MNIST and Fashion-MNIST"
WIDTH = 64


@dataclass(frozen=True)
class Params(Normalised):
    """Which normalisation stands after the convolutions."""


def build(params: Params, shape: Sequence[int], classes: int) -> nn.Module:
    """[N, C, 28, 28] to [N, classes] logits; 573,834 parameters for one channel and ten classes, with either normalisation.

    The first normalisation follows its pooling and the second precedes it, as in the paper.
    """
    channels = image(params.name, shape, 28)
    return nn.Sequential(
        *(nn.Conv2d(channels, WIDTH, 5), nn.ReLU(), nn.MaxPool2d(2), params.layer(WIDTH)),  # to 12 x 12
        *(nn.Conv2d(WIDTH, WIDTH, 5), nn.ReLU(), params.layer(WIDTH), nn.MaxPool2d(2)),  # to 4 x 4
        nn.Flatten(),
        *(nn.Linear(WIDTH * 4 * 4, 384), nn.SELU()),
        *(nn.Linear(384, 192), nn.SELU()),
        nn.Linear(192, classes),
    )
