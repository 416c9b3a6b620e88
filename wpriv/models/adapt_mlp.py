"""The networks of Rakotomamonjy and Ralaivola for adaptation between features that somebody extracted."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Sequence
from dataclasses import dataclass

from torch import nn

from wpriv.core.parameters import Parameters, parameter
from wpriv.models._parts import inputs

SOURCE = "Rakotomamonjy, Ralaivola 2021, appendix 8.5.2, Office 31 and VisDA"


@dataclass(frozen=True)
class Params(Parameters):
    """Widths of the layers; the defaults are those of Office 31."""

    hidden: int = parameter("units of the first layer", default=100, minimum=1)
    width: int = parameter("features that are compared and classified (100 for VisDA)", default=50, minimum=1)
    relu: bool = parameter("a ReLU behind the features (VisDA)", default=False)
    dropout: bool = parameter("drop half of the classifier's hidden units in training, as published", default=False)


def build(params: Params, shape: Sequence[int], classes: int) -> nn.Module:
    """[N, *shape] to [N, classes] logits, as ``features`` (to [N, width]) and ``classifier``; 88,210 parameters for 800 inputs."""
    features = [
        nn.Flatten(),
        nn.Linear(inputs(shape), params.hidden),
        nn.ReLU(),
        nn.Linear(params.hidden, params.width),
    ]
    classifier = [nn.Linear(params.width, params.width), nn.ReLU(), *([nn.Dropout()] if params.dropout else [])]
    return nn.Sequential(
        OrderedDict(
            features=nn.Sequential(*features, *([nn.ReLU()] if params.relu else [])),
            classifier=nn.Sequential(*classifier, nn.Linear(params.width, classes)),
        )
    )
