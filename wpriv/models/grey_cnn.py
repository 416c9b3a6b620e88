"""The network of Yang, Qi and Zhou for 28x28 images."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from torch import nn

from wpriv.core.parameters import Parameters, parameter
from wpriv.models._parts import group_norm, image

SOURCE = "Yang, Qi, Zhou 2024, the network of Table 2 for MNIST and Fashion-MNIST"
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
    """[N, C, 28, 28] to [N, classes] logits; 573,834 parameters for one channel and ten classes, with either normalisation.

    The first normalisation follows its pooling and the second precedes it, as in the paper.
    """
    channels = image(params.name, shape, 28)
    return nn.Sequential(
        *(nn.Conv2d(channels, WIDTH, 5), nn.ReLU(), nn.MaxPool2d(2), params.layer()),  # to 12 x 12
        *(nn.Conv2d(WIDTH, WIDTH, 5), nn.ReLU(), params.layer(), nn.MaxPool2d(2)),  # to 4 x 4
        nn.Flatten(),
        *(nn.Linear(WIDTH * 4 * 4, 384), nn.SELU()),
        *(nn.Linear(384, 192), nn.SELU()),
        nn.Linear(192, classes),
    )
