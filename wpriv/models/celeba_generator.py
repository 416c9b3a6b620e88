"""The generator of 64x64 colour images with which private sliced distances were tried on CelebA."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import nn

from wpriv.core.parameters import Parameters, parameter
from wpriv.models._generator import Generator
from wpriv.models._parts import image

SOURCE = "Rakotomamonjy, Ralaivola 2021, Table 5"
WIDTHS = (512, 256, 128, 64)


@dataclass(frozen=True)
class Params(Parameters):
    """How many random numbers an image is made of."""

    latent: int = parameter("normal numbers", default=32, minimum=1)


class _Lift(nn.Module):
    """From the range of the hyperbolic tangent to [0, 1]."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return (x + 1) / 2


def build(params: Params, shape: Sequence[int], classes: int) -> Generator:
    """[N, latent] to [N, C, 64, 64] in [0, 1], without classes; 3,020,617 parameters for three channels.

    The first layer makes 4 x 4 cells of a code and each further one doubles them: strides of 2, where Table 5 prints 1, by which
    16 x 16 cells would come out and not the 64 x 64 that it names.
    """
    channels = image(params.name, shape, 64)
    layers: list[nn.Module] = [nn.Unflatten(1, (params.latent, 1, 1)), nn.ConvTranspose2d(params.latent, WIDTHS[0], 4)]
    for before, after in zip(WIDTHS, (*WIDTHS[1:], channels), strict=True):
        layers += [nn.BatchNorm2d(before), nn.ReLU(), nn.ConvTranspose2d(before, after, 4, stride=2, padding=1)]
    return Generator(params.latent, 0, nn.Sequential(*layers, nn.BatchNorm2d(channels), nn.Tanh(), _Lift()))
