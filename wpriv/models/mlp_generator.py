"""Generator of fully connected layers, from latents to records; an affine map without hidden layers."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from wpriv.core.parameters import Parameters, parameter
from wpriv.models._shapes import example_size

if TYPE_CHECKING:
    from torch import nn

SOURCE = "multilayer perceptron, as a generator"


@dataclass(frozen=True)
class Params(Parameters):
    """Dimension of the latents, hidden layers with their normalisation, and range of the outputs."""

    latent: int = parameter("numbers that go in", default=2, minimum=1)
    width: int = parameter("units of each hidden layer", default=128, minimum=1)
    depth: int = parameter("number of hidden layers; 0 is an affine map", default=2, minimum=0)
    activation: str = parameter("relu or tanh", default="relu", choices=("relu", "tanh"))
    norm: str = parameter(
        "batch: the hidden units are normalised over a batch; or none", default="none", choices=("batch", "none")
    )
    out: str = parameter("linear, or sigmoid for numbers from 0 to 1", default="linear", choices=("linear", "sigmoid"))


def build(params: Params, shape: Sequence[int], classes: int) -> nn.Module:
    """Map [N, latent] to [N, *shape]; ``classes`` is ignored.

    118,032 parameters by default on 28x28 images (2-128-128-784).
    """
    from torch import nn

    from wpriv.models._layers import ACTIVATIONS, OutputOffset

    layers: list[nn.Module] = []
    size = params.latent
    for _ in range(params.depth):
        norm = [nn.BatchNorm1d(params.width)] * (params.norm == "batch")
        layers += [nn.Linear(size, params.width), *norm, ACTIVATIONS[params.activation]()]
        size = params.width
    layers += [nn.Linear(size, example_size(shape), bias=False), nn.Unflatten(1, tuple(shape))]
    return nn.Sequential(*layers, OutputOffset(shape, bounded=params.out == "sigmoid"))
