"""The network that was passed to ``wpriv.train`` in Python; a recipe cannot build it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from wpriv.core.parameters import Parameters, parameter
from wpriv.errors import UsageError

if TYPE_CHECKING:
    from torch import nn

SOURCE = "a network passed to wpriv.train in Python"


@dataclass(frozen=True)
class Params(Parameters):
    """What identifies the network, its loss and its optimizer."""

    architecture: str = parameter("name of the class and digest of the layers, as repr prints them", default="")
    loss: str = parameter("name and digest of the loss", default="")


def build(params: Params, shape: Sequence[int], classes: int) -> nn.Module:
    """Refuse: only the Python program that has the network can train it.

    Raises:
        UsageError: always.
    """
    raise UsageError(
        "this recipe trains a network that was passed to wpriv.train in Python, and only that program has it. Run it "
        "again, or put the class into a file and write model: {file: net.py, name: Net}"
    )
