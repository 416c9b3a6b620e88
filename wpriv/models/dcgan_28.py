"""Generator of a DCGAN for 28x28 images: latents of a simple distribution in, images out."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from wpriv.core.parameters import Parameters, parameter
from wpriv.models._shapes import image_channels

if TYPE_CHECKING:
    from torch import nn

SOURCE = "Radford, Metz, Chintala 2015, with two steps of upsampling for 28x28 images"


@dataclass(frozen=True)
class Params(Parameters):
    """Dimension of the latents, width of the network, and normalisation of its layers."""

    latent: int = parameter("numbers that go in", default=100, minimum=1)
    width: int = parameter("channels at 14x14; twice as many at 7x7", default=64, minimum=1)
    norm: str = parameter(
        "batch, as published, mixes the images of a batch; or none", default="batch", choices=("batch", "none")
    )


def build(params: Params, shape: Sequence[int], classes: int) -> nn.Module:
    """Map [N, latent] to [N, C, 28, 28] in [0, 1]; 772,752 parameters by default on one channel; ignores ``classes``.

    Each unit of the first layer is normalised by itself (not each channel), and each pixel has an offset of its own.
    Otherwise the network first learns the mean image, at the expense of the differences between images.
    """
    from torch import nn

    from wpriv.models._layers import OutputOffset

    channels, width = image_channels(params.name, shape, 28), params.width
    bias = params.norm == "none"
    first_norm, second_norm = (
        (nn.Identity(), nn.Identity()) if bias else (nn.BatchNorm1d(2 * width * 49), nn.BatchNorm2d(width))
    )
    model = nn.Sequential(
        *(nn.Linear(params.latent, 2 * width * 49, bias=bias), first_norm, nn.ReLU()),
        nn.Unflatten(1, (2 * width, 7, 7)),
        *(nn.ConvTranspose2d(2 * width, width, 4, 2, 1, bias=bias), second_norm, nn.ReLU()),  # to 14 x 14
        nn.ConvTranspose2d(width, channels, 4, 2, 1, bias=False),  # to 28 x 28
        OutputOffset((channels, 28, 28), bounded=True),
    )
    for layer in model.modules():
        if isinstance(layer, nn.ConvTranspose2d):
            nn.init.normal_(layer.weight, 0.0, 0.02)
    return model
