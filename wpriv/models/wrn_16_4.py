"""A wide residual network, 16 layers deep and 4 times as wide, with group instead of batch normalisation."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from torch import Tensor, nn

from wpriv.core.parameters import Parameters, parameter
from wpriv.models._parts import group_norm, image

SOURCE = "Zagoruyko, Komodakis 2016; with GroupNorm as De, Berrada, Hayes, Smith, Balle 2022"
FACTOR, BLOCKS = 4, 2  # 3 stages of 2 blocks of 2 convolutions, and 4 more layers


@dataclass(frozen=True)
class Params(Parameters):
    """The groups of the normalisation, of every width."""

    groups: int = parameter("groups of the group normalisation", default=16, minimum=1)


class Block(nn.Module):
    """Pre-activation: norm, ReLU, convolution, twice, added to the input (or to its 1x1 convolution where the shapes differ)."""

    def __init__(self, name: str, groups: int, width: int, to: int, stride: int):
        super().__init__()
        self.norm1, self.norm2 = group_norm(name, width, groups), group_norm(name, to, groups)
        self.conv1 = nn.Conv2d(width, to, 3, stride=stride, padding=1, bias=False)
        self.conv2 = nn.Conv2d(to, to, 3, padding=1, bias=False)
        self.shortcut = None if width == to and stride == 1 else nn.Conv2d(width, to, 1, stride=stride, bias=False)
        # one module for each use: hooks of per-example clipping see every call apart
        self.relu1, self.relu2 = nn.ReLU(), nn.ReLU()

    def forward(self, x: Tensor) -> Tensor:
        active: Tensor = self.relu1(self.norm1(x))
        kept = x if self.shortcut is None else self.shortcut(active)
        found: Tensor = self.conv2(self.relu2(self.norm2(self.conv1(active)))) + kept
        return found


def build(params: Params, shape: Sequence[int], classes: int) -> nn.Module:
    """[N, C, H, W] to [N, classes] logits; 2,748,890 parameters for three channels and ten classes. No dropout."""
    name, channels = params.name, image(params.name, shape)
    size = 16
    layers: list[nn.Module] = [nn.Conv2d(channels, size, 3, padding=1, bias=False)]
    for stage, width in enumerate((16 * FACTOR, 32 * FACTOR, 64 * FACTOR)):
        for block in range(BLOCKS):
            layers.append(Block(name, params.groups, size, width, 2 if stage and not block else 1))
            size = width
    layers += [
        group_norm(name, size, params.groups),
        nn.ReLU(),
        nn.AdaptiveAvgPool2d(1),
        nn.Flatten(),
        nn.Linear(size, classes),
    ]
    return nn.Sequential(*layers)
