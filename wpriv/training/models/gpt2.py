"""GPT-2 of any size, from a configuration and at random weights: nothing is downloaded."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from wpriv.core.parameters import Parameters, parameter
from wpriv.errors import MissingResource, UsageError

if TYPE_CHECKING:
    from torch import nn

SOURCE = "Radford, Wu, Child, Luan, Amodei, Sutskever 2019, as in transformers"


@dataclass(frozen=True)
class Params(Parameters):
    """Width, number of blocks, and heads of attention in each."""

    width: int = parameter("numbers that stand for a token, a multiple of the heads", default=96, minimum=1)
    depth: int = parameter("number of blocks", default=2, minimum=1)
    heads: int = parameter("heads of attention in each block", default=4, minimum=1)


def build(params: Params, shape: Sequence[int], classes: int) -> nn.Module:
    """Map tokens [N, T] below ``classes`` to logits [N, T, classes]; no dropout.

    By default, 96 tokens and T = 63 it has 239,328 parameters. Their names are those of
    ``GPT2LMHeadModel``, which loads them.

    Raises:
        MissingResource: transformers is not installed.
        UsageError: the records are no sequences, or the width is no multiple of the heads.
    """
    try:
        from wpriv.training.models._gpt2_logits import Gpt2Logits
    except ModuleNotFoundError as error:
        if error.name != "transformers":
            raise
        raise MissingResource(
            "the model gpt2 needs the package transformers; install it by pip install 'wpriv[llm]'"
        ) from None
    if len(shape) != 1:
        raise UsageError(f"gpt2 takes tokens [N, T]; found records of shape {list(shape)}. Choose another model")
    if params.width % params.heads:
        raise UsageError(f"gpt2: width must be a multiple of heads; found {params.width} and {params.heads}")
    return Gpt2Logits.of_sizes(classes, shape[0], params.width, params.depth, params.heads)
