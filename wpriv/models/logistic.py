"""Multinomial logistic regression: one linear layer."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from wpriv.core.parameters import Parameters
from wpriv.models._shapes import example_size

if TYPE_CHECKING:
    from torch import nn

SOURCE = "logistic regression"


@dataclass(frozen=True)
class Params(Parameters):
    """No parameters."""


def build(params: Params, shape: Sequence[int], classes: int) -> nn.Module:
    """Map [N, *shape] to logits [N, classes]; (inputs + 1) x classes parameters."""
    from torch import nn

    return nn.Sequential(nn.Flatten(), nn.Linear(example_size(shape), classes))
