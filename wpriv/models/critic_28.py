"""The critic of a Wasserstein GAN for 28x28 images: an image in, one number out."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from torch import nn

from wpriv.core.parameters import Parameters, parameter
from wpriv.models._parts import image

SOURCE = "Radford, Metz, Chintala 2015, without normalisation, as Gulrajani, Ahmed, Arjovsky, Dumoulin, Courville 2017 ask of a critic"


@dataclass(frozen=True)
class Params(Parameters):
    """How wide it is."""

    width: int = parameter("channels at 14x14; twice as many at 7x7", default=64, minimum=1)


def build(params: Params, shape: Sequence[int], classes: int) -> nn.Module:
    """[N, C, 28, 28] to [N, classes] numbers; 138,561 parameters on one channel with one output, the critic of a GAN.

    Nothing mixes images: the gradient penalty is about the slope at each image by itself.
    """
    channels, w = image(params.name, shape, 28), params.width
    return nn.Sequential(
        *(nn.Conv2d(channels, w, 4, 2, 1), nn.LeakyReLU(0.2)),  # to 14 x 14
        *(nn.Conv2d(w, 2 * w, 4, 2, 1), nn.LeakyReLU(0.2), nn.Flatten()),  # to 7 x 7
        nn.Linear(2 * w * 7 * 7, classes),
    )
