"""Networks of Rakotomamonjy and Ralaivola (2021) for domain adaptation between extracted features."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from wpriv.core.parameters import Parameters, parameter
from wpriv.models._shapes import example_size

if TYPE_CHECKING:
    from torch import nn

SOURCE = "Rakotomamonjy, Ralaivola 2021, appendix 8.5.2, Office 31 and VisDA"


@dataclass(frozen=True)
class Params(Parameters):
    """Widths of the layers; the defaults are those for Office 31."""

    hidden: int = parameter("units of the first layer", default=100, minimum=1)
    width: int = parameter("features that are compared and classified (100 for VisDA)", default=50, minimum=1)
    relu: bool = parameter("a ReLU behind the features (VisDA)", default=False)
    dropout: bool = parameter("drop half of the classifier's hidden units in training, as published", default=False)


def build(params: Params, shape: Sequence[int], classes: int) -> nn.Module:
    """Map [N, *shape] to logits [N, classes], by ``features`` (to [N, width]) and ``classifier``.

    88,210 parameters for 800 inputs and ten classes.
    """
    from torch import nn

    feature_layers = [
        nn.Flatten(),
        nn.Linear(example_size(shape), params.hidden),
        nn.ReLU(),
        nn.Linear(params.hidden, params.width),
    ]
    hidden_layers = [nn.Linear(params.width, params.width), nn.ReLU(), *([nn.Dropout()] if params.dropout else [])]
    return nn.Sequential(
        OrderedDict(
            features=nn.Sequential(*feature_layers, *([nn.ReLU()] if params.relu else [])),
            classifier=nn.Sequential(*hidden_layers, nn.Linear(params.width, classes)),
        )
    )
