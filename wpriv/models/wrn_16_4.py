"""Wide residual network, 16 layers deep and 4 times as wide, with group instead of batch normalisation."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from wpriv.core.parameters import Parameters, parameter
from wpriv.models._shapes import image_channels

if TYPE_CHECKING:
    from torch import nn

SOURCE = "Zagoruyko, Komodakis 2016; with GroupNorm as De, Berrada, Hayes, Smith, Balle 2022"
FACTOR, BLOCKS = 4, 2  # 3 stages of 2 blocks of 2 convolutions, and 4 more layers


@dataclass(frozen=True)
class Params(Parameters):
    """Groups of the normalisation, for every width."""

    groups: int = parameter("groups of the group normalisation", default=16, minimum=1)


def build(params: Params, shape: Sequence[int], classes: int) -> nn.Module:
    """Map [N, C, H, W] to logits [N, classes]; 2,748,890 parameters for three channels and ten classes. No dropout."""
    from torch import nn

    from wpriv.models._layers import group_norm
    from wpriv.models._residual_block import ResidualBlock

    name, channels = params.name, image_channels(params.name, shape)
    size = 16
    layers: list[nn.Module] = [nn.Conv2d(channels, size, 3, padding=1, bias=False)]
    for stage, width in enumerate((16 * FACTOR, 32 * FACTOR, 64 * FACTOR)):
        for block in range(BLOCKS):
            layers.append(ResidualBlock(name, params.groups, size, width, 2 if stage and not block else 1))
            size = width
    layers += [
        group_norm(name, size, params.groups),
        nn.ReLU(),
        nn.AdaptiveAvgPool2d(1),
        nn.Flatten(),
        nn.Linear(size, classes),
    ]
    return nn.Sequential(*layers)
