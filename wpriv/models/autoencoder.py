"""An autoencoder of fully connected layers: the codes of examples, and the examples that it makes of codes."""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from wpriv.core.parameters import Parameters, parameter
from wpriv.errors import UsageError
from wpriv.models._parts import ACTIVATIONS, inputs, widths

SOURCE = "autoencoder of fully connected layers, as in Rodriguez-Vitores, Lalanne, Loubes 2025, Appendix B.3"
OUTPUTS = ("linear", "sigmoid")


@dataclass(frozen=True)
class Params(Parameters):
    """The encoder's layers; the decoder has the same in the opposite order."""

    code: int = parameter("numbers of a code", default=2, minimum=1)
    widths: str = parameter("units of the encoder's hidden layers, as 256-64", default="62")
    activation: str = parameter("relu or tanh", default="relu", choices=tuple(ACTIVATIONS))
    output: str = parameter("linear, or sigmoid for images in [0, 1]", default="linear", choices=OUTPUTS)
    ball: float = parameter(
        "codes become c / sqrt(1 + |c|^2 / ball^2), in a ball of this radius; 0 leaves them", default=0.0, minimum=0
    )
    prior: float = parameter(
        "a public guess of the outputs' mean, with which a sigmoid begins; 0 leaves it", default=0.0, minimum=0
    )

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.prior and (self.output != "sigmoid" or self.prior >= 1):
            told = (
                f"prior is the mean of sigmoid outputs, between 0 and 1; found {self.prior:g} and output: {self.output}"
            )
            raise UsageError(f"{self.name}: {told}")


class Ball(nn.Module):
    """Rows [N, d] drawn into the open ball of a radius, the long ones most; no row hangs on another."""

    def __init__(self, radius: float):
        super().__init__()
        self.radius = radius

    def forward(self, x: Tensor) -> Tensor:
        return x / (1 + x.square().sum(dim=1, keepdim=True) / self.radius**2).sqrt()


class Autoencoder(nn.Module):
    """``encoder`` [N, *shape] to codes [N, code], and ``decoder`` from codes back; called, it gives both of an example."""

    def __init__(self, params: Params, shape: Sequence[int]):
        super().__init__()
        sizes = [inputs(shape), *widths(params.name, params.widths), params.code]
        into = [Ball(params.ball)] if params.ball else []
        self.encoder = nn.Sequential(nn.Flatten(), *_layers(sizes, params.activation), *into)
        back = _layers(sizes[::-1], params.activation)
        if params.prior:
            # else the first steps of all records agree to make the codes large, for want of a bias
            nn.init.constant_(back[-1].bias, math.log(params.prior / (1 - params.prior)))  # type: ignore[arg-type]
        last = [nn.Sigmoid()] if params.output == "sigmoid" else []
        self.decoder = nn.Sequential(*back, *last, nn.Unflatten(1, tuple(shape)))

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        codes: Tensor = self.encoder(x)
        made: torch.Tensor = self.decoder(codes)
        return codes, made


def build(params: Params, shape: Sequence[int], classes: int) -> Autoencoder:
    """[N, *shape] to codes [N, code] and what is made of them [N, *shape]; 16-62-2-62-16 by default on 16 columns: 2,374 parameters."""
    return Autoencoder(params, shape)


def _layers(sizes: Sequence[int], activation: str) -> list[nn.Module]:
    """Linear layers with activations between them."""
    found: list[nn.Module] = [nn.Linear(sizes[0], sizes[1])]
    for size, other in itertools.pairwise(sizes[1:]):
        found += [ACTIVATIONS[activation](), nn.Linear(size, other)]
    return found
