"""Multinomial logistic regression: one linear layer."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from torch import nn

from wpriv.core.parameters import Parameters
from wpriv.models._parts import inputs

SOURCE = "logistic regression"


@dataclass(frozen=True)
class Params(Parameters):
    """It has none."""


def build(params: Params, shape: Sequence[int], classes: int) -> nn.Module:
    """[N, *shape] to [N, classes] logits; (inputs + 1) x classes parameters."""
    return nn.Sequential(nn.Flatten(), nn.Linear(inputs(shape), classes))
