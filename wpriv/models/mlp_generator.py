"""A generator of fully connected layers: numbers drawn from a simple law in, records out. Without hidden layers it is affine."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from torch import nn

from wpriv.core.parameters import Parameters, parameter
from wpriv.models._parts import Offset, inputs

SOURCE = "multilayer perceptron, as a generator"
ACTIVATIONS: dict[str, type[nn.Module]] = {"relu": nn.ReLU, "tanh": nn.Tanh}


@dataclass(frozen=True)
class Params(Parameters):
    """What goes in, the hidden layers with their normalisation, and the range of what comes out."""

    latent: int = parameter("numbers that go in", default=2, minimum=1)
    width: int = parameter("units of each hidden layer", default=128, minimum=1)
    depth: int = parameter("number of hidden layers; 0 is an affine map", default=2, minimum=0)
    activation: str = parameter("relu or tanh", default="relu", choices=tuple(ACTIVATIONS))
    norm: str = parameter(
        "batch: the hidden units are normalised over a batch; or none", default="none", choices=("batch", "none")
    )
    out: str = parameter("linear, or sigmoid for numbers from 0 to 1", default="linear", choices=("linear", "sigmoid"))


def build(params: Params, shape: Sequence[int], classes: int) -> nn.Module:
    """[N, latent] to [N, *shape]; 2-128-128-784 by default on 28x28 images: 118,032 parameters, and classes are left out of account."""
    layers: list[nn.Module] = []
    size = params.latent
    for _ in range(params.depth):
        norm = [nn.BatchNorm1d(params.width)] * (params.norm == "batch")
        layers += [nn.Linear(size, params.width), *norm, ACTIVATIONS[params.activation]()]
        size = params.width
    layers += [nn.Linear(size, inputs(shape), bias=False), nn.Unflatten(1, tuple(shape))]
    return nn.Sequential(*layers, Offset(shape, bounded=params.out == "sigmoid"))
