"""Generator of DP-MERF for labelled 28x28 images, also used with private sliced Wasserstein distances."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from wpriv.core.parameters import Parameters, parameter
from wpriv.models._shapes import image_channels

if TYPE_CHECKING:
    from wpriv.models._generator import Generator

SOURCE = "Harder, Adamczewski, Park 2021; Rakotomamonjy, Ralaivola 2021, Table 3"


@dataclass(frozen=True)
class Params(Parameters):
    """Dimension of the latents."""

    latent: int = parameter("normal numbers beside the one-hot class", default=10, minimum=1)


def build(params: Params, shape: Sequence[int], classes: int) -> Generator:
    """Map [N, latent + classes] to [N, C, 28, 28] in [0, 1]; 167,161 parameters for one channel and ten classes.

    Batch normalisation mixes generated images only: no record passes through the generator.
    """
    import torch
    from torch import nn

    from wpriv.models._generator import Generator

    channels = image_channels(params.name, shape, 28)
    body = nn.Sequential(
        *(nn.Linear(params.latent + classes, 200), nn.BatchNorm1d(200), nn.ReLU()),
        *(nn.Linear(200, 784), nn.BatchNorm1d(784), nn.Unflatten(1, (16, 7, 7))),
        *(nn.UpsamplingBilinear2d(scale_factor=2), nn.Conv2d(16, 8, 5, padding=2), nn.ReLU()),  # to 14 x 14
        *(nn.UpsamplingBilinear2d(scale_factor=2), nn.Conv2d(8, channels, 5, padding=2), nn.Sigmoid()),  # to 28 x 28
    )
    # convolutions of few channels take half the time in this memory format
    return Generator(params.latent, classes, body.to(memory_format=torch.channels_last))  # type: ignore[call-overload]
