"""Network of Rakotomamonjy and Ralaivola (2021) for domain adaptation between digits: 320 features and a classifier."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from wpriv.core.parameters import Parameters, parameter
from wpriv.models._shapes import image_channels

if TYPE_CHECKING:
    from torch import nn

SOURCE = "Rakotomamonjy, Ralaivola 2021, appendix 8.5.2, digits"
WIDTH = 20 * 4 * 4


@dataclass(frozen=True)
class Params(Parameters):
    """Dropout in training."""

    dropout: bool = parameter(
        "drop half of the second layer's channels and of the classifier's units, as published", default=False
    )


def build(params: Params, shape: Sequence[int], classes: int) -> nn.Module:
    """Map [N, C, 28, 28] to logits [N, classes], by ``features`` (to [N, 320] in [0, 1]) and ``classifier``.

    49,962 parameters for one channel and ten classes.
    """
    from torch import nn

    channels = image_channels(params.name, shape, 28)
    features = nn.Sequential(
        *(nn.Conv2d(channels, 32, 5), nn.MaxPool2d(2), nn.ReLU()),  # to 12 x 12
        nn.Conv2d(32, 20, 5),
        *([nn.Dropout2d()] if params.dropout else []),
        *(nn.MaxPool2d(2), nn.Sigmoid(), nn.Flatten()),  # to 4 x 4
    )
    classifier = nn.Sequential(
        nn.Linear(WIDTH, 100), nn.ReLU(), *([nn.Dropout()] if params.dropout else []), nn.Linear(100, classes)
    )
    return nn.Sequential(OrderedDict(features=features, classifier=classifier))
