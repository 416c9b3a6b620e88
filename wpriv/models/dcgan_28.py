"""The generator of a DCGAN for 28x28 images: numbers drawn from a simple law in, images out."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from torch import nn

from wpriv.core.parameters import Parameters, parameter
from wpriv.models._parts import Offset, image

SOURCE = "Radford, Metz, Chintala 2015, with two steps of upsampling for 28x28 images"


@dataclass(frozen=True)
class Params(Parameters):
    """What goes in, how wide it is, and whether its layers are normalised."""

    latent: int = parameter("numbers that go in", default=100, minimum=1)
    width: int = parameter("channels at 14x14; twice as many at 7x7", default=64, minimum=1)
    norm: str = parameter(
        "batch, as published, mixes the images of a batch; or none", default="batch", choices=("batch", "none")
    )


def build(params: Params, shape: Sequence[int], classes: int) -> nn.Module:
    """[N, latent] to [N, C, 28, 28] in [0, 1]; by default 772,752 parameters on one channel, and classes are left out of account.

    The units of the first layer are normalised one by one, and every pixel has an offset of its own: with channels for units, and without
    offsets, the first thing that is learned is the mean image, at the cost of all that differs from image to image.
    """
    channels, w = image(params.name, shape, 28), params.width
    bias = params.norm == "none"
    wide, narrow = (nn.Identity(), nn.Identity()) if bias else (nn.BatchNorm1d(2 * w * 49), nn.BatchNorm2d(w))
    model = nn.Sequential(
        *(nn.Linear(params.latent, 2 * w * 49, bias=bias), wide, nn.ReLU(), nn.Unflatten(1, (2 * w, 7, 7))),
        *(nn.ConvTranspose2d(2 * w, w, 4, 2, 1, bias=bias), narrow, nn.ReLU()),  # to 14 x 14
        *(nn.ConvTranspose2d(w, channels, 4, 2, 1, bias=False), Offset((channels, 28, 28), bounded=True)),  # to 28 x 28
    )
    for layer in model.modules():
        if isinstance(layer, nn.ConvTranspose2d):
            nn.init.normal_(layer.weight, 0.0, 0.02)
    return model
