"""The network of the model ``autoencoder``. Loads torch, so that the model imports this file in ``build`` only."""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence

import torch
from torch import Tensor, nn

from wpriv.models._layers import ACTIVATIONS


class IntoBall(nn.Module):
    """Map each row x of [N, d] into the open ball of a radius: x / sqrt(1 + |x|^2 / radius^2)."""

    def __init__(self, radius: float):
        super().__init__()
        self.radius = radius

    def forward(self, x: Tensor) -> Tensor:
        return x / (1 + x.square().sum(dim=1, keepdim=True) / self.radius**2).sqrt()


class Autoencoder(nn.Module):
    """``encoder`` maps [N, *shape] to codes [N, code] and ``decoder`` maps codes back; a call returns both results.

    Args:
        shape: of one example. sizes: numbers of an example, units of the encoder's hidden layers, numbers of a code.
        activation: between the layers. sigmoid: bound the reconstructions to [0, 1].
        ball: radius of the ball that codes are mapped into; 0 leaves them unchanged.
        prior: initial mean of the outputs; 0 for none.
    """

    def __init__(
        self, shape: Sequence[int], sizes: Sequence[int], *, activation: str, sigmoid: bool, ball: float, prior: float
    ):
        super().__init__()
        into_ball = [IntoBall(ball)] if ball else []
        self.encoder = nn.Sequential(nn.Flatten(), *_linear_layers(sizes, activation), *into_ball)
        decoder_layers = _linear_layers(sizes[::-1], activation)
        if prior:
            # with a bias of 0 the gradients of all records first agree on enlarging the codes, in place of the bias
            nn.init.constant_(decoder_layers[-1].bias, math.log(prior / (1 - prior)))  # type: ignore[arg-type]
        output = [nn.Sigmoid()] if sigmoid else []
        self.decoder = nn.Sequential(*decoder_layers, *output, nn.Unflatten(1, tuple(shape)))

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        codes: Tensor = self.encoder(x)
        reconstructions: torch.Tensor = self.decoder(codes)
        return codes, reconstructions


def _linear_layers(sizes: Sequence[int], activation: str) -> list[nn.Module]:
    """Linear layers of the given sizes with activations between them."""
    layers: list[nn.Module] = [nn.Linear(sizes[0], sizes[1])]
    for width, next_width in itertools.pairwise(sizes[1:]):
        layers += [ACTIVATIONS[activation](), nn.Linear(width, next_width)]
    return layers
