"""The generator of a DCGAN for 28x28 images: numbers drawn from a simple law in, images out."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from torch import nn

from wpriv.core.process import Parameters, parameter
from wpriv.models._parts import group_norm, image

SOURCE = "Radford, Metz, Chintala 2015, with two steps of upsampling for 28x28 images"


@dataclass(frozen=True)
class Params(Parameters):
    """What goes in, how wide it is, and which normalisation stands behind its layers."""

    latent: int = parameter("numbers that go in", default=100, least=1)
    width: int = parameter("channels at 14x14; twice as many at 7x7", default=64, least=1)
    norm: str = parameter("batch, as published, mixes the images of a batch; group; or none", default="batch", choices=("batch", "group", "none"))
    groups: int = parameter("groups of the group normalisation", default=16, least=1)

    def layer(self, channels: int) -> nn.Module:
        """The normalisation behind a layer of so many channels."""
        if self.norm == "none":
            return nn.Identity()
        return nn.BatchNorm2d(channels) if self.norm == "batch" else group_norm(self.name, channels, self.groups)


def build(params: Params, shape: Sequence[int], classes: int) -> nn.Module:
    """[N, latent] to [N, C, 28, 28] in [0, 1]; by default 1,142,017 parameters on one channel, of which classes know nothing.

    Weights are drawn as published, normal with standard deviation 0.02.
    """
    channels, w = image(params.name, shape, 28), params.width
    bias = params.norm == "none"
    model = nn.Sequential(
        *(nn.Unflatten(1, (params.latent, 1, 1)), nn.ConvTranspose2d(params.latent, 2 * w, 7, bias=bias)),  # to 7 x 7
        *(params.layer(2 * w), nn.ReLU()),
        *(nn.ConvTranspose2d(2 * w, w, 4, 2, 1, bias=bias), params.layer(w), nn.ReLU()),  # to 14 x 14
        *(nn.ConvTranspose2d(w, channels, 4, 2, 1), nn.Sigmoid()),  # to 28 x 28
    )
    for layer in model.modules():
        if isinstance(layer, nn.ConvTranspose2d):
            nn.init.normal_(layer.weight, 0.0, 0.02)
    return model
