"""Critic of a Wasserstein GAN for 28x28 images: one number for each image."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from wpriv.core.parameters import Parameters, parameter
from wpriv.models._shapes import image_channels

if TYPE_CHECKING:
    from torch import nn

SOURCE = (
    "Radford, Metz, Chintala 2015, without normalisation, as Gulrajani, Ahmed, Arjovsky, Dumoulin, Courville 2017 "
    "ask of a critic"
)


@dataclass(frozen=True)
class Params(Parameters):
    """Width of the network."""

    width: int = parameter("channels at 14x14; twice as many at 7x7", default=64, minimum=1)


def build(params: Params, shape: Sequence[int], classes: int) -> nn.Module:
    """Map [N, C, 28, 28] to [N, classes]; 138,561 parameters for one channel and one output, the critic of a GAN.

    Images are processed independently, as the gradient penalty on the slope at each image requires.
    """
    from torch import nn

    channels, width = image_channels(params.name, shape, 28), params.width
    return nn.Sequential(
        *(nn.Conv2d(channels, width, 4, 2, 1), nn.LeakyReLU(0.2)),  # to 14 x 14
        *(nn.Conv2d(width, 2 * width, 4, 2, 1), nn.LeakyReLU(0.2), nn.Flatten()),  # to 7 x 7
        nn.Linear(2 * width * 7 * 7, classes),
    )
