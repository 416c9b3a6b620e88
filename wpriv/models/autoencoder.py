"""Autoencoder of fully connected layers: an encoder to codes, and a decoder back."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from wpriv.core.parameters import Parameters, parameter
from wpriv.errors import UsageError
from wpriv.models._shapes import example_size, parse_widths

if TYPE_CHECKING:
    from wpriv.models._autoencoder_network import Autoencoder

SOURCE = "autoencoder of fully connected layers, as in Rodriguez-Vitores, Lalanne, Loubes 2025, Appendix B.3"
OUTPUTS = ("linear", "sigmoid")


@dataclass(frozen=True)
class Params(Parameters):
    """Layers of the encoder; the decoder has the same layers in reverse order."""

    code: int = parameter("numbers of a code", default=2, minimum=1)
    widths: str = parameter("units of the encoder's hidden layers, as 256-64", default="62")
    activation: str = parameter("relu or tanh", default="relu", choices=("relu", "tanh"))
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
            raise UsageError(
                f"{self.name}: prior, the mean of sigmoid outputs, must lie between 0 and 1 and needs output: sigmoid; "
                f"found prior: {self.prior:g} and output: {self.output}"
            )


def build(params: Params, shape: Sequence[int], classes: int) -> Autoencoder:
    """Map [N, *shape] to codes [N, code] and reconstructions [N, *shape]; ``classes`` is not used.

    2,374 parameters by default on 16 columns (16-62-2-62-16).
    """
    from wpriv.models._autoencoder_network import Autoencoder

    sizes = [example_size(shape), *parse_widths(params.name, params.widths), params.code]
    return Autoencoder(
        shape,
        sizes,
        activation=params.activation,
        sigmoid=params.output == "sigmoid",
        ball=params.ball,
        prior=params.prior,
    )
