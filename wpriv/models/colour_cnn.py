"""The network of Yang, Qi and Zhou for 32x32 colour images."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from torch import nn

from wpriv.core.parameters import Parameters, parameter
from wpriv.models._parts import group_norm, image

SOURCE = "Yang, Qi, Zhou 2024, the network of Table 2 for CIFAR-10 and SVHN"
WIDTH = 64


@dataclass(frozen=True)
class Params(Parameters):
    """Which normalisation stands after the convolutions."""

    norm: str = parameter(
        "group, or paper: BatchNorm as published, which mixes examples", default="group", choices=("group", "paper")
    )
    groups: int = parameter("groups of the group normalisation", default=16, minimum=1)

    def layer(self) -> nn.Module:
        """The normalisation of 64 channels. BatchNorm makes an example's gradient hang on the others, so no clipping bounds it."""
        return nn.BatchNorm2d(WIDTH) if self.norm == "paper" else group_norm(self.name, WIDTH, self.groups)


def build(params: Params, shape: Sequence[int], classes: int) -> nn.Module:
    """[N, C, 32, 32] to [N, classes] logits; 874,058 parameters for three channels and ten classes, with either normalisation."""
    channels = image(params.name, shape, 32)
    return nn.Sequential(
        *(nn.Conv2d(channels, WIDTH, 5), nn.ReLU(), nn.MaxPool2d(2), params.layer()),  # to 14 x 14
        *(nn.Conv2d(WIDTH, WIDTH, 5), nn.ReLU(), params.layer(), nn.MaxPool2d(2)),  # to 5 x 5
        nn.Flatten(),
        *(nn.Linear(WIDTH * 5 * 5, 384), nn.ReLU()),
        *(nn.Linear(384, 384), nn.ReLU()),
        nn.Linear(384, classes),
    )
