"""A multilayer perceptron: fully connected layers of one width."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from torch import nn

from wpriv.core.process import Parameters, parameter
from wpriv.models._parts import inputs

SOURCE = "multilayer perceptron"
ACTIVATIONS: dict[str, type[nn.Module]] = {"relu": nn.ReLU, "tanh": nn.Tanh}


@dataclass(frozen=True)
class Params(Parameters):
    """Width and number of the hidden layers, and what stands between them."""

    width: int = parameter("units of each hidden layer", default=256, least=1)
    depth: int = parameter("number of hidden layers", default=2, least=1)
    activation: str = parameter("relu or tanh", default="relu", choices=tuple(ACTIVATIONS))


def build(params: Params, shape: Sequence[int], classes: int) -> nn.Module:
    """[N, *shape] to [N, classes] logits; 784-256-256-10 by default on 28x28 images: 269,322 parameters."""
    layers: list[nn.Module] = [nn.Flatten()]
    size = inputs(shape)
    for _ in range(params.depth):
        layers += [nn.Linear(size, params.width), ACTIVATIONS[params.activation]()]
        size = params.width
    return nn.Sequential(*layers, nn.Linear(size, classes))
