"""Multilayer perceptron: fully connected hidden layers, of one width or of individual widths."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from wpriv.core.parameters import Parameters, parameter
from wpriv.training.models._networks import parse_widths

if TYPE_CHECKING:
    from torch import nn

SOURCE = "multilayer perceptron"


@dataclass(frozen=True)
class Params(Parameters):
    """Width and number of the hidden layers, and their activation."""

    width: int = parameter("units of each hidden layer", default=256, minimum=1)
    depth: int = parameter("number of hidden layers", default=2, minimum=1)
    widths: str = parameter("the units of each hidden layer, as 128-64-64, in place of width and depth", default="")
    activation: str = parameter("relu or tanh", default="relu", choices=("relu", "tanh"))


def build(params: Params, shape: Sequence[int], classes: int) -> nn.Module:
    """Map [N, *shape] to logits [N, classes]; 269,322 parameters by default on 28x28 images (784-256-256-10)."""
    from torch import nn

    from wpriv.training.models._layers import ACTIVATIONS

    layers: list[nn.Module] = [nn.Flatten()]
    size = math.prod(shape)
    for width in parse_widths(params.name, params.widths) if params.widths else [params.width] * params.depth:
        layers += [nn.Linear(size, width), ACTIVATIONS[params.activation]()]
        size = width
    return nn.Sequential(*layers, nn.Linear(size, classes))
