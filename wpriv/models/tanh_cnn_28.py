"""Small convolutional network with tanh, the reference for DP-SGD on MNIST and Fashion-MNIST."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from wpriv.core.parameters import Parameters
from wpriv.models._shapes import image_channels

if TYPE_CHECKING:
    from torch import nn

SOURCE = "Papernot, Thakurta, Song, Chien, Erlingsson 2021, Table 1; Tramer, Boneh 2021"


@dataclass(frozen=True)
class Params(Parameters):
    """No parameters."""


def build(params: Params, shape: Sequence[int], classes: int) -> nn.Module:
    """Map [N, C, 28, 28] to logits [N, classes]; 26,010 parameters for one channel and ten classes.

    Bounded activations keep the gradient norms of examples close to each other, so that clipping removes less of them.
    """
    from torch import nn

    channels = image_channels(params.name, shape, 28)
    return nn.Sequential(
        nn.Conv2d(channels, 16, 8, stride=2, padding=3),  # to 14 x 14
        nn.Tanh(),
        nn.MaxPool2d(2, stride=1),  # to 13 x 13
        nn.Conv2d(16, 32, 4, stride=2),  # to 5 x 5
        nn.Tanh(),
        nn.MaxPool2d(2, stride=1),  # to 4 x 4
        nn.Flatten(),
        nn.Linear(32 * 4 * 4, 32),
        nn.Tanh(),
        nn.Linear(32, classes),
    )
