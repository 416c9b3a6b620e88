"""A multilayer perceptron: fully connected layers of one width, or each of its own."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from torch import nn

from wpriv.core.parameters import Parameters, parameter
from wpriv.models._parts import ACTIVATIONS, inputs, widths

SOURCE = "multilayer perceptron"


@dataclass(frozen=True)
class Params(Parameters):
    """Width and number of the hidden layers, and what stands between them."""

    width: int = parameter("units of each hidden layer", default=256, minimum=1)
    depth: int = parameter("number of hidden layers", default=2, minimum=1)
    widths: str = parameter("the units of each hidden layer, as 128-64-64, in place of width and depth", default="")
    activation: str = parameter("relu or tanh", default="relu", choices=tuple(ACTIVATIONS))


def build(params: Params, shape: Sequence[int], classes: int) -> nn.Module:
    """[N, *shape] to [N, classes] logits; 784-256-256-10 by default on 28x28 images: 269,322 parameters."""
    layers: list[nn.Module] = [nn.Flatten()]
    size = inputs(shape)
    for width in widths(params.name, params.widths) if params.widths else [params.width] * params.depth:
        layers += [nn.Linear(size, width), ACTIVATIONS[params.activation]()]
        size = width
    return nn.Sequential(*layers, nn.Linear(size, classes))
