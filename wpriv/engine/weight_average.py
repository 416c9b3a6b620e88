"""An exponential moving average of the released weights: post-processing, which costs no privacy.

Source:
    Polyak, Juditsky (1992) on averages of iterates; De et al. (2022) for private training.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager

import torch
from torch import Tensor

from wpriv.config.technique_schema import Average


class WeightAverage:
    """The average a of weights w: after step t, a becomes b a + (1 - b) w, from the weights at the beginning on.

    b is the decay of the plan; with a ramp min(decay, (1 + t) / (10 + t)).

    Args:
        weights: the trained parameters, in the model's order.
    """

    def __init__(self, plan: Average, weights: Sequence[Tensor]):
        self.plan, self.weights = plan, list(weights)
        self.values = [weight.detach().clone() for weight in weights]

    def update(self, step: int) -> None:
        """Take in the weights after step ``step``, which is counted from 1."""
        kept = min(self.plan.decay, (1 + step) / (10 + step)) if self.plan.ramp else self.plan.decay
        with torch.no_grad():
            torch._foreach_lerp_(self.values, [weight.detach() for weight in self.weights], 1 - kept)

    def load(self, values: Sequence[Tensor]) -> None:
        """Continue from the average of a checkpoint."""
        for value, stored in zip(self.values, values, strict=True):
            value.copy_(stored)

    @contextmanager
    def in_use(self) -> Iterator[None]:
        """Give the model the averaged weights within the block."""
        last = [weight.data for weight in self.weights]
        try:
            for weight, value in zip(self.weights, self.values, strict=True):
                weight.data = value.clone()
            yield
        finally:
            for weight, data in zip(self.weights, last, strict=True):
                weight.data = data
