"""Generator of 64x64 colour images, used with private sliced Wasserstein distances on CelebA."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from wpriv.core.parameters import Parameters, parameter
from wpriv.models._shapes import image_channels

if TYPE_CHECKING:
    from wpriv.models._generator import Generator

SOURCE = "Rakotomamonjy, Ralaivola 2021, Table 5"
WIDTHS = (512, 256, 128, 64)


@dataclass(frozen=True)
class Params(Parameters):
    """Dimension of the latents."""

    latent: int = parameter("normal numbers", default=32, minimum=1)


def build(params: Params, shape: Sequence[int], classes: int) -> Generator:
    """Map [N, latent] to [N, C, 64, 64] in [0, 1], without classes; 3,020,617 parameters for three channels.

    The first layer gives 4 x 4 cells and each of the four others doubles the side. Their stride is 2: with the stride
    of 1 that Table 5 prints, the images would have 16 x 16 pixels instead of the 64 x 64 that the table names.
    """
    from torch import nn

    from wpriv.models._generator import Generator
    from wpriv.models._layers import ToUnitInterval

    channels = image_channels(params.name, shape, 64)
    layers: list[nn.Module] = [nn.Unflatten(1, (params.latent, 1, 1)), nn.ConvTranspose2d(params.latent, WIDTHS[0], 4)]
    for width, next_width in zip(WIDTHS, (*WIDTHS[1:], channels), strict=True):
        layers += [nn.BatchNorm2d(width), nn.ReLU(), nn.ConvTranspose2d(width, next_width, 4, stride=2, padding=1)]
    body = nn.Sequential(*layers, nn.BatchNorm2d(channels), nn.Tanh(), ToUnitInterval())
    return Generator(params.latent, 0, body)
